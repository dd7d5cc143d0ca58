"""What CSP reads off an honest round by the numbers that it opens: averages, totals, distances, rewards.

Attack 2: x'/y' = x/y + alpha + e/r with alpha whole and e/r tiny: the fractional part is that of the average, to full
precision. The same is tried on every other number that CSP opens: as a fraction of its range, and modulo 10^L.

Attacks 3 and 7: every y' = r*y of the printed SDIV is a multiple of y: the gcd of a few is y, once halved, as
every r of `paper` is even (D13). And x'/y' is so close to a short fraction that its continued fraction shows it: the common
denominator over all parameters is y as well.

Attack 7 on `paper`: section 5.2 averages twice where somebody came late. With both averages and both totals, CSP has the late
participant's model by subtraction; of several who came late together, the average of their models.

Attack 7 on `hardened`: why a mask seed never serves two sums. If it did, CSP would see X + R and X + late + R: their difference
is the late participant's update, in the clear. Done here by forging the binding of the seed to its sum, before a CSP that was
made to forget the first opening: as built, it refuses the second.

Attack 8: CSP reads distances, sample counts and rewards off PriRwd's divisions. The division that makes w_i shows
delta_i * Omega / (pi * d_i) modulo 1 as a short fraction. With pi known (attack 3), few factors are left to try: the right ones
make every delta_i whole and their sum pi. Then all of Eq. 10 is known but the budget, which the fractional parts of the rewards
give.

Attack 10: with two participants, one's own reward gives the other's sample count, and with it the other's model. The average of
two lies between them: w_2 - avg = -(delta_1/delta_2)(w_1 - avg). Then delta_2 is the reward's only unknown.
"""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise
from math import gcd, isqrt, lcm, prod

import gmpy2
import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.blocks import from_ints, to_ints
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.errors import OutOfTurn, SeedReused, SettingsError, SlotOverflow, TooFewParticipants
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.hardened.opening import PARTICIPANTS, OpeningSp, OpenRequest, Publication, digest
from crowdfl.protocols.hardened.prifedavg import ModelCodec, ScaleReply, ScaleRequest
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.records import MemoryRecords
from crowdfl.settings import TaskSettings
from crowdfl_lab.audit.finding import (
    HARDENED,
    PAPER,
    SAMPLES_OFF,
    TOTAL_OFF,
    WEIGHT,
    Attack,
    Finding,
    Floats,
    Measure,
    found_in,
    rms,
)
from crowdfl_lab.audit.recorded_round import (
    BUDGET,
    LATE,
    SAMPLES,
    HardenedParties,
    RecordedRound,
    deal,
    divisions,
    signed_manifest,
    updates,
)
from crowdfl_lab.recorder import RoundRecorder

_FEWEST = 3  # numbers in common that mean something
_SURPRISE = 64  # a partial quotient this many bits long does not happen by chance
_BOUND = 500 * 10**6  # |X| of the one slot: 5 participants, 100 samples, weights up to 1
_WAYS = {"gcd": "gcd of the y' of an exchange", "fractions": "common denominator of the convergents of x'/y'"}
_FACTORS = 12  # what numerator and denominator have in common is seldom more than this
_CENTS = 1_000_000
_CLOSE = 2e-3
_EPS = 1e-6


def _off(readings: Floats, truth: Floats) -> float:
    """Of several readings the mean: the best of them is often good by luck, and the attacker cannot tell which it is."""
    return float(np.mean([rms(reading, truth) for reading in np.atleast_2d(readings)])) / float(truth.mean())


_MEAN_OFF = Measure(_off, "root mean square error over the mean; blind: equal parts of the true sum")
_OTHERS_OFF = Measure(rms, "root mean square error of a weight; blind: the average")
_CSP = ("CSP",)
_AVERAGE = Attack("average", "2", "the global model, by CSP", _CSP, WEIGHT)
_LATE_SAMPLES = Attack("late samples", "7", "a late participant's sample count, by CSP", _CSP, SAMPLES_OFF)
_SUBTRACTED = Attack("late model", "7", "a late participant's model, by CSP", _CSP, WEIGHT)
_LATE_MODEL = Attack("reused seed", "7", "a late participant's model, by CSP, if a seed served two sums", _CSP, WEIGHT)
_HIDDEN = Attack("hidden total", "new", "the hidden total, by CSP with one reader", ("CSP", "participant"), TOTAL_OFF)
_DISTANCES = Attack("distances", "8", "the distances of PriRwd, by CSP", _CSP, _MEAN_OFF)
_REWARDS = Attack("rewards", "8", "the rewards, by CSP", _CSP, _MEAN_OFF)
_PAIR_TITLE = "another's model, from one's own reward and the average"
_PAIR = Attack("pair", "10", _PAIR_TITLE, ("participant",), _OTHERS_OFF)


