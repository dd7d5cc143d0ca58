"""Attack 2: CSP reads the global model off the divisions it helps with.

x'/y' = x/y + alpha + e/r with alpha whole and e/r tiny: the fractional part is that of the average, to full precision. The same
is tried on every other number that CSP opens: as a fraction of its range, and modulo the fixed point's unit.
"""

from collections.abc import Iterator

import numpy as np

from crowdfl.crypto.blocks import Block, to_ints
from crowdfl.errors import SlotOverflow
from crowdfl.lab.audit.finding import Finding, conclude
from crowdfl.lab.audit.scene import Floats, Scene

__all__ = ["attack_average", "readings"]

_BITS = 60


def attack_average(scene: Scene) -> Finding:
    """The best of all readings, chosen with the truth at hand: kinder to the attacker than life is."""
    truth = scene.average
    tried = list(readings(scene))
    guess = min(tried, key=lambda reading: _rms(reading - truth)) if tried else np.zeros(scene.parameters)
    exact = int(np.count_nonzero(np.abs(guess - truth) < 10.0**-scene.settings.decimals))
    correlation = float(np.corrcoef(guess, truth)[0, 1]) if np.ptp(guess) else 0.0
    return conclude(
        ("average", "2", "the global model, by CSP"),
        ["CSP"],
        scene.profile,
        (_rms(guess - truth), _rms(truth)),
        "root mean square error of a weight; blind: all zeros",
        f"{exact} of {len(truth)} weights to 6 decimals, correlation {correlation:.4f}",
        f"best of {len(tried)} readings of what CSP opened",
    )


def readings(scene: Scene) -> Iterator[Floats]:
    """Everything that CSP opened, read as weights in [-1/2, 1/2); a reading that is too short is filled with zeros."""
    for pairs in scene.divisions():
        yield _fit([_ratio(x % y, y) for x, y in pairs], scene)
        yield _fit([_ratio(y % x, x) for x, y in pairs if x], scene)
    for numbers, span in _opened(scene):
        yield _fit([_ratio(v % span, span) for v in numbers], scene)
        yield _fit([_ratio(v % unit, unit) for unit in (10**scene.settings.decimals,) for v in numbers], scene)


def _opened(scene: Scene) -> Iterator[tuple[list[int], int]]:
    """All other numbers in the clear, with the range they span; packed ones slot by slot as well."""
    n = int(scene.public.n)
    for block in scene.csp.of("opened"):
        yield [int(v) for v in to_ints(block)], n
        yield from _slots(scene, block)
    for name in ("SMUL x'", "SMUL y'", "rewards"):
        for values in scene.csp.of(name):
            yield [int(v) for v in values], _span(values)
    for rows in scene.csp.of("lanes"):
        for row in rows:
            yield _in_order(scene, [int(v) for v in row]), _span(row)


def _slots(scene: Scene, block: Block) -> Iterator[tuple[list[int], int]]:
    if scene.packing is None:
        return
    try:
        values = scene.packing.unpack_wide(block[:-1], scene.parameters)
    except SlotOverflow:  # a uniform number is seldom a packing at all
        return
    yield _in_order(scene, values), 1 << scene.packing.slot_bits


def _in_order(scene: Scene, values: list[int]) -> list[int]:
    """Undo the public permutation and signs."""
    if len(values) < scene.parameters:
        return values
    places, signs = np.argsort(scene.order), scene.signs.tolist()
    return [values[i] * signs[i] for i in places]


def _span(values: list[int]) -> int:
    return int(2 ** max(1, *(int(abs(v)).bit_length() for v in values)))


def _ratio(part: int, whole: int) -> float:
    """part / whole in [-1/2, 1/2), of integers of any size."""
    ratio = ((part << _BITS) // whole) / (1 << _BITS)
    return ratio - 1 if ratio >= 0.5 else ratio


def _fit(values: list[float], scene: Scene) -> Floats:
    fitted = np.zeros(scene.parameters)
    kept = values[: scene.parameters]
    fitted[: len(kept)] = kept
    return fitted


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))
