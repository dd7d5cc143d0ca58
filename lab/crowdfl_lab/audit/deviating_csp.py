"""Attacks by a CSP that deviates: a false reply moves what it opens next by a number of its own choice.

A lane that CSP re-encrypts as e + Delta moves SP's operand by -Delta * r, r the mask of that lane. Under a mask shorter than
Delta * r it would stick out, and give the lane away. `hardened` masks operands uniformly modulo N.

A divisor or a dividend that CSP has made larger by K is longer than SDIV's masks are made for: y' = rho (y + K) - s shows y by
what is left modulo y + K, and V = (x + K) rho 2^g + ... shows rho, and with it y. With the guard both are uniform.

Within the guard CSP may shift a divisor all the same, and claims then show one number for each claimant. That is conceded.

With a hidden total, CSP and one reader find Q by a false ScaleReply. That is conceded: the total is hidden from either of them.
"""

from collections.abc import Generator
from contextlib import suppress
from statistics import median
from typing import cast

import numpy as np

from crowdfl.crypto.blocks import from_ints, to_ints, width_of
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.errors import NothingToAverage, RoundEnded, SlotOverflow
from crowdfl.protocols.common.sdiv import HardenedSdivSp, SdivWidths
from crowdfl.protocols.common.smul import PolynomialsReply, PolynomialsRequest, products_in
from crowdfl.protocols.exchange import Reply, ask_directly, run_exchange
from crowdfl.protocols.hardened.opening import Publication, read
from crowdfl.protocols.hardened.prifedavg import ModelCodec, ScaleReply, ScaleRequest
from crowdfl.protocols.hardened.prirwd import DISTANCES, LanesReply, LanesRequest, distance_polynomials
from crowdfl.protocols.hardened.profile import HardenedParticipant
from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.protocols.messages import Message
from crowdfl_lab.audit.finding import HARDENED, SAMPLES_OFF, TOTAL_OFF, Attack, Finding, Measure, difference, relative
from crowdfl_lab.audit.recorded_round import (
    PAYMENT,
    SMALL_BOUNDS,
    SMALL_PEOPLE,
    SMALL_SIZE,
    HardenedParties,
    ShortMaskedSide,
    small_parties,
    small_updates,
)
from crowdfl_lab.division import DivisionCsp, Pair

_STEP = 1 << 200  # Delta: above an operand's mask that is short on purpose
_LANES = 9  # messages of one step hold more than this task opens
_DIVISORS = (11, 23, 35, 41, 52, 60, 78, 90, 167, 178, 190, 201, 213, 222, 239, 250)
_FITS = 32  # bits by which a remainder must be smaller than chance makes it
# Bits: of the shortest range for rho, and of a long one, as suits either attack.
_KEYS = {"divisor": 466, "dividend": 1024}

_LANE_OFF = Measure(difference, "error over the lane's bound; blind: zero")
_LANE = Attack("altered lane", "new", "a participant's lane, by CSP that alters it", ("CSP",), _LANE_OFF)
_NUMBER = "a sample count, by CSP that shifts divisors and sees claims"
_CLAIMED = Attack("claimed number", "new", _NUMBER, ("CSP",), SAMPLES_OFF, conceded=True)
_BOTH = "the hidden total, by CSP that replies falsely, with one reader"
_HIDDEN = Attack("false scaling", "new", _BOTH, ("CSP", "participant"), TOTAL_OFF, conceded=True)


def attack_altered_lane(key_bits: int = 1024) -> list[Finding]:
    """With operands under short masks, and as built."""
    weak, built = small_parties(key_bits), small_parties(key_bits)
    weak.sp.reward_side = ShortMaskedSide
    return [_read_lane("hardened, short operand masks", weak), _read_lane(HARDENED, built)]


