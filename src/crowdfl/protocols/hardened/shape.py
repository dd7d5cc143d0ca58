"""What every side of a `hardened` task derives from the task alone, and what KGC deals to each: one split of the key,
audience keys, a public seed."""

import secrets
from dataclasses import dataclass
from functools import cached_property

from gmpy2 import mpz

from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.budget import WidthBudget
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import AudienceKey, SigningKey
from crowdfl.errors import RewardsOff
from crowdfl.protocols.hardened.prifedavg import ModelCodec
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import Dealing, KeyedTask, width_budget
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


def hardened_budget(settings: TaskSettings, parameters: int) -> WidthBudget:
    return width_budget(settings, parameters, settings.sigma or _SIGMA)


def reward_widths(settings: TaskSettings, parameters: int) -> RewardWidths:
    """The widths of a task's rewards, or a refusal with the numbers."""
    largest = _LARGEST_PAYMENT if settings.budget is None else max(1, to_millionths(settings.budget))
    return RewardWidths(hardened_budget(settings, parameters), settings.epsilon_units, largest)


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
    seed = secrets.token_bytes(SEED_BYTES)
    participants, requester, signing = AudienceKey.fresh(), AudienceKey.fresh(), SigningKey.fresh()
    common = (int(keys.public.n), int(keys.public.h_s), seed)
    return Dealing(
        fingerprint=keys.public.fingerprint,
        sp=SpBundle(*common, int(sc.exponent), signing.public).to_bytes(),
        csp=CspBundle(*common, int(c.exponent), participants.key, requester.key, signing.private).to_bytes(),
        requester=ReaderBundle(*common, requester.key, signing.public).to_bytes(),
        participant=ReaderBundle(*common, participants.key, signing.public).to_bytes(),
    )
