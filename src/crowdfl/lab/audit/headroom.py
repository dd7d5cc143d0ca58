"""The analytic check: by how many bits the mask of every value that a server opens exceeds the value, over a whole task.

Every row is a bound on the statistical distance between the views of two inputs, from the widths that the protocols use; the
proofs are in docs/security.md. Sums are compared with 2^-sigma. The divisors of SDIV are hidden less well, by the length of
rho's range, and are stated apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, log2

from crowdfl.crypto.budget import WidthBudget, bits
from crowdfl.lab.audit.finding import HARDENED, Finding, Verdict
from crowdfl.lab.audit.weakened import SHORTENED, shorten
from crowdfl.protocols.hardened.prifedavg import hidden_widths
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.hardened.profile import reward_widths
from crowdfl.protocols.profile import width_budget
from crowdfl.protocols.sdiv import SdivWidths
from crowdfl.settings import TaskSettings

__all__ = ["DivisorBound", "Opening", "check_headroom", "check_widths", "divisor_bounds", "openings"]

_NOTHING = -inf
_PAPERS_MODEL = 277_006


@dataclass(frozen=True)
class Opening:
    """One kind of opened value: log2 of the distance of one, and how many the task opens."""

    name: str
    opened_by: str
    value_bits: int
    mask_bits: int
    each: float
    count: int

    @property
    def total(self) -> float:
        """log2 of the distance of all of them together."""
        return self.each + log2(self.count) if self.count else _NOTHING


@dataclass(frozen=True)
class DivisorBound:
    """How well SDIV hides a divisor: an advantage of |log2(y1 / y2)| / span for each distinct one."""

    name: str
    span: int
    ybits: int
    distinct: int

    @property
    def per_doubling(self) -> float:
        """CSP's advantage over the task if every divisor were doubled."""
        return self.distinct / self.span

    @property
    def worst(self) -> float:
        """Over the task, between the smallest and the largest divisors that its bounds allow; 1 says nothing is proved."""
        return min(1.0, self.distinct * self.ybits / self.span)


def openings(budget: WidthBudget, rewards: RewardWidths | None) -> list[Opening]:
    """Everything that a server or a reader opens in a task, with the total hidden or not, with rewards or not."""
    key, uniform = budget.key_bits, budget.rounds * (budget.ciphertexts + 1)
    rows = [Opening("sums + R modulo N", "CSP", key, key, _NOTHING, uniform)]
    if budget.total == "hidden":
        rows += _hidden(budget)
    if rewards is not None:
        rows += _rewards(rewards)
    return rows


def divisor_bounds(budget: WidthBudget, rewards: RewardWidths | None) -> list[DivisorBound]:
    """The three kinds of division a task may have."""
    rounds, bounds = budget.rounds, []
    if budget.total == "hidden":
        bounds.append(_bound("2^k / Y", hidden_widths(budget), rounds))
    if rewards is not None:
        bounds.append(_bound("weights", rewards.weights, rounds * budget.max_participants))
        bounds.append(_bound("rewards", rewards.rewards, rounds))
    return bounds


def check_headroom(
    budget: WidthBudget, rewards: RewardWidths | None, sigma: int, subject: str = HARDENED, task: str = ""
) -> list[Finding]:
    """A row for each kind of opening: the distance over the task in bits, which must not fall below sigma."""
    found = [_finding(row, sigma, subject, task) for row in openings(budget, rewards)]
    return found + [_stated(bound, subject, task) for bound in divisor_bounds(budget, rewards)]


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


def _hidden(budget: WidthBudget) -> list[Opening]:
    k, sums = budget.dither_bits, bits(budget.sum_bound)
    # Q is off by at most 3/2, X*Q by that times X, and a dither uniform over 2^k values hides the shift.
    each = log2(3 * budget.sum_bound) - 1 - k
    dither = Opening("average, dithered", "reader", sums, k, each, budget.parameters * budget.rounds)
    return [dither, *_division("2^k / Y", hidden_widths(budget), budget.rounds, budget.rounds)]


def _rewards(rewards: RewardWidths) -> list[Opening]:
    budget, n = rewards.budget, rewards.budget.max_participants
    m, lane = budget.lane_mask_bits, budget.lane_bound
    room = (1 << m) - 2 * lane
    each = log2(2 * lane) - log2(room) if room > 0 else 0.0
    slack = 1 + budget.sigma + bits(rewards.masks_in_task)
    widest = max(rewards.operands(n))
    return [
        Opening("lane + r", "CSP", bits(lane), m, each, n * rewards.lanes * budget.rounds),
        Opening("operand + a", "CSP", widest, widest + slack, 1.0 - slack, budget.rounds * (3 * n + 2)),
        *_division("weights", rewards.weights, budget.rounds * n, budget.rounds * n),
        *_division("rewards", rewards.rewards, budget.rounds * n, budget.rounds),
        Opening("reward + m modulo N", "CSP", budget.key_bits, budget.key_bits, _NOTHING, budget.rounds * n),
    ]


def _division(name: str, w: SdivWidths, dividends: int, divisors: int) -> list[Opening]:
    """Dividends against a simulator that knows y' alone, twice; and how evenly s spreads y' over all y."""
    alpha = w.qbits + w.g + w.sigma
    shifted = (1 << (w.qbits + w.g)) + (1 << (w.ybits + w.sigma + 1))
    each = 1 + log2(2.0 ** (log2(shifted) - (alpha - 1)) + 2.0**-w.sigma)
    return [
        Opening(f"dividend of {name}", "CSP", w.qbits + w.g, alpha, each, dividends),
        Opening(f"divisor of {name}", "CSP", w.ybits, w.lo - w.g, float(w.g + w.ybits - w.lo), divisors),
    ]


def _bound(name: str, widths: SdivWidths, distinct: int) -> DivisorBound:
    return DivisorBound(name, widths.hi - widths.lo, widths.ybits, distinct)


def _finding(row: Opening, sigma: int, subject: str, task: str) -> Finding:
    good = row.total <= -sigma
    return Finding(
        f"headroom: {row.name}",
        "5",
        f"{row.name}, opened by {row.opened_by} (analytic)",
        (row.opened_by,),
        subject,
        "perfectly hidden" if row.total == _NOTHING else f"2^{row.total:.1f} over {row.count:,} openings",
        0.0 if row.total == _NOTHING else 2.0**row.total,
        2.0**-sigma,
        f"statistical distance over the task; at most 2^-{sigma}",
        Verdict.GUESS if good else Verdict.BROKEN,
        f"{task}value {row.value_bits} bits, mask {row.mask_bits} bits",
    )


def _stated(bound: DivisorBound, subject: str, task: str) -> Finding:
    """No target: the design accepts this advantage and wants it stated."""
    return Finding(
        f"divisor of {bound.name}",
        "5",
        f"divisor of {bound.name}, by CSP (analytic)",
        ("CSP",),
        subject,
        f"{bound.per_doubling:.3f} if each of {bound.distinct} divisors doubled",
        bound.worst,
        1.0,
        "advantage over the task between extreme divisors; stated, not bounded by sigma",
        Verdict.BROKEN if bound.span < bound.ybits else Verdict.GUESS,
        f"{task}|log2(y1/y2)| / {bound.span} for each",
    )
