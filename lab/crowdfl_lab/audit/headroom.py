"""The analytic check: by how many bits the mask of every value that a server opens exceeds the value, over a whole task.

Every row is a bound on the statistical distance between the views of two inputs, from the widths that the protocols use; the
proofs are in docs/security.md. Sums are compared with 2^-sigma. The divisors of SDIV are hidden less well, by the length of
rho's range, and are stated apart.

`hardened` with its masks shortened on purpose shows that the audit notices. No option of the protocols leads there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from math import inf, log2

from crowdfl.crypto.paillier.budget import WidthBudget, bits
from crowdfl.protocols.common.sdiv import SdivWidths
from crowdfl.protocols.hardened.prifedavg import hidden_widths
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.protocols.profile import width_budget
from crowdfl.settings import TaskSettings
from crowdfl_lab.audit.finding import HARDENED, Finding, Verdict

SHORTENED = "hardened, masks shortened"
_NOTHING = -inf
_PAPERS_MODEL = 277_006
_STATED = "advantage over the task between extreme divisors; stated, not bounded by sigma"


@dataclass(frozen=True)
class _Opening:
    """One kind of opened value: log2 of the distance of one, and how many the task opens."""

    name: str
    opened_by: str
    value_bits: int
    mask_bits: int
    each: float
    count: int

    @property
    def total(self) -> float:
        return self.each + log2(self.count) if self.count else _NOTHING

    def finding(self, sigma: int, subject: str, task: str) -> Finding:
        hidden = self.total == _NOTHING
        place = f"headroom: {self.name}", "5", f"{self.name}, opened by {self.opened_by} (analytic)", (self.opened_by,)
        recovered = "perfectly hidden" if hidden else f"2^{self.total:.1f} over {self.count:,} openings"
        measure = f"statistical distance over the task; at most 2^-{sigma}"
        verdict = Verdict.GUESS if self.total <= -sigma else Verdict.BROKEN
        note = f"{task}value {self.value_bits} bits, mask {self.mask_bits} bits"
        return Finding(*place, subject, recovered, 2.0**self.total, 2.0**-sigma, measure, verdict, note)


@dataclass(frozen=True)
class DivisorBound:
    """How well SDIV hides a divisor: an advantage of |log2(y1 / y2)| / span for each distinct one."""

    name: str
    span: int
    ybits: int
    distinct: int

    @property
    def worst(self) -> float:
        """Over the task, between the smallest and the largest divisors that its bounds allow; 1 says nothing is proved."""
        return min(1.0, self.distinct * self.ybits / self.span)

    def finding(self, subject: str, task: str) -> Finding:
        """No target: the design accepts this advantage and wants it stated."""
        doubled = f"{self.distinct / self.span:.3f} if each of {self.distinct} divisors doubled"
        verdict = Verdict.BROKEN if self.span < self.ybits else Verdict.GUESS
        title, note = f"divisor of {self.name}, by CSP (analytic)", f"{task}|log2(y1/y2)| / {self.span} for each"
        place = f"divisor of {self.name}", "5", title, ("CSP",)
        return Finding(*place, subject, doubled, self.worst, 1.0, _STATED, verdict, note)


def openings(budget: WidthBudget, rewards: RewardWidths | None) -> list[_Opening]:
    """Everything that a server or a reader opens in a task, with the total hidden or not, with rewards or not."""
    key, uniform = budget.key_bits, budget.rounds * (budget.ciphertexts + 1)
    rows = [_Opening("sums + R modulo N", "CSP", key, key, _NOTHING, uniform)]
    if budget.total == "hidden":
        # Q is off by at most 3/2, X*Q by that times X, and a dither uniform over 2^k values hides the shift.
        k, sums, opened = budget.dither_bits, budget.sum_bound, budget.parameters * budget.rounds
        rows.append(_Opening("average, dithered", "reader", bits(sums), k, log2(3 * sums) - 1 - k, opened))
        rows += _division("2^k / Y", hidden_widths(budget), budget.rounds, budget.rounds)
    return rows + (_reward_openings(rewards) if rewards is not None else [])


def divisor_bounds(budget: WidthBudget, rewards: RewardWidths | None) -> list[DivisorBound]:
    rounds, kinds = budget.rounds, []
    if budget.total == "hidden":
        kinds.append(("2^k / Y", hidden_widths(budget), rounds))
    if rewards is not None:
        kinds.append(("weights", rewards.weights, rounds * budget.max_participants))
        kinds.append(("rewards", rewards.rewards, rounds))
    return [DivisorBound(name, widths.hi - widths.lo, widths.ybits, distinct) for name, widths, distinct in kinds]


def check_headroom(
    budget: WidthBudget, rewards: RewardWidths | None, sigma: int, subject: str = HARDENED, task: str = ""
) -> list[Finding]:
    """A row for each kind of opening: the distance over the task in bits, which must not fall below sigma."""
    found = [row.finding(sigma, subject, task) for row in openings(budget, rewards)]
    return found + [bound.finding(subject, task) for bound in divisor_bounds(budget, rewards)]


def check_widths() -> Iterator[Finding]:
    """The analytic check on the paper's experiment, total shown with rewards and total hidden; and with masks shortened."""
    shown, hidden = TaskSettings(), TaskSettings(total="hidden", lanes=0)
    widths = reward_widths(shown, _PAPERS_MODEL)
    budget = width_budget(hidden, _PAPERS_MODEL, widths.budget.sigma)
    yield from check_headroom(widths.budget, widths, widths.budget.sigma, task="rewards on; ")
    yield from check_headroom(budget, None, budget.sigma, task="total hidden; ")
    short = shorten(widths)
    weakened = check_headroom(short.budget, short, widths.budget.sigma, SHORTENED)
    yield from (finding for finding in weakened if "+" in finding.attack and "modulo" not in finding.attack)


