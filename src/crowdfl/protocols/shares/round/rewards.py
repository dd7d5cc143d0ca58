"""Rewards of a round, from what the checks have left: one program of both servers, then SP's masks and CSP's sealed halves.

A reward ends as two shares modulo 2^128. SP's, negated, is the mask that the participant gets with a commitment; CSP's is
sealed to the participant and signed, together with that commitment. Claims are those of every profile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crowdfl.crypto.sealing import SigningKey, commit, seal_to
from crowdfl.crypto.shares.ring import expand
from crowdfl.errors import LengthMismatch, ProtocolError
from crowdfl.protocols.claims import RewardEnvelope, reward_context, reward_statement
from crowdfl.protocols.messages import Message
from crowdfl.protocols.shares import rules
from crowdfl.protocols.shares.chain import HASH_BYTES
from crowdfl.protocols.shares.circuits.lanes import Products, products_program
from crowdfl.protocols.shares.circuits.program import Half
from crowdfl.protocols.shares.circuits.reciprocal import Divider
from crowdfl.protocols.shares.circuits.scalars import Masked, added, pack, unpack
from crowdfl.protocols.shares.dealing.rounds import DealtRound
from crowdfl.protocols.shares.round.checks import Checked
from crowdfl.protocols.shares.rule_widths import RoundScores
from crowdfl.protocols.shares.shape import REWARD_MODULUS, SAMPLES_BYTES, SharesShape

_SALT_BYTES = 32


class SealedRewards(Message, kind=64):
    """CSP to SP: its half of each reward with its signature, sealed to the owner; in the order of the accepted names."""

    sealed: tuple[bytes, ...]


def reward_program(divider: Divider, shape: SharesShape, dealt: DealtRound, checked: Checked) -> Half[list[int]]:
    """Shares modulo 2^128 of everyone's reward, in the order of the accepted slots."""
    if dealt.rewards is None:
        raise ProtocolError("nothing was dealt for the rewards of this task")
    mask = dealt.rewards.total_mask
    total = [] if mask is None else [sum(checked.samples) + mask.share[0]]
    mine, bits = pack(total, shape.widths.R), shape.widths.R
    products = yield from products_program(divider.side, dealt.lanes, shape.widths, checked.lanes, mine)
    shown = added(unpack(mine, bits), unpack(products.beside, bits), bits)
    opened = None if mask is None else Masked(shown, mask.share)
    scores = _scores(dealt, checked, products, opened)
    return (yield from rules.rewards(divider, shape.rule_widths, dealt.rewards, scores, shape.payment))


def _scores(dealt: DealtRound, checked: Checked, products: Products, total: Masked | None) -> RoundScores:
    slots = checked.verdict.accepted
    return RoundScores(
        places=slots,
        kept=checked.lanes.kept,
        A=checked.lengths,
        B=products.with_sum,
        UU=products.sum_square,
        samples=Masked(checked.samples_shown, [dealt.lanes.roots.share[slot] for slot in slots]),
        squares=checked.sample_squares,
        total=total,
        P=products.with_previous or [],
        VV=products.previous_square,
    )


@dataclass(frozen=True, repr=False)
class RewardMasks:
    """SP's: by participant, the mask and the salt of its commitment."""

    masks: Mapping[str, tuple[int, bytes]]

    @classmethod
    def of(cls, names: Sequence[str], shares: Sequence[int], seed: bytes) -> "RewardMasks":
        """The salts come from the seed of the round: run again, it is the same commitments."""
        salts = expand(seed, b"crowdfl sp reward salts 1", _SALT_BYTES * len(names))
        pieces = [salts[start : start + _SALT_BYTES] for start in range(0, len(salts), _SALT_BYTES)]
        masks = [-share % REWARD_MODULUS for share in shares]
        return cls(dict(zip(names, zip(masks, pieces, strict=True), strict=True)))

    def commitments(self) -> bytes:
        return b"".join(commit(mask, salt) for mask, salt in self.masks.values())

    def envelopes(self, reply: SealedRewards) -> dict[str, RewardEnvelope]:
        """With CSP's sealed halves, in the same order."""
        if len(reply.sealed) != len(self.masks):
            raise LengthMismatch(f"{len(reply.sealed)} sealed rewards where {len(self.masks)} are expected")
        rows = zip(self.masks.items(), reply.sealed, strict=True)
        return {who: RewardEnvelope(mask, salt, sealed) for (who, (mask, salt)), sealed in rows}


@dataclass(frozen=True, repr=False)
class RewardSealer:
    """CSP's: its halves, sealed to their owners and signed; what it keeps for the claims."""

    context: bytes
    signing: SigningKey
    reading: Mapping[str, bytes]

    def seal(
        self, names: Sequence[str], shares: Sequence[int], commitments: bytes
    ) -> tuple[SealedRewards, dict[str, bytes]]:
        pieces = [commitments[start : start + HASH_BYTES] for start in range(0, len(commitments), HASH_BYTES)]
        rows = list(zip(names, shares, pieces, strict=True))
        sealed = tuple(self._sealed(who, share.to_bytes(SAMPLES_BYTES, "big"), piece) for who, share, piece in rows)
        kept = {who: piece + share.to_bytes(SAMPLES_BYTES, "big") for who, share, piece in rows}
        return SealedRewards(sealed), kept

    def _sealed(self, who: str, body: bytes, commitment: bytes) -> bytes:
        signature = self.signing.sign(reward_statement(self.context, who, commitment, body))
        return seal_to(self.reading[who], body + signature, reward_context(self.context, who))
