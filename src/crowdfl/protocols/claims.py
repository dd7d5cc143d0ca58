"""Claims: how a participant is paid without any server having seen its reward before.

CSP keeps v_i = mu_i + m_i and a commitment to the mask m_i of each round, written once. To be paid, participant i signs the
amount of every round that it can claim so far, with its masks and salts; CSP checks commitments, amounts and that each lies
within the round's budget. It attests each person and round once: what it attested stands, and a claim of some rounds forfeits
none. Amounts become known to both servers then, and only then. Nothing here decrypts.

Each attestation holds a statement for the payer: who has earned how much in all, and the newest place to pay it to. Its number
is how many rounds are attested plus the counter of that place, and neither ever falls: of two statements the higher is newer.

A CSP that was set back has lost what it kept. It believes its own signature: the claim shows what CSP signed of each reward
that is hidden; where CSP's record of a round says what everyone has earned, SP has that record and shows it with the claim.
What follows from the same claim is the same statement.

In `paper` there are no masks: CSP opens what an amount is compared with (`protocols.paper.claims`).
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

from crowdfl.crypto.commitment import commit
from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import (
    ClaimRefused,
    FormatError,
    MasksDoNotFit,
    OlderDestination,
    RewardOutOfRange,
    SealBroken,
    WrongAmount,
)
from crowdfl.protocols.claim_steps import CLAIM, PLACE, UNCLAIMED, ClaimFacts
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.records import Look
from crowdfl.protocols.steps import limits
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings


class RewardEnvelope(Message, kind=18):
    """SP to one participant: the mask, its salt, and what CSP sealed."""

    mask: int
    salt: bytes
    sealed: bytes

    def __repr__(self) -> str:
        return "RewardEnvelope(secret)"


def reward_context(context: bytes, who: str) -> bytes:
    return b"crowdfl reward 2" + len(context).to_bytes(4, "big") + context + who.encode()


def reward_statement(context: bytes, who: str, commitment: bytes, masked: bytes) -> bytes:
    """What CSP signs of a reward that it seals: for whom, in which round, under which mask."""
    parts = (context, who.encode(), commitment, masked)
    return b"crowdfl reward statement 1" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def seal_reward(
    signing: SigningKey, reader: bytes, context: bytes, who: str, commitment: bytes, masked: bytes
) -> bytes:
    """CSP: its half for the owner, signed with the commitment to SP's."""
    signature = signing.sign(reward_statement(context, who, commitment, masked))
    return seal_to(reader, masked + signature, reward_context(context, who))


BONUS = 0  # what a claim, a record and the books call the item that is no round's
_ATTESTED = b"crowdfl attestation 3"  # before a claim's hash and its statement's: what CSP signs
_HASH = 32  # bytes of the name of a destination


class Claim(Message, kind=19):
    """A participant's signed claim: what it has earned in which round, with the masks that prove it, and where to pay it."""

    task: str
    participant: str
    rounds: tuple[int, ...]  # growing
    amounts: tuple[int, ...]  # millionths, round by round
    masks: tuple[int, ...]  # of a reward that is a ciphertext the integer as opened, in units of 10^-L
    salts: tuple[bytes, ...]
    shown: tuple[
        bytes, ...
    ]  # of hidden rewards CSP's masked number with its signature, of a ciphertext its hash; else nothing
    unused: tuple[int, ...]  # rounds, growing, of which it holds SP's receipt "unused": for SP alone, CSP attests none
    destination: bytes  # the hash of the newest sealed one; empty: there is none
    counter: int  # of that destination, from 1 on
    signature: bytes

    def __repr__(self) -> str:
        return f"Claim({self.participant!r} of task {self.task!r})"

    @property
    def statement(self) -> bytes:
        """What the participant signs: everything."""
        return b"crowdfl claim 4" + self.unsigned()


class ShownClaim(Message, kind=29):
    """SP to CSP: a claim, and CSP's signed record of each of its rounds, for a CSP that has lost its own."""

    claim: bytes
    records: tuple[bytes, ...]

    def __repr__(self) -> str:
        return "ShownClaim(...)"


class OpenedClaim(Message, kind=90, repr=False):
    """SP to CSP: a claim, of each of its rounds the reward as the claimant was served it, and SP's half of the decryption of
    that less the claimed integer."""

    claim: bytes
    mu: CipherVector
    differences_1: PartialVector

    def __repr__(self) -> str:
        return "OpenedClaim(...)"


