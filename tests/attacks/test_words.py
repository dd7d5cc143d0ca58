"""An SP whose word about an upload is not what CSP has signed: phones go by what is signed, and their owners hold both."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Receipt
from crowdfl.errors import FormatError, NothingToContribute, NotReady, Replaced, RolledBack, TooLate
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.shares.round.average import RoundRecord, SharesPublication
from crowdfl.protocols.shares.round.ends import EndRequest, RoundEnd
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.participant.agent import Agent
from crowdfl.roles.participant.chain import KeptChain
from crowdfl.roles.participant.event_words import event_words
from crowdfl.roles.participant.evidence import CspWord, SpWord, contradicts
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.simulation.host import PEOPLE, SP, Call, Deliver
from crowdfl.storage.blobs import FileBlobs
from crowdfl_lab.audit.shares import words
from tests.hosts import BUDGET, HARDENED, Desk, heard, moved_by, raising, unchanged
from tests.roles.test_chain import Boundless
from tests.roles.test_stopping import void_round

SP_KEY = SigningKey.fresh()
Answer = Callable[[Call], Any]


def unused_receipt(call: Call) -> str:
    task, number, keys, upload = call.arguments
    digest = upload_digest(upload)
    return Receipt(task, number, keys.who, digest, late=False, unused=True).sign(SP_KEY)


ANSWERS: dict[str, tuple[SpWord, Answer]] = {
    "too late": (SpWord.REFUSED, lambda _: raising(TooLate("the round has closed"))()),
    "replaced": (SpWord.REFUSED, lambda _: raising(Replaced("another device has your place"))()),
    "unused": (SpWord.UNUSED, unused_receipt),
}
every_answer = pytest.mark.parametrize("answer", ANSWERS)


def denied(folder: Path, answer: str, **settings: Any) -> tuple[Desk, Participant, list[tuple[str, dict[str, Any]]]]:
    """SP has taken everyone's upload, and gives the first person this answer."""
    desk = Desk(folder, {"closes": "deadline", "goal": 4, "unused_pay": "0.25"}, **settings)
    desk.invite(4)
    desk.requester.fund(desk.task, 2 * desk.settings.rounds * BUDGET, "all")
    desk.run()
    person = desk.crowd[0]
    person.sp_key = SP_KEY.public

    def lying(call: Call, deliver: Deliver) -> Any:
        reply = deliver()
        mine = (call.sender, call.receiver, call.name) == (f"{PEOPLE}0", SP, "send")
        return ANSWERS[answer][1](call) if mine else reply

    desk.network = lying
    return desk, person, heard(person)


def told(events: list[tuple[str, dict[str, Any]]], what: str) -> list[dict[str, Any]]:
    return [details for name, details in events if name == what]


def finish(desk: Desk) -> None:
    """Everyone sends, and the round ends at its deadline."""
    desk.upload()
    desk.later(desk.settings.window + desk.settings.late + 1)


@every_answer
def test_an_upload_that_was_denied_and_rejected_stops_the_phone(tmp_path: Path, answer: str) -> None:
    desk, person, events = denied(tmp_path, answer, rounds=3)
    person.side._encoder = Boundless(person.side._shape)
    desk.upload(train=moved_by(0.5))
    finish(desk)
    desk.upload([person])
    desk.upload([person])
    said = ANSWERS[answer][0]
    assert told(events, "words differ") == [{"round": 1, "said": said, "signed": CspWord.REJECTED}]
    assert [one["round"] for one in told(events, "upload rejected")] == [1]
    assert person.blobs.has("stopped")
    assert not person.blobs.has("rounds/2/upload")


