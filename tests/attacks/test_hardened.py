"""`hardened`, and money: participants, servers and requesters that deviate gain nothing.

Attacks that still work are expected to fail, and say who gains what.
"""

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    BadSignature,
    CrowdFLError,
    NotReady,
    OutOfTurn,
    RewardOutOfRange,
    RoundEnded,
    ServiceUnavailable,
    UnknownParticipant,
    UploadRejected,
)
from crowdfl.protocols.claims import Claim
from crowdfl.protocols.hardened.bundles import CspBundle
from crowdfl.protocols.hardened.manifest import ManifestRequest, manifest_of, upload_statement
from crowdfl.protocols.hardened.prirwd import (
    LanesReply,
    LanesRequest,
    rows_a_message,
)
from crowdfl.protocols.hardened.record import HardenedRecord, RecordReply, sign_record
from crowdfl.protocols.messages import Limits, Message
from crowdfl.roles.restored import mark_restored_sp, reconcile
from tests.attacks.cheating import (
    BUDGET,
    WEIGHTS,
    begin,
    honest_uploads,
    manifest,
    paid_desk,
    paid_to,
    raw_upload,
    sample_upload,
    send,
    sp_side,
    upload_of,
    weighted_mean,
)
from tests.hosts import HARDENED, Desk, FileDisk, small_definition

MODELS, COUNTS = (WEIGHTS, WEIGHTS * 0.5, -WEIGHTS), (5, 7, 3)


class Instead:
    """A peer that answers some calls in its own way."""

    def __init__(self, honest: Any, **calls: Any) -> None:
        self._honest = honest
        vars(self).update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)


def returned(desk: Desk) -> int:
    """What went back to the requester."""
    return sum(move.amount for move in desk.sp.core.ledger(desk.task).movements if move.target == "requester")


def cancel(desk: Desk) -> None:
    desk.requester.order(desk.task, "cancel")
    desk.run()


def forge(desk: Desk, number: int, *uploads: CipherVector) -> None:
    """A round of three honest people, and two who send what they like."""
    honest_uploads(desk, number, MODELS, COUNTS)
    for person, upload in zip(desk.crowd[3:], uploads, strict=True):
        send(desk, number, person, upload)
    desk.run()


@pytest.mark.second
def test_a_count_out_of_bounds_costs_its_round_and_nothing_else(tmp_path: Path):
    """Below zero it raises what all others earn together above the budget; above `max_samples` it takes the budget, and whoever
    knows it has the average of the others all the same. -10 and 10 cancel in the total; of a half, twice is a whole number."""
    desk, most = paid_desk(tmp_path, 5, rounds=7, lanes=None), 10
    half = (int(sp_side(desk).party.public.n) + 1) // 2
    pairs = [(0, most), (1, -1), (-most, most), (1, most + 1), (1, half), (1, -half), (1, 1)]
    for number, counts in enumerate(pairs, 1):
        uploads = [sample_upload(desk, p, k) for p, k in zip(desk.crowd[3:], counts, strict=True)]
        forge(desk, number, *uploads)
    states = [entry["state"] for entry in desk.sp.tasks.status(desk.task)["rounds"]]
    assert states == ["rewarded", *["aborted"] * 5, "rewarded"]
    for number in range(2, 7):
        with pytest.raises(NotReady):
            desk.sp.publication(desk.task, number, None)
    assert 2 * BUDGET - 20 <= sum(map(paid_to, desk.crowd)) <= 2 * BUDGET
    desk.run()
    assert returned(desk) >= 5 * BUDGET


