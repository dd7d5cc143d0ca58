"""An SP that deviates: what it asks CSP, what it makes of an honest claim, and what it shows a phone."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crowdfl.crypto.paillier.vector import CipherVector, Unchecked
from crowdfl.crypto.sealing import commit, seal_to
from crowdfl.errors import BadSignature, ClaimRefused, CrowdFLError, OutOfTurn, RoundEnded, SealBroken
from crowdfl.protocols.claims import Claim, RewardEnvelope, reward_context
from crowdfl.protocols.hardened.prirwd import LanesReply, LanesRequest, NonceRequest, RewardRequest, rows_a_message
from tests.attacks.cheating import WEIGHTS, honest_uploads, sp_side
from tests.hosts import Desk

BUDGET = 36_000_000
COUNTS = (5, 7, 3)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Three honest people whose uploads of round 1 are in, in a task of four rounds."""
    desk = Desk(tmp_path, rounds=4, lanes=1024)
    desk.invite(3)
    desk.requester.fund(desk.task, 4 * BUDGET, "all")
    desk.run()
    honest_uploads(desk, 1, [WEIGHTS, WEIGHTS * 0.5, -WEIGHTS], COUNTS)
    return desk


def upload_of(desk: Desk, who: str) -> CipherVector:
    entry = desk.sp.store.upload(desk.task, 1, who)
    assert entry is not None
    data = desk.sp.blobs.get(f"{desk.task}/rounds/1/uploads/{entry.digest}")
    public = sp_side(desk).party.public
    return Unchecked.parse(data, public, max_count=99).validate()


class SignOracle:
    """SP asks CSP for lanes of its choice: is a slot of somebody's upload below t?"""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.side = desk, sp_side(desk)
        self.names = tuple(sorted(person.keys.who for person in desk.crowd))

    def begin(self, number: int) -> None:
        digest = hashlib.sha256(b"whatever SP says its uploads are").digest()
        self.desk.csp.answer(self.desk.task, NonceRequest(number, BUDGET, self.names, digest).to_bytes())

    def ask(self, number: int, victim: CipherVector, slot: int, t: int) -> str:
        """How CSP answers: that is all SP gets to see."""
        party, packing, budget = self.side.party, self.side.codec.packing, self.side.codec.budget
        rows = len(self.names) * min(rows_a_message(len(self.names), packing.slots), budget.buckets)
        shift = [0] * packing.slots
        shift[slot] = -t
        probe = victim.part(0, 1).add_plain(packing.pack_wide(shift))
        others = party.encrypt([0] * (rows - 1))
        lanes = party.rerandomise(CipherVector.concat([probe, others]))
        request = LanesRequest(number, 0, lanes, party.partial_decrypt(lanes)).to_bytes()
        try:
            LanesReply.from_bytes(self.desk.csp.answer(self.desk.task, request), party.limits(rows * packing.slots))
        except CrowdFLError as refusal:
            return type(refusal).__name__
        return "answered"


def test_sp_alone_learns_at_most_whether_a_round_ended(desk: Desk):
    """One comparison a round, and the round is its price or the next question is refused. It took 131 to read an upload."""
    oracle, victim = SignOracle(desk), upload_of(desk, desk.crowd[0].keys.who)
    for number, t in enumerate((-(10**6), 0, 10, 10**6), 1):
        oracle.begin(number)
        first = oracle.ask(number, victim, 0, t)
        assert first in ("answered", "RoundEnded")  # the one bit
        later = {oracle.ask(number, victim, 0, other) for other in (1, -1000, 1000, -(10**6), 10**6)}
        assert later == {"OutOfTurn" if first == "answered" else "RoundEnded"}
    for number in (0, 5):
        with pytest.raises(CrowdFLError, match="round"):
            oracle.begin(number)


