"""What is measured on: the paper's model under a fresh key, with the budgets of a task with and without rewards."""

from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from crowdfl.crypto import blocks, pctd
from crowdfl.crypto.blocks import Block
from crowdfl.crypto.budget import WidthBudget

__all__ = ["PAPER", "QUICK", "Setting", "Workload"]


@dataclass(frozen=True)
class Setting:
    """The sizes of a run. Targets are judged in the paper's setting alone."""

    parameters: int = 277_006
    participants: int = 36
    samples: int = 100
    rounds: int = 5
    lanes: int = 4096
    sigma: int = 40
    prime_bits: int = pctd.SECURE_PRIME_BITS
    insecure_test_key: bool = False
    repetitions: int = 7
    decryptions: int = 12
    decryption_turns: int = 15  # many short turns: on a busy machine some fall into quiet moments
    uploads: int = 100
    phe_sample: int = 100

    @property
    def judged(self) -> bool:
        """Whether this is the setting that the targets speak of."""
        return self == PAPER

    @property
    def title(self) -> str:
        """One line for people."""
        key = f"|N| = {2 * self.prime_bits}{', INSECURE TEST KEY' if self.insecure_test_key else ''}"
        smoke = "" if self.judged else "; a sample: no target is judged"
        return f"{self.parameters:,} parameters, {self.participants} participants, {key}{smoke}"

    def to_dict(self) -> dict[str, int | bool]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def budget(self, *, rewards: bool) -> WidthBudget:
        """The width budget of the task."""
        return WidthBudget(
            2 * self.prime_bits,
            self.parameters,
            self.participants,
            self.samples,
            rounds=self.rounds,
            sigma=self.sigma,
            lanes=self.lanes if rewards else 0,
        )


PAPER = Setting()
QUICK = Setting(parameters=10_000, repetitions=2, decryptions=4, decryption_turns=2, uploads=5, phe_sample=5)


@dataclass(frozen=True)
class Workload:
    """A key, a made-up model and how an upload of it is laid out."""

    setting: Setting

    @cached_property
    def keys(self) -> pctd.KeyPair:
        """A fresh key."""
        return pctd.keygen(self.setting.prime_bits, insecure_test_key=self.setting.insecure_test_key)

    @property
    def public(self) -> pctd.PublicKey:
        """Its public part."""
        return self.keys.public

    @cached_property
    def share(self) -> pctd.KeyShare:
        """One of its two shares."""
        return self.keys.private.split()[0]

    @cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """Made up, and the same in every run: benchmark data, no secret."""
        return np.random.default_rng(2021).normal(0, 0.5, self.setting.parameters)

    def plaintexts(self, *, rewards: bool) -> Block:
        """The model encoded, weighed and packed, and the sample count in a plaintext of its own."""
        budget = self.setting.budget(rewards=rewards)
        weighed = budget.weigh(budget.encoding.encode(self.weights).values, self.setting.samples)
        count = blocks.from_ints([self.setting.samples], self.public.plaintext_bytes)
        return np.concatenate([budget.packing(self.public).pack(weighed), count])