def _read_lane(subject: str, parties: HardenedParties) -> Finding:
    """The first lane of the first participant altered; that of the last shows in what CSP opens after."""
    sp, csp, view = parties.sp, parties.csp.party, parties.csp.party.view
    trained = {who: (np.full(SMALL_SIZE, 0.8), samples) for who, samples in SMALL_PEOPLE.items()}
    parties.open(1).collect(parties.encrypt(trained))

    def altering(request: bytes) -> bytes:
        reply = parties.csp.answer(request)
        if Message.kind_of(request) != LanesRequest.kind:
            return reply
        lanes = LanesReply.from_bytes(reply, csp.limits(1 << 10)).lanes
        changes = [_STEP] + [0] * (len(lanes) - 1)
        return LanesReply(csp.rerandomise(csp.add_plain(lanes, changes))).to_bytes()

    ended = "SP came to its end"
    try:
        run_exchange(sp.reward(PAYMENT), ask_directly(altering))
    except RoundEnded:
        ended = "CSP's own check ended the round"
    bound, n = sp.codec.budget.lane_bound, int(sp.party.public.n)
    opened = [int(v) for name in ("SMUL x'", "SDIV guard", "SDIV x'", "SDIV y'") for vs in view.of(name) for v in vs]
    masks = (-((v if 2 * v < n else v - n) // _STEP) for v in opened)  # r, where a number is a - Delta * r modulo N
    shown = int(view.of("lanes")[0][-1][0])
    likely = [shown - r for r in masks if abs(shown - r) <= bound]
    truth = int(sp.codec.packing.unpack(sp.codec.pack(*trained[list(trained)[-1]])[0], 1)[0]) / bound
    guess, recovered = None, "nothing that could be a lane"
    if likely:
        guess, recovered = likely[0] / bound, f"{likely[0]} of at most {bound}, and {truth:.3f} is true"
    return _LANE.score(subject, guess, 0.0, truth, recovered, f"{len(opened)} numbers read as Delta * r; {ended}")


def attack_inflated(number: str) -> list[Finding]:
    """`number`: which of the two CSP has made larger by K, by a false reply before the division."""
    return [_inflate("hardened, no guard", _Unguarded, number), _inflate(HARDENED, HardenedSdivSp, number)]


def _median_off(guess: list[int], truth: list[int]) -> float:
    return float(median(relative(a, b) for a, b in zip(guess, truth, strict=True)))


class _Unguarded(HardenedSdivSp):
    """SP's side of a division that believes that its numbers are of the expected size."""

    def _guard(self, x: CipherVector, y: CipherVector, coins: Coins) -> Generator[bytes, Reply, CipherVector]:
        yield from ()
        return self.party.encrypt([0] * (len(x) + len(y)), coins)


def _inflate(subject: str, side: type[HardenedSdivSp], number: str) -> Finding:
    count, of_divisor = len(_DIVISORS), number == "divisor"
    widths = SdivWidths(_KEYS[number], ybits=8, qbits=64, sigma=20, precision=2)
    _, sp, csp = Pair.fresh(widths.key_bits // 2)
    k = 1 << (widths.key_bits - widths.hi - 2) if of_divisor else 1 << (widths.alpha - widths.g + 29)
    y = sp.encrypt([d + (k if of_divisor else 0) for d in _DIVISORS])
    x = sp.encrypt([d * 1000 + (0 if of_divisor else k) for d in _DIVISORS])
    division = side(sp, widths, 1, "audit").run(x, y, Coins.fresh())
    ended = "answered to the end"
    try:
        run_exchange(division, ask_directly(DivisionCsp(csp, widths, count, count).answer))
    except NothingToAverage:
        ended = "CSP's own check ended the division"
    opened = zip(csp.view.of("SDIV x'")[0], csp.view.of("SDIV y'")[0], strict=True)
    reading = _divisor_behind if of_divisor else _quotient_behind
    guesses = [reading(int(v), int(masked), k, widths) for v, masked in opened]
    middle = 1 << (widths.ybits - 1)
    found = sum(g == d for g, d in zip(guesses, _DIVISORS, strict=True))
    note = f"K of {k.bit_length()} bits, {widths.key_bits}-bit key; {ended}"
    measure = Measure(_median_off, "relative error, median; blind: the middle of the range")
    title = f"divisors, by CSP that has made the {number}s too large"
    attack = Attack(f"inflated {number}", "new", title, ("CSP",), measure)
    guess = [g or middle for g in guesses]
    return attack.score(subject, guess, [middle] * count, list(_DIVISORS), f"{found} of {count} divisors", note)


def _divisor_behind(_v: int, masked: int, k: int, widths: SdivWidths) -> int | None:
    """y with masked = rho (y + K) - s: for the true one alone, -masked modulo y + K is short."""
    rest, y = min((-masked % (k + y), y) for y in range(1, 1 << widths.ybits))
    return y if rest < k >> _FITS else None


def _quotient_behind(v: int, masked: int, k: int, widths: SdivWidths) -> int | None:
    """y = y' / rho, rho from V, which is nearly K rho 2^g: close to a whole number of the right size."""
    if not v:
        return None
    scaled = (masked * k << (widths.g + _FITS)) // v
    y = (scaled + (1 << (_FITS - 1))) >> _FITS
    close = abs(scaled - (y << _FITS)) < 1 << (_FITS - 12)
    return y if close and 0 < y < 1 << widths.ybits else None


def attack_false_scaling(key_bits: int = 1024) -> Finding:
    """CSP returns [[0]] for [[Q]]^(X + R): a reader then opens D - Q R, and only the true Q makes D - Q R + Q (X + R) short."""
    parties = small_parties(key_bits, lanes=0, total="hidden")
    parties.open(1).collect(parties.encrypt(small_updates()))
    sp = parties.sp
    csp = parties.csp.party
    seen = list[int]()

    def answer(request: bytes) -> bytes:
        """Scales by nothing, and keeps what it opened."""
        reply = parties.csp.answer(request)
        if Message.kind_of(request) != ScaleRequest.kind:
            return reply
        seen.append(int(to_ints(csp.view.of("opened")[0])[0]))
        count = len(ScaleReply.from_bytes(reply, csp.limits(_LANES)).scaled)
        return ScaleReply(csp.encrypt([0] * count)).to_bytes()

    run_exchange(sp.publish(final=False), ask_directly(answer))
    reader, task = cast(HardenedParticipant, parties.people["p0"]), parties.task
    publication = Publication.from_bytes(sp.publication(), reader.party.limits(_LANES))
    shown = int(to_ints(read(publication, reader.audience, task.context(1), task.public))[0])
    most = SMALL_BOUNDS["max_participants"] * SMALL_BOUNDS["max_samples"]
    truth = sum(SMALL_PEOPLE.values())
    guess = next((total for total in range(1, most + 1) if _explains(total, shown, seen[-1], sp.codec)), None)
    recovered = "no total fits" if guess is None else f"{guess} samples where {truth} is true"
    note = "the total, and with it the exact sums, which a shown total would give every reader"
    return _HIDDEN.score(HARDENED, guess, most // 2, truth, recovered, note)


def attack_claimed_number(key_bits: int = 1024) -> Finding:
    """CSP makes every divisor nearly the same: a weight is then the cube of a count, and claims show the weights."""
    parties = small_parties(key_bits)
    sp = parties.sp
    csp = parties.csp.party
    widths = reward_widths(parties.spec.settings, SMALL_SIZE)
    parties.open(1).collect(parties.encrypt(small_updates()))
    products = products_in(distance_polynomials(len(SMALL_PEOPLE), widths.epsilon_units))
    first = [len(p) == 3 and p[:2] == (0, 0) and p[2] % 3 == 2 for p in products]  # Y^2 A_i, once in each divisor
    shifts = [int(is_first) << (widths.weights.ybits - 1) for is_first in first]
    limits = csp.limits(1 << 10)

    def shifting(request: bytes) -> bytes:
        reply = parties.csp.answer(request)
        if Message.kind_of(request) != PolynomialsRequest.kind:
            return reply
        if PolynomialsRequest.from_bytes(request, limits).purpose != DISTANCES:
            return reply
        shifted = csp.add_plain(PolynomialsReply.from_bytes(reply, limits).products, shifts)
        return PolynomialsReply(shifted).to_bytes()

    run_exchange(sp.reward(PAYMENT), ask_directly(shifting))
    claimed = parties.open_rewards(sp.envelopes(), 1)  # as each claim shows it to CSP
    roots = {who: amount ** (1 / 3) for who, amount in claimed.items()}
    guess = roots["p1"] / roots["p0"] * SMALL_PEOPLE["p0"]  # relative to one count
    recovered = f"{guess:.2f} samples where {SMALL_PEOPLE['p1']} are true"
    note = "one number for each claimant and rewarded round; rewards look like any others"
    return _CLAIMED.score(HARDENED, guess, SMALL_BOUNDS["max_samples"] / 2, SMALL_PEOPLE["p1"], recovered, note)


def _explains(total: int, shown: int, masked: int, codec: ModelCodec) -> bool:
    """Whether this total's Q, or one next to it, leaves dithers alone in the slots that no weight uses."""
    packing, k = codec.packing, codec.budget.dither_bits
    for q in range((1 << k) // total - 1, (1 << k) // total + 3):
        rest = from_ints([(shown + q * masked) % packing.n], width_of(packing.n))
        with suppress(SlotOverflow):
            if all(abs(v) <= 1 << k for v in packing.unpack_wide(rest, packing.slots)[SMALL_SIZE:]):
                return True
    return False
