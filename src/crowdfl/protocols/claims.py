"""Claims: how a participant is paid without any server having seen its reward before.

CSP keeps v_i = mu_i + m_i and a commitment to the mask m_i of each round. To be paid, participant i signs (task, amount) and
reveals its masks; CSP checks commitments and sum, and attests; SP pays once per task. The amount becomes known to both
servers then, and only then. Nothing here decrypts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crowdfl.crypto.sealing import ReaderKey, SigningKey, verify
from crowdfl.errors import AlreadyPaid, ClaimRefused, WrongAmount
from crowdfl.protocols.hardened.prirwd import RewardCsp, RewardEnvelope, reward_context
from crowdfl.protocols.messages import Limits, Message

_LONGEST_AMOUNT = 128  # bits


class Claim(Message, kind=19):
    """A participant's signed claim, with the masks that prove it. `contexts` names the rounds."""

    task: str
    participant: str
    amount: int
    contexts: tuple[bytes, ...]
    masks: tuple[int, ...]
    salts: tuple[bytes, ...]
    signature: bytes

    def __repr__(self) -> str:
        return f"Claim({self.participant!r} of task {self.task!r})"


class Attestation(Message, kind=20):
    """CSP's signed word that a claim is true."""

    task: str
    participant: str
    amount: int
    signature: bytes


def open_reward(envelope: RewardEnvelope, reader: ReaderKey, context: bytes, who: str, n: int) -> int:
    """A participant reads its reward of one round, in millionths / 2^h: what CSP sealed, less SP's mask."""
    v = int.from_bytes(reader.open(envelope.sealed, reward_context(context, who)), "big")
    return int((v - envelope.mask) % n)


def payable(rewards: Mapping[bytes, int], fraction: int) -> int:
    """Millionths to pay for some rounds: each round's reward without its last h bits."""
    return sum(reward >> fraction for reward in rewards.values())


def make_claim(
    task: str, who: str, amount: int, envelopes: Mapping[bytes, RewardEnvelope], signing: SigningKey
) -> Claim:
    contexts = tuple(sorted(envelopes))
    masks = tuple(envelopes[c].mask for c in contexts)
    salts = tuple(envelopes[c].salt for c in contexts)
    return Claim(task, who, amount, contexts, masks, salts, signing.sign(_signed(b"claim", task, who, amount)))


@dataclass
class ClaimsCsp:
    """CSP's side: compare a claim with what was kept, attest."""

    task: str
    rewards: RewardCsp
    fraction: int
    signing: SigningKey = field(repr=False)
    participants: Mapping[str, bytes] = field(repr=False)

    def answer(self, request: bytes) -> bytes:
        claim = Claim.from_bytes(request, self.rewards.party.limits(1))
        _check_claimant(claim, self.task, self.participants)
        if len(set(claim.contexts)) != len(claim.contexts):
            raise ClaimRefused("a round is claimed twice")
        if not len(claim.contexts) == len(claim.masks) == len(claim.salts):
            raise ClaimRefused("rounds, masks and salts differ in number")
        rows = zip(claim.contexts, claim.masks, claim.salts, strict=True)
        earned = {c: self.rewards.reward_of(c, claim.participant, mask, salt) for c, mask, salt in rows}
        if payable(earned, self.fraction) != claim.amount:
            raise WrongAmount(f"{claim.participant} claims an amount that the masks shown do not make")
        signature = self.signing.sign(_signed(b"attestation", claim.task, claim.participant, claim.amount))
        attestation = Attestation(claim.task, claim.participant, claim.amount, signature)
        return self.rewards.party.send(attestation)


@dataclass
class ClaimsSp:
    """SP's side: pay an attested claim once."""

    task: str
    csp_key: bytes
    participants: Mapping[str, bytes]
    limits: Limits
    paid: dict[str, int] = field(default_factory=dict)

    def check(self, request: bytes) -> Claim:
        claim = Claim.from_bytes(request, self.limits)
        _check_claimant(claim, self.task, self.participants)
        if claim.participant in self.paid:
            raise AlreadyPaid(f"{claim.participant} was paid for task {self.task} already")
        return claim

    def pay(self, request: bytes, reply: bytes) -> int:
        """Millionths to pay now, once CSP has attested this claim."""
        claim = self.check(request)
        attestation = Attestation.from_bytes(reply, self.limits)
        body = _signed(b"attestation", attestation.task, attestation.participant, attestation.amount)
        verify(self.csp_key, body, attestation.signature)
        same = (attestation.task, attestation.participant, attestation.amount)
        if same != (claim.task, claim.participant, claim.amount):
            raise ClaimRefused("the attestation is of another claim")
        self.paid[claim.participant] = claim.amount
        return claim.amount


def _check_claimant(claim: Claim, task: str, participants: Mapping[str, bytes]) -> None:
    if claim.amount.bit_length() > _LONGEST_AMOUNT:  # nobody earned it, and Python would not write it in decimal
        raise WrongAmount("the amount claimed is longer than any sum of money")
    if claim.task != task:
        raise ClaimRefused(f"a claim of task {claim.task!r} at task {task!r}")
    if claim.participant not in participants:
        raise ClaimRefused(f"{claim.participant!r} took no part in task {task!r}")
    body = _signed(b"claim", claim.task, claim.participant, claim.amount)
    verify(participants[claim.participant], body, claim.signature)


def _signed(purpose: bytes, task: str, who: str, amount: int) -> bytes:
    parts = (purpose, task.encode(), who.encode(), str(amount).encode())
    return b"crowdfl 1" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