class PayStatement(Message, kind=89, repr=False):
    """CSP's signed word to the payer: what a participant has earned in all so far, and where to pay it."""

    task: str
    participant: str
    sequence: int  # of two statements the higher is newer
    total: int  # millionths
    currency: str
    destination: bytes  # the hash of the newest sealed one; empty: none is known
    counter: int
    signature: bytes

    def __repr__(self) -> str:
        return f"PayStatement({self.participant!r} of task {self.task!r})"

    @property
    def statement(self) -> bytes:
        return b"crowdfl pay statement 1" + self.unsigned()

    @classmethod
    def open(cls, data: bytes, csp_key: bytes) -> "PayStatement":
        """One that CSP has signed, with the key that signs its records."""
        found = cls.from_bytes(data, Limits.plain())
        verify(csp_key, found.statement, found.signature)
        return found


class Attestation(Message, kind=20):
    """CSP's signed word that this very claim is true, and what follows from it for the payer."""

    claim: bytes  # its hash
    statement: bytes  # a `PayStatement`
    signature: bytes

    @property
    def attested(self) -> bytes:
        """What CSP signs."""
        return _ATTESTED + self.claim + hashlib.sha256(self.statement).digest()


class KeptReward(Message, kind=83, repr=False):
    """CSP's record of one person's reward of one round: the masked number, and the commitment to its mask."""

    commitment: bytes
    masked: int


class KeptClaim(Message, kind=84, repr=False):
    """CSP's record of one person's claims: what it has attested, by round, and the newest destination."""

    rounds: tuple[int, ...] = ()
    amounts: tuple[int, ...] = ()
    destination: bytes = b""
    counter: int = 0

    @property
    def sequence(self) -> int:
        return len(self.rounds) + self.counter


class PlaceNote(Message, kind=98, repr=False):
    """A participant's signed word which destination is its newest, before any claim names it."""

    task: str
    participant: str
    destination: bytes  # the hash of the sealed one
    counter: int
    signature: bytes

    @property
    def statement(self) -> bytes:
        return b"crowdfl place 1" + self.unsigned()

    @classmethod
    def made(cls, task: str, who: str, destination: bytes, counter: int, signing: SigningKey) -> "PlaceNote":
        note = cls(task, who, destination, counter, b"")
        return replace(note, signature=signing.sign(note.statement))


class PlaceKept(Message, kind=99, repr=False):
    """CSP's signed word to the participant: what was earned and not claimed goes there."""

    task: str
    participant: str
    destination: bytes
    counter: int
    signature: bytes

    @property
    def statement(self) -> bytes:
        return b"crowdfl place kept 1" + self.unsigned()


class KeptPlace(Message, kind=100, repr=False):
    """CSP's record of one person's newest destination."""

    destination: bytes
    counter: int


class UnclaimedRequest(Message, kind=101, repr=False):
    """SP to CSP, in the last days of claims: what has this person earned, and not claimed?"""

    task: str
    participant: str


class Unclaimed(Message, kind=102, repr=False):
    """CSP's signed word: these items, to where the statement says. They are attested as by a claim."""

    participant: str
    rounds: tuple[int, ...]
    amounts: tuple[int, ...]
    statement: bytes
    signature: bytes

    @property
    def attested(self) -> bytes:
        return b"crowdfl unclaimed 1" + self.unsigned()


@dataclass(frozen=True)
class Earned:
    """What a claim is compared with: the masked number, the commitment to its mask, and the round's budget."""

    masked: int = field(repr=False)
    commitment: bytes
    budget: int


def attested_amount(records: Look, who: str) -> int:
    """Millionths that CSP has attested somebody in all."""
    return sum((records.get(KeptClaim, who=who) or KeptClaim()).amounts)


def is_all_attested(records: Look, rewarded: Iterable[tuple[int, str]]) -> bool:
    """Whether nobody can claim anything new, by CSP's own records."""
    attested: dict[str, frozenset[int]] = {}
    for number, who in rewarded:
        if who not in attested:
            attested[who] = frozenset((records.get(KeptClaim, who=who) or KeptClaim()).rounds)
        if number not in attested[who]:
            return False
    return True


class KeptRewards(Protocol):
    """CSP's side, which knows by its records what was earned."""

    def reward(
        self, records: Look, round_number: int, who: str
    ) -> Earned | None: ...  # None too where the round is void

    def shown(self, records: Look, round_number: int, who: str, commitment: bytes, signed: bytes) -> Earned | None:
        """The same by what CSP has signed, where it has kept nothing of the round; None if this is not that."""


