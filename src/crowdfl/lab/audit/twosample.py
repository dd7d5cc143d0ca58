"""The empirical test: CSP's views of two very different inputs, many rounds each, told apart or not.

It must tell them apart in `paper`, and in `hardened` with the masks shortened, or it would prove nothing when it cannot in
`hardened` as built. Every series is scaled to [0, 1): residues by N, masked lanes and operands by their masks, masked
divisors on the scale of logarithms, and low bits by themselves.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from crowdfl.crypto.blocks import to_ints
from crowdfl.lab.audit.finding import HARDENED, PAPER, Finding, Verdict
from crowdfl.lab.audit.scene import Floats
from crowdfl.lab.audit.statistics import Outcome, compare
from crowdfl.lab.audit.weakened import shorten, weaken
from crowdfl.local import LocalFederation, Update
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.settings import to_millionths

__all__ = ["LEVEL", "SHORTENED", "Views", "observe", "tell_apart"]

LEVEL = 1e-5
SHORTENED = "hardened, masks shortened"
_PEOPLE = 3
_PARAMETERS = 2
_Series = dict[str, Floats]
_BOUNDS: dict[str, Any] = {
    "max_participants": _PEOPLE,
    "max_samples": 10,
    "clip": 1.0,
    "decimals": 2,
    "sigma": 20,
    "key_bits": 640,
}
_NAMES = ("Y", "UU", "A", "B", "delta")


@dataclass(frozen=True)
class Views:
    """CSP's view of many rounds with one input, as series; and for SDIV's divisors what their bound concedes."""

    series: _Series
    allowed: dict[str, float]


def tell_apart(subject: str, rounds: int) -> Finding:
    """`subject`: PAPER, HARDENED or SHORTENED."""
    first, second = observe(subject, rounds, large=False), observe(subject, rounds, large=True)
    outcome = compare(first.series, second.series, first.allowed)
    return _finding(subject, rounds, outcome, first.allowed)


def observe(subject: str, rounds: int, *, large: bool) -> Views:
    """Models of zeros with one sample each and a small budget, or at the bounds in everything."""
    rewarded = subject != PAPER
    fed = LocalFederation(
        profile=HARDENED if rewarded else PAPER,
        insecure_test_key=True,
        rounds=rounds,
        lanes=None if rewarded else 0,
        **_BOUNDS,
    )
    fed._deal(_PARAMETERS)
    if subject == SHORTENED:
        weaken(fed)
    weights, samples = (np.ones(_PARAMETERS), 10) if large else (np.full(_PARAMETERS, 0.01), 1)
    for _ in range(rounds):
        fed.round({f"p{i}": Update([weights], samples) for i in range(_PEOPLE)})
        if rewarded:
            fed._exchange(fed.sp.reward(to_millionths("1000000" if large else "1")))
    return _views(fed, subject)


def _views(fed: LocalFederation, subject: str) -> Views:
    view, n = fed.csp.party.view, int(fed.sp.party.public.n)
    series: dict[str, list[float]] = {}
    for x, y in zip(view.of("SDIV x'"), view.of("SDIV y'"), strict=True):
        kind = f"SDIV by {len(y)}"
        divisors = list(y) if len(y) == len(x) else list(y) * len(x)
        _extend(series, f"{kind}: log y'", (log2(int(b)) for b in y))
        _extend(series, f"{kind}: x'/y'", (_unit(int(a) % int(b), int(b)) for a, b in zip(x, divisors, strict=True)))
        _extend(series, f"{kind}: log x'/y'", (log2(int(a) // int(b)) for a, b in zip(x, divisors, strict=True)))
    for block in view.of("opened"):
        _extend(series, "opened", (_unit(int(v), n) for v in to_ints(block)))
    for values in view.of("rewards"):
        _extend(series, "rewards", (_unit(int(v), n) for v in values))
    allowed: dict[str, float] = {}
    if isinstance(fed.sp, HardenedSp):
        widths = fed.sp._shape.widths()
        used = widths if subject == HARDENED else shorten(widths)
        _masked(fed, series, used)
        allowed = _conceded(used)
    return Views({name: np.array(values) for name, values in series.items()}, allowed)


def _masked(fed: LocalFederation, series: dict[str, list[float]], widths: RewardWidths) -> None:
    """Lanes and operands by their masks, and the lowest bits of both."""
    view, m = fed.csp.party.view, widths.budget.lane_mask_bits
    for rows in view.of("lanes"):
        used = [int(v) for row in rows for v in row[:_PARAMETERS]]
        _extend(series, "lanes", (_unit(v, 1 << m) for v in used))
        _extend(series, "lanes, low bits", (_unit(v % 16, 16) for v in used))
    operand_widths = widths.operands(_PEOPLE)
    for values in view.of("SMUL x'"):
        for j, (value, width) in enumerate(zip(values, operand_widths, strict=True)):
            name = _NAMES[j] if j < 2 else _NAMES[2 + (j - 2) % 3]
            _extend(series, f"SMUL {name}", [_unit(int(value), 1 << (width + _slack(widths) + 1))])
            _extend(series, f"SMUL {name}, low bits", [_unit(int(value) % 16, 16)])


def _slack(widths: RewardWidths) -> int:
    return 1 + widths.budget.sigma + int(widths.masks_in_task).bit_length()


def _conceded(widths: RewardWidths) -> dict[str, float]:
    """|log2(y1/y2)| / (hi - lo) for the two inputs: the divisors are eps_i + 1, and their sum of weights."""
    units = widths.epsilon_units
    small, large = (_PEOPLE * 1) ** 2 * units + 1, (_PEOPLE * 10 * 10) ** 2 * units + 1
    weight = [samples**3 * (1 << widths.shift) // divisor for samples, divisor in ((1, small), (10, large))]
    return {
        f"SDIV by {_PEOPLE}: log y'": widths.weights.advantage(small, large),
        "SDIV by 1: log y'": widths.rewards.advantage(weight[0], weight[1]),
    }


def _extend(series: dict[str, list[float]], name: str, values: Iterable[float]) -> None:
    series.setdefault(name, []).extend(values)


def _unit(part: int, whole: int) -> float:
    return ((part << 53) // whole) / 2.0**53


def _finding(subject: str, rounds: int, outcome: Outcome, allowed: dict[str, float]) -> Finding:
    told = outcome.corrected < LEVEL
    conceded = f"; SDIV's divisors may differ by {max(allowed.values()):.3f}" if allowed else ""
    return Finding(
        "two samples",
        "5",
        "CSP's views of two inputs, told apart",
        ("CSP",),
        subject,
        f"{'told apart' if told else 'not told apart'} by {outcome.name}",
        outcome.corrected,
        LEVEL,
        "p-value after correction; told apart below the level",
        Verdict.BROKEN if told else Verdict.GUESS,
        f"{rounds} rounds of each input, {outcome.tests} tests{conceded}",
    )
