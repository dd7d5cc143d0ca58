"""Attacks by an SP that deviates, with CSP as its oracle: signs of what CSP opens, and lengths of CSP's powers.

A lane or a divisor below zero ends a round, which is a comparison, and comparisons decrypt by halving. CSP takes every step of
a round once, in its order, and none after the end: SP gets the signs of a few steps out of a round, up to the first below
zero, which costs the round. A CSP that is made to forget answers for ever.

With a hidden total CSP raises [[Q]] to a number that it has opened. Were the exponent that number itself, the time of the power
would follow its length, and SP could send an unmasked one. Here lengths are compared, which no clock could do better.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from crowdfl.crypto.blocks import Block, to_ints
from crowdfl.crypto.compute import Backend, Kernel, Progress
from crowdfl.crypto.paillier.kernels import PowEach
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.errors import RoundEnded
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.common.sdiv import DivideRequest, GuardRequest
from crowdfl.protocols.common.smul import PolynomialsRequest
from crowdfl.protocols.hardened.prifedavg import HiddenAverageCsp, ScaleReply, ScaleRequest, power_of_one
from crowdfl.protocols.hardened.prirwd import (
    DISTANCES,
    REWARDS,
    WEIGHTS,
    InnerRequest,
    LanesRequest,
    NonceRequest,
)
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.protocols.messages import RoundRequest
from crowdfl.protocols.party import CountingBackend
from crowdfl.protocols.profile import InProcessMemory
from crowdfl.settings import to_millionths
from crowdfl_lab.audit.finding import HARDENED, Attack, Finding, relative, rms
from crowdfl_lab.audit.recorded_round import SMALL_BOUNDS, SMALL_PEOPLE, SMALL_SIZE, deal, small_parties, small_updates
from crowdfl_lab.parties import LocalParties

_VICTIM = "p1"
_PAYMENT = to_millionths(36)
_SP = ("SP",)
_APART = 8  # bits: lengths that a clock could tell apart

_OFF_ENTRY = "root mean square error of an entry over its bound; blind: the middle of its range"
_OFF_SAMPLES = "relative error; blind: half of max_samples"
_SIGNS = Attack("sign oracle", "new", "an upload, by SP asking CSP for signs", _SP, rms, _OFF_ENTRY)
_POWERS = Attack("power lengths", "new", "a sample count, by SP timing CSP's powers", _SP, relative, _OFF_SAMPLES)


def attack_signs(key_bits: int = 1024) -> list[Finding]:
    """By halving, as long as CSP answers; the victim's ciphertexts are SP's to use in every later round."""
    return [
        _read_by_signs("hardened, a CSP that forgets", small_parties(key_bits), forgetful=True),
        _read_by_signs(HARDENED, small_parties(key_bits), forgetful=False),
    ]


def _read_by_signs(subject: str, parties: LocalParties, *, forgetful: bool) -> Finding:
    trained, most = small_updates(), SMALL_BOUNDS["max_samples"]
    sp, uploads = cast(HardenedSp, parties.sp), parties.encrypt(trained)
    parties.open(1).collect(uploads)
    oracle = _Signs(parties, forgetful=forgetful)
    budget, upload = sp.codec.budget, sp.averaged(_VICTIM)
    samples = _halve(oracle, upload.part(-1), [], (0, budget.max_samples), 1)[0]
    entries = _halve(oracle, upload.part(0, 1), [], (-budget.upload_bound, budget.upload_bound), SMALL_SIZE)
    plain, _ = sp.codec.pack(*trained[_VICTIM])
    truth = np.append(sp.codec.packing.unpack(plain, SMALL_SIZE), trained[_VICTIM][1]).astype(np.float64)
    guess, blind = np.append(entries, samples), np.append(np.zeros(SMALL_SIZE), most / 2)
    scale = np.append(np.full(SMALL_SIZE, budget.upload_bound), most)
    exact = int(np.count_nonzero(guess == truth))
    recovered = f"{exact} of {len(truth)} entries by {oracle.told} signs"
    rounds = f"{oracle.spent} of {SMALL_BOUNDS['rounds']} rounds void"
    note = f"{rounds}; a round ends at the first sign below zero, of {_ASKS}: log2({_ASKS + 1}) bits at most"
    return _SIGNS.score(subject, guess / scale, blind / scale, truth / scale, recovered, note)


def _halve(oracle: "_Signs", packed: CipherVector, known: list[int], span: tuple[int, int], count: int) -> list[float]:
    """The last `count` slots of a plaintext, the topmost first: with those above taken off, a slot decides the sign."""
    if len(known) == count:
        return [float(v) for v in known[::-1]]
    place, (low, high) = count - 1 - len(known), span
    while low < high:
        middle = (low + high + 1) // 2
        slots = [span[1]] * place + [-middle] + [-v for v in known[::-1]]
        negative = oracle.is_negative(packed, slots)
        if negative is None:
            unread = (span[0] + span[1]) / 2
            return [unread] * place + [(low + high) / 2] + [float(v) for v in known[::-1]]
        low, high = (low, middle - 1) if negative else (middle, high)
    return _halve(oracle, packed, [*known, low], span, count)


_ASKS = 3  # signs that the steps of one round can tell: lanes, and the divisors of both divisions


@dataclass
class _Signs:
    """CSP as SP's oracle: what is asked, as a step of a round, until the round has ended."""

    parties: LocalParties
    forgetful: bool
    told: int = 0
    spent: int = 0
    _number: int = 1
    _asked: int = 0  # in this round

    def is_negative(self, packed: CipherVector, slots: list[int]) -> bool | None:
        """Of a ciphertext with these numbers added to its slots; None when no round is left."""
        if self._number > SMALL_BOUNDS["rounds"]:
            return None
        codec, party = cast(HardenedSp, self.parties.sp).codec, keyed_party(self.parties.sp)
        shift = sum(v << (codec.packing.slot_bits * place) for place, v in enumerate(slots))
        chosen = party.add_plain(packed, [shift])
        answered = (self._by_lanes, self._by_weights, self._by_rewards)[self._asked](chosen)
        self.told, self._asked = self.told + 1, self._asked + 1
        self._go_on(answered=answered)
        return not answered

    def _go_on(self, *, answered: bool) -> None:
        if self.forgetful:
            self.parties.csp.remember(InProcessMemory())
            self._asked = 0
        elif not answered or self._asked == _ASKS:
            self._number, self._asked, self.spent = self._number + 1, 0, self.spent + (not answered)

    def _by_lanes(self, chosen: CipherVector) -> bool:
        """The chosen ciphertext as somebody's lanes, unmasked."""
        self._send(NonceRequest(self._number, _PAYMENT, tuple(SMALL_PEOPLE), bytes(SEED_BYTES)))
        rows = cast(HardenedSp, self.parties.sp).codec.budget.buckets * len(SMALL_PEOPLE)
        lanes = CipherVector.concat([chosen, self._filled(rows - 1)])
        return self._send(LanesRequest(self._number, 0, *self._halved(lanes)))

    def _by_weights(self, chosen: CipherVector) -> bool:
        self._send(InnerRequest(self._number))
        operands = self._filled(3 * len(SMALL_PEOPLE) + 2)
        self._send(PolynomialsRequest(self._number, DISTANCES, *self._halved(operands)))
        return self._divide(WEIGHTS, chosen, len(SMALL_PEOPLE))

    def _by_rewards(self, chosen: CipherVector) -> bool:
        return self._divide(REWARDS, chosen, 1)

    def _divide(self, purpose: str, chosen: CipherVector, divisors: int) -> bool:
        """The chosen ciphertext, and one more, as a divisor."""
        numbers = self._halved(self._filled(len(SMALL_PEOPLE) + divisors))
        self._send(GuardRequest(self._number, purpose, *numbers))
        self._send(PolynomialsRequest(self._number, purpose, *numbers))
        positive = keyed_party(self.parties.sp).add_plain(chosen, [1])
        y = CipherVector.concat([positive, self._filled(divisors - 1)]) if divisors > 1 else positive
        return self._send(
            DivideRequest(self._number, purpose, *self._halved(self._filled(len(SMALL_PEOPLE))), *self._halved(y))
        )

    def _filled(self, count: int) -> CipherVector:
        return keyed_party(self.parties.sp).encrypt([1] * count)

    def _halved(self, c: CipherVector) -> tuple[CipherVector, Any]:
        party = keyed_party(self.parties.sp)
        blinded = party.rerandomise(c)
        return blinded, party.partial_decrypt(blinded)

    def _send(self, message: RoundRequest) -> bool:
        try:
            self.parties.csp.answer(message.to_bytes())
        except RoundEnded:
            return False
        return True