@dataclass(frozen=True)
class RewardForm:
    """How a task's rewards are written: modulo n, in so many bytes, in millionths / 2^fraction; `largest` is in millionths."""

    n: int
    width: int
    fraction: int
    largest: int

    def payable(self, opened: int, budget: int) -> int:
        """Millionths to pay for what was opened: without its last h bits, and never outside [0, budget]."""
        return within_budget(opened >> self.fraction, budget)


def within_budget(amount: int, budget: int) -> int:
    if not 0 <= amount <= budget:
        raise RewardOutOfRange(Reason.OUT_OF_RANGE.words)
    return amount


def open_reward(
    envelope: RewardEnvelope, reader: ReaderKey, csp_key: bytes, context: bytes, who: str, form: RewardForm
) -> int:
    """A participant reads its reward of one round, in the task's form: what CSP sealed and signed, less SP's mask.

    `SealBroken` or `BadSignature` for anything that CSP has not made for this participant, this round and this very mask.
    """
    body = reader.open(envelope.sealed, reward_context(context, who))
    v = signed_reward(body, csp_key, context, who, commit(envelope.mask, envelope.salt), form)
    return int((v - envelope.mask) % form.n)


def signed_reward(body: bytes, csp_key: bytes, context: bytes, who: str, commitment: bytes, form: RewardForm) -> int:
    """CSP's masked number, from what it has signed of a reward."""
    v, signature = body[: form.width], body[form.width :]
    if len(v) != form.width:
        raise SealBroken("this envelope holds no reward")
    verify(csp_key, reward_statement(context, who, commitment, v), signature)
    return int.from_bytes(v, "big")


def make_claim(
    task: str,
    who: str,
    amounts: Mapping[int, int],
    envelopes: Mapping[int, RewardEnvelope],
    shown: Mapping[int, bytes],
    signing: SigningKey,
    beside: "Beside | None" = None,
) -> Claim:
    """`shown` has what CSP has signed of hidden rewards, by round."""
    rounds, beside = tuple(sorted(amounts)), beside or Beside()
    masks = tuple(envelopes[number].mask for number in rounds)
    salts = tuple(envelopes[number].salt for number in rounds)
    signed = tuple(shown.get(number, b"") for number in rounds)
    earned, unused = tuple(amounts[number] for number in rounds), tuple(sorted(beside.unused))
    where = beside.destination, beside.counter
    claim = Claim(task, who, rounds, earned, masks, salts, signed, unused, *where, b"")
    return replace(claim, signature=signing.sign(claim.statement))


@dataclass(frozen=True)
class Beside:
    """What a claim says beside what was earned: rounds that SP owes something for, and where to pay."""

    unused: Sequence[int] = ()
    destination: bytes = b""
    counter: int = 0


class ClaimedTask(Protocol):
    """What claims need to know of a task."""

    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> TaskSettings: ...