def fraction_behind(x: int, y: int) -> Fraction | None:
    """The short fraction that x/y modulo 1 is extremely close to, or None if there is none.

    Continued fractions: a convergent just before an enormous partial quotient is far closer than chance allows.
    """
    a, b = mpz(y), mpz(x) % y
    before, now = (mpz(1), mpz(0)), (mpz(0), mpz(1))  # numerators and denominators of the last two convergents
    room = a.bit_length() // 2 - _SURPRISE
    while now[1].bit_length() <= room:
        quotient, rest = gmpy2.f_divmod(a, b) if b else (mpz(1) << (_SURPRISE + 1), mpz(0))
        if quotient.bit_length() > _SURPRISE:
            return Fraction(int(now[0]), int(now[1]))
        a, b = b, rest
        before, now = now, (quotient * now[0] + before[0], quotient * now[1] + before[1])
    return None


def attack_average(recorded: RecordedRound) -> Finding:
    """The best of all readings, chosen with the truth at hand: kinder to the attacker than life is."""
    truth, zeros = recorded.average, np.zeros(recorded.parameters)
    tried = list(_readings(recorded))
    guess = min(tried, key=lambda reading: rms(reading, truth), default=zeros)
    correlation = float(np.corrcoef(guess, truth)[0, 1]) if np.ptp(guess) else 0.0
    exact = found_in(guess, truth, "weights to 6 decimals", 0.999 * 10.0**-recorded.settings.decimals)
    note = f"best of {len(tried)} readings of what CSP opened"
    return _AVERAGE.score(recorded.profile, guess, zeros, truth, f"{exact}, correlation {correlation:.4f}", note)


def _readings(recorded: RecordedRound) -> Iterator[Floats]:
    for pairs in divisions(recorded.csp):
        yield _weights(recorded, pairs)
        yield _weights(recorded, [(y, x) for x, y in pairs if x])
    for numbers, span in _opened(recorded):
        for whole in (span, 10**recorded.settings.decimals):
            yield _weights(recorded, [(v, whole) for v in numbers])


def _weights(recorded: RecordedRound, quotients: Iterable[tuple[int, int]]) -> Floats:
    """Quotients of integers of any size modulo 1, in [-1/2, 1/2); where they are too few, zeros follow."""
    ratios = [part % whole / whole for part, whole in quotients]
    weights = np.zeros(recorded.parameters)
    weights[: len(ratios)] = ratios[: recorded.parameters]
    return np.where(weights >= 0.5, weights - 1, weights)


def _opened(recorded: RecordedRound) -> Iterator[tuple[list[int], int]]:
    """All other numbers in the clear, with the range they span; packed ones slot by slot as well."""
    codec = recorded.codec
    for block in recorded.csp.of("opened"):
        yield [int(v) for v in to_ints(block)], int(recorded.public.n)
        if codec is not None:
            with suppress(SlotOverflow):  # a uniform number is seldom a packing at all
                values = codec.packing.unpack_wide(block[:-1], codec.budget.parameters)
                yield _in_order(codec, values), 1 << codec.packing.slot_bits
    for name, numbers in _masked(recorded):
        span = 1 << max(1, *(abs(v).bit_length() for v in numbers))
        yield _in_order(codec, numbers) if codec and name == "lanes" else numbers, span


def _masked(recorded: RecordedRound) -> Iterator[tuple[str, list[int]]]:
    """What CSP opened under masks, with the name of the step, exchange by exchange; of lanes, row by row."""
    for name in ("SMUL x'", "SMUL y'", "rewards", "lanes"):
        for values in recorded.csp.of(name):
            yield from ((name, [int(v) for v in row]) for row in (values if name == "lanes" else [values]))


