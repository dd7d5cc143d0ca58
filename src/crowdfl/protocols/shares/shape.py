"""What every side of a `shares` task derives from the task alone."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from crowdfl.crypto.shares.ring import Ring
from crowdfl.errors import RewardsOff, SettingsError
from crowdfl.privacy import noise_length
from crowdfl.protocols.claims import RewardForm, within_budget
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares.chain import RoundPlace
from crowdfl.protocols.shares.round import steps
from crowdfl.protocols.shares.round.steps import SAMPLES_BYTES
from crowdfl.protocols.shares.rule_widths import RuleWidths
from crowdfl.protocols.shares.server_optimizers import ServerStep
from crowdfl.protocols.shares.widths import OPEN_PAY, SharesWidths, pay_of
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings, to_millionths

REWARD_MODULUS = 1 << (8 * SAMPLES_BYTES)


class CountForm(RewardForm):
    """`samples`: a person's number of samples, and 2^128 times the total of all."""

    def payable(self, opened: int, budget: int) -> int:
        total, count = divmod(opened, REWARD_MODULUS)
        return within_budget(budget * count // total if total >= max(count, 1) else -1, budget)


@dataclass(frozen=True)
class Quorum:
    """How many of a manifest must be left, so that its sum may be opened."""

    least: int  # min_participants
    has_reference: bool = False  # then up to a half may go: with a third, five in sixteen could void every round

    def why_void(self, accepted: int, listed: int) -> Reason | None:
        """Why a round with so many accepted of those listed must not go on; None if it may."""
        if accepted < self.least:
            return Reason.TOO_FEW_LEFT
        one_in = 2 if self.has_reference else 3
        return Reason.TOO_MANY_LEFT_OUT if one_in * (listed - accepted) > listed else None


@dataclass(frozen=True)
class SharesShape:
    """Widths, ring and lengths."""

    spec: TaskSpec

    @cached_property
    def widths(self) -> SharesWidths:
        return widths_of(self.spec.settings, self.spec.parameters)

    @cached_property
    def rule_widths(self) -> RuleWidths:
        """Of a task whose rewards are computed."""
        return rule_widths_of(self.spec.settings, self.spec.parameters)

    @cached_property
    def step(self) -> ServerStep | None:
        """What readers make of an average, if they do not take it as it is."""
        return ServerStep.of(self.spec.settings)

    @cached_property
    def furthest(self) -> float:
        """How far a round can move a weight of the model, if all updates are within the bounds."""
        settings = self.spec.settings
        change = min(settings.clip, settings.max_norm or settings.clip)
        return change if self.step is None else self.step.furthest(change)

    def require_moving(self) -> None:
        """Refuse a task whose model stands still whatever is uploaded: two rounds of it would show who came or went."""
        if self.furthest * self.widths.unit < 0.5:
            raise SettingsError(
                f"no round can move a weight by more than {self.furthest:.3g}, less than half of the last decimal, and the "
                "model would stand still: raise `server_rate`, `max_norm` or `decimals`"
            )

    def require_signal(self) -> None:
        """Refuse a task in which even the largest crowd drowns in noise, unless its settings say that this is wanted."""
        settings = self.spec.settings
        noise = noise_length(settings, self.spec.parameters, settings.most_in_round)
        if settings.epsilon is None or settings.noise or noise <= float(settings.max_norm or 0):
            return
        raise SettingsError(
            f"epsilon = {settings.epsilon} puts noise of length {noise:.3g} on an average of {settings.most_in_round} people, "
            f"more than the {settings.max_norm} that an update has at most. `crowdfl privacy plan` shows how many people, "
            'or how small a model, it takes; noise = "any" takes the task all the same'
        )

    @cached_property
    def ring(self) -> Ring:
        return Ring(self.widths.k)

    @cached_property
    def share_bytes(self) -> int:
        """Of one server's share of an update."""
        return self.spec.parameters * self.ring.bytes

    @cached_property
    def count_bytes(self) -> int:
        """Of a share of a number of samples; 0 where everyone counts once, and there are none."""
        return SAMPLES_BYTES if self.widths.has_counts else 0

    @cached_property
    def count_modulus(self) -> int:
        """Modulo 1 every number is 0: a task without counts computes nothing."""
        return 1 << (8 * self.count_bytes)

    @cached_property
    def pay(self) -> str:
        return pay_of(self.spec.settings)

    @cached_property
    def is_reward_hidden(self) -> bool:
        """Both servers hold shares of rewards, or of counts, and nobody but their owners knows them before they are claimed."""
        return bool(self.payment) and self.pay not in OPEN_PAY

    @cached_property
    def is_reward_computed(self) -> bool:
        """By both servers, from scores: the one rule that divides."""
        return bool(self.payment) and self.pay == "distance"

    @cached_property
    def reward_form(self) -> RewardForm:
        if self.pay == "samples":
            return CountForm(REWARD_MODULUS**2, 2 * SAMPLES_BYTES, 0, self.payment)
        return RewardForm(REWARD_MODULUS, SAMPLES_BYTES, 0, self.payment)

    @cached_property
    def payment(self) -> int:
        """Millionths that every round pays; 0 in a task without rewards."""
        budget = self.spec.settings.budget
        return to_millionths(budget) if budget is not None and self.pay != "none" else 0

    @property
    def bonus(self) -> int:
        """Millionths, once, for who was in every round that asked them; 0 in a task without a bonus."""
        return self.spec.settings.bonus_each

    @cached_property
    def quorum(self) -> Quorum:
        return Quorum(self.spec.settings.min_participants, self.widths.has_reference)

    @cached_property
    def longest_payload(self) -> int:
        """Of a request to CSP."""
        most = steps.Facts.most(self)
        return max(step.longest_request(most) for step in steps.steps_of(most))

    @cached_property
    def _longest_field(self) -> int:
        """Of a message of the task that holds no payload of a step."""
        most = steps.Facts.most(self)
        return max(part.field.of(most) for parts in steps.MESSAGES for part in parts)

    def place(self, number: int, base: bytes) -> RoundPlace:
        return RoundPlace(self.spec.name, number, base)

    def file_number(self, number: int, cohort: int) -> int:
        """Of what KGC dealt for a cohort of a round: files are counted through."""
        return (number - 1) * self.spec.settings.most_cohorts + cohort

    def require_rewards(self) -> None:
        if not self.payment:
            raise RewardsOff('the task pays no rewards: it has no `budget`, or pay = "none"')

    def require_computable(self) -> None:
        """Refuse, with the numbers, a task whose widths do not fit."""
        if self.widths and self.is_reward_computed:
            _ = self.rule_widths

    def limits(self, payload: int = 0) -> Limits:
        """For a message of the task, or one with a payload of so many bytes."""
        people = self.spec.settings.most_in_round
        return Limits(None, 0, max_entries=people + 1, longest=max(self._longest_field, payload))


@lru_cache(maxsize=16)
def shape_of(spec: TaskSpec) -> SharesShape:
    """One for all sides of a process: what follows from a task is computed once."""
    return SharesShape(spec)


@lru_cache(maxsize=16)
def widths_of(settings: TaskSettings, parameters: int) -> SharesWidths:
    """Of all tasks with these settings."""
    return SharesWidths.of(settings, parameters)


@lru_cache(maxsize=16)
def rule_widths_of(settings: TaskSettings, parameters: int) -> RuleWidths:
    return RuleWidths.of(widths_of(settings, parameters), settings)
