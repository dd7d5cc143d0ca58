"""Attacks 3 and 7: CSP reads the total of the samples, and by two totals the samples of a late participant.

Every y' = r*y of the printed SDIV is a multiple of y: the gcd of a few is y. And x'/y' is so close to a short fraction that its
continued fraction shows it: the common denominator over all parameters is y as well.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from crowdfl.crypto.blocks import to_ints
from crowdfl.lab.audit.arithmetic import common_divisor, common_multiple, fraction_behind
from crowdfl.lab.audit.finding import Finding, conclude
from crowdfl.lab.audit.scene import Scene

__all__ = ["attack_late_samples", "attack_total", "totals"]

_FEWEST = 3  # numbers in common that mean something


def attack_total(scene: Scene) -> list[Finding]:
    """Both ways to the divisor."""
    return [_attack(scene, "gcd"), _attack(scene, "fractions")]


def attack_late_samples(scene: Scene) -> Finding:
    """Attack 7: the totals before and after a retransmission."""
    truth, most = scene.samples[scene.late], scene.settings.max_samples
    before_after = totals(scene, "gcd")
    steps = [b - a for a, b in pairwise(before_after) if 0 < b - a <= most]
    guess = steps[0] if steps else most // 2
    refused = f"a second opening is refused: {scene.refusal!r}; " if scene.refusal else ""
    return conclude(
        ("late samples", "7", "a late participant's sample count, by CSP"),
        ["CSP"],
        scene.profile,
        (abs(guess - truth) / truth, abs(most // 2 - truth) / truth),
        "relative error; blind: half of max_samples",
        f"{guess} samples where {truth} is true" if steps else "no two totals to compare",
        f"{refused}totals read off CSP's view: {before_after or 'none'}",
    )


def totals(scene: Scene, way: str) -> list[int]:
    """Each total that CSP can read, in the order in which it saw them.

    What no task could have is dropped, and of the rest those that most numbers agree on are kept: a few have small factors in
    common by chance.
    """
    found = []
    unit = 10**scene.settings.decimals
    for count, candidate in _divisors(scene, way):
        for scaled in (candidate // unit if candidate % unit == 0 else 0, candidate):
            if count >= _FEWEST and len(scene.samples) <= scaled <= scene.most:
                found.append((count, scaled))
                break
    most = max((count for count, _ in found), default=0)
    return [total for count, total in found if count == most]


def _attack(scene: Scene, way: str) -> Finding:
    found = totals(scene, way)
    guess = found[-1] if found else scene.most // 2
    truth = scene.total
    return conclude(
        (f"total by {way}", "3", f"the total of the samples, by CSP ({way})"),
        ["CSP"],
        scene.profile,
        (abs(guess - truth) / truth, abs(scene.most // 2 - truth) / truth),
        "relative error; blind: half of the largest total",
        f"{guess} samples where {truth} is true" if found else "no number that could be a total",
        "gcd of the y' of an exchange" if way == "gcd" else "common denominator of the convergents of x'/y'",
    )


def _divisors(scene: Scene, way: str) -> Iterator[tuple[int, int]]:
    """How many numbers, and what they have in common."""
    if way == "fractions":
        for pairs in scene.divisions():
            fractions = [f for f in (fraction_behind(x, y) for x, y in pairs) if f is not None]
            yield len(fractions), common_multiple(f.denominator for f in fractions)
        return
    for numbers in _numbers(scene):
        distinct = {int(v) for v in numbers}
        yield len(distinct), common_divisor(distinct)


def _numbers(scene: Scene) -> Iterator[Iterable[int]]:
    """Everything that CSP opened, exchange by exchange."""
    for pairs in scene.divisions():
        yield (y for _, y in pairs)
    for block in scene.csp.of("opened"):
        yield to_ints(block)
    for name in ("SMUL x'", "SMUL y'", "rewards"):
        yield from scene.csp.of(name)
    for rows in scene.csp.of("lanes"):
        yield from rows
