"""Claims: how a participant is paid without any server having seen its reward before.

CSP keeps v_i = mu_i + m_i and a commitment to the mask m_i of each round, written once. To be paid, participant i signs the
amount of every round together with its masks and salts; CSP checks commitments, amounts and that each lies within the round's
budget, and attests one claim of each participant; SP pays each amount out of its round. Amounts become known to both servers
then, and only then. Nothing here decrypts.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import ReaderKey, SigningKey, commit, seal_to, verify
from crowdfl.errors import AlreadyPaid, ClaimRefused, MasksDoNotFit, RewardOutOfRange, SealBroken, WrongAmount
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.records import Look
from crowdfl.reasons import Reason


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


_ATTESTED = b"crowdfl attestation 2"  # before a claim's hash: what CSP signs
_LONGEST_AMOUNT = 128  # bits
_TASK, _NAME, _SIGNATURE = 64, 20, 64  # bytes of a task's id, of a participant's name, of a signature


class Claim(Message, kind=19):
    """A participant's signed claim: what it earned in which round, with the masks that prove it."""

    task: str
    participant: str
    rounds: tuple[int, ...]
    amounts: tuple[int, ...]  # millionths, round by round
    masks: tuple[int, ...]
    salts: tuple[bytes, ...]
    signature: bytes

    def __repr__(self) -> str:
        return f"Claim({self.participant!r} of task {self.task!r})"

    @property
    def statement(self) -> bytes:
        """What the participant signs: everything."""
        return b"crowdfl claim 2" + replace(self, signature=b"").to_bytes()


class Attestation(Message, kind=20):
    """CSP's signed word that this very claim is true."""

    claim: bytes  # its hash
    signature: bytes


class KeptReward(Message, kind=83, repr=False):
    """CSP's record of one person's reward of one round: the masked number, and the commitment to its mask."""

    commitment: bytes
    masked: int


class KeptClaim(Message, kind=84):
    """CSP's record of one person's claim: the hash of the one that it has attested."""

    claim: bytes


@dataclass(frozen=True)
class Earned:
    """What a claim is compared with: the masked number, the commitment to its mask, and the round's budget."""

    masked: int = field(repr=False)
    commitment: bytes
    budget: int


class KeptRewards(Protocol):
    """CSP's side, which knows by its records what was earned."""

    def reward(
        self, records: Look, round_number: int, who: str
    ) -> Earned | None: ...  # None too where the round is void


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
    v, signature = body[: form.width], body[form.width :]
    if len(v) != form.width:
        raise SealBroken("this envelope holds no reward")
    verify(csp_key, reward_statement(context, who, commit(envelope.mask, envelope.salt), v), signature)
    return int((int.from_bytes(v, "big") - envelope.mask) % form.n)


def make_claim(
    task: str, who: str, amounts: Mapping[int, int], envelopes: Mapping[int, RewardEnvelope], signing: SigningKey
) -> Claim:
    rounds = tuple(sorted(amounts))
    masks = tuple(envelopes[number].mask for number in rounds)
    salts = tuple(envelopes[number].salt for number in rounds)
    claim = Claim(task, who, rounds, tuple(amounts[number] for number in rounds), masks, salts, b"")
    return replace(claim, signature=signing.sign(claim.statement))


def longest(key_bits: int, last: int, rounds: int) -> int:
    """Bytes of the longest claim of so many rounds, of a task whose last round has this number."""
    sizes = [len(_longest(key_bits, last, count).to_bytes()) for count in (0, 1)]
    return sizes[0] + rounds * (sizes[1] - sizes[0])


def _longest(key_bits: int, last: int, count: int) -> Claim:
    amounts, masks = (2**_LONGEST_AMOUNT - 1,) * count, (2**key_bits - 1,) * count
    salts, signature = (bytes(SEED_BYTES),) * count, bytes(_SIGNATURE)
    return Claim("0" * _TASK, "0" * _NAME, (last,) * count, amounts, masks, salts, signature)


@dataclass
class ClaimsCsp:
    """CSP's side: compare a claim with what was kept, attest one of each participant."""

    task: str
    kept: KeptRewards
    form: RewardForm
    limits: Limits
    signing: SigningKey = field(repr=False)
    participants: Mapping[str, bytes] = field(repr=False)

    def answer(self, records: Look, request: bytes) -> Attestation:
        claim = Claim.from_bytes(request, self.limits)
        who = claim.participant
        _check_claimant(claim, self.task, self.participants)
        for number, amount, mask, salt in zip(claim.rounds, claim.amounts, claim.masks, claim.salts, strict=True):
            kept = self.kept.reward(records, number, who)
            if kept is None:
                raise MasksDoNotFit(f"no reward of {who} is kept for round {number}")
            if commit(mask, salt) != kept.commitment:
                raise MasksDoNotFit(f"the mask shown for {who} is not the one committed to")
            try:
                earned = self.form.payable(int((kept.masked - mask) % self.form.n), kept.budget)
            except RewardOutOfRange:
                earned = None
            if earned != amount:  # one error for both: which of the two it is depends on what nobody else may know
                raise WrongAmount(f"{who} claims an amount that the masks shown do not make")
        name, before = _digest(claim), records.get(KeptClaim, who=who)
        if before is not None and before.claim != name:
            raise ClaimRefused(f"another claim of {who} was attested already: send that one again")
        records.put(KeptClaim(name), who=who)
        return Attestation(name, self.signing.sign(_ATTESTED + name))


@dataclass
class ClaimsSp:
    """SP's side: pay an attested claim once."""

    task: str
    csp_key: bytes
    participants: Mapping[str, bytes]
    limits: Limits
    paid: set[str] = field(default_factory=set)

    def check(self, request: bytes) -> Claim:
        claim = Claim.from_bytes(request, self.limits)
        _check_claimant(claim, self.task, self.participants)
        if claim.participant in self.paid:
            raise AlreadyPaid(f"{claim.participant} was paid for task {self.task} already")
        return claim

    def pay(self, request: bytes, reply: bytes) -> dict[int, int]:
        """Millionths to pay now, by round, once CSP has attested this claim."""
        claim = self.check(request)
        attestation = Attestation.from_bytes(reply, self.limits)
        if attestation.claim != _digest(claim):
            raise ClaimRefused("the attestation is of another claim")
        verify(self.csp_key, _ATTESTED + attestation.claim, attestation.signature)
        self.paid.add(claim.participant)
        return dict(zip(claim.rounds, claim.amounts, strict=True))


def _check_claimant(claim: Claim, task: str, participants: Mapping[str, bytes]) -> None:
    if not len(claim.rounds) == len(claim.amounts) == len(claim.masks) == len(claim.salts):
        raise ClaimRefused("rounds, amounts, masks and salts differ in number")
    if len(set(claim.rounds)) != len(claim.rounds):
        raise ClaimRefused("a round is claimed twice")
    if any(amount.bit_length() > _LONGEST_AMOUNT for amount in claim.amounts):  # Python would not write it in decimal
        raise WrongAmount("the amount claimed is longer than any sum of money")
    if claim.task != task:
        raise ClaimRefused(f"a claim of task {claim.task!r} at task {task!r}")
    if claim.participant not in participants:
        raise ClaimRefused(f"{claim.participant!r} took no part in task {task!r}")
    verify(participants[claim.participant], claim.statement, claim.signature)


def _digest(claim: Claim) -> bytes:
    return hashlib.sha256(claim.to_bytes()).digest()