@dataclass
class AttestingCsp:
    """CSP's side: attest each person and round once."""

    spec: ClaimedTask
    form: RewardForm
    signing: SigningKey = field(repr=False)
    participants: Mapping[str, bytes] = field(repr=False)

    @property
    def facts(self) -> ClaimFacts:
        return ClaimFacts.of(self.spec.settings.rounds, self.form.width)

    def checked(self, records: Look, request: bytes) -> tuple[Claim, KeptClaim]:
        """A claim that its owner has signed, and what was attested before."""
        claim = CLAIM.read(Claim, request, self.facts)
        _check_claimant(claim, self.spec.name, self.participants)
        before = records.get(KeptClaim, who=claim.participant) or KeptClaim()
        _require_newer_place(records, claim.participant, claim.destination, claim.counter)
        return claim, before

    def attest(
        self, records: Look, claim: Claim, before: KeptClaim, earned: Callable[[int], int | None]
    ) -> Attestation:
        """`earned`: millionths at a place of the claim that was not attested before; None if that is no amount of its round."""
        who, attested = claim.participant, dict(zip(before.rounds, before.amounts, strict=True))
        for place, (number, amount) in enumerate(zip(claim.rounds, claim.amounts, strict=True)):
            found = attested[number] if number in attested else earned(place)
            if found != amount:  # one error for all: which it is depends on what nobody else may know
                raise WrongAmount(f"{who} claims another amount than it has earned")
            attested[number] = amount
        rounds = tuple(sorted(attested))
        now = KeptClaim(rounds, tuple(attested[number] for number in rounds), claim.destination, claim.counter)
        if now != before:
            records.put(now, who=who)
        return self._attestation(claim, now)

    def keep_place(self, records: Look, note: PlaceNote) -> PlaceKept:
        """The newest destination, by its owner's signature; an older one never takes its place."""
        PLACE.require_message(note, self.facts)
        who = note.participant
        if note.task != self.spec.name or who not in self.participants:
            raise ClaimRefused(f"{who!r} takes no part in this task")
        verify(self.participants[who], note.statement, note.signature)
        if note.counter < 1:
            raise ClaimRefused("a destination has a hash and a number, from 1 on")
        _require_newer_place(records, note.participant, note.destination, note.counter)
        kept = KeptPlace(note.destination, note.counter)
        if records.get(KeptPlace, who=who) != kept:
            records.put(kept, who=who)
        found = PlaceKept(note.task, who, note.destination, note.counter, b"")
        return replace(found, signature=self.signing.sign(found.statement))

    def unclaimed(self, records: Look, who: str, earned: Mapping[int, int]) -> Unclaimed:
        """All that this person has earned, attested as a claim of it would be; `earned` by CSP's own records."""
        before = records.get(KeptClaim, who=who) or KeptClaim()
        place = records.get(KeptPlace, who=who)
        if place is None or who not in self.participants:
            raise ClaimRefused(f"{who} has not told CSP where to be paid: only its own claim says what it gets")
        attested = dict(earned) | dict(zip(before.rounds, before.amounts, strict=True))
        rounds = tuple(sorted(attested))
        where = (place.destination, place.counter)
        if before.counter > place.counter:
            where = (before.destination, before.counter)
        now = KeptClaim(rounds, tuple(attested[number] for number in rounds), *where)
        if now != before:
            records.put(now, who=who)
        found = Unclaimed(who, now.rounds, now.amounts, self._statement(who, now), b"")
        return replace(found, signature=self.signing.sign(found.attested))

    def _attestation(self, claim: Claim, now: KeptClaim) -> Attestation:
        found = Attestation(_digest(claim), self._statement(claim.participant, now), b"")
        return replace(found, signature=self.signing.sign(found.attested))

    def _statement(self, who: str, now: KeptClaim) -> bytes:
        said = PayStatement(
            self.spec.name,
            who,
            now.sequence,
            sum(now.amounts),
            self.spec.settings.currency,
            now.destination,
            now.counter,
            b"",
        )
        return replace(said, signature=self.signing.sign(said.statement)).to_bytes()


def _require_newer_place(records: Look, who: str, destination: bytes, counter: int) -> None:
    """Neither a claim nor a note goes back behind what its owner has said since."""
    for kept in (records.get(KeptPlace, who=who), records.get(KeptClaim, who=who) or KeptClaim()):
        if kept is not None and (kept.counter, kept.destination) != (counter, destination) and counter <= kept.counter:
            raise OlderDestination(
                f"{who} has said where to be paid anew, as number {kept.counter}: name that one, or one with a higher number"
            )


@dataclass
class ClaimsCsp(AttestingCsp):
    """Of rewards under masks: compare a claim with what was kept."""

    kept: KeptRewards

    def answer(self, records: Look, request: bytes) -> Attestation:
        signed: tuple[bytes, ...] = ()
        if Message.kind_of(request) == ShownClaim.kind:
            whole = ShownClaim.from_bytes(request, Limits(None, 0, len(request), longest=len(request)))
            request, signed = whole.claim, whole.records
        claim, before = self.checked(records, request)

        def earned(place: int) -> int | None:
            return self._earned(records, claim, place, signed[place] if place < len(signed) else b"")

        return self.attest(records, claim, before, earned)

    def _earned(self, records: Look, claim: Claim, place: int, signed: bytes) -> int | None:
        """What the masks shown make of a round that was not attested before; None if that is no amount of the round's."""
        who = claim.participant
        number = claim.rounds[place]
        mask = claim.masks[place]
        salt = claim.salts[place]
        signed = claim.shown[place] or signed
        kept = self.kept.reward(records, number, who)
        if kept is None and signed:
            kept = self.kept.shown(records, number, who, commit(mask, salt), signed)
        if kept is None:
            raise MasksDoNotFit(f"no reward of {who} is kept for round {number}")
        if commit(mask, salt) != kept.commitment:
            raise MasksDoNotFit(f"the mask shown for {who} is not the one committed to")
        try:
            return self.form.payable(int((kept.masked - mask) % self.form.n), kept.budget)
        except RewardOutOfRange:
            return None


@dataclass(frozen=True)
class Attested:
    """What CSP has attested of a claim: millionths by round, and its word to the payer."""

    claim: Claim
    amounts: Mapping[int, int]
    statement: PayStatement


