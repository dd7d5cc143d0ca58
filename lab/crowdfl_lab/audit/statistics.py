"""The empirical test: CSP's views of two very different inputs, many rounds each, told apart or not.

It must tell them apart in `paper`, and in `hardened` with the masks shortened, or it would prove nothing when it cannot in
`hardened` as built. Every series is scaled to [0, 1): residues by N, masked lanes by their masks, masked divisors on
the scale of logarithms, and low bits by themselves. The two-sample tests need NumPy alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import erfc, exp, log2, sqrt
from typing import Any, cast

import numpy as np

from crowdfl.crypto.blocks import to_ints
from crowdfl.protocols.hardened.prirwd import RewardSp, RewardWidths
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.protocols.party import View
from crowdfl.settings import to_millionths
from crowdfl_lab.audit.finding import HARDENED, PAPER, Finding, Floats, Verdict
from crowdfl_lab.audit.headroom import SHORTENED, shorten
from crowdfl_lab.audit.recorded_round import deal, divisions

LEVEL = 1e-5
_BINS = 16
_PEOPLE = 3
_PARAMETERS = 2
_BOUNDS: dict[str, Any] = {"max_participants": _PEOPLE, "max_samples": 10, "clip": 1.0, "decimals": 2, "sigma": 20}
_PLACE = ("two samples", "5", "CSP's views of two inputs, told apart", ("CSP",))
_MEASURE = "p-value after correction; told apart below the level"
_Named = Iterator[tuple[str, list[float]]]


@dataclass(frozen=True)
class LeastLikely:
    """The least likely of many tests, corrected for their number (Bonferroni)."""

    tests: int
    name: str
    p_value: float
    corrected: float


def kolmogorov_smirnov(a: Floats, b: Floats, *, allowed: float = 0.0) -> float:
    """p-value of the largest gap between the distribution functions; a gap up to `allowed` counts for nothing."""
    a, b = np.sort(a), np.sort(b)
    both = np.concatenate([a, b])
    gap = np.abs(np.searchsorted(a, both, "right") / len(a) - np.searchsorted(b, both, "right") / len(b)).max()
    effective = sqrt(len(a) * len(b) / (len(a) + len(b)))
    x = max(0.0, float(gap) - allowed) * effective
    if x < 0.2:  # the series below converges slowly there, and the answer is one
        return 1.0
    tail = sum((1.0 if k % 2 else -1.0) * exp(-2 * (k * x) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * tail))


def chi_square(a: Floats, b: Floats) -> float:
    """p-value of equal frequencies in up to 16 bins of [0, 1), by Wilson and Hilferty's normal approximation."""
    bins = max(4, min(_BINS, (len(a) + len(b)) // 20))  # ten to a bin and sample, or the approximation is none
    counts = np.array([np.histogram(sample % 1.0, bins=bins, range=(0.0, 1.0))[0] for sample in (a, b)], dtype=float)
    counts = counts[:, counts.sum(axis=0) > 0]
    freedom = counts.shape[1] - 1
    if freedom < 1:
        return 1.0
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return erfc(((statistic / freedom) ** (1 / 3) - (1 - spread)) / sqrt(2 * spread)) / 2


def compare(
    first: Mapping[str, Floats], second: Mapping[str, Floats], allowed: Mapping[str, float] | None = None
) -> LeastLikely:
    """Every series that both views have, by both tests; `allowed` names the gaps that a bound concedes."""
    results: dict[str, float] = {}
    for name in sorted(first.keys() & second.keys()):
        a, b, gap = first[name], second[name], (allowed or {}).get(name, 0.0)
        results[f"{name}, KS"] = kolmogorov_smirnov(a, b, allowed=gap)
        if not gap:
            results[f"{name}, chi-square"] = chi_square(a, b)
    name = min(results, key=lambda key: results[key])
    return LeastLikely(len(results), name, results[name], min(1.0, len(results) * results[name]))


def tell_apart(subject: str, rounds: int) -> Finding:
    (small, widths), (large, _) = (_observe(subject, rounds, large=large) for large in (False, True))
    allowed = _conceded(widths) if widths else {}
    found = compare(small, large, allowed)
    told = found.corrected < LEVEL
    conceded = f"; SDIV's divisors may differ by {max(allowed.values()):.3f}" if allowed else ""
    recovered = f"{'told apart' if told else 'not told apart'} by {found.name}"
    verdict = Verdict.BROKEN if told else Verdict.GUESS
    note = f"{rounds} rounds of each input, {found.tests} tests{conceded}"
    return Finding(*_PLACE, subject, recovered, found.corrected, LEVEL, _MEASURE, verdict, note)


def _observe(subject: str, rounds: int, *, large: bool) -> tuple[dict[str, Floats], RewardWidths | None]:
    """Tiny models of one sample each and a small budget, or the bounds in everything; with the masks' widths, where paid."""
    paid = subject != PAPER
    profile, lanes = (HARDENED, None) if paid else (PAPER, 0)
    parties = deal(_PARAMETERS, key_bits=960, profile=profile, rounds=rounds, lanes=lanes, **_BOUNDS)
    widths = reward_widths(parties.dealer.spec.settings, _PARAMETERS) if paid else None
    if widths is not None and subject == SHORTENED:
        widths = shorten(widths)
        sp = cast(HardenedSp, parties.sp)
        sp.reward_side = lambda party, built, *rest: RewardSp(party, shorten(built), *rest)
    weights, samples = (np.ones(_PARAMETERS), 10) if large else (np.full(_PARAMETERS, 0.01), 1)
    payment = to_millionths("1000000" if large else "1") if paid else None
    for number in range(1, rounds + 1):
        uploads = parties.encrypt({f"p{i}": (weights, samples) for i in range(_PEOPLE)})
        parties.play(number, uploads, payment=payment)
    found: defaultdict[str, list[float]] = defaultdict(list)
    view, n = parties.csp.party.view, int(parties.dealer.task.public.n)
    for name, numbers in (*_opened(view, n), *(_masked(view, widths, n) if widths else ())):
        found[name] += numbers
    return {name: np.array(numbers) for name, numbers in found.items()}, widths


def _opened(view: View, n: int) -> _Named:
    for pairs in divisions(view):
        divisors = dict.fromkeys(y for _, y in pairs)
        kind = f"SDIV by {len(divisors)}"
        yield f"{kind}: log y'", [log2(y) for y in divisors]
        yield f"{kind}: x'/y'", [x % y / y for x, y in pairs]
        yield f"{kind}: log x'/y'", [log2(x // y) for x, y in pairs]
    yield from (("opened", [int(v) / n for v in to_ints(block)]) for block in view.of("opened"))
    yield from (("rewards", [int(v) / n for v in values]) for values in view.of("rewards"))


def _masked(view: View, widths: RewardWidths, n: int) -> _Named:
    for rows in view.of("lanes"):
        used = [int(v) for row in rows for v in row[:_PARAMETERS]]
        yield "lanes", [v / (1 << widths.budget.lane_mask_bits) for v in used]
        yield "lanes, low bits", [v % 16 / 16 for v in used]
    for name in ("SMUL x'", "SDIV guard"):
        for values in view.of(name):
            yield f"{name} of {len(values)}", [int(v) / n for v in values]
            yield f"{name} of {len(values)}, low bits", [int(v) % 16 / 16 for v in values]


def _conceded(widths: RewardWidths) -> dict[str, float]:
    """|log2(y1/y2)| / (hi - lo) for the two inputs: the divisors are eps_i + 1, and their sum of weights."""
    units = widths.epsilon_units
    small, large = (_PEOPLE * 1) ** 2 * units + 1, (_PEOPLE * 10 * 10) ** 2 * units + 1
    weight = [samples**3 * (1 << widths.shift) // divisor for samples, divisor in ((1, small), (10, large))]
    return {
        f"SDIV by {_PEOPLE}: log y'": widths.weights.advantage(small, large),
        "SDIV by 1: log y'": widths.rewards.advantage(weight[0], weight[1]),
    }
