"""What `crowdfl bench compare` measures on."""

from dataclasses import asdict, dataclass
from typing import Any

from crowdfl.crypto import pctd
from crowdfl.crypto.budget import WidthBudget
from crowdfl.crypto.compute import Backend
from crowdfl.lab.parties import LocalDealer
from crowdfl.protocols.exchange import Silent
from crowdfl.protocols.profile import TaskSpec, Tools, width_budget
from crowdfl.settings import TaskSettings

__all__ = ["PAPER_COMPARE", "QUICK_COMPARE", "VARIANTS", "CompareSetting", "Variant"]

_SIGMA = 40


@dataclass(frozen=True)
class Variant:
    """A kind of `hardened` task."""

    key: str
    name: str
    hidden: bool
    rewards: bool


VARIANTS = (
    Variant("shown", "hardened, total shown, rewards off", hidden=False, rewards=False),
    Variant("shown_rewards", "hardened, total shown, rewards on", hidden=False, rewards=True),
    Variant("hidden", "hardened, total hidden, rewards off", hidden=True, rewards=False),
    Variant("hidden_rewards", "hardened, total hidden, rewards on", hidden=True, rewards=True),
)


@dataclass(frozen=True)
class CompareSetting:
    """The sizes of a run."""

    parameters: int = 277_006
    participants: int = 36
    dropped: int = 11  # 30%, rounded
    lanes: int = 1024
    prime_bits: int = pctd.SECURE_PRIME_BITS
    insecure_test_key: bool = False
    slices: tuple[int, int] = (72, 144)  # ciphertexts of the servers' samples
    crowds: tuple[int, int] = (3, 6)  # participants of the rewards' samples
    paper_sizes: tuple[tuple[int, int], ...] = ((4, 3), (8, 6))  # parameters and participants
    phe_sample: int = 40
    reads: int = 3

    @property
    def title(self) -> str:
        """One line for people."""
        key = f"|N| = {2 * self.prime_bits}{', INSECURE TEST KEY' if self.insecure_test_key else ''}"
        return f"{self.parameters:,} parameters, {self.participants} participants, {self.lanes:,} lanes, {key}"

    @property
    def present(self) -> int:
        """Those who are left when 30% drop out."""
        return self.participants - self.dropped

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def task(self, variant: Variant) -> TaskSettings:
        """The settings of a `hardened` task."""
        return TaskSettings(
            total="hidden" if variant.hidden else "shown",
            max_participants=self.participants,
            lanes=self.lanes if variant.rewards else 0,
            key_bits=2 * self.prime_bits,
        )

    def budget(self, variant: Variant, parameters: int | None = None) -> WidthBudget:
        """Its widths."""
        return width_budget(self.task(variant), parameters or self.parameters, _SIGMA)

    def dealer(self, task: TaskSettings, parameters: int, backend: Backend) -> LocalDealer:
        """Deals a task."""
        tools = Tools(backend, insecure_test_key=self.insecure_test_key, observer=Silent())
        return LocalDealer(TaskSpec("compare", task, parameters), tools)


PAPER_COMPARE = CompareSetting()
QUICK_COMPARE = CompareSetting(
    parameters=2000,
    participants=6,
    dropped=2,
    lanes=40,
    slices=(4, 8),
    crowds=(3, 4),
    paper_sizes=((1, 3), (2, 3)),
    phe_sample=2,
    reads=1,
)
