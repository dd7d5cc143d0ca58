"""What the protocols are measured on: the paper's campaign, with uploads derived from two real ones."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from crowdfl.crypto import pctd
from crowdfl.crypto.budget import WidthBudget
from crowdfl.crypto.compute import Backend
from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.vector import CipherVector
from crowdfl.lab.parties import LocalDealer
from crowdfl.protocols.profile import TaskSpec, Tools, width_budget
from crowdfl.settings import TaskSettings

__all__ = [
    "PAPER_PROTOCOLS",
    "QUICK_PROTOCOLS",
    "SIGMA",
    "Campaign",
    "ProtocolSetting",
    "derived_uploads",
    "made_up_weights",
]

SIGMA = 40  # of `hardened`; the profile `paper` takes its own


@dataclass(frozen=True)
class ProtocolSetting:
    """The sizes of a run. Targets are judged in the paper's setting alone."""

    parameters: int = 277_006
    participants: int = 36
    lanes: int = 1024
    prime_bits: int = pctd.SECURE_PRIME_BITS
    insecure_test_key: bool = False
    averaged_parameters: int = (
        500  # of the averaging sample: 23 ciphertexts and the total's, which divide evenly by 2 workers
    )
    averaging_turns: int = 30  # many short turns: on a busy machine some of either kind fall into quiet moments
    reads: int = 3
    crowds: tuple[int, ...] = (5, 10)  # beside `participants`, for the count of openings
    small_parameters: int = 40
    small_crowd: int = 5
    operations: int = 8
    operation_turns: int = 3

    @property
    def judged(self) -> bool:
        """Whether this is the setting that the targets speak of."""
        return self == PAPER_PROTOCOLS

    @property
    def title(self) -> str:
        """One line for people."""
        key = f"|N| = {2 * self.prime_bits}{', INSECURE TEST KEY' if self.insecure_test_key else ''}"
        smoke = "" if self.judged else "; a sample: no target is judged"
        return f"{self.parameters:,} parameters, {self.participants} participants, {self.lanes:,} lanes, {key}{smoke}"

    def to_dict(self) -> dict[str, int | bool]:
        """Plain values, ready for JSON."""
        return {name: value for name, value in asdict(self).items() if isinstance(value, int)}

    def task(self, profile: str) -> TaskSettings:
        """The settings of every task of a run: rewards on, total shown."""
        return TaskSettings(
            profile=profile,
            max_participants=self.participants,
            lanes=self.lanes,
            sigma=SIGMA if profile == "hardened" else None,
            rounds=max(5, len(self.crowds) + 1),
            key_bits=2 * self.prime_bits,
        )

    def dealer(self, profile: str, parameters: int, tools: Tools) -> LocalDealer:
        """Deals such a task."""
        return LocalDealer(TaskSpec("bench", self.task(profile), parameters), tools)


PAPER_PROTOCOLS = ProtocolSetting()
QUICK_PROTOCOLS = ProtocolSetting(
    parameters=600,
    participants=5,
    lanes=40,
    averaged_parameters=60,
    averaging_turns=2,
    reads=1,
    crowds=(3,),
    small_parameters=2,
    small_crowd=3,
    operations=1,
    operation_turns=1,
)


def made_up_weights(parameters: int, seed: int) -> npt.NDArray[np.float64]:
    """The same in every run: benchmark data, no secret."""
    return np.random.default_rng(seed).normal(0, 0.5, parameters)


class Campaign:
    """A `hardened` task at full size with an upload from everyone, of which only two were encrypted parameter by parameter."""

    def __init__(self, setting: ProtocolSetting, tools: Tools, say: Callable[[str], None]) -> None:
        self._setting = setting
        say(f"dealing a task of {setting.parameters:,} parameters")
        self.dealer = setting.dealer("hardened", setting.parameters, tools)
        self.sp, self.csp = self.dealer.sp(), self.dealer.csp()
        names = [f"p{i:03}" for i in range(setting.participants)]
        self.people = {who: self.dealer.participant(who) for who in names}
        say("encrypting two uploads")
        first, second = list(self.people.values())[:2]
        real = [
            first.encrypt_update(made_up_weights(setting.parameters, 2021), 1),
            second.encrypt_update(made_up_weights(setting.parameters, 2022), 2),
        ]
        say(f"deriving {setting.participants} uploads from them")
        count = len(self.people)
        uploads = derived_uploads(real, self.dealer.task.public, self.ciphertexts, count, tools.backend)
        self.uploads = dict(zip(self.people, uploads, strict=True))

    @property
    def budget(self) -> WidthBudget:
        """The task's widths."""
        return width_budget(self._setting.task("hardened"), self._setting.parameters, SIGMA)

    @property
    def ciphertexts(self) -> int:
        """Of one upload, the sample count's included."""
        return self.budget.ciphertexts + 1

    def first_upload(self) -> CipherVector:
        """A real one."""
        upload = next(iter(self.uploads.values()))
        return CipherVector.from_bytes(upload, self.dealer.task.public, max_count=self.ciphertexts)

    def fill(self, round_number: int, crowd: int) -> None:
        """Open a round and add the uploads of the first `crowd`."""
        self.sp.open_round(round_number)
        for who in list(self.people)[:crowd]:
            self.sp.add(who, self.uploads[who])


def derived_uploads(real: list[bytes], public: PublicKey, length: int, count: int, backend: Backend) -> list[bytes]:
    """Sums of two uploads: each is what some participant with more samples could have sent."""
    vectors = [CipherVector.from_bytes(upload, public, max_count=length, backend=backend) for upload in real]
    upload, uploads = vectors[0], [real[0]]
    for turn in range(1, count):
        upload = upload.add(vectors[turn % 2], backend=backend)
        uploads.append(upload.to_bytes())
    return uploads