def attack_power_lengths(key_bits: int = 768) -> list[Finding]:
    """By halving, on CSP's step of a hidden total, which is asked as often as SP likes: more than CSP's order allows."""
    bounds = SMALL_BOUNDS | {"lanes": 0, "total": "hidden"}
    parties = deal(SMALL_SIZE, key_bits=key_bits, **bounds)
    parties.open(1).collect(parties.encrypt(small_updates()))
    party, codec = keyed_party(parties.csp), cast(HardenedSp, parties.sp).codec
    sides = {
        "hardened, bare powers": _BarePowers(party, codec.budget, codec.packing),
        HARDENED: HiddenAverageCsp(party, codec.budget, codec.packing),
    }
    return [_read_by_lengths(subject, parties, side) for subject, side in sides.items()]


class _BarePowers(HiddenAverageCsp):
    """CSP's side with what it opened as the exponent."""

    def answer(self, message: ScaleRequest) -> ScaleReply:
        opened = self.party.finish(message.masked, message.masked_1)
        return ScaleReply(power_of_one(self.party, message.factor, opened))


class _Lengths:
    """A backend that notes how long the longest exponent of its last powers was."""

    name = "lengths of powers"

    def __init__(self, inner: Backend) -> None:
        self.inner, self.last = inner, 0

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        if isinstance(kernel, PowEach):
            self.last = max(int(exponent).bit_length() for exponent in to_ints(blocks[1]))
        return self.inner.map(kernel, *blocks, out=out, progress=progress)


def _read_by_lengths(subject: str, parties: LocalParties, side: HiddenAverageCsp) -> Finding:
    party, most, truth = keyed_party(parties.sp), SMALL_BOUNDS["max_samples"], SMALL_PEOPLE[_VICTIM]
    lengths, factor = _Lengths(side.party.backend), party.encrypt([5])
    samples = cast(HardenedSp, parties.sp).averaged(_VICTIM).part(-1)
    side.party.compute = CountingBackend(lengths, side.party.costs)

    def length_of(c: CipherVector) -> int:
        request = ScaleRequest(1, 0, c, party.partial_decrypt(c), factor)
        side.answer(request)
        return lengths.last

    short, long = (length_of(party.encrypt([value])) for value in (most, -most))
    low, high = 0, most
    while low < high and long - short > _APART:
        middle = (low + high + 1) // 2
        taken = length_of(party.add_plain(samples, [-middle]))
        low, high = (middle, high) if abs(taken - short) < abs(taken - long) else (low, middle - 1)
    guess = low if low == high else None
    recovered = "no power is shorter" if guess is None else f"{guess} samples where {truth} is true"
    note = f"exponents of {short} bits for {most}, of {long} bits for {-most}"
    return _POWERS.score(subject, guess, most // 2, truth, recovered, note)
