"""What every side of a `hardened` task derives from the task alone, what KGC deals to each (one split of the
key, audience keys, a public seed), and the order of the steps of a round, as CSP keeps it: each message once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from gmpy2 import mpz

from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.budget import WidthBudget
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.randomness import SEED_BYTES, secret_bytes
from crowdfl.crypto.sealing import AudienceKey, SigningKey
from crowdfl.errors import OutOfTurn, RewardsOff, RoundEnded
from crowdfl.protocols.hardened.prifedavg import ModelCodec
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import Dealing, KeyedTask, width_budget
from crowdfl.protocols.records import Look
from crowdfl.settings import TaskSettings, to_millionths

_SIGMA = 40
_LARGEST_PAYMENT = to_millionths(1_000_000)  # a round's, where the settings name none


@dataclass(frozen=True)
class Shape:
    """What every side derives from the task alone."""

    task: KeyedTask
    seed: bytes

    @cached_property
    def budget(self) -> WidthBudget:
        return hardened_budget(self.task.settings, self.task.parameters)

    @cached_property
    def packing(self) -> Packing:
        return self.budget.packing(self.task.public)

    @cached_property
    def codec(self) -> ModelCodec:
        return ModelCodec(self.budget, self.packing, self.seed)

    @property
    def budget_of_a_round(self) -> int | None:
        """Millionths that every round pays, where the task's settings say so."""
        budget = self.task.settings.budget
        return None if budget is None or to_millionths(budget) == 0 else to_millionths(budget)

    def widths(self) -> RewardWidths:
        if self.task.settings.lanes == 0:
            raise RewardsOff("the task was made with lanes=0: its packing leaves no room for rewards")
        return reward_widths(self.task.settings, self.task.parameters)


@lru_cache(maxsize=16)
def hardened_budget(settings: TaskSettings, parameters: int) -> WidthBudget:
    return width_budget(settings, parameters, settings.mask_bits or _SIGMA)


@lru_cache(maxsize=16)
def reward_widths(settings: TaskSettings, parameters: int) -> RewardWidths:
    """The widths of a task's rewards, or a refusal with the numbers."""
    largest = _LARGEST_PAYMENT if settings.budget is None else max(1, to_millionths(settings.budget))
    return RewardWidths(hardened_budget(settings, parameters), settings.floor_units, largest)


