"""Attacks on the averaging: the global model, the total of the samples, a late participant's samples, a hidden total.

Attack 2: x'/y' = x/y + alpha + e/r with alpha whole and e/r tiny: the fractional part is that of the average, to full
precision. The same is tried on every other number that CSP opens: as a fraction of its range, and modulo 10^L.

Attacks 3 and 7: every y' = r*y of the printed SDIV is a multiple of y: the gcd of a few is y. And x'/y' is so close to a short
fraction that its continued fraction shows it: the common denominator over all parameters is y as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, isqrt, lcm

import gmpy2
import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, to_ints
from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.crypto.randomness import Coins
from crowdfl.errors import SlotOverflow
from crowdfl.lab.audit.arithmetic import fraction_behind
from crowdfl.lab.audit.finding import HARDENED, Finding, Floats, conclude, rms
from crowdfl.lab.audit.scene import Scene, deal
from crowdfl.lab.observe import RoundRecorder
from crowdfl.protocols.hardened.opening import OpenRequest, Publication
from crowdfl.protocols.hardened.prifedavg import ModelCodec, ScaleReply, ScaleRequest
from crowdfl.protocols.messages import Limits, Message

__all__ = [
    "Transcript",
    "attack_average",
    "attack_hidden_total",
    "attack_late_samples",
    "attack_total",
    "record",
    "recover_sum",
    "totals",
]

_BITS = 60
_FEWEST = 3  # numbers in common that mean something
_SAMPLES = (49, 31, 20, 83)
_BOUND = 500 * 10**6  # |X| of the one slot: 5 participants, 100 samples, weights up to 1
_OFF_TOTAL = "relative error; blind: half of the largest total"


def attack_average(scene: Scene) -> Finding:
    """The best of all readings, chosen with the truth at hand: kinder to the attacker than life is."""
    truth = scene.average
    tried = list(_readings(scene))
    guess = min(tried, key=lambda reading: rms(reading - truth)) if tried else np.zeros(scene.parameters)
    exact = int(np.count_nonzero(np.abs(guess - truth) < 10.0**-scene.settings.decimals))
    correlation = float(np.corrcoef(guess, truth)[0, 1]) if np.ptp(guess) else 0.0
    return conclude(
        ("average", "2", "the global model, by CSP"),
        ["CSP"],
        scene.profile,
        (rms(guess - truth), rms(truth)),
        "root mean square error of a weight; blind: all zeros",
        f"{exact} of {len(truth)} weights to 6 decimals, correlation {correlation:.4f}",
        f"best of {len(tried)} readings of what CSP opened",
    )


def _readings(scene: Scene) -> Iterator[Floats]:
    """Everything that CSP opened, read as weights in [-1/2, 1/2); a reading that is too short is filled with zeros."""
    unit = 10**scene.settings.decimals
    for pairs in scene.divisions():
        yield _fit([_ratio(x % y, y) for x, y in pairs], scene)
        yield _fit([_ratio(y % x, x) for x, y in pairs if x], scene)
    for numbers, span in _opened(scene):
        yield _fit([_ratio(v % span, span) for v in numbers], scene)
        yield _fit([_ratio(v % unit, unit) for v in numbers], scene)


def _opened(scene: Scene) -> Iterator[tuple[list[int], int]]:
    """All other numbers in the clear, with the range they span; packed ones slot by slot as well."""
    for block in scene.csp.of("opened"):
        yield [int(v) for v in to_ints(block)], int(scene.public.n)
        if scene.codec is not None:
            yield from _slots(scene.codec, block)
    for numbers in _masked(scene, "SMUL x'", "SMUL y'", "rewards"):
        yield numbers, _span(numbers)
    for numbers in _masked(scene, "lanes"):
        yield _in_order(scene.codec, numbers), _span(numbers)


def _masked(scene: Scene, *names: str) -> Iterator[list[int]]:
    """What CSP saw under these names, exchange by exchange; of lanes, row by row."""
    for name in names:
        for values in scene.csp.of(name):
            yield from ([int(v) for v in row] for row in (values if name == "lanes" else [values]))


def _slots(codec: ModelCodec, block: Block) -> Iterator[tuple[list[int], int]]:
    try:
        values = codec.packing.unpack_wide(block[:-1], codec.budget.parameters)
    except SlotOverflow:  # a uniform number is seldom a packing at all
        return
    yield _in_order(codec, values), 1 << codec.packing.slot_bits


def _in_order(codec: ModelCodec | None, values: list[int]) -> list[int]:
    """Undo the public permutation and signs."""
    if codec is None or len(values) < codec.budget.parameters:
        return values
    signs = codec.signs.tolist()
    return [values[i] * signs[i] for i in np.argsort(codec.order)]


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


def attack_total(scene: Scene) -> list[Finding]:
    """Attack 3: both ways to the divisor."""
    ways = {"gcd": "gcd of the y' of an exchange", "fractions": "common denominator of the convergents of x'/y'"}
    return [_total_by(scene, way, how) for way, how in ways.items()]


def _total_by(scene: Scene, way: str, how: str) -> Finding:
    found, truth = totals(scene, way), scene.total
    guess = found[-1] if found else scene.most // 2
    return conclude(
        (f"total by {way}", "3", f"the total of the samples, by CSP ({way})"),
        ["CSP"],
        scene.profile,
        (abs(guess - truth) / truth, abs(scene.most // 2 - truth) / truth),
        _OFF_TOTAL,
        f"{guess} samples where {truth} is true" if found else "no number that could be a total",
        how,
    )


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


def _divisors(scene: Scene, way: str) -> Iterator[tuple[int, int]]:
    """How many numbers, and what they have in common."""
    if way == "fractions":
        for pairs in scene.divisions():
            fractions = [f for f in (fraction_behind(x, y) for x, y in pairs) if f is not None]
            yield len(fractions), lcm(*(f.denominator for f in fractions))
        return
    seen = [[y for _, y in pairs] for pairs in scene.divisions()]
    seen += [[int(v) for v in to_ints(block)] for block in scene.csp.of("opened")]
    for numbers in (*seen, *_masked(scene, "SMUL x'", "SMUL y'", "rewards", "lanes")):
        distinct = set(numbers)
        yield len(distinct), gcd(*distinct)


@dataclass(frozen=True)
class Transcript:
    """What CSP and a reader have between them, of a round with the total hidden."""

    public: PublicKey
    scale: ScaleRequest
    scaled: ScaleReply
    opening: OpenRequest
    publication: Publication
    masked_sum: mpz
    average: float


def attack_hidden_total(key_bits: int) -> Finding:
    """Beyond section 7: a hidden total, by CSP together with one reader, on a task with one parameter: one slot in use.

    The reader knows the seed of the published opening and the average; CSP knows [[Q]], X + R modulo N and its own replies. If
    the seed that readers are given also blinds SP's ciphertexts, the two can take the blinding off and are left with [[Q]]^R: a
    power whose exponent is known but for X. A row with few slots in use is then found by baby steps and giant steps, and X over
    the average is the total.
    """
    seen = record(key_bits)
    found = recover_sum(seen)
    truth, most = sum(_SAMPLES), 500
    guess = most // 2 if found is None else round(found / (seen.average * 1e6))
    return conclude(
        ("hidden total", "new", "the hidden total, by CSP with one reader"),
        ["CSP", "participant"],
        HARDENED,
        (abs(guess - truth) / truth, abs(most // 2 - truth) / truth),
        _OFF_TOTAL,
        "the blinding does not come off" if found is None else f"{guess} samples where {truth} is true",
        "total = hidden, one parameter: a discrete logarithm of 30 bits if the published seed blinds",
    )


def record(key_bits: int) -> Transcript:
    """An honest round with the total hidden, the servers' messages kept."""
    seen = RoundRecorder(keep_views=True, keep_messages=True)
    bounds = {"max_participants": 5, "clip": 1.0, "lanes": 0, "total": "hidden"}
    parties = deal(1, key_bits=key_bits, observer=seen, **bounds)
    rng = np.random.default_rng(11)
    updates = {f"p{i}": (rng.uniform(0.2, 0.8, 1), n) for i, n in enumerate(_SAMPLES)}
    played = parties.play(1, parties.encrypt(updates))
    public = parties.dealer.task.public
    limits = Limits(public, 16)
    kept = {Message.kind_of(message): message for *ends, message in seen.messages if "CSP" in ends}
    return Transcript(
        public,
        ScaleRequest.from_bytes(kept[ScaleRequest.kind], limits),
        ScaleReply.from_bytes(kept[ScaleReply.kind], limits),
        OpenRequest.from_bytes(kept[OpenRequest.kind], limits),
        Publication.from_bytes(played.publication, limits),
        to_ints(parties.csp.party.view.of("opened")[0])[0],
        float(played.average.weights[0]),
    )


