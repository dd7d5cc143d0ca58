"""Attacks by an SP that deviates about rewards: other numbers in a claim, in a reward, or on a phone.

CSP compares a claim with the masked rewards that it keeps, which is an oracle, if SP may choose what is kept and which masks a
claim shows. Rewards are written once, and the signature of a claim covers all of it. CSP signs what it seals, so that a phone
shows no reward but CSP's.

What is left is conceded: SP chooses which ciphertext it calls somebody's reward, once, and reads it off an honest claim.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import cast

from crowdfl.crypto.compute import default_backend
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.randomness import SEED_BYTES, Coins
from crowdfl.crypto.sealing import SigningKey, commit, seal_to
from crowdfl.errors import BadSignature, ClaimRefused, OutOfTurn, RewardOutOfRange, WrongAmount
from crowdfl.protocols.claims import Claim, RewardEnvelope, payable, reward_context, reward_statement
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.hardened.prirwd import REWARDS, RewardCsp, RewardRequest, RewardSp, RewardWidths
from crowdfl.protocols.hardened.profile import HardenedProfile, HardenedSp
from crowdfl.protocols.hardened.shape import ReaderBundle, reward_widths
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import ParticipantKeys, TaskSpec, Tools
from crowdfl.settings import TaskSettings, to_millionths
from crowdfl_lab.audit.finding import HARDENED, Attack, Finding, relative
from crowdfl_lab.audit.recorded_round import SMALL_BOUNDS, SMALL_PEOPLE, SMALL_SIZE, small_parties, small_updates

_CLAIMANT, _VICTIM = "p0", "p1"
_PAYMENT = to_millionths(36)
_SALT = bytes(SEED_BYTES)
_SP = ("SP",)

_OFF_REWARD = "relative error; blind: the budget in equal parts"
_OFF_SAMPLES = "relative error; blind: half of max_samples"
_SHOWN = "relative error of what the phone shows; blind: it shows nothing"
_CHOSEN = "a sample count, by SP that calls it an honest claimant's reward"
_FORGED = "a phone, by SP with a reward that CSP did not sign"
_CLAIMS = Attack("claim oracle", "new", "another's reward, by SP with one honest claim", _SP, relative, _OFF_REWARD)
_SWAPPED = Attack("chosen reward", "new", _CHOSEN, _SP, relative, _OFF_SAMPLES, conceded=True)
_FORGERY = Attack("forged reward", "new", _FORGED, _SP, relative, _SHOWN)


class _KeepingSide(RewardSp):
    """PriRwd's SP, keeping the encrypted rewards: it is free to."""

    mu: CipherVector

    def divide(
        self, purpose: str, x: CipherVector, y: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, CipherVector]:
        self.mu = yield from super().divide(purpose, x, y, coins)
        return self.mu


class _SwappingSide(RewardSp):
    """PriRwd's SP, that calls a ciphertext of its choice the first participant's reward."""

    chosen: CipherVector

    def divide(
        self, purpose: str, x: CipherVector, y: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, CipherVector]:
        result = yield from super().divide(purpose, x, y, coins)
        return CipherVector.concat([self.chosen, result.part(1, len(result))]) if purpose == REWARDS else result


def attack_claims(key_bits: int = 1024) -> list[Finding]:
    """Another's encrypted reward, compared by claims: with a CSP that keeps what it is told, and as built."""
    parties = small_parties(key_bits)
    sides: list[_KeepingSide] = []
    sp, widths = cast(HardenedSp, parties.sp), reward_widths(parties.dealer.spec.settings, SMALL_SIZE)

    def keeping(party: KeyedParty, built: RewardWidths, packing: Packing, number: int) -> RewardSp:
        sides.append(_KeepingSide(party, built, packing, number))
        return sides[-1]

    sp.reward_side = keeping
    rewards = parties.play(1, parties.encrypt(small_updates()), payment=_PAYMENT).rewards
    claim = Claim.from_bytes(parties.people[_CLAIMANT].claim(), sp.party.limits(1))
    victim = list(SMALL_PEOPLE).index(_VICTIM)
    known = _Claimed(sp.party, claim, sides[0].mu.part(victim, victim + 1), widths)
    csp = keyed_party(parties.csp)
    loose = _LooseCsp(csp, RewardCsp(csp, sp.codec.packing, widths), widths.fraction)
    built = _BuiltCsp(parties.csp.answer)
    return [
        _read_by_claims("hardened, claims that sign their sum alone", known, loose.open, loose.attest, rewards, []),
        _read_by_claims(HARDENED, known, built.open, built.attest, rewards, built.refused),
    ]


@dataclass(frozen=True)
class _Claimed:
    """What SP holds: one honest claim, and the victim's encrypted reward."""

    party: KeyedParty
    claim: Claim
    mu: CipherVector = field(repr=False)
    widths: RewardWidths

    def forged(self, threshold: int) -> tuple[list[RewardRequest], Claim]:
        """Two rewards of nobody, which add up to the claimed amount if mu lies above the threshold, by less than that."""
        party, h, amount = self.party, self.widths.fraction, self.claim.amounts[0]
        above = party.add_plain(self.mu, [-threshold])
        below = party.add_plain(party.scale(self.mu, -1), [threshold + (amount << h) + (1 << h) - 1])
        commitments = (commit(0, _SALT),) * len(SMALL_PEOPLE)
        rewards = (party.rerandomise(CipherVector.concat([c] * len(SMALL_PEOPLE))) for c in (above, below))
        requests = [RewardRequest(i, c, party.partial_decrypt(c), commitments) for i, c in enumerate(rewards, start=1)]
        claim = replace(self.claim, rounds=(1, 2), amounts=(amount, 0), masks=(0, 0), salts=(_SALT, _SALT))
        return requests, claim