def test_every_failure_after_an_opening_reads_the_same(desk: Desk):
    """Negative, too large, or not packed at all: SP cannot tell which."""
    side, oracle, told = sp_side(desk), SignOracle(desk), []
    packing, budget = side.codec.packing, side.codec.budget
    for number, first in ((1, -1), (2, 1 << budget.lane_mask_bits), (3, int(side.party.public.n) // 2)):
        oracle.begin(number)
        lanes = side.party.encrypt([first] + [0] * (3 * min(rows_a_message(3, packing.slots), budget.buckets) - 1))
        request = LanesRequest(number, 0, lanes, side.party.partial_decrypt(lanes)).to_bytes()
        with pytest.raises(RoundEnded) as ended:
            desk.csp.answer(desk.task, request)
        told.append((type(ended.value), str(ended.value).replace(f"round {number}", "the round")))
    assert len(set(told)) == 1


def finished(desk: Desk) -> bytes:
    """Round 1 rewarded, the task over, and one honest claim in SP's hands."""
    desk.run()
    desk.requester.order(desk.task, "cancel")
    desk.run()
    person = desk.crowd[0]
    person.open_reward(1)
    return person.side.claim()


def test_an_honest_claim_serves_for_nothing_but_itself(desk: Desk):
    """SP cannot move it to other rounds, masks or salts, and has nothing else kept under the claimant's name."""
    bytes_, side = finished(desk), sp_side(desk)
    claim = Claim.from_bytes(bytes_, side.party.limits(1))
    altered = [
        replace(claim, rounds=(2,)),
        replace(claim, masks=(claim.masks[0] + 1,)),
        replace(claim, salts=(b"s" * 32,)),
        replace(claim, amounts=(claim.amounts[0] + 1,)),
        replace(claim, rounds=(), amounts=(), masks=(), salts=()),
    ]
    for forged in altered:
        with pytest.raises(BadSignature):
            desk.csp.answer(desk.task, forged.to_bytes())
    assert desk.csp.answer(desk.task, bytes_) == desk.csp.answer(desk.task, bytes_)


def test_what_csp_keeps_of_a_round_is_written_once(desk: Desk):
    """SP cannot put another number under a participant's name: neither again, nor in a round that was not computed."""
    finished(desk)
    side = sp_side(desk)
    victim = upload_of(desk, desk.crowd[1].keys.who)
    delta = CipherVector.concat([victim.part(len(victim) - 1)] * 3)
    masked = side.party.rerandomise(delta)
    commitments = (commit(0, b"s" * 32),) * 3
    for number in (1, 2, 3):
        request = RewardRequest(number, masked, side.party.partial_decrypt(masked), commitments).to_bytes()
        with pytest.raises(OutOfTurn):
            desk.csp.answer(desk.task, request)


def test_one_claim_of_each_participant_is_attested(desk: Desk):
    """A participant who helps SP gets no second answer either."""
    bytes_ = finished(desk)
    person = desk.crowd[0]
    desk.csp.answer(desk.task, bytes_)
    claim = Claim.from_bytes(bytes_, sp_side(desk).party.limits(1))
    empty = replace(claim, rounds=(), amounts=(), masks=(), salts=(), signature=b"")
    second = replace(empty, signature=person.keys.signing.sign(empty.statement))
    with pytest.raises(ClaimRefused, match="another claim"):
        desk.csp.answer(desk.task, second.to_bytes())


def test_a_reward_that_csp_did_not_sign_is_refused_on_the_phone(desk: Desk):
    """SP knows everybody's public key, and can seal what it likes."""
    person = desk.crowd[0]
    context, who, public = person.side.party, person.keys.who, person.side.party.public
    task = desk.sp.definition(desk.task).spec.task(public)
    context = task.context(1)
    forged = (99_000_000).to_bytes(public.plaintext_bytes, "big") + bytes(64)
    box = seal_to(person.keys.reader.public, forged, reward_context(context, who))
    with pytest.raises(BadSignature):
        person.side.open_reward(RewardEnvelope(0, b"s" * 32, box).to_bytes(), 1)


def test_an_envelope_fits_its_mask_its_round_and_its_owner(desk: Desk):
    desk.run()
    one, two = desk.crowd[:2]
    envelope = RewardEnvelope.from_bytes(desk.sp.envelope(desk.task, 1, one.keys.who), one.side.party.limits(1))
    assert one.side.open_reward(envelope.to_bytes(), 1) >= 0
    for altered in (replace(envelope, mask=envelope.mask + (1 << 40)), replace(envelope, salt=b"s" * 32)):
        with pytest.raises(BadSignature):
            one.side.open_reward(altered.to_bytes(), 1)
    with pytest.raises(SealBroken):
        one.side.open_reward(envelope.to_bytes(), 2)
    with pytest.raises(SealBroken):
        two.side.open_reward(envelope.to_bytes(), 1)


def test_the_average_and_the_rewards_are_right_with_all_of_this(desk: Desk):
    """The honest round beside the attacks."""
    desk.run()
    read = desk.crowd[0].read(1)
    models = [WEIGHTS, WEIGHTS * 0.5, -WEIGHTS]
    assert np.abs(read.weights - np.average(models, axis=0, weights=COUNTS)).max() < 2e-3
    assert BUDGET - 6 <= sum(person.open_reward(1) for person in desk.crowd) <= BUDGET
