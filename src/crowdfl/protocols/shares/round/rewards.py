"""Rewards of a round.

`equal` needs no arithmetic: everyone in CSP's signed record has earned the round's budget divided by how many they are, rounded
down. SP passes the record on; a claim is checked against the one that CSP keeps.

Of `samples` and `distance` each server has a share of every reward. SP's, negated, is the mask that the participant gets with a
commitment; CSP's is sealed to the participant and signed, together with that commitment. Claims are those of every profile.

`distance` computes the rewards, modulo 2^128: one program of both servers, from what the checks have left.

`samples` computes nothing. What is shared is the number of samples that was checked, and 2^128 times the total: the owner alone
opens both, and divides. A claim shows the number to both servers anyway. Till then CSP has the commitment, which covers 32
bytes that it does not know, and SP nothing of CSP's half.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crowdfl.crypto.commitment import commit
from crowdfl.crypto.shares.expansion import expand
from crowdfl.errors import LengthMismatch
from crowdfl.protocols.claims import Earned, RewardEnvelope
from crowdfl.protocols.shares import rules
from crowdfl.protocols.shares.circuits.lanes import products_program
from crowdfl.protocols.shares.circuits.program import Half, Side
from crowdfl.protocols.shares.circuits.reciprocal import Divider
from crowdfl.protocols.shares.circuits.scalars import Masked, added, pack, unpack
from crowdfl.protocols.shares.dealing.rounds import DealtLanes, DealtRound
from crowdfl.protocols.shares.round.average import RoundRecord
from crowdfl.protocols.shares.round.checks import Checked
from crowdfl.protocols.shares.round_scores import RoundScores
from crowdfl.protocols.shares.shape import REWARD_MODULUS, SharesShape

_SALT_BYTES = 32


def equal_part(payment: int, record: RoundRecord, who: str) -> int | None:
    """Millionths that a participant has earned in a round that pays everyone alike; None for who is not in its record."""
    return payment // len(record.accepted) if who in record.accepted else None


def open_envelope(record: bytes) -> RewardEnvelope:
    """What everyone in a record is served where it says what they have earned: nothing is masked."""
    return RewardEnvelope(0, b"", record)


def earned_openly(amount: int, payment: int) -> Earned:
    """What a claim of such a reward is compared with."""
    return Earned(amount, commit(0, b""), payment)


def reward_shares(divider: Divider, shape: SharesShape, dealt: DealtRound, checked: Checked) -> Half[list[int]]:
    """Of what everyone is paid by, in the task's form and in the order of the accepted slots."""
    if dealt.rewards is None:
        total = sum(checked.samples)  # shares over the integers, all of them
        return [(share + total * REWARD_MODULUS) % shape.reward_form.n for share in checked.samples]
    slots, distance = checked.verdict.accepted, dealt.rewards.distance
    samples = Masked(checked.samples_shown, [dealt.lanes.counts.roots.share[slot] for slot in slots])
    scores = yield from _scores(divider.side, shape, dealt.lanes, distance.total.share, checked, samples)
    divider.view.computed("scores", scores)
    weights = yield from rules.distance_weights(divider, shape.rule_widths, distance, scores)
    divider.view.computed("weights", weights)
    return (yield from rules.paid(divider, shape.rule_widths, dealt.rewards.payout, weights, shape.payment))


def _scores(
    side: Side, shape: SharesShape, dealt: DealtLanes, mask: list[int], checked: Checked, samples: Masked
) -> Half[RoundScores]:
    """One exchange: the masked sum of all lanes, and beside it the total of samples behind its mask."""
    bits = shape.widths.R
    mine = pack([sum(checked.samples) + mask[0]], bits)
    products = yield from products_program(side, dealt, shape.widths, checked.lanes, mine)
    shown = added(unpack(mine, bits), unpack(products.beside, bits), bits)
    return RoundScores(
        places=checked.verdict.accepted,
        kept=checked.lanes.kept,
        A=checked.lengths,
        B=products.with_sum,
        UU=products.sum_square,
        samples=samples,
        squares=checked.sample_squares,
        total=Masked(shown, mask),
    )


@dataclass(frozen=True, repr=False)
class RewardMasks:
    """SP's: by participant, the mask and the salt of its commitment."""

    masks: Mapping[str, tuple[int, bytes]]

    @classmethod
    def of(cls, names: Sequence[str], shares: Sequence[int], seed: bytes, n: int) -> "RewardMasks":
        """The salts come from the seed of the round: run again, it is the same commitments."""
        salts = expand(seed, b"crowdfl sp reward salts 1", _SALT_BYTES * len(names))
        pieces = [salts[start : start + _SALT_BYTES] for start in range(0, len(salts), _SALT_BYTES)]
        masks = [-share % n for share in shares]
        return cls(dict(zip(names, zip(masks, pieces, strict=True), strict=True)))

    def commitments(self) -> bytes:
        return b"".join(commit(mask, salt) for mask, salt in self.masks.values())

    def envelopes(self, halves: Sequence[bytes]) -> dict[str, RewardEnvelope]:
        """With CSP's sealed halves, in the same order."""
        if len(halves) != len(self.masks):
            raise LengthMismatch(f"{len(halves)} sealed rewards where {len(self.masks)} are expected")
        rows = zip(self.masks.items(), halves, strict=True)
        return {who: RewardEnvelope(mask, salt, sealed) for (who, (mask, salt)), sealed in rows}