@every_answer
@pytest.mark.parametrize("pay", ["equal", "samples"])
def test_an_upload_that_was_denied_and_averaged_is_paid_once(tmp_path: Path, answer: str, pay: str) -> None:
    """In the place of a debt for an unused one too, in the phone's book and in SP's."""
    desk, person, events = denied(tmp_path, answer, rounds=1, pay=pay)
    desk.upload()
    if answer == "unused":  # in SP's books too, though it has taken the upload
        desk.sp.store.post(desk.task, Ledger.owe_unused(person.keys.who, 1, 250_000))
    finish(desk)
    desk.upload()
    assert told(events, "words differ") == [{"round": 1, "said": ANSWERS[answer][0], "signed": CspWord.ACCEPTED}]
    assert person.rewards() == {1: BUDGET // 4}
    assert person.claim() == BUDGET // 4
    assert desk.ledger.paid()[person.keys.who] == {1: BUDGET // 4}


def test_a_denied_upload_whose_reward_is_hidden_is_not_claimed_as_unused(tmp_path: Path) -> None:
    desk, person, _ = denied(tmp_path, "unused", rounds=1, pay="samples")
    finish(desk)
    desk.sp_link.reward = raising(NotReady("there is none"))
    desk.upload()
    assert person.rewards() == {}
    with pytest.raises(NotReady, match="does not show the reward of round 1"):
        person.claim()
    assert person.unused_rounds() == []
    assert not person.blobs.has("claim")
    assert person.awaits_rewards


def test_an_honest_latecomer_goes_on(tmp_path: Path) -> None:
    """A record that does not name it says nothing: three of them neither."""
    desk = Desk.funded(tmp_path, 4, rounds=5)
    late, *others = desk.crowd
    events = heard(late)
    for _ in range(4):
        late.blobs.delete("left")
        desk.sp_link.send = raising(TooLate("the round has closed"))
        late.step(unchanged)
        del desk.sp_link.send
        desk.upload(others)
        desk.later(desk.settings.window + desk.settings.late + 1)
    late.step(unchanged)
    assert len(told(events, "refused")) == 4
    assert not late.has_left
    assert late.evidence.differences() == {}
    assert [late.blobs.has(f"rounds/{number}/record") for number in range(1, 5)] == [True] * 4


def test_an_upload_that_was_deleted_and_averaged_is_paid(tmp_path: Path) -> None:
    desk = Desk.funded(tmp_path, 4, rounds=2)
    person, *others = desk.crowd
    events = heard(person)
    desk.upload([person])
    desk.sp_link.leave = lambda *_, **__: {"deleted": [1], "standing": []}
    person.leave(withdraw=True)
    del desk.sp_link.leave
    assert person.awaits_words
    desk.upload(others)
    desk.later(desk.settings.window + desk.settings.late + 1)
    desk.upload([person])
    assert person.state == "left"
    assert not person.awaits_words
    assert told(events, "words differ") == [{"round": 1, "said": SpWord.DELETED, "signed": CspWord.ACCEPTED}]
    assert person.rewards() == {1: BUDGET // 4}
    desk.requester.order(desk.task, "cancel")
    desk.run()
    assert person.claim() == BUDGET // 4


def test_an_agent_that_has_left_looks_until_the_record_is_there(tmp_path: Path) -> None:
    desk = Desk.funded(tmp_path, 4, rounds=2, budget=None)
    person, *others = desk.crowd
    desk.upload([person])
    person.leave()
    waits = Agent(person, lambda _: None)._follow(_Trainer(), desk.settings.window, claims=False)
    next(waits)
    desk.upload(others)
    desk.run()
    assert list(waits) == []
    assert person.blobs.has("rounds/1/record")


class _Trainer:
    train = staticmethod(unchanged)

    def evaluate(self, *_: Any) -> dict[str, float]:
        return {}


def test_nothing_is_sent_before_the_record_of_an_earlier_upload_is_here(tmp_path: Path) -> None:
    desk = Desk.funded(tmp_path, 4, rounds=3)
    person = desk.crowd[0]
    desk.play()
    desk.sp_link.average = raising(NotReady("later"))
    events = heard(person)
    for _ in range(2):
        person.step(unchanged)
    assert not person.blobs.has("rounds/2/made")
    assert [one["round"] for one in told(events, "record missing")] == [1]
    assert not person.send(2)
    del desk.sp_link.average
    person.step(unchanged)
    assert person.blobs.has("rounds/2/receipt")


def test_the_end_of_a_round_that_was_given_up_is_waited_for(tmp_path: Path) -> None:
    """Also by those whom SP has denied a receipt; it says of whom CSP has shown bits."""
    desk = Desk.funded(tmp_path, 4, rounds=3)
    person = desk.crowd[0]
    desk.sp_link.send = raising(TooLate("the round has closed"))
    person.step(unchanged)
    del desk.sp_link.send
    desk.later(3 * desk.settings.window + desk.settings.late)
    assert desk.states() == ["aborted", "open"]
    desk.sp_link.end = raising(NotReady("later"))
    person.step(unchanged)
    assert not person.blobs.has("rounds/2/made")
    del desk.sp_link.end
    person.step(unchanged)
    assert person.blobs.get("rounds/1/given-up") == b"unused"
    assert person.blobs.has("rounds/2/receipt")


def test_the_end_of_the_last_round_is_asked_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No round follows it, and people hold CSP's word about it all the same."""
    desk = Desk.funded(tmp_path, 4, rounds=1)
    void_round(desk, monkeypatch)
    desk.run()
    assert desk.sp.store.task(desk.task).state == "settled"  # nothing is owed to anybody
    desk.crowd[0].step(unchanged)
    assert desk.crowd[0].blobs.has("rounds/1/end")


def test_sps_word_that_nobody_looked_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk.funded(tmp_path, 4, rounds=5)
    person = desk.crowd[0]
    events, status = heard(person), desk.sp_link.status
    desk.sp_link.status = lambda task: _unlooked(status(task))
    for _ in range(3):
        void_round(desk, monkeypatch)
    desk.upload([person])
    assert told(events, "words differ")[0] == {"round": 1, "said": SpWord.NOBODY_LOOKED, "signed": CspWord.SHOWN}
    assert person.blobs.has("stopped")


def _unlooked(status: dict[str, Any]) -> dict[str, Any]:
    return status | {"rounds": [entry | {"unused": entry["state"] == "aborted"} for entry in status["rounds"]]}


def test_rounds_count_that_csp_says_to_have_shown_nothing_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks, fails, and signs an end that names nobody: SP was asked for a receipt, and says that CSP was asked."""
    desk = Desk.funded(tmp_path, 4, rounds=6)
    person, honest = desk.crowd[0], desk.csp.answer

    def forgetful(task: str, request: bytes, longest: int = 0) -> bytes:
        reply = honest(task, request, longest)
        if Message.kind_of(request) != EndRequest.kind:
            return reply
        end = RoundEnd.from_bytes(reply, Limits.plain(len(reply)))
        return RoundEnd.of(task, end.number, (), {}).sign(desk.csp._sides[task]._keys.signing).to_bytes()

    monkeypatch.setattr(desk.csp, "answer", forgetful)
    for _ in range(5):
        void_round(desk, monkeypatch)
    assert [number for number in range(1, 7) if person.blobs.has(f"rounds/{number}/made")] == [1, 2, 3]
    assert person.blobs.has("stopped")


def test_whoever_came_too_late_for_rounds_that_were_given_up_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CSP was asked about them, and has seen nothing of its."""
    desk = Desk.funded(tmp_path, 5, rounds=6)
    late = desk.crowd[0]
    for _ in range(4):
        desk.sp_link.send = raising(TooLate("the round has closed"))
        late.step(unchanged)
        del desk.sp_link.send
        void_round(desk, monkeypatch, waits=True)
    late.step(unchanged)
    assert not late.has_left


@pytest.mark.parametrize("profile", [{}, HARDENED], ids=["shares", "hardened"])
def test_rounds_that_are_opened_backwards_get_no_uploads_ahead(tmp_path: Path, profile: dict[str, Any]) -> None:
    """Each would wait for CSP's word about earlier rounds, of which there are none: an SP that withholds a cancel would have
    everyone's signature for all of them."""
    desk = Desk.funded(tmp_path, 4, **profile | {"rounds": 5})
    person, status = desk.crowd[0], desk.sp_link.status
    backwards = [{"number": number, "state": "open", "uploads": 0} for number in (5, 4, 3, 2, 1)]
    desk.sp_link.status = lambda task: dict(status(task)) | {"rounds": backwards}
    desk.sp_link.send = raising(TooLate("the round has closed"))
    for _ in range(3):
        person.step(unchanged)
    assert [number for number in range(1, 6) if person.blobs.has(f"rounds/{number}/made")] == [5]


@pytest.mark.parametrize("number", [True, 1.0, "1", 0, 6, 1])
def test_a_round_is_a_number_that_the_task_has_once(tmp_path: Path, number: Any) -> None:
    """Another name for a round would have a second body made for it, and CSP's word on it looked for nowhere."""
    desk = Desk.funded(tmp_path, 4, rounds=5)
    person, status = desk.crowd[0], desk.sp_link.status
    listed = [{"number": one, "state": "open", "uploads": 0} for one in (1, number)]
    desk.sp_link.status = lambda task: dict(status(task)) | {"rounds": listed}
    with pytest.raises(FormatError, match="lists a round"):
        person.step(unchanged)
    assert not person.blobs.has("rounds/1/made")


def test_a_record_counts_for_a_device_that_has_forgotten_its_upload(tmp_path: Path) -> None:
    """It was set back to before the round: CSP names nobody without a signature."""
    desk, person, events = denied(tmp_path, "too late", rounds=3)
    person.side._encoder = Boundless(person.side._shape)
    desk.upload(train=moved_by(0.5))
    finish(desk)
    for name in ("made", "upload", "refused"):
        person.blobs.delete(f"rounds/1/{name}")
    desk.upload([person])
    assert [one["round"] for one in told(events, "upload rejected")] == [1]
    assert person.blobs.has("stopped")


def catching(desk: Desk, person: str, hidden: Callable[[int, dict[str, Any]], list[dict[str, Any]]]) -> None:
    """SP shows this person other rounds, by how often it has looked."""
    before, seen = desk.network, Counter[str]()

    def lying(call: Call, deliver: Deliver) -> Any:
        reply = before(call, deliver)
        if (call.sender, call.receiver, call.name) == (f"{PEOPLE}{person}", SP, "status"):
            seen["status"] += 1
            return dict(reply) | {"rounds": hidden(seen["status"], dict(reply))}
        return reply

    desk.network = lying


def test_a_rejection_that_is_shown_on_the_way_to_a_later_round_counts(tmp_path: Path) -> None:
    """SP leaves the round out of what a step goes by, and shows it only where the phone reads what a later one builds on."""
    desk, person, events = denied(tmp_path, "too late", rounds=4)
    person.side._encoder = Boundless(person.side._shape)
    desk.upload(train=moved_by(0.5))
    finish(desk)
    desk.upload(desk.crowd[1:])
    desk.later(desk.settings.window + desk.settings.late + 1)
    assert desk.states() == ["rewarded", "rewarded", "open"]
    catching(desk, "0", lambda look, status: [one for one in status["rounds"] if look == 2 or one["number"] != 1])
    person.step(unchanged)
    assert [one["round"] for one in told(events, "upload rejected")] == [1]
    assert person.blobs.has("stopped")


def test_a_record_that_was_kept_before_a_crash_is_heeded_after_it(tmp_path: Path) -> None:
    desk, person, events = denied(tmp_path, "too late", rounds=3)
    person.side._encoder = Boundless(person.side._shape)
    desk.upload(train=moved_by(0.5))
    finish(desk)
    person._heed = raising(OSError("it dies here"))  # type: ignore[method-assign]
    with pytest.raises(OSError, match="dies"):
        person.step(unchanged)
    del person._heed
    assert person.blobs.has("rounds/1/record")
    desk.upload([person])
    assert [one["round"] for one in told(events, "upload rejected")] == [1]
    assert not person.blobs.has("rounds/2/upload")


def test_a_record_is_here_before_it_counts_as_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device dies while it keeps the record of a round: it sends nothing before it has read that record again."""
    desk = Desk.funded(tmp_path, 4, rounds=3)
    person = desk.crowd[0]
    desk.play(1)
    with monkeypatch.context() as patch:
        patch.setattr(KeptChain, "keep_record", raising(OSError("it dies here")))
        with pytest.raises(OSError, match="dies"):
            person._read_record(1)
    assert person.awaits_words
    person.step(unchanged)
    assert person.blobs.has("rounds/1/record")
    assert person.blobs.has("rounds/2/receipt")


def test_a_phone_that_stops_while_it_looks_sends_nothing_more(tmp_path: Path) -> None:
    """The record is first shown when the phone asks whether it has every word."""
    desk, person, _ = denied(tmp_path, "too late", rounds=4)
    person.side._encoder = Boundless(person.side._shape)
    desk.upload(train=moved_by(0.5))
    finish(desk)
    catching(desk, "0", lambda look, status: [_closed(one) if look == 1 else one for one in status["rounds"]])
    desk.upload([person])
    assert person.blobs.has("stopped")
    assert not person.blobs.has("rounds/2/upload")


def _closed(entry: dict[str, Any]) -> dict[str, Any]:
    return entry | ({"state": "closed"} if entry["number"] == 1 else {})


def test_a_round_that_sp_leaves_out_is_waited_for(tmp_path: Path) -> None:
    """Whatever SP lists: a receipt is here. The other round is claimed meanwhile, and neither is given up by that."""
    desk = Desk.funded(tmp_path, 4, rounds=2)
    person = desk.crowd[0]
    desk.play(2)
    honest = desk.network
    catching(desk, "0", lambda _, status: [one for one in status["rounds"] if one["number"] != 2])
    assert desk.state == "finished"
    assert person.claim() == BUDGET // 4
    assert person.awaits_rewards
    desk.network = honest
    assert person.claim() == 2 * (BUDGET // 4)
    assert not person.awaits_rewards


def test_a_round_that_sp_calls_given_up_waits_for_csps_word(tmp_path: Path) -> None:
    """Also after the end: SP's word alone is not noted for good."""
    desk = Desk.funded(tmp_path, 4, rounds=2)
    person = desk.crowd[0]
    desk.play(1)
    desk.upload()
    desk.run()
    honest, given_up = desk.network, {"state": "aborted", "unused": True}
    catching(desk, "0", lambda _, status: [one | (given_up if one["number"] == 2 else {}) for one in status["rounds"]])
    desk.sp_link.end = raising(NotReady("not yet"))
    for _ in range(3):
        person.step(unchanged)
    assert not person.blobs.has("rounds/2/given-up")
    del desk.sp_link.end
    desk.network = honest
    person.step(unchanged)
    assert person.rewards() == {1: BUDGET // 4, 2: BUDGET // 4}


def test_deleted_does_not_overrule_a_record_that_was_read_before(tmp_path: Path) -> None:
    """SP withholds the reward, and says "deleted" when the person withdraws."""
    desk = Desk.funded(tmp_path, 4, rounds=3, pay="samples")
    person, events = desk.crowd[0], heard(desk.crowd[0])
    desk.sp_link.reward = raising(NotReady("not yet"))
    desk.play(1)
    person.step(raising(NothingToContribute("nothing")))
    leave = type(desk.sp_link).leave
    desk.sp_link.leave = lambda *given, **named: leave(desk.sp_link, *given, **named) | {"deleted": [1]}
    person.leave(withdraw=True)
    del desk.sp_link.leave, desk.sp_link.reward
    assert told(events, "words differ") == [{"round": 1, "said": SpWord.DELETED, "signed": CspWord.ACCEPTED}]
    person.step(unchanged)
    assert list(person.rewards()) == [1]


def test_two_records_of_one_round_stop_a_phone_that_keeps_both(tmp_path: Path) -> None:
    desk = Desk.funded(tmp_path, 4, rounds=3)
    person = desk.crowd[0]
    desk.play()
    desk.upload()
    first = person.blobs.get("rounds/1/record")
    person.blobs.delete("rounds/1/record")
    person.blobs.put("rounds/1/record", b"another record of CSP's")
    person.blobs.delete("rounds/1/average")
    events = heard(person)
    assert person.step(unchanged)
    assert "two records of round 1" in told(events, "stopped")[0]["why"]
    assert person.blobs.get("rounds/1/second-record") == first
    (found,) = person.export_evidence()["rounds"]
    assert found["csp"]["code"] == CspWord.TWO_RECORDS
    assert {"record", "second_record"} <= found["csp"].keys()
    assert not person.blobs.has("rounds/3/made")


def test_a_record_and_an_end_of_one_round_are_two_words(tmp_path: Path) -> None:
    """In whichever order they come."""
    for first, second in (("record", "end"), ("end", "record")):
        chain = KeptChain(FileBlobs(tmp_path / first), "rounds", 3)
        keep = {"record": chain.keep_record, "end": chain.keep_end}
        keep[first](1, b"one word")
        with pytest.raises(RolledBack, match="two records of round 1"):
            keep[second](1, b"another")
        assert chain.blobs.get("rounds/1/second-record") == b"another"
        assert chain.blobs.get(f"rounds/1/{first}") == b"one word"


def test_what_each_said_is_exported_with_whom_to_send_it_to(tmp_path: Path) -> None:
    desk, person, events = denied(tmp_path, "too late", rounds=1)
    finish(desk)
    desk.upload()
    found = json.loads(json.dumps(person.export_evidence()))
    assert found["task"] == desk.task
    assert found["send_to"] == {"contact": desk.sp.core.definition(desk.task).who.contact, "payer": ""}
    (one,) = found["rounds"]
    assert (one["round"], one["sp"]["code"], one["sp"]["answer"]) == (1, "refused", "the round has closed")
    record = base64.b64decode(one["csp"]["record"])
    published = SharesPublication.from_bytes(desk.sp.publication(desk.task, 1, None), Limits.plain(1 << 24))
    assert record == published.record
    assert person.keys.who in RoundRecord.from_bytes(record, Limits.plain(1 << 24)).accepted
    shown = event_words("words differ", told(events, "words differ")[0])
    assert "it has not taken your upload" in shown
    assert "your upload is in the average" in shown


@pytest.mark.parametrize("said", [None, *SpWord])
@pytest.mark.parametrize("signed", CspWord)
def test_what_an_honest_sp_could_have_said_is_no_difference(said: SpWord | None, signed: CspWord) -> None:
    honest = {
        CspWord.ABSENT: {None, SpWord.REFUSED, SpWord.UNUSED, SpWord.DELETED, SpWord.NOBODY_LOOKED, SpWord.NO_AVERAGE},
    }.get(signed, {None, SpWord.TAKEN, SpWord.NOBODY_LOOKED, SpWord.NO_AVERAGE})
    assert contradicts(said, signed) is (said not in honest)


@pytest.mark.parametrize(
    "attack",
    [words.attack_denied_bits, words.attack_forgotten_bits, words.attack_used_unpaid, words.attack_used_deleted],
)
def test_what_a_server_gains_by_its_word_is_what_is_stated(attack: Callable[[], Any]) -> None:
    assert [finding.surprising for finding in attack()] == [False, False]