def recover_sum(seen: Transcript) -> int | None:
    """X, if sums / scaled = [[Q]]^-R modulo N with R = (X + R) - X."""
    n = seen.public.n
    blinds = FreshRandomizers(seen.public, entropy=Coins(seen.publication.seed).child("blind 0").take)
    blind = to_ints(blinds.take(1))[0]
    factor, scaled, opened = (
        to_ints(v.block)[0] % n for v in (seen.scale.factor, seen.scaled.scaled, seen.opening.masked)
    )
    power = opened * gmpy2.invert(blind * scaled, n) * gmpy2.powmod(factor, seen.masked_sum, n) % n
    return _logarithm(power, factor, n)


def _logarithm(power: mpz, base: mpz, n: mpz) -> int | None:
    """x in [-_BOUND, _BOUND] with base^x = power modulo n: a table of small steps, met by large ones."""
    steps = isqrt(2 * _BOUND) + 1
    small: dict[mpz, int] = {}
    value = mpz(1)
    for step in range(steps):
        small[value] = step
        value = value * base % n
    back = gmpy2.invert(value, n)
    value = power * gmpy2.powmod(base, _BOUND, n) % n
    for stride in range(steps + 1):
        if value in small:
            return stride * steps + small[value] - _BOUND
        value = value * back % n
    return None