def _reward_openings(rewards: RewardWidths) -> list[_Opening]:
    budget, n = rewards.budget, rewards.budget.max_participants
    m, lane = budget.lane_mask_bits, budget.lane_bound
    room = (1 << m) - 2 * lane
    each = log2(2 * lane) - log2(room) if room > 0 else 0.0
    key, operands = budget.key_bits, budget.rounds * (3 * n + 2)
    return [
        _Opening("lane + r", "CSP", bits(lane), m, each, n * rewards.lanes * budget.rounds),
        _Opening("operand + a modulo N", "CSP", key, key, _NOTHING, operands),
        *_division("weights", rewards.weights, budget.rounds * n, budget.rounds * n),
        *_division("rewards", rewards.rewards, budget.rounds * n, budget.rounds),
        _Opening("reward + m modulo N", "CSP", key, key, _NOTHING, budget.rounds * n),
    ]


def _division(name: str, w: SdivWidths, dividends: int, divisors: int) -> list[_Opening]:
    """Dividends against a simulator that knows y' alone, twice; and how evenly s spreads y' over all y.

    Both for any numbers that pass the guard, which are longer than honest ones: CSP may have made them so by a false reply.
    What it opens for the guard itself, and for the squares after it, is uniform.
    """
    key, value = w.key_bits, w.x_top + 1 + w.g
    shifted = (1 << value) + (1 << (w.y_top + w.sigma + 3))
    each = 1 + log2(2.0 ** (log2(shifted) - (w.alpha - 1)) + 2.0**-w.sigma)
    divisor = w.y_top + 1 + (w.y_top - w.ybits - 1)  # the guard's k may be known: rho modulo k is too, then
    return [
        _Opening(f"guards of {name} modulo N", "CSP", key, key, _NOTHING, 2 * (dividends + divisors)),
        _Opening(f"dividend of {name}", "CSP", value, w.alpha, each, dividends),
        _Opening(f"divisor of {name}", "CSP", divisor, w.lo - w.g, float(w.g + divisor - w.lo), divisors),
    ]


@dataclass(frozen=True)
class ShortBudget(WidthBudget):
    """The packing of the true budget, masks of hardly more bits than what they mask."""

    packed: int = 1

    @cached_property
    def slots(self) -> int:
        return self.packed

    @property
    def lane_mask_bits(self) -> int:
        return bits(self.lane_bound) + 2


@dataclass(frozen=True)
class _ShortSdivWidths(SdivWidths):
    """Masks of hardly more bits than honest numbers; `g` is the true one, by which CSP divides."""

    dropped: int = 0

    @property
    def g(self) -> int:
        return self.dropped

    @property
    def lo(self) -> int:
        return self.g + self.ybits + self.sigma

    @property
    def alpha(self) -> int:
        return self.qbits + self.g + self.sigma


@dataclass(frozen=True)
class _ShortRewardWidths(RewardWidths):
    """Masks as if the task opened nothing."""

    built: RewardWidths

    @property
    def weights(self) -> SdivWidths:
        return self._short(self.built.weights)

    @property
    def rewards(self) -> SdivWidths:
        return self._short(self.built.rewards)

    def _short(self, built: SdivWidths) -> SdivWidths:
        values = {field.name: getattr(built, field.name) for field in fields(SdivWidths)}
        return _ShortSdivWidths(**values | {"sigma": self.budget.sigma}, dropped=built.g)


def shorten(widths: RewardWidths) -> _ShortRewardWidths:
    """sigma = 1, and no room for the number of openings."""
    values = {field.name: getattr(widths.budget, field.name) for field in fields(WidthBudget)}
    budget = ShortBudget(**values | {"sigma": 1}, packed=widths.budget.slots)
    return _ShortRewardWidths(budget, widths.epsilon_units, widths.largest_payment, widths)