def _in_order(codec: ModelCodec, values: list[int]) -> list[int]:
    if len(values) < codec.budget.parameters:
        return values
    signs = codec.signs.tolist()
    return [values[i] * signs[i] for i in np.argsort(codec.order)]


def attack_total(recorded: RecordedRound) -> Iterator[Finding]:
    for way, how in _WAYS.items():
        guess, truth = next(reversed(totals(recorded, way)), None), recorded.total
        recovered = f"{guess} samples where {truth} is true" if guess else "no number that could be a total"
        attack = Attack(f"total by {way}", "3", f"the total of the samples, by CSP ({way})", _CSP, TOTAL_OFF)
        yield attack.score(recorded.profile, guess, recorded.most // 2, truth, recovered, how)


def attack_late_samples(recorded: RecordedRound) -> Finding:
    truth = SAMPLES[LATE]
    most = recorded.settings.max_samples
    before_after = totals(recorded, "gcd")
    guess = next((b - a for a, b in pairwise(before_after) if 0 < b - a <= most), None)
    refused = f"a second opening is refused: {recorded.refusal!r}; " if recorded.refusal else ""
    recovered = f"{guess} samples where {truth} is true" if guess else "no two totals to compare"
    note = f"{refused}totals read off CSP's view: {before_after or 'none'}"
    return _LATE_SAMPLES.score(recorded.profile, guess, most // 2, truth, recovered, note)


def attack_late_model(recorded: RecordedRound) -> Finding:
    """The sum with the late upload less the sum without it, over the samples that came with it."""
    truth, most = recorded.weights[LATE], recorded.settings.max_samples
    read = list(_averages_and_totals(recorded))
    pairs = [(one, other) for one, other in pairwise(read) if 0 < other[1] - one[1] <= most]
    guess = next(((b * n - a * m) / (n - m) for (a, m), (b, n) in pairs), None)
    recovered = found_in(guess, truth, "weights to 4 decimals", 1e-4)
    note = f"averages with their totals, read off CSP's view: {len(read)}"
    return _SUBTRACTED.score(recorded.profile, guess, np.zeros(recorded.parameters), truth, recovered, note)


def _averages_and_totals(recorded: RecordedRound) -> Iterator[tuple[Floats, int]]:
    """Of each exchange that divides as many numbers as the model has: the weights modulo 1, and what all divisors share."""
    unit, possible = 10**recorded.settings.decimals, range(len(SAMPLES) - 1, recorded.most + 1)
    for pairs in divisions(recorded.csp):
        shared = gcd(*_multiples(recorded, pairs))
        if len(pairs) == recorded.parameters >= _FEWEST and shared % unit == 0 and shared // unit in possible:
            yield _weights(recorded, pairs), shared // unit


def totals(recorded: RecordedRound, way: str) -> list[int]:
    """Each total that CSP can read, in the order in which it saw them.

    What no task could have is dropped, and of the rest those that most numbers agree on are kept: a few have small factors in
    common by chance.
    """
    unit = 10**recorded.settings.decimals
    possible = range(len(SAMPLES), recorded.most + 1)
    found = []
    for count, candidate in _divisors(recorded, way):
        whole = candidate // unit if candidate % unit == 0 else 0
        found += [(count, total) for total in (whole, candidate) if count >= _FEWEST and total in possible][:1]
    most = max((count for count, _ in found), default=0)
    return [total for count, total in found if count == most]


def _divisors(recorded: RecordedRound, way: str) -> Iterator[tuple[int, int]]:
    if way == "fractions":
        for pairs in divisions(recorded.csp):
            fractions = [f for f in (fraction_behind(x, y) for x, y in pairs) if f is not None]
            yield len(fractions), lcm(*(f.denominator for f in fractions))
        return
    seen = [_multiples(recorded, pairs) for pairs in divisions(recorded.csp)]
    seen += [[int(v) for v in to_ints(block)] for block in recorded.csp.of("opened")]
    seen += [numbers for _, numbers in _masked(recorded)]
    for numbers in map(set, seen):
        yield len(numbers), gcd(*numbers)


def _multiples(recorded: RecordedRound, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Every y' of an exchange, without the factor that all masks of `paper` have in common."""
    return [y // 2 if recorded.profile == PAPER else y for _, y in pairs]


def attack_reused_seed(key_bits: int, parameters: int = 12) -> Finding:
    trained = updates(parameters, seed=3)
    parties = deal(parameters, key_bits=key_bits, max_participants=5, lanes=0)
    public = parties.task.public
    refusals = _open_twice(parties, parties.encrypt(trained))
    before, after = (to_ints(block) for block in parties.csp.party.view.of("opened"))
    late = [(b - a) % public.n for a, b in zip(before, after, strict=True)]
    guess = parties.sp.codec.average(from_ints(late[:-1], public.plaintext_bytes), int(late[-1]))
    recovered = f"the whole update and its {int(late[-1])} samples"
    note = f"as built SP refuses to make the second request ({refusals[0]}), and CSP to answer it ({refusals[1]})"
    subject = "hardened, a seed reused on purpose"
    return _LATE_MODEL.score(subject, guess, np.zeros(parameters), trained[LATE][0], recovered, note)


def _open_twice(parties: HardenedParties, uploads: dict[str, bytes]) -> tuple[str, str]:
    """The sum without the late upload and with it, by one seed; how SP's own code refuses, and how CSP does."""
    sp = parties.sp
    opening = OpeningSp(parties.sp.party)
    refused = ""
    again = ""
    round_ = parties.open(1)
    in_time = {who: upload for who, upload in uploads.items() if who != LATE}
    round_.collect(in_time)
    parties.csp.answer(signed_manifest(1, in_time, payment=0).to_bytes())
    state = MaskSeed.bound_to(digest(sp.sums()))
    for request in opening.requests(state, sp.sums(), 1, PARTICIPANTS):
        parties.csp.answer(request)
    round_.collect({LATE: uploads[LATE]})
    try:
        list(opening.requests(state, sp.sums(), 1, PARTICIPANTS))
    except SeedReused as error:
        refused = type(error).__name__
    forged = MaskSeed(state.seed, digest(sp.sums()))
    for request in opening.requests(forged, sp.sums(), 1, PARTICIPANTS):
        try:
            parties.csp.answer(request)
        except OutOfTurn as error:
            again = type(error).__name__
        parties.csp.records = MemoryRecords()  # on purpose: it forgets what it has opened
        parties.csp.answer(signed_manifest(1, uploads, payment=0).to_bytes())
        parties.csp.answer(request)
    return refused, again


def attack_hidden_total(key_bits: int) -> Finding:
    """Beyond section 7: a hidden total, by CSP together with one reader, on a task with one parameter: one slot in use.

    The reader knows the seed of the published opening and the average; CSP knows [[Q]], X + R modulo N and its own replies. If
    the seed that readers are given also blinds SP's ciphertexts, the two can take the blinding off and are left with [[Q]]^R: a
    power whose exponent is known but for X. A row with few slots in use is then found by baby steps and giant steps, and X over
    the average is the total.
    """
    seen = RoundRecorder(keep_views=True, keep_messages=True)
    bounds = {"max_participants": 5, "clip": 1.0, "lanes": 0, "total": "hidden"}
    parties = deal(1, key_bits=key_bits, observer=seen, **bounds)
    played = parties.play(1, parties.encrypt(updates(1, seed=11, low=0.2, high=0.8)))
    found = _recover_sum(parties, seen, played.publication)
    truth = sum(SAMPLES.values())
    guess = None if found is None else round(found / (float(played.average.weights[0]) * 1e6))
    recovered = "the blinding does not come off" if found is None else f"{guess} samples where {truth} is true"
    note = "total = hidden, one parameter: a discrete logarithm of 30 bits if the published seed blinds"
    return _HIDDEN.score(HARDENED, guess, 500 // 2, truth, recovered, note)


def _recover_sum(parties: HardenedParties, seen: RoundRecorder, publication: bytes) -> int | None:
    """X, if sums / scaled = [[Q]]^-R modulo N with R = (X + R) - X."""
    public = parties.task.public
    n, limits = public.n, Limits(public, 16)
    kept = {Message.kind_of(message): message for *ends, message in seen.messages if "CSP" in ends}
    ciphertexts = (
        ScaleRequest.from_bytes(kept[ScaleRequest.kind], limits).factor,
        ScaleReply.from_bytes(kept[ScaleReply.kind], limits).scaled,
        OpenRequest.from_bytes(kept[OpenRequest.kind], limits).masked,
    )
    factor, scaled, opened = (to_ints(c.block)[0] % n for c in ciphertexts)
    masked_sum = to_ints(parties.csp.party.view.of("opened")[0])[0]
    seed = Publication.from_bytes(publication, limits).seed
    blind = to_ints(FreshRandomizers(public, entropy=Coins(seed).child("blind 0").take).take(1))[0]
    power = opened * gmpy2.invert(blind * scaled, n) * gmpy2.powmod(factor, masked_sum, n) % n
    return _logarithm(power, factor, n)


def _logarithm(power: mpz, base: mpz, n: mpz) -> int | None:
    """x in [-_BOUND, _BOUND] with base^x = power modulo n: a table of small steps, met by large ones."""
    steps = isqrt(2 * _BOUND) + 1
    small = dict[mpz, int]()
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


def attack_rewards(recorded: RecordedRound) -> Iterator[Finding]:
    """Distances and rewards: solved if the fractions are there, else read off by size."""
    _, distances, rewards = recover(recorded) or (None, None, None)
    yield _score(_DISTANCES, recorded, distances, recorded.distances)
    yield _score(_REWARDS, recorded, rewards, recorded.rewards)


def _score(attack: Attack[Floats], recorded: RecordedRound, solved: Floats | None, true: dict[str, float]) -> Finding:
    truth = np.array([true[who] for who in sorted(SAMPLES)])
    even = np.full(len(truth), truth.mean())  # as good a guess as one without looking can be
    if solved is None:
        tried = list(_by_size(recorded, len(truth), float(truth.sum()))) or [even]
        recovered, note = "no division is close to a short fraction", f"mean over {len(tried)} readings by size"
        return attack.score(recorded.profile, np.array(tried), even, truth, recovered, note)
    found, wanted = (" ".join(f"{v:.4g}" for v in values) for values in (solved, truth))
    return attack.score(recorded.profile, solved, even, truth, f"{found} where {wanted} are true", "fractions solved")


def _by_size(recorded: RecordedRound, size: int, whole: float) -> Iterator[Floats]:
    """Numbers that come one for each participant, read as proportional to what is sought, or inversely."""
    lists = [[x / Fraction(y) for x, y in pairs] for pairs in divisions(recorded.csp)]
    lists += [[Fraction(y) for _, y in pairs] for pairs in divisions(recorded.csp)]
    lists += [[Fraction(int(v)) for v in values] for values in recorded.csp.of("rewards")]
    for values in (each for each in lists if len(each) == size and all(each)):
        for one in (values, [1 / v for v in values]):
            yield np.array([float(v / sum(one)) for v in one]) * whole


def recover(recorded: RecordedRound) -> tuple[list[int], Floats, Floats] | None:
    """Samples, distances and rewards, from CSP's view alone: by any two exchanges in a row, with every likely total."""
    size = len(SAMPLES)
    exchanges = [pairs for pairs in divisions(recorded.csp) if len(pairs) == size]
    for weighing, paying in pairwise(exchanges):
        weights = [w for w in (fraction_behind(x, y) for x, y in weighing) if w is not None]
        if len(weights) < size:
            continue
        for total in dict.fromkeys(totals(recorded, "gcd")[::-1] + totals(recorded, "fractions")[::-1]):
            solved = _solve(weights, total, recorded.settings.max_samples)
            if solved is not None:
                return solved[0], *_complete(*solved, paying, recorded)
    return None


def _solve(weights: list[Fraction], total: int, most: int) -> tuple[list[int], list[int]] | None:
    """Sample counts and d_i (at scale 10^2L, eps included) that explain the fractional parts of all w_i."""
    base = [w.denominator * (total // gcd(total, w.denominator)) // total for w in weights]
    small_first = sorted(itertools.product(range(1, _FACTORS + 1), repeat=len(weights)), key=prod)
    for factors in small_first:
        distances = [b * t for b, t in zip(base, factors, strict=True)]
        omega = sum(distances)
        samples = [_samples(w, d, omega, total, most) for w, d in zip(weights, distances, strict=True)]
        if all(samples) and sum(samples) == total:
            return samples, distances
    return None


def _samples(w: Fraction, distance: int, omega: int, total: int, most: int) -> int:
    """The whole delta <= most with delta * omega / (total * distance) = w modulo 1; 0 if there is none."""
    every = ((w + k) * total * distance / omega for k in itertools.count())
    deltas = itertools.takewhile(lambda delta: delta <= most, every)
    return next((int(delta) for delta in deltas if delta > 0 and delta.denominator == 1), 0)


def _complete(
    samples: list[int], distances: list[int], paying: list[tuple[int, int]], recorded: RecordedRound
) -> tuple[Floats, Floats]:
    """Distances, and rewards with the budget that explains their fractional parts."""
    shares = np.array([n / d for n, d in zip(samples, distances, strict=True)])
    shares /= shares.sum()
    parts = np.array([float(Fraction(x % y, y)) for x, y in paying])
    budgets = np.arange(1, _CENTS + 1) / 100.0
    miss = np.abs((np.outer(budgets, shares) - parts + 0.5) % 1.0 - 0.5).max(axis=1)
    fits = np.flatnonzero(miss < _CLOSE)
    budget = budgets[fits[0]] if fits.size else budgets[int(np.argmin(miss))]
    scale = 10.0 ** (2 * recorded.settings.decimals)
    true_distances = (np.array(distances, dtype=np.float64) - recorded.settings.floor_units) / scale
    return true_distances, shares * budget


def attack_pair(parameters: int = 20) -> Finding:
    """In plaintext, by the paper's Eq. 10: every profile refuses to run it."""
    rng = np.random.default_rng(5)
    (w_1, w_2), (delta_1, delta_2) = rng.uniform(-0.5, 0.5, (2, parameters)), (49, 73)
    average = (delta_1 * w_1 + delta_2 * w_2) / (delta_1 + delta_2)
    shares = [n / (np.sum((w - average) ** 2) + _EPS) for w, n in ((w_1, delta_1), (w_2, delta_2))]
    reward = round(36.0 * shares[0] / sum(shares), 6)
    samples, guess = _other_of_two(w_1, delta_1, average, reward / 36.0, most=100)
    recovered = f"delta = {samples}, and the model"
    return _PAIR.score(f"{PAPER}, n = 2", guess, average, w_2, recovered, "Eq. 10 solved for delta")


def attack_recorded_pair(recorded: RecordedRound) -> Finding:
    """The same code on a participant's view of a real run: it takes all the others for one."""
    own, victim = "p1", "p2"
    share, most = recorded.rewards[own] / BUDGET, recorded.settings.max_samples
    samples, guess = _other_of_two(recorded.weights[own], SAMPLES[own], recorded.average, share, most=most)
    recovered = f"delta = {samples} where {SAMPLES[victim]} is true"
    return _PAIR.score(HARDENED, guess, recorded.average, recorded.weights[victim], recovered, "; ".join(refusals()))


def _other_of_two(own: Floats, samples: int, average: Floats, share: float, *, most: int) -> tuple[int, Floats]:
    """The count in 1..most that explains the share best, and the model that goes with it."""
    distance = float(np.sum((own - average) ** 2))
    weight = samples / (distance + _EPS)
    counts = np.arange(1, most + 1)
    others = counts / ((samples / counts) ** 2 * distance + _EPS)
    best = int(counts[int(np.argmin(np.abs(weight / (weight + others) - share)))])
    return best, average + (samples / best) * (average - own)


def refusals() -> list[str]:
    """Of a task and of a round of two."""
    said = []
    try:
        TaskSettings.of(min_participants=2)
    except SettingsError:
        said.append("min_participants = 2 is refused")
    parties = deal(1, key_bits=256, max_participants=3, lanes=0)
    try:
        parties.play(1, parties.encrypt({who: (np.zeros(1), 1) for who in ("p1", "p2")}))
    except TooFewParticipants:
        said.append("a round of two is refused")
    return said