@dataclass
class ClaimsSp:
    """SP's side: refuse what is not worth asking CSP about, and whatever CSP did not attest."""

    spec: ClaimedTask
    csp_key: bytes
    participants: Mapping[str, bytes]
    reward: int  # bytes of one

    @property
    def facts(self) -> ClaimFacts:
        return ClaimFacts.of(self.spec.settings.rounds, self.reward)

    def read(self, request: bytes) -> Claim:
        """A claim, whoever has signed it."""
        return CLAIM.read(Claim, request, self.facts)

    def check(self, request: bytes) -> Claim:
        claim = self.read(request)
        _check_claimant(claim, self.spec.name, self.participants)
        return claim

    def unclaimed(self, who: str, reply: bytes) -> tuple[Mapping[int, int], PayStatement]:
        """What CSP attests of somebody who has not claimed it: millionths by round, and its word to the payer."""
        found = Unclaimed.from_bytes(reply, limits(UNCLAIMED.reply, self.facts))
        verify(self.csp_key, found.attested, found.signature)
        said = PayStatement.open(found.statement, self.csp_key)
        of = (said.task, said.participant, said.currency)
        if found.participant != who or of != (self.spec.name, who, self.spec.settings.currency):
            raise ClaimRefused("what CSP says of unclaimed items is not of this person")
        if len(found.rounds) != len(found.amounts) or said.total != sum(found.amounts):
            raise ClaimRefused("CSP says something else to the payer than it attests")
        return dict(zip(found.rounds, found.amounts, strict=True)), said

    def attested(self, request: bytes, reply: bytes) -> Attested:
        claim = self.check(request)
        attestation = Attestation.from_bytes(reply, Limits.plain())
        if attestation.claim != _digest(claim):
            raise ClaimRefused("the attestation is of another claim")
        verify(self.csp_key, attestation.attested, attestation.signature)
        said = PayStatement.open(attestation.statement, self.csp_key)
        of_claim = (claim.task, claim.participant, self.spec.settings.currency, claim.destination, claim.counter)
        if (said.task, said.participant, said.currency, said.destination, said.counter) != of_claim:
            raise ClaimRefused("what CSP says to the payer is not of this claim")
        if said.total < sum(claim.amounts) or said.sequence < len(claim.rounds) + claim.counter:
            raise ClaimRefused("CSP says less to the payer than it attests")
        return Attested(claim, dict(zip(claim.rounds, claim.amounts, strict=True)), said)


def _check_claimant(claim: Claim, task: str, participants: Mapping[str, bytes]) -> None:
    if not len(claim.rounds) == len(claim.amounts) == len(claim.masks) == len(claim.salts) == len(claim.shown):
        raise ClaimRefused("rounds, amounts, masks, salts and what is shown differ in number")
    if not _grows(claim.rounds) or not _grows(claim.unused) or set(claim.rounds) & set(claim.unused):
        raise ClaimRefused("a round is claimed twice, or out of order")
    is_named = len(claim.destination) == _HASH and claim.counter >= 1
    if not is_named and (claim.destination, claim.counter) != (b"", 0):
        raise ClaimRefused("a destination has a hash and a number, from 1 on")
    if claim.task != task:
        raise ClaimRefused(f"a claim of task {claim.task!r} at task {task!r}")
    if claim.participant not in participants:
        raise ClaimRefused(f"{claim.participant!r} took no part in task {task!r}")
    verify(participants[claim.participant], claim.statement, claim.signature)


def _grows(rounds: Sequence[int]) -> bool:
    return all(one < another for one, another in pairwise(rounds))


class BonusRequest(Message, kind=94, repr=False):
    """SP to CSP: no round follows. Who gets the bonus?"""

    task: str


def open_place_kept(data: bytes, note: PlaceNote, csp_key: bytes) -> PlaceKept:
    """CSP's acknowledgement of this very note."""
    found = PlaceKept.from_bytes(data, Limits.plain())
    verify(csp_key, found.statement, found.signature)
    said = (found.task, found.participant, found.destination, found.counter)
    if said != (note.task, note.participant, note.destination, note.counter):
        raise ClaimRefused("CSP has kept another destination than this one")
    return found


def is_claim(request: Long, *kinds: type[Message]) -> bool:
    """Of a request to CSP, one of these kinds or of any; all others are steps of rounds."""
    try:
        return Message.kind_of(request) in [
            kind.kind for kind in kinds or (Claim, ShownClaim, OpenedClaim, BonusRequest, PlaceNote, UnclaimedRequest)
        ]
    except FormatError:
        return False


def _digest(claim: Claim) -> bytes:
    return hashlib.sha256(claim.to_bytes()).digest()
