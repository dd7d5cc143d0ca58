"""`hardened`, and money: participants, servers and requesters that deviate gain nothing.

Attacks that still work are expected to fail, and say who gains what.
"""

import contextlib
import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.errors import (
    CrowdFLError,
    NotReady,
    RewardOutOfRange,
    ServiceUnavailable,
    UnknownParticipant,
    UploadRejected,
)
from crowdfl.protocols.claims import Claim
from crowdfl.protocols.hardened.prirwd import (
    LanesReply,
    LanesRequest,
    NonceRequest,
    rows_a_message,
)
from crowdfl.protocols.messages import Message
from crowdfl.roles.restored import mark_restored_sp, reconcile
from tests.attacks.cheating import (
    BUDGET,
    WEIGHTS,
    honest_uploads,
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
    return sum(move.amount for move in desk.sp.ledger(desk.task).movements if move.target == "requester")


def cancel(desk: Desk) -> None:
    desk.requester.order(desk.task, "cancel")
    desk.run()


def forge(desk: Desk, number: int, *uploads: bytes) -> None:
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
    states = [entry["state"] for entry in desk.sp.status(desk.task)["rounds"]]
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
    status = desk.sp.status(desk.task)
    assert [entry["state"] for entry in status["rounds"]] == ["rewarded", "aborted"]
    with pytest.raises(NotReady):
        desk.sp.publication(desk.task, 2, None)
    model = np.concatenate([array.reshape(-1) for array in desk.requester.model(desk.task)])
    assert np.abs(model - weighted_mean(MODELS, COUNTS)).max() < 2e-3  # of round 1, which was paid for
    assert BUDGET - 10 <= sum(desk.crowd[person].claim() for person in range(5)) <= BUDGET
    desk.run()
    assert desk.sp.ledger(desk.task).balance("escrow") == 0
    returned = [m.amount for m in desk.sp.ledger(desk.task).movements if m.target == "requester"]
    assert sum(returned) == BUDGET  # round 2's, without waiting for a day


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


def test_sp_alone_learns_at_most_whether_a_round_ended(tmp_path: Path):
    """One comparison a round, and the round is its price or the next question is refused. It took 131 to read an upload."""
    desk = paid_desk(tmp_path, 3, rounds=4, lanes=1024)
    honest_uploads(desk, 1, MODELS, COUNTS)
    desk.sp.steps.introductions.step(desk.task)
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
        assert desk.sp.status(desk.task)["claim_seconds_left"] is None
        assert sum(map(paid_to, desk.crowd)) == 0
        desk.clock.time += day / 4
        with contextlib.suppress(ServiceUnavailable):
            desk.run()
    assert desk.sp.status(desk.task)["rounds"][1]["state"] == "aborted"
    assert desk.sp.status(desk.task)["claim_seconds_left"] == day
    desk.sp.ports.csp = honest  # the requester's model is opened too
    desk.later(day - 1)
    assert sum(map(paid_to, desk.crowd)) == earned
    desk.later(1)
    assert desk.sp.status(desk.task)["state"] == "settled"


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
    with pytest.raises(NotReady, match="come back later"):
        person.claim()
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
        desk.later(10_000)
    before = returned(desk)
    assert before == (3 if settled else 2) * BUDGET
    desk.sp = desk.new_sp(disk=FileDisk(tmp_path / "copy"))
    mark_restored_sp(desk.sp.store, desk.clock.now())
    honest_uploads(desk, 2, MODELS, COUNTS)
    desk.later(10_000)
    cancel(desk)
    assert (desk.sp.status(desk.task)["rounds"][1]["state"], returned(desk)) == ("aborted", 0)
    for _ in range(2):
        reconcile(desk.sp.ports, desk.task, returned=before)
        desk.run()
    paid = sum(map(paid_to, desk.crowd))
    assert paid == 0 if settled else BUDGET - 10 <= paid <= BUDGET
    desk.later(10_000)
    assert paid + before <= 3 * BUDGET
    assert paid + returned(desk) == 3 * BUDGET
    assert desk.sp.status(desk.task)["state"] == "settled"