class _Bundle(Message, repr=False):
    """The public key and the seed of the public permutation, which every role has."""

    n: int
    h_s: int
    seed: bytes

    def public(self, *, insecure_test_key: bool) -> PublicKey:
        return PublicKey(mpz(self.n), mpz(self.h_s), insecure_test_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"


class SpBundle(_Bundle, kind=30, repr=False):
    """For SP: lambda_sc, and the key that CSP's attestations are checked with. No audience key."""

    share: int
    csp_key: bytes


class CspBundle(_Bundle, kind=31, repr=False):
    """For CSP: lambda_c, both audience keys, the key it attests with."""

    share: int
    participants: bytes
    requester: bytes
    signing: bytes


class ReaderBundle(_Bundle, kind=32, repr=False):
    """For a member of an audience: that audience's key, and the key that CSP signs with. No share."""

    audience: bytes
    csp_key: bytes


def deal(prime_bits: int, *, insecure_test_key: bool) -> Dealing:
    """Make a task's keys; what is not in the dealing is gone when this returns."""
    keys = pctd.keygen(prime_bits, insecure_test_key=insecure_test_key)
    sc, c = keys.private.split()
    seed = secret_bytes(SEED_BYTES)
    participants, requester, signing = AudienceKey.fresh(), AudienceKey.fresh(), SigningKey.fresh()
    common = (int(keys.public.n), int(keys.public.h_s), seed)
    return Dealing(
        fingerprint=keys.public.fingerprint,
        sp=SpBundle(*common, int(sc.exponent), signing.public).to_bytes(),
        csp=CspBundle(*common, int(c.exponent), participants.key, requester.key, signing.private).to_bytes(),
        requester=ReaderBundle(*common, requester.key, signing.public).to_bytes(),
        participant=ReaderBundle(*common, participants.key, signing.public).to_bytes(),
    )


Work = Callable[[], "Worked"]
Places = Callable[[int], Sequence[int]]


@dataclass(frozen=True)
class Worked:
    """What came of a step: the reply, whether what was opened was in range, and what a later step needs."""

    reply: Message
    fits: bool = True
    kept: bytes = b""


@dataclass(frozen=True)
class Step:
    """A request in its place: the step it takes, which of the step's messages it is, and what to do."""

    name: str
    place: int
    work: Work


class HardenedRound(Message, kind=85, repr=False):
    """CSP's record of a round: whether it has ended, how much is paid to whom, and the factor that its sums are scaled by."""

    ended: int = 0
    payment: int = 0
    participants: tuple[str, ...] = ()  # in a round whose rewards have begun
    factor: bytes = b""  # its hash, once the first sum was scaled


class HardenedStep(Message, kind=86, repr=False):
    """CSP's record of one message of a step: the hash of its request, and once it is answered, what a later step needs."""

    asked: bytes
    is_done: int = 0
    kept: bytes = b""


class HardenedSum(Message, kind=87):
    """CSP's record of a piece of the one sum that a round opens, to whomever: the hash of its masked ciphertexts."""

    masked: bytes


class RoundOrder:
    """The order of a round's steps: `after` names what must be done before each, `places` the messages of each.

    Several messages of one step may come in any order; every other step has one.
    """

    def __init__(self, after: Mapping[str, str | None], places: Mapping[str, Places]) -> None:
        self._after, self._places = after, places
        self._numbers = {name: place for place, name in enumerate(after)}

    def is_for(self, records: Look, number: int, step: Step, asked: bytes) -> bool:
        """Whether this message of a step is this request's; else it is from now on, or it is said why it is not its turn."""
        now = records.get(HardenedRound, number) or HardenedRound()
        if now.ended:
            raise RoundEnded(_ENDED.format(number))
        if records.restored:
            raise RoundEnded(_FORGOTTEN.format(number))
        if step.name not in self._after:
            raise OutOfTurn(f"the rounds of this task have no step {step.name!r}")
        before, participants = self._after[step.name], len(now.participants)
        if before is not None and not self._is_done(records, number, before, participants):
            raise OutOfTurn(f"step {step.name!r} of round {number} comes after {before!r}, which is not done")
        if step.place not in self._places_of(step.name, participants):
            raise OutOfTurn(f"step {step.name!r} of round {number} has no message {step.place}")
        taken = records.get(HardenedStep, number, step=self._numbers[step.name], part=step.place)
        if taken is not None and (taken.asked != asked or taken.is_done):
            raise OutOfTurn(f"step {step.name!r} of round {number} was asked for with other contents")
        if taken is None:
            records.put(HardenedStep(asked), number, step=self._numbers[step.name], part=step.place)
        return taken is not None

    def finish(self, records: Look, number: int, step: Step, asked: bytes, kept: bytes) -> None:
        records.put(HardenedStep(asked, 1, kept), number, step=self._numbers[step.name], part=step.place)

    def kept(self, records: Look, number: int, name: str, place: int) -> bytes | None:
        """What a message of a step has left; None before it was answered."""
        found = records.get(HardenedStep, number, step=self._numbers[name], part=place)
        return None if found is None or not found.is_done else found.kept

    def _is_done(self, records: Look, number: int, name: str, participants: int) -> bool:
        places = self._places_of(name, participants)
        return all(self.kept(records, number, name, place) is not None for place in places)

    def _places_of(self, name: str, participants: int) -> Sequence[int]:
        return self._places[name](participants) if name in self._places else (0,)


def end_round(records: Look, number: int) -> RoundEnded:
    """From here on, for good: the same error whatever it was. Nothing else that was about to be set is."""
    records.written.clear()
    records.put(replace(records.get(HardenedRound, number) or HardenedRound(), ended=1), number)
    return RoundEnded(_ENDED.format(number))


_FORGOTTEN = "CSP was restored from a backup and may have answered round {} before. The round is void"
_ENDED = "CSP has ended round {}: what was opened is not what honest parties send. The round is void"
