"""Attacks by an SP that deviates, with CSP as its oracle, or with other numbers in a claim, in a reward, or on a phone.

**Signs.** A lane or a divisor below zero ends a round, which is a comparison, and comparisons decrypt by halving. CSP takes
every step of a round once, in its order, and none after the end: SP gets the signs of a few steps out of a round, up to the
first below zero, which costs the round. A CSP that is made to forget answers for ever.

**Lengths.** With a hidden total CSP raises [[Q]] to a number that it has opened. Were the exponent that number itself, the time
of the power would follow its length, and SP could send an unmasked one. Here lengths are compared, which no clock could do
better.

**Claims.** CSP compares a claim with the masked rewards that it keeps, which is an oracle, if SP may choose what is kept and
which masks a claim shows. Rewards are written once, and the signature of a claim covers all of it. CSP signs what it seals, so
that a phone shows no reward but CSP's. What is left is conceded: SP chooses which ciphertext it calls somebody's reward, once,
and reads it off an honest claim.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from crowdfl.crypto.blocks import Block, to_ints
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.commitment import commit
from crowdfl.crypto.compute import Backend, Kernel, Progress
from crowdfl.crypto.paillier.kernels import PowEach
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import seal_to
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import BadSignature, ClaimRefused, OutOfTurn, RewardOutOfRange, RoundEnded, WrongAmount
from crowdfl.protocols.claims import Claim, RewardEnvelope, reward_context, reward_statement, within_budget
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.common.sdiv import DivideRequest, GuardRequest
from crowdfl.protocols.common.smul import PolynomialsRequest
from crowdfl.protocols.exchange import Reply, ask_directly, run_exchange
from crowdfl.protocols.hardened.bundles import ReaderBundle
from crowdfl.protocols.hardened.manifest import ManifestRequest
from crowdfl.protocols.hardened.opening import PARTICIPANTS, OpeningSp, digest, read
from crowdfl.protocols.hardened.prifedavg import HiddenAverageCsp, ScaleReply, ScaleRequest, power_of_one
from crowdfl.protocols.hardened.prirwd import (
    DISTANCES,
    REWARDS,
    WEIGHTS,
    InnerRequest,
    LanesRequest,
    RewardCsp,
    RewardRequest,
    RewardSp,
    RewardWidths,
)
from crowdfl.protocols.hardened.profile import HardenedParticipant
from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.protocols.messages import Limits, RoundRequest
from crowdfl.protocols.party import CountingBackend, KeyedParty
from crowdfl.protocols.records import MemoryRecords
from crowdfl_lab.audit.finding import (
    HARDENED,
    REWARD_OFF,
    SAMPLES_OFF,
    Attack,
    Finding,
    Measure,
    found_in,
    relative,
    rms,
)
from crowdfl_lab.audit.recorded_round import (
    PAYMENT,
    SMALL_BOUNDS,
    SMALL_PEOPLE,
    SMALL_SIZE,
    HardenedParties,
    signed_manifest,
    small_parties,
    small_updates,
)

_CLAIMANT, _VICTIM = "p0", "p1"
_MOST: int = SMALL_BOUNDS["max_samples"]
_APART = 8  # bits: lengths that a clock could tell apart
_ASKS = 4  # signs that the steps of one round can tell: lanes, counts, and the divisors of both divisions
_SALT = bytes(SEED_BYTES)

_ENTRY_OFF = Measure(rms, "root mean square error of an entry over its bound; blind: the middle of its range")
_SHOWN_OFF = Measure(relative, "relative error of what the phone shows; blind: it shows nothing")
_SP = ("SP",)
_SIGNS = Attack("sign oracle", "new", "an upload, by SP asking CSP for signs", _SP, _ENTRY_OFF)
_POWERS = Attack("power lengths", "new", "a sample count, by SP timing CSP's powers", _SP, SAMPLES_OFF)
_CLAIMS = Attack("claim oracle", "new", "another's reward, by SP with one honest claim", _SP, REWARD_OFF)
_CHOSEN = "a sample count, by SP that calls it an honest claimant's reward"
_SWAPPED = Attack("chosen reward", "new", _CHOSEN, _SP, SAMPLES_OFF, conceded=True)
_ASIDE = "several uploads at once, by SP with one reader"
_SEVERAL = Attack("several uploads", "new", _ASIDE, ("SP", "participant"), _ENTRY_OFF, conceded=True)
_FORGERY = Attack("forged reward", "new", "a phone, by SP with a reward that CSP did not sign", _SP, _SHOWN_OFF)


def attack_signs(key_bits: int = 1024) -> list[Finding]:
    """By halving, as long as CSP answers; the victim's ciphertexts are SP's to use in every later round."""
    return [
        _read_by_signs("hardened, a CSP that forgets", small_parties(key_bits), forgetful=True),
        _read_by_signs(HARDENED, small_parties(key_bits), forgetful=False),
    ]


def _read_by_signs(subject: str, parties: HardenedParties, *, forgetful: bool) -> Finding:
    trained, sp = small_updates(), parties.sp
    parties.open(1).collect(parties.encrypt(trained))
    oracle = _Signs(parties, forgetful=forgetful)
    budget, upload = sp.codec.budget, sp.averaged(_VICTIM)
    samples = _halve(oracle, upload.part(-1), [], (0, budget.max_samples), 1)[0]
    entries = _halve(oracle, upload.part(0, 1), [], (-budget.upload_bound, budget.upload_bound), SMALL_SIZE)
    plain, _ = sp.codec.pack(*trained[_VICTIM])
    truth = np.append(sp.codec.packing.unpack(plain, SMALL_SIZE), trained[_VICTIM][1]).astype(np.float64)
    guess, blind = np.append(entries, samples), np.append(np.zeros(SMALL_SIZE), _MOST / 2)
    scale = np.append(np.full(SMALL_SIZE, budget.upload_bound), _MOST)
    recovered = f"{np.count_nonzero(guess == truth)} of {len(truth)} entries by {oracle.told} signs"
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


@dataclass
class _Signs:
    """CSP as SP's oracle: what is asked, as a step of a round, until the round has ended."""

    parties: HardenedParties
    forgetful: bool
    told: int = 0
    spent: int = 0
    _number: int = 1
    _asked: int = 0  # in this round
    _manifests: dict[int, ManifestRequest] = field(default_factory=dict)

    def is_negative(self, packed: CipherVector, slots: list[int]) -> bool | None:
        """Of a ciphertext with these numbers added to its slots; None when no round is left."""
        if self._number > SMALL_BOUNDS["rounds"]:
            return None
        sp = self.parties.sp
        shift = sum(v << (sp.codec.packing.slot_bits * place) for place, v in enumerate(slots))
        chosen = sp.party.add_plain(packed, [shift])
        answered = (self._by_lanes, self._by_counts, self._by_weights, self._by_rewards)[self._asked](chosen)
        self.told, self._asked = self.told + 1, self._asked + 1
        if self.forgetful:
            self.parties.csp.records = MemoryRecords()
            self._asked = 0
        elif not answered or self._asked == _ASKS:
            self._number = self._number + 1
            self._asked = 0
            self.spent = self.spent + (not answered)
        return not answered

    def _by_lanes(self, chosen: CipherVector) -> bool:
        """The chosen ciphertext as somebody's lanes, unmasked."""
        self._send(self._manifest())
        rows = self.parties.sp.codec.budget.buckets * len(SMALL_PEOPLE)
        lanes = CipherVector.concat([chosen, self._filled(rows - 1)])
        return self._send(LanesRequest(self._number, 0, *self._halved(lanes)))

    def _manifest(self) -> ManifestRequest:
        """Honest phones sign for each round."""
        if self._number not in self._manifests:
            uploads = self.parties.encrypt(small_updates(), self._number)
            self._manifests[self._number] = signed_manifest(self._number, uploads)
        return self._manifests[self._number]

    def _by_counts(self, chosen: CipherVector) -> bool:
        positive = self.parties.sp.party.add_plain(chosen, [1])
        counts = CipherVector.concat([positive, self._filled(2 * len(SMALL_PEOPLE) - 1)])
        return self._send(InnerRequest(self._number, *self._halved(counts)))

    def _by_weights(self, chosen: CipherVector) -> bool:
        operands = self._filled(3 * len(SMALL_PEOPLE) + 2)
        self._send(PolynomialsRequest(self._number, DISTANCES, *self._halved(operands)))
        return self._divide(WEIGHTS, chosen, len(SMALL_PEOPLE))

    def _by_rewards(self, chosen: CipherVector) -> bool:
        return self._divide(REWARDS, chosen, 1)

    def _divide(self, purpose: str, chosen: CipherVector, divisors: int) -> bool:
        """The chosen ciphertext, and one more, as a divisor, under dividends that give the least quotient which CSP takes."""
        numbers = self._halved(self._filled(len(SMALL_PEOPLE) + divisors))
        self._send(GuardRequest(self._number, purpose, *numbers))
        self._send(PolynomialsRequest(self._number, purpose, *numbers))
        party, alpha = (
            self.parties.sp.party,
            reward_widths(self.parties.spec.settings, SMALL_SIZE).of(purpose).alpha,
        )
        positive = party.add_plain(chosen, [1])
        y = CipherVector.concat([positive, self._filled(divisors - 1)]) if divisors > 1 else positive
        x = party.scale(y if divisors > 1 else CipherVector.concat([y] * len(SMALL_PEOPLE)), 1 << (alpha - 1))
        return self._send(DivideRequest(self._number, purpose, *self._halved(x), *self._halved(y)))

    def _filled(self, count: int) -> CipherVector:
        return self.parties.sp.party.encrypt([1] * count)

    def _halved(self, c: CipherVector) -> tuple[CipherVector, Any]:
        blinded = self.parties.sp.party.rerandomise(c)
        return blinded, self.parties.sp.party.partial_decrypt(blinded)

    def _send(self, message: RoundRequest) -> bool:
        try:
            self.parties.csp.answer(message.to_bytes())
        except RoundEnded:
            return False
        return True