def test_a_bad_upload_costs_its_round_and_nothing_else(tmp_path: Path):
    """Two uploads far outside a slot cancel in the sum. They end the round: no model of it, its money back at once."""
    desk = paid_desk(tmp_path, 5, rounds=2, lanes=None)
    n = int(desk.crowd[0].side.party.public.n)
    for number, z in ((1, 0), (2, n // 2 - 12345)):
        forge(desk, number, raw_upload(desk, desk.crowd[3], z), raw_upload(desk, desk.crowd[4], -z))
    status = desk.sp.tasks.status(desk.task)
    assert [entry["state"] for entry in status["rounds"]] == ["rewarded", "aborted"]
    with pytest.raises(NotReady):
        desk.sp.publication(desk.task, 2, None)
    model = np.concatenate([array.reshape(-1) for array in desk.requester.model(desk.task)])
    assert np.abs(model - weighted_mean(MODELS, COUNTS)).max() < 2e-3  # of round 1, which was paid for
    assert BUDGET - 10 <= sum(desk.crowd[person].claim() for person in range(5)) <= BUDGET
    desk.run()
    assert desk.sp.core.ledger(desk.task).balance("escrow") == 0
    returned = [m.amount for m in desk.sp.core.ledger(desk.task).movements if m.target == "requester"]
    assert returned[0] == BUDGET  # round 2's, without waiting for a day
    assert sum(returned[1:]) <= 10  # what division has left of round 1, once everyone has claimed


class SignOracle:
    """SP asks CSP for lanes of its choice: is a slot of somebody's upload below t?"""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.side = desk, sp_side(desk)
        self.names = tuple(sorted(person.keys.who for person in desk.crowd))

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


def test_sp_alone_learns_at_most_whether_a_round_ended(tmp_path: Path):
    """One comparison a round, and the round is its price or the next question is refused. It took 131 to read an upload."""
    desk = paid_desk(tmp_path, 3, rounds=4, lanes=1024)
    honest_uploads(desk, 1, MODELS, COUNTS)
    oracle, victim = SignOracle(desk), upload_of(desk, desk.crowd[0].keys.who)
    for number, t in enumerate((-(10**6), 0, 10, 10**6), 1):
        desk.csp.answer(desk.task, signed_by_all(desk, number))  # as if phones went on though no word of a round comes
        first = oracle.ask(number, victim, 0, t)
        assert first in ("answered", "RoundEnded")  # the one bit
        later = {oracle.ask(number, victim, 0, other) for other in (1, -1000, 1000, -(10**6), 10**6)}
        assert later == {"OutOfTurn" if first == "answered" else "RoundEnded"}
    for number in (0, 5):
        with pytest.raises(CrowdFLError, match="round"):
            desk.csp.answer(desk.task, signed_by_all(desk, number))


def signed_by_all(desk: Desk, number: int) -> bytes:
    """A manifest of uploads that everyone has signed for this round."""
    digest, keys = bytes(32), [person.keys for person in desk.crowd]
    signed = {key.who: key.signing.sign(upload_statement(desk.task, number, key.who, digest)) for key in keys}
    return manifest_of(number, BUDGET, {who: (digest, by) for who, by in signed.items()}).to_bytes()


def test_signs_are_not_to_be_had_once_a_round_was_opened(tmp_path: Path):
    """A task without budget: the average is published, everyone has read it, and SP asks for a sign at no price."""
    desk = Desk(tmp_path, **HARDENED | {"key_bits": 1024, "budget": None, "rounds": 2})
    desk.invite(3)
    desk.run()
    honest_uploads(desk, 1, MODELS, COUNTS)
    desk.run()
    for person in desk.crowd:
        assert person.read(1).standing is None
    oracle, victim = SignOracle(desk), upload_of(desk, desk.crowd[0].keys.who)
    for payment in (1, BUDGET):
        with pytest.raises(OutOfTurn, match="other contents"):
            begin(desk, 1, payment)
    assert {oracle.ask(1, victim, 0, t) for t in (0, 10, -(10**6))} == {"OutOfTurn"}


def cancelled(folder: Path, *, told: bool) -> tuple[Desk, CipherVector, bytes]:
    """After round 1 of three, with round 2 open; round 1's upload, and what was signed for round 2. CSP is told of the cancel,
    or SP withholds that."""
    desk = paid_desk(folder, 3, rounds=3, lanes=1024)
    honest_uploads(desk, 1, MODELS, COUNTS)
    desk.run()
    honest_uploads(desk, 2, MODELS[:2], COUNTS[:2])
    send(desk, 2, desk.crowd[2], upload_of(desk, desk.crowd[2].keys.who))
    victim, signed = upload_of(desk, desk.crowd[0].keys.who), manifest(desk, 2)
    desk.requester.order(desk.task, "cancel")
    if not told:
        desk.sp.blobs.delete(f"{desk.task}/cancel")
    else:
        desk.run()
    assert desk.sp.blobs.has(f"{desk.task}/cancelled") is told
    return desk, victim, signed


def test_after_a_cancel_no_round_is_left_to_ask_in(tmp_path: Path):
    """Rounds that never come have no signatures, and the one that was open is closed by the requester's word."""
    desk, victim, signed = cancelled(tmp_path, told=True)
    oracle = SignOracle(desk)
    with pytest.raises(RoundEnded):
        desk.csp.answer(desk.task, signed)
    with pytest.raises(BadSignature):
        desk.csp.answer(desk.task, as_if_of(desk, signed, 3))
    assert oracle.ask(2, victim, 0, 0) == oracle.ask(3, victim, 0, 0) == "OutOfTurn"
    assert len(desk.requester.model(desk.task)) == 2  # the requester's average is opened after it all the same
    assert BUDGET - 10 <= sum(person.claim() for person in desk.crowd) <= BUDGET


def test_a_cancel_that_sp_withholds_leaves_the_round_that_was_signed_for(tmp_path: Path):
    """As `disclosures` says: one more round's question, about any upload that SP has, and no other round."""
    desk, victim, signed = cancelled(tmp_path, told=False)
    desk.csp.answer(desk.task, signed)
    assert SignOracle(desk).ask(2, victim, 0, 10**6) == "RoundEnded"  # of round 1's upload: CSP never sees ciphertexts
    with pytest.raises(BadSignature):
        desk.csp.answer(desk.task, as_if_of(desk, signed, 3))


def as_if_of(desk: Desk, signed: bytes, number: int) -> bytes:
    """What was signed for a round, as if it were for another."""
    limits = sp_side(desk).party.limits(1)
    return replace(ManifestRequest.from_bytes(signed, limits), round_number=number).to_bytes()


def test_a_phone_sends_nothing_before_it_has_the_word_of_earlier_rounds(tmp_path: Path):
    """The record of a round that was opened, CSP's verdict on one that is void. If SP withholds either, nothing is sent."""
    desk = paid_desk(tmp_path, 4, rounds=3, lanes=None)
    n = int(desk.crowd[0].side.party.public.n)
    honest_uploads(desk, 1, MODELS, COUNTS)
    send(desk, 1, desk.crowd[3], raw_upload(desk, desk.crowd[3], n // 2 - 12345))
    desk.run()
    assert desk.sp.tasks.status(desk.task)["rounds"][0]["state"] == "aborted"
    person, honest = desk.crowd[0], desk.crowd[0].sp

    def withheld(*_: Any) -> bytes:
        raise NotReady("later")

    person.sp = Instead(honest, end=withheld)
    person.step(lambda arrays, *_: (arrays, 5))
    assert not desk.sp.store.uploads(desk.task, 2)
    person.sp = honest
    person.step(lambda arrays, *_: (arrays, 5))
    assert [one.who for one in desk.sp.store.uploads(desk.task, 2)] == [person.keys.who]
    assert person.blobs.has("rounds/1/end")
    for other in desk.crowd[1:]:
        other.step(lambda arrays, *_: (arrays, 5))
    desk.run()
    person.sp = Instead(honest, average=withheld)
    with contextlib.suppress(NotReady):
        person.step(lambda arrays, *_: (arrays, 5))
    assert not desk.sp.store.uploads(desk.task, 3)
    person.sp = honest
    person.step(lambda arrays, *_: (arrays, 5))
    assert len(desk.sp.store.uploads(desk.task, 3)) == 1


def test_two_records_of_a_round_stop_a_phone_and_are_kept(tmp_path: Path):
    """A CSP that was set back signs of a round that it has averaged that it is void."""
    desk = paid_desk(tmp_path, 3, rounds=2)
    honest_uploads(desk, 1, MODELS, COUNTS)
    desk.run()
    person, honest = desk.crowd[0], desk.crowd[0].sp
    assert person.read(1).standing is None
    person.step(lambda arrays, *_: (arrays, 5))
    signing = SigningKey(CspBundle.from_bytes(desk.csp.bundles.get(f"{desk.task}.csp"), Limits.plain()).signing)
    end = RecordReply(sign_record(HardenedRecord(desk.task, 1, b"", (), 1, b""), signing)).to_bytes()
    status = desk.sp.tasks.status(desk.task)
    status["rounds"][0]["state"] = "aborted"
    person.sp = Instead(honest, status=lambda _: status, end=lambda *_: end)
    person.step(lambda *_: pytest.fail("nothing is sent"))
    assert person.blobs.has("stopped")
    assert person.blobs.get("rounds/1/second-record") == end


@pytest.mark.second
def test_what_was_earned_can_be_claimed_after_a_round_that_hung(tmp_path: Path) -> None:
    day = 86400.0
    desk = Desk(tmp_path, **HARDENED, rounds=2)
    desk.task = desk.create(small_definition(desk.settings, claim_window=day), desk.initial)
    desk.invite(3)
    desk.requester.fund(desk.task, 2 * BUDGET, "all")
    desk.run()
    honest_uploads(desk, 1, MODELS, COUNTS)
    desk.run()
    earned = sum(person.open_reward(1) for person in desk.crowd)
    honest = desk.sp.ports.csp

    def answer(task: str, request: bytes, _longest: int) -> bytes:
        if Message.kind_of(request) != Claim.kind:
            raise ServiceUnavailable("later")
        return honest.answer(task, request)

    desk.sp.ports.csp = Instead(honest, answer=answer)
    honest_uploads(desk, 2, MODELS, COUNTS)
    with contextlib.suppress(ServiceUnavailable):
        desk.run()
    desk.requester.order(desk.task, "cancel")
    for _ in range(5):  # for more than a day, until SP loses its patience with CSP
        assert desk.sp.tasks.status(desk.task)["claim_seconds_left"] is None
        assert sum(map(paid_to, desk.crowd)) == 0
        desk.clock.time += day / 4
        with contextlib.suppress(ServiceUnavailable):
            desk.run()
    assert desk.sp.tasks.status(desk.task)["rounds"][1]["state"] == "aborted"
    last = desk.sp.core.definition(desk.task).claims_until
    assert desk.sp.tasks.status(desk.task)["claim_seconds_left"] == last - desk.clock.time > day
    desk.sp.ports.csp = honest  # the requester's model is opened too
    desk.leave_to_claim(1)
    desk.run()
    assert sum(map(paid_to, desk.crowd)) == earned
    desk.run()
    assert desk.sp.tasks.status(desk.task)["state"] == "settled"


@pytest.mark.parametrize("said", [UnknownParticipant, UploadRejected, RewardOutOfRange])
def test_a_phone_gives_no_reward_up_for_one_false_answer(tmp_path: Path, said: type[CrowdFLError]) -> None:
    desk = paid_desk(tmp_path, 3, rounds=1)
    honest_uploads(desk, 1, MODELS, COUNTS)
    desk.run()
    person, honest = desk.crowd[0], desk.crowd[0].sp

    def reward(*_: Any) -> bytes:
        raise said("no upload of yours was averaged")

    person.sp = Instead(honest, reward=reward)
    person.step(lambda *_: pytest.fail("no round is open"))
    with pytest.raises(NotReady, match="does not show the reward"):
        person.claim()
    assert person.awaits_rewards
    person.sp = honest  # SP shows everything again
    assert BUDGET - 10 <= sum(other.claim() for other in desk.crowd) <= BUDGET
    assert person.claim() > 0


@pytest.mark.parametrize("settled", [False, True])
def test_a_restored_task_pays_nothing_that_was_returned(tmp_path: Path, settled: bool) -> None:
    """It stands still until its operator has said what went back, and ends if anything did."""
    desk = paid_desk(tmp_path / "desk", 3, rounds=3)
    honest_uploads(desk, 1, MODELS, COUNTS)
    desk.run()
    shutil.copytree(tmp_path / "desk/sp", tmp_path / "copy/sp")
    cancel(desk)
    if settled:
        desk.after_claims()
    before = returned(desk)
    assert before == (3 if settled else 2) * BUDGET
    desk.sp = desk.new_sp(disk=FileDisk(tmp_path / "copy"))
    mark_restored_sp(desk.sp.store, desk.clock.now())
    honest_uploads(desk, 2, MODELS, COUNTS)
    desk.later(10_000)
    cancel(desk)
    assert (desk.sp.tasks.status(desk.task)["rounds"][1]["state"], returned(desk)) == ("aborted", 0)
    for _ in range(2):
        reconcile(desk.sp.ports, desk.task, returned=before)
        desk.run()
    paid = sum(map(paid_to, desk.crowd))
    assert paid == 0 if settled else BUDGET - 10 <= paid <= BUDGET
    if not settled:
        desk.after_claims()
    assert paid + before <= 3 * BUDGET
    assert paid + returned(desk) == 3 * BUDGET
    assert desk.sp.tasks.status(desk.task)["state"] == "settled"