@dataclass
class _LooseCsp:
    """CSP without its records: it keeps whatever SP calls a reward, and of a claim's signature believes the sum alone."""

    party: KeyedParty
    side: RewardCsp
    fraction: int
    kept: dict[int, int] = field(default_factory=dict, repr=False)

    def open(self, message: RewardRequest) -> bool:
        self.kept[message.round_number] = int(self.side.open(message)[0])
        return True

    def attest(self, claim: Claim) -> bool:
        n = int(self.party.public.n)
        masked = zip(claim.rounds, claim.masks, strict=True)
        try:
            earned = [payable((self.kept[number] - mask) % n, self.fraction, _PAYMENT) for number, mask in masked]
        except RewardOutOfRange:
            return False
        return sum(earned) == sum(claim.amounts)


@dataclass
class _BuiltCsp:
    """CSP as it is; a refusal tells SP nothing, and is noted."""

    answer: Callable[[bytes], bytes]
    refused: list[str] = field(default_factory=list)

    def open(self, message: RewardRequest) -> bool:
        return self._asks(message.to_bytes())

    def attest(self, claim: Claim) -> bool:
        return self._asks(claim.to_bytes())

    def _asks(self, request: bytes) -> bool:
        try:
            self.answer(request)
        except (OutOfTurn, BadSignature, ClaimRefused, WrongAmount) as refusal:
            self.refused.append(type(refusal).__name__)
            return False
        return True


def _read_by_claims(
    subject: str,
    known: _Claimed,
    open_rewards: Callable[[RewardRequest], bool],
    attest: Callable[[Claim], bool],
    rewards: dict[str, int],
    refused: list[str],
) -> Finding:
    """The window in which the reward lies, found by steps and then halved."""
    h, truth, asked = known.widths.fraction, rewards[_VICTIM], 0

    def inside(threshold: int) -> bool:
        nonlocal asked
        asked += 1
        requests, claim = known.forged(threshold)
        return all([*map(open_rewards, requests), attest(claim)])

    width = known.claim.amounts[0] << h
    low = next((t for t in range(0, (_PAYMENT << h) + 1, width) if inside(t)), None)
    high = None if low is None else low + width
    while low is not None and high is not None and high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if inside(middle) else (low, middle)
    guess = None if low is None else low >> h
    recovered = "refused" if guess is None else f"{guess} millionths where {truth} are true"
    note = f"{asked} forged claims" + (f"; {', '.join(sorted(set(refused)))}" if refused else "")
    return _CLAIMS.score(subject, guess, _PAYMENT // len(SMALL_PEOPLE), truth, recovered, note)


def attack_chosen_reward(key_bits: int = 1024) -> Finding:
    """CSP does not know what it opens: a sample count in place of the claimant's reward, read off the honest claim."""
    parties = small_parties(key_bits)
    sp, h = cast(HardenedSp, parties.sp), reward_widths(parties.dealer.spec.settings, SMALL_SIZE).fraction

    def swapping(party: KeyedParty, built: RewardWidths, packing: Packing, number: int) -> RewardSp:
        side = _SwappingSide(party, built, packing, number)
        side.chosen = party.scale(sp.averaged(_VICTIM).part(-1), 1 << h)
        return side

    sp.reward_side = swapping
    parties.play(1, parties.encrypt(small_updates()), payment=_PAYMENT)
    claim = parties.people[_CLAIMANT].claim()
    guess, truth = sum(sp.pay(claim, parties.csp.answer(claim)).values()), SMALL_PEOPLE[_VICTIM]
    recovered = f"{guess} samples where {truth} is true"
    note = "one number up to the budget for each claimant and round; the claimant sees it, and is paid it"
    return _SWAPPED.score(HARDENED, guess, SMALL_BOUNDS["max_samples"] // 2, truth, recovered, note)


def attack_phone(key_bits: int = 1024) -> list[Finding]:
    """SP seals a reward of its own making; to a phone that takes SP's signature for CSP's, and as built."""
    spec = TaskSpec("audit", TaskSettings.of(key_bits=key_bits, **SMALL_BOUNDS), SMALL_SIZE)
    dealing, signing = HardenedProfile().deal(spec, insecure_test_key=True), SigningKey.fresh()
    own = ReaderBundle.from_bytes(dealing.participant, Limits.plain())
    trusting = replace(own, csp_key=signing.public)
    return [
        _show("hardened, a phone that trusts SP", spec, trusting, signing),
        _show(HARDENED, spec, own, signing),
    ]


def _show(subject: str, spec: TaskSpec, bundle: ReaderBundle, signing: SigningKey) -> Finding:
    keys, tools = ParticipantKeys.fresh(_VICTIM), Tools(default_backend(), insecure_test_key=True)
    phone, wanted = HardenedProfile().participant(spec, bundle.to_bytes(), keys, tools), _PAYMENT // 2
    context, fraction = spec.task(phone.party.public).context(1), reward_widths(spec.settings, spec.parameters).fraction
    body = (wanted << fraction).to_bytes(phone.party.public.plaintext_bytes, "big")
    signature = signing.sign(reward_statement(context, _VICTIM, commit(0, _SALT), body))
    sealed = seal_to(keys.reader.public, body + signature, reward_context(context, _VICTIM))
    try:
        shown, recovered = (
            phone.open_reward(RewardEnvelope(0, _SALT, sealed).to_bytes(), 1),
            "shown as if it were CSP's",
        )
    except BadSignature as refusal:
        shown, recovered = 0, f"refused: {type(refusal).__name__}"
    note = f"{wanted} millionths, sealed to the phone's own key and signed by SP"
    return _FORGERY.score(subject, shown, 0, wanted, recovered, note)