def attack_power_lengths(key_bits: int = 768) -> list[Finding]:
    """By halving, on CSP's step of a hidden total, which is asked as often as SP likes: more than CSP's order allows."""
    parties = small_parties(key_bits, lanes=0, total="hidden")
    parties.open(1).collect(parties.encrypt(small_updates()))
    party, codec = parties.csp.party, parties.sp.codec
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


def _read_by_lengths(subject: str, parties: HardenedParties, side: HiddenAverageCsp) -> Finding:
    party = parties.sp.party
    truth = SMALL_PEOPLE[_VICTIM]
    samples = parties.sp.averaged(_VICTIM).part(-1)
    lengths, factor = _Lengths(side.party.backend), party.encrypt([5])
    side.party.compute = CountingBackend(lengths, side.party.costs)

    def length_of(c: CipherVector) -> int:
        side.answer(ScaleRequest(1, 0, c, party.partial_decrypt(c), factor))
        return lengths.last

    short, long = (length_of(party.encrypt([value])) for value in (_MOST, -_MOST))
    low, high = 0, _MOST
    while low < high and long - short > _APART:
        middle = (low + high + 1) // 2
        taken = length_of(party.add_plain(samples, [-middle]))
        low, high = (middle, high) if abs(taken - short) < abs(taken - long) else (low, middle - 1)
    guess = low if low == high else None
    recovered = "no power is shorter" if guess is None else f"{guess} samples where {truth} is true"
    note = f"exponents of {short} bits for {_MOST}, of {long} bits for {-_MOST}"
    return _POWERS.score(subject, guess, _MOST // 2, truth, recovered, note)


class _KeepingSide(RewardSp):
    """PriRwd's SP, keeping the encrypted rewards: it is free to. It may call a ciphertext of its choice the first one's."""

    mu: CipherVector
    chosen: CipherVector | None = None

    def divide(
        self, purpose: str, x: CipherVector, y: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, CipherVector]:
        self.mu = yield from super().divide(purpose, x, y, coins)
        if self.chosen is None or purpose != REWARDS:
            return self.mu
        return CipherVector.concat([self.chosen, self.mu.part(1, len(self.mu))])


def _claim(parties: HardenedParties) -> bytes:
    return cast(HardenedParticipant, parties.people[_CLAIMANT]).claim()


def attack_claims(key_bits: int = 1024) -> Iterator[Finding]:
    """Another's encrypted reward, compared by claims: with a CSP that keeps what it is told, and as built."""
    parties, sides = small_parties(key_bits), list[_KeepingSide]()
    sp = parties.sp
    csp = parties.csp.party
    widths = reward_widths(parties.spec.settings, SMALL_SIZE)

    def keeping(party: KeyedParty, built: RewardWidths, packing: Packing, number: int) -> RewardSp:
        sides.append(_KeepingSide(party, built, packing, number))
        return sides[-1]

    sp.reward_side = keeping
    rewards = parties.play(1, parties.encrypt(small_updates()), payment=PAYMENT).rewards
    claim = Claim.from_bytes(_claim(parties), sp.party.limits(1))
    victim = list(SMALL_PEOPLE).index(_VICTIM)
    known = _Claimed(sp.party, claim, sides[0].mu.part(victim, victim + 1), widths)
    loose = _LooseCsp(int(csp.public.n), RewardCsp(csp, sp.codec.packing, widths), widths.fraction)
    built = _BuiltCsp(parties.csp.answer)
    for subject, oracle in (("hardened, claims that sign their sum alone", loose), (HARDENED, built)):
        yield _read_by_claims(subject, known, oracle, rewards[_VICTIM])


@dataclass(frozen=True)
class _Claimed:
    """What SP holds: one honest claim, and the victim's encrypted reward."""

    party: KeyedParty
    claim: Claim
    mu: CipherVector = field(repr=False)
    widths: RewardWidths

    def forged(self, threshold: int) -> tuple[list[RewardRequest], Claim]:
        """Two rewards of nobody, which add up to the claimed amount if mu lies above the threshold, by less than that."""
        party = self.party
        h = self.widths.fraction
        amount = self.claim.amounts[0]
        above = party.add_plain(self.mu, [-threshold])
        below = party.add_plain(party.scale(self.mu, -1), [threshold + (amount << h) + (1 << h) - 1])
        commitments = (commit(0, _SALT),) * len(SMALL_PEOPLE)
        rewards = (party.rerandomise(CipherVector.concat([c] * len(SMALL_PEOPLE))) for c in (above, below))
        requests = [RewardRequest(i, c, party.partial_decrypt(c), commitments) for i, c in enumerate(rewards, start=1)]
        claim = replace(self.claim, rounds=(1, 2), amounts=(amount, 0), masks=(0, 0))
        claim = replace(claim, salts=(_SALT, _SALT), shown=(b"", b""))
        return requests, claim


@dataclass
class _LooseCsp:
    """CSP without its records: it keeps whatever SP calls a reward, and of a claim's signature believes the sum alone."""

    n: int
    side: RewardCsp
    fraction: int
    refused: list[str] = field(default_factory=list)

    def accepts(self, requests: list[RewardRequest], claim: Claim) -> bool:
        kept = {request.round_number: int(self.side.open(request)[0]) for request in requests}
        masked = [(kept[number] - mask) % self.n for number, mask in zip(claim.rounds, claim.masks, strict=True)]
        try:
            earned = [within_budget(value >> self.fraction, PAYMENT) for value in masked]
        except RewardOutOfRange:
            return False
        return sum(earned) == sum(claim.amounts)


@dataclass
class _BuiltCsp:
    """CSP as it is; a refusal tells SP nothing, and is noted."""

    answer: Callable[[bytes], bytes]
    refused: list[str] = field(default_factory=list)

    def accepts(self, requests: list[RewardRequest], claim: Claim) -> bool:
        before = len(self.refused)
        for message in (*requests, claim):
            try:
                self.answer(message.to_bytes())
            except (OutOfTurn, BadSignature, ClaimRefused, WrongAmount) as refusal:
                self.refused.append(type(refusal).__name__)
        return len(self.refused) == before


def _read_by_claims(subject: str, known: _Claimed, csp: _LooseCsp | _BuiltCsp, truth: int) -> Finding:
    """The window in which the reward lies, found by steps and then halved."""
    h, asked = known.widths.fraction, 0

    def inside(threshold: int) -> bool:
        nonlocal asked
        asked += 1
        return csp.accepts(*known.forged(threshold))

    width = known.claim.amounts[0] << h
    low = next((t for t in range(0, (PAYMENT << h) + 1, width) if inside(t)), None)
    high = None if low is None else low + width
    while low is not None and high is not None and high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if inside(middle) else (low, middle)
    guess = None if low is None else low >> h
    recovered = "refused" if guess is None else f"{guess} millionths where {truth} are true"
    note = f"{asked} forged claims" + (f"; {', '.join(sorted(set(csp.refused)))}" if csp.refused else "")
    return _CLAIMS.score(subject, guess, PAYMENT // len(SMALL_PEOPLE), truth, recovered, note)


def attack_chosen_reward(key_bits: int = 1024) -> Finding:
    """CSP does not know what it opens: a sample count in place of the claimant's reward, read off the honest claim."""
    parties = small_parties(key_bits)
    sp, h = parties.sp, reward_widths(parties.spec.settings, SMALL_SIZE).fraction

    def swapping(party: KeyedParty, built: RewardWidths, packing: Packing, number: int) -> RewardSp:
        side = _KeepingSide(party, built, packing, number)
        side.chosen = party.scale(sp.averaged(_VICTIM).part(-1), 1 << h)
        return side

    sp.reward_side = swapping
    parties.play(1, parties.encrypt(small_updates()), payment=PAYMENT)
    claim = _claim(parties)
    guess = sum(sp.attested(claim, parties.csp.answer(claim)).amounts.values())
    truth = SMALL_PEOPLE[_VICTIM]
    note = "one number up to the budget for each claimant and round; the claimant sees it, and is paid it"
    return _SWAPPED.score(HARDENED, guess, _MOST // 2, truth, f"{guess} samples where {truth} is true", note)


def attack_several_uploads(key_bits: int = 1024) -> Finding:
    """SP opens u1 + 2^k u2 + ... in place of the sum: CSP does not know what it opens, and a slot has room for several."""
    parties, trained = small_parties(key_bits), small_updates()
    parties.open(1).collect(parties.encrypt(trained))
    sp, party, budget = parties.sp, parties.sp.party, parties.sp.codec.budget
    run_exchange(sp.reward(PAYMENT), ask_directly(parties.csp.answer))
    width = budget.upload_bound.bit_length() + 2
    names = list(SMALL_PEOPLE)[: budget.slot_bits // width]
    chosen = sp.averaged(names[0])
    for place, who in enumerate(names[1:], 1):
        chosen = party.add(chosen, party.scale(sp.averaged(who), 1 << (width * place)))
    opening, state = OpeningSp(party), MaskSeed.bound_to(digest(chosen))
    replies = [parties.csp.answer(request) for request in opening.requests(state, chosen, 1, PARTICIPANTS)]
    reader, task = cast(HardenedParticipant, parties.people[_CLAIMANT]), parties.task
    rows = read(opening.publication(state, chosen, replies), reader.audience, task.context(1), task.public)
    slots = [int(v) for v in sp.codec.packing.unpack_wide(rows[:-1], SMALL_SIZE)]
    half, guess = 1 << (width - 1), list[float]()
    for _ in names:
        low = [(v + half) % (2 * half) - half for v in slots]
        guess += [v / budget.upload_bound for v in low]
        slots = [(v - least) >> width for v, least in zip(slots, low, strict=True)]
    plain = [sp.codec.packing.unpack(sp.codec.pack(*trained[who])[0], SMALL_SIZE) for who in names]
    truth = np.concatenate(plain).astype(np.float64) / budget.upload_bound
    found = np.array(guess)
    note = f"{len(names)} uploads at once: slots of {budget.slot_bits} bits, uploads of {width}"
    return _SEVERAL.score(HARDENED, found, np.zeros(len(truth)), truth, found_in(found, truth, within=1e-9), note)


def attack_phone(key_bits: int = 1024) -> list[Finding]:
    """SP seals a reward of its own making; to a phone that takes SP's signature for CSP's, and as built."""
    parties, signing = small_parties(key_bits), SigningKey.fresh()
    as_built = _show(HARDENED, parties, signing)
    own = ReaderBundle.from_bytes(parties.dealing.participant, Limits.plain())
    parties.dealing = replace(parties.dealing, participant=replace(own, csp_key=signing.public).to_bytes())
    return [_show("hardened, a phone that trusts SP", parties, signing), as_built]


def _show(subject: str, parties: HardenedParties, signing: SigningKey) -> Finding:
    keys = parties.enrol(_VICTIM)
    phone = parties.fresh_person(_VICTIM)
    wanted = PAYMENT // 2
    context, fraction = parties.task.context(1), reward_widths(parties.spec.settings, SMALL_SIZE).fraction
    body = (wanted << fraction).to_bytes(parties.task.public.plaintext_bytes, "big")
    signature = signing.sign(reward_statement(context, _VICTIM, commit(0, _SALT), body))
    sealed = seal_to(keys.reader.public, body + signature, reward_context(context, _VICTIM))
    shown, recovered = 0, "shown as if it were CSP's"
    try:
        shown = phone.open_reward(RewardEnvelope(0, _SALT, sealed).to_bytes(), 1)
    except BadSignature as refusal:
        recovered = f"refused: {type(refusal).__name__}"
    note = f"{wanted} millionths, sealed to the phone's own key and signed by SP"
    return _FORGERY.score(subject, shown, 0, wanted, recovered, note)
