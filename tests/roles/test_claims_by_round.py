"""Claims by person and round: from the round's reward on, each once, whatever is lost, repeated or swapped."""

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import (
    BadSignature,
    ClaimRefused,
    Conflict,
    NotReady,
    OlderDestination,
    SettingsError,
    TaskEnded,
    TooLate,
    UnknownPayment,
)
from crowdfl.protocols.claims import Beside, Claim, KeptClaim, PayStatement, make_claim
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.records import Look
from crowdfl.protocols.shares.round.csp_records import KeptRound
from crowdfl.roles.csp_records import StoredRecords
from crowdfl.roles.csp_retention import CLAIMS, CspRetention
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.retention import OVER
from crowdfl.roles.sp.claims import resolve_dispute
from crowdfl.roles.sp.ledger import Ledger, disputed_account, participant_account, unused_account
from crowdfl.roles.sp.uploads import PendingUpload
from tests.hosts import BUDGET, HARDENED, Desk, heard, unchanged

PART = BUDGET // 3
UNUSED = 200_000


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Round 1 of three is rewarded, and everyone has read it."""
    desk = Desk.funded(tmp_path, 3, rounds=3)
    desk.play()
    desk.upload()
    return desk


def paid(desk: Desk, person: Participant) -> int:
    return desk.ledger.balance(participant_account(person.keys.who))


def held_back(person: Participant, *rounds: int, beside: Beside | None = None) -> bytes:
    """A claim of some of the rounds that a person could claim."""
    side = person.new_side()
    for number in rounds:
        side.open_reward(person.blobs.get(f"rounds/{number}/reward"), number)
    return bytes(side.claim(beside))


def test_a_round_is_claimed_as_soon_as_it_is_rewarded_whatever_the_task_is_then(desk: Desk):
    """While it runs, is paused, is cancelled; each round once."""
    ann, bob, eve = desk.crowd
    assert (ann.claim(), ann.claim(), paid(desk, ann)) == (PART, PART, PART)
    desk.requester.order(desk.task, "pause")
    assert (bob.claim(), desk.state) == (PART, "paused")
    desk.requester.order(desk.task, "resume")
    desk.run()
    for person in desk.crowd:
        person.step(unchanged)
    assert (ann.claim(), paid(desk, ann)) == (2 * PART, 2 * PART)
    desk.requester.order(desk.task, "cancel")
    desk.run()
    assert desk.state == "cancelled"
    assert (bob.claim(), eve.claim()) == (2 * PART, 2 * PART)
    words = [(one.sequence, one.amount) for one in desk.sp.store.instalments(desk.task, ann.keys.who)]
    assert words == [(1, PART), (2, PART)]


@pytest.mark.parametrize("settings", [{"pay": "samples"}, {"pay": "distance", "max_norm": 3.0, "lanes": 128}, HARDENED])
def test_no_amount_is_shown_before_the_last_round_where_it_would_tell_servers_more(tmp_path: Path, settings: Any):
    """The device asks for nothing, and SP refuses a claim before CSP hears of it."""
    desk = Desk.funded(tmp_path, 3, rounds=2, **settings)
    desk.play()
    desk.upload()
    person = desk.crowd[0]
    assert not person.has_claims
    with pytest.raises(NotReady, match="after its last round"):
        person.claim()
    asked = desk.csp.answer
    desk.csp.answer = lambda *_: pytest.fail("CSP was shown an amount")  # type: ignore[method-assign]
    with pytest.raises(NotReady, match="after its last round"):
        desk.sp.claims.pay(desk.task, held_back(person, 1))
    desk.csp.answer = asked  # type: ignore[method-assign]
    desk.run()
    desk.upload()
    assert person.claim() == sum(person.rewards().values())


@pytest.mark.parametrize("order", list(permutations([(1,), (2,), (1, 2)])))
def test_a_claim_of_some_rounds_forfeits_none_in_whatever_order(desk: Desk, order: Any):
    """Each again, as after a lost reply."""
    desk.run()
    desk.upload()
    person = desk.crowd[0]
    for rounds in order:
        claim = held_back(person, *rounds)
        first = desk.sp.claims.pay(desk.task, claim)
        assert first.paid == dict.fromkeys(rounds, PART)
        assert desk.sp.claims.pay(desk.task, claim) == first
    assert paid(desk, person) == 2 * PART
    assert sum(one.amount for one in desk.sp.store.instalments(desk.task, person.keys.who)) == 2 * PART
    statement = PayStatement.from_bytes(desk.sp.store.payee(desk.task, person.keys.who).statement, Limits.plain())
    assert (statement.sequence, statement.total) == (2, 2 * PART)


def test_a_lost_reply_of_each_kind_is_repeated(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """The person hears later what was booked; CSP's lost answer is asked for again."""
    ann, bob, _ = desk.crowd
    claim, answer = desk.sp.claims.pay, desk.csp.answer

    def lost(function: Any) -> Any:
        def call(*about: Any) -> Any:
            function(*about)
            raise ConnectionError("the answer was lost")

        return call

    monkeypatch.setattr(desk.sp.claims, "pay", lost(claim))
    with pytest.raises(ConnectionError):
        ann.claim()
    monkeypatch.setattr(desk.sp.claims, "pay", claim)
    monkeypatch.setattr(desk.csp, "answer", lost(answer))
    with pytest.raises(ConnectionError):
        bob.claim()
    monkeypatch.setattr(desk.csp, "answer", answer)
    assert (paid(desk, ann), paid(desk, bob)) == (PART, 0)
    assert (ann.claim(), bob.claim()) == (PART, PART)
    assert (paid(desk, ann), paid(desk, bob)) == (PART, PART)


def test_what_is_booked_is_answered_after_the_last_day_and_after_the_books_are_closed(desk: Desk):
    """Its answer may have been lost; nothing new is taken then, and a forged claim never."""
    ann, bob, _ = desk.crowd
    desk.requester.order(desk.task, "cancel")
    desk.run()
    ann.claim()
    made = ann.blobs.get("claim")
    desk.clock.time = desk.sp.core.definition(desk.task).claims_until + 1.0
    assert desk.sp.claims.pay(desk.task, made).amount == PART
    with pytest.raises(TooLate):
        bob.claim()
    desk.after_claims()
    assert desk.state == "settled"
    assert (desk.sp.claims.pay(desk.task, made).amount, ann.claim()) == (PART, PART)
    with pytest.raises(TooLate):
        desk.sp.claims.pay(desk.task, held_back(bob, 1))
    with pytest.raises(BadSignature):
        desk.sp.claims.pay(desk.task, made[:-64] + bytes(64))


def test_an_older_destination_is_refused_by_name_and_nothing_else_is_forfeited(desk: Desk):
    person = desk.crowd[0]
    assert desk.sp.claims.pay(desk.task, held_back(person, 1, beside=Beside((), b"n" * 32, 2))).paid == {1: PART}
    with pytest.raises(OlderDestination, match="number 2"):
        desk.sp.claims.pay(desk.task, held_back(person, 1, beside=Beside((), b"o" * 32, 1)))
    assert desk.sp.store.payee(desk.task, person.keys.who).named == b"n" * 32
    assert desk.sp.claims.pay(desk.task, held_back(person, 1, beside=Beside((), b"x" * 32, 3))).paid == {1: PART}
    assert desk.sp.store.payee(desk.task, person.keys.who).named == b"x" * 32


def test_an_earlier_answer_of_csps_does_not_take_the_place_of_a_newer_one(desk: Desk):
    """Swapped on the way: SP keeps the statement with the highest number."""
    person = desk.crowd[0]
    older, newer = held_back(person, 1), held_back(person, 1, beside=Beside((), b"n" * 32, 1))
    desk.csp.answer(desk.task, older)
    desk.sp.claims.pay(desk.task, newer)
    desk.sp.claims.pay(desk.task, older)
    assert desk.sp.store.payee(desk.task, person.keys.who).named == b"n" * 32


# Unused uploads.


@pytest.fixture
def late(tmp_path: Path) -> Desk:
    """The fourth came after the goal, and is owed for it; nothing else has happened in round 1."""
    plan = {"closes": "deadline", "goal": 3, "unused_pay": "0.20"}
    desk = Desk(tmp_path, plan, rounds=2, pay="equal", budget="36.00")
    desk.invite(5)
    desk.requester.fund(desk.task, 2 * (BUDGET + 2 * UNUSED), "all")
    desk.run()
    for person in desk.crowd:
        person.encrypt(1, *unchanged(person.model(), {}, 1))
    arrivals = [PendingUpload.of(one.keys.who, one.blobs.get("rounds/1/upload")) for one in desk.crowd[:4]]
    assert [one[1] for one in desk.sp.uploads.receive(desk.task, 1, arrivals)] == ["new"] * 3 + ["unused"]
    for person in desk.crowd[:3]:
        person.send(1)
    return desk


def pass_last_call(desk: Desk) -> None:
    """Nobody comes in time any more."""
    desk.clock.time += 1.0 + desk.settings.window + desk.settings.grace


def unused_claim(person: Participant, *rounds: int) -> bytes:
    """What its owner signs, whatever its device would say."""
    keys = person.keys
    return make_claim(person.task, keys.who, {}, {}, {}, keys.signing, Beside(rounds)).to_bytes()


def test_an_unused_upload_is_claimed_once_its_round_is_over(late: Desk):
    """Before, it is left out; then it is one movement of its own name, and one instalment on SP's word."""
    owed = late.crowd[3]
    assert late.sp.claims.pay(late.task, unused_claim(owed, 1)).amount == 0
    late.run()
    for _ in range(2):
        answer = late.sp.claims.pay(late.task, unused_claim(owed, 1))
        assert (answer.paid, answer.unused, answer.disputed) == ({}, {1: UNUSED}, {})
    assert paid(late, owed) == UNUSED
    assert [m.amount for m in late.ledger.movements if m.name == f"pay unused {owed.keys.who} round 1"] == [UNUSED]
    (instalment,) = late.sp.store.instalments(late.task, owed.keys.who)
    assert (instalment.amount, instalment.word) == (UNUSED, UNUSED)


def test_an_unused_upload_of_a_round_that_was_given_up_is_paid_too(late: Desk):
    late.requester.order(late.task, "cancel")
    late.run()
    if late.states()[0] != "aborted":
        late.sp.steps.abort(late.task, late.sp.store.round(late.task, 1))
    assert late.sp.claims.pay(late.task, unused_claim(late.crowd[3], 1)).unused == {1: UNUSED}


def test_the_device_claims_an_unused_upload_when_it_has_csps_record_of_the_round(late: Desk):
    owed = late.crowd[3]
    owed.blobs.put("rounds/1/unused", b"a receipt")
    assert owed.unused_rounds() == []
    late.run()
    owed.step(unchanged)
    assert owed.unused_rounds() == [1]
    assert owed.claim() == UNUSED
    assert owed.claimed.answer.unused == {1: UNUSED}


def test_what_the_books_do_not_owe_is_disputed_and_the_rest_is_paid(late: Desk):
    """With both proofs; its money is held until the operator has decided, after the books are closed too."""
    late.run()
    late.upload(late.crowd[:3])
    counted, stranger = late.crowd[0], late.crowd[4]
    said = heard(counted)
    answer = late.sp.claims.pay(late.task, held_back(counted, 1, beside=Beside(())))
    assert answer.paid == {1: PART}
    late.run()
    late.upload(late.crowd[:3])
    claim = held_back(counted, 1, beside=Beside((2,)))
    pass_last_call(late)
    answer = late.sp.claims.pay(late.task, claim)
    assert (answer.paid, answer.disputed) == ({1: PART}, {2: UNUSED})
    assert late.sp.claims.pay(late.task, unused_claim(stranger, 1)).disputed == {1: UNUSED}
    first, second = late.sp.store.disputes(late.task)
    assert Claim.from_bytes(first.claim, Limits.plain(len(first.claim))).unused == (2,)
    assert json.loads(first.books)["upload"] is not None
    assert json.loads(second.books) == {"round": "rewarded", "upload": None, "owed": 0, "held": UNUSED}
    held = disputed_account(stranger.keys.who, 1)
    assert late.ledger.balance(held) == UNUSED
    late.after_claims()
    assert (late.state, late.ledger.balance(held)) == ("settled", UNUSED)
    returned = late.ledger.returned()
    resolve_dispute(late.sp.ports, late.task, stranger.keys.who, 1, "pay")
    resolve_dispute(late.sp.ports, late.task, stranger.keys.who, 1, "pay")
    resolve_dispute(late.sp.ports, late.task, counted.keys.who, 2, "refuse")
    assert paid(late, stranger) == UNUSED
    assert late.ledger.returned() == returned + UNUSED
    assert sum(late.ledger.balances().values()) == 0
    assert not any(amount for name, amount in late.ledger.balances().items() if name.startswith(("disputed", "escrow")))
    assert late.sp.claims.pay(late.task, unused_claim(stranger, 1)).unused == {1: UNUSED}
    assert late.sp.claims.pay(late.task, claim).unused == {2: 0}
    for how, error in (("refuse", Conflict), ("perhaps", SettingsError)):
        with pytest.raises(error):
            resolve_dispute(late.sp.ports, late.task, stranger.keys.who, 1, how)
    with pytest.raises(UnknownPayment):
        resolve_dispute(late.sp.ports, late.task, stranger.keys.who, 2, "pay")
    assert [what for what, _ in said] == ["rewarded"], "what others sign for it changes nothing on its device"


def test_who_was_counted_is_not_paid_for_an_unused_upload_too(late: Desk):
    """Though the books owe for one: it is held."""
    counted = late.crowd[0]
    late.sp.store.post(late.task, Ledger.owe_unused(counted.keys.who, 1, UNUSED))
    late.run()
    answer = late.sp.claims.pay(late.task, unused_claim(counted, 1))
    assert (answer.unused, answer.disputed) == ({}, {1: UNUSED})
    assert paid(late, counted) == 0


def test_a_dispute_takes_nothing_from_what_rounds_are_paid_with(late: Desk):
    """Whoever signs that every round owes it something holds up nobody: at most what a round has kept for unused uploads."""
    late.run()
    late.upload()
    before = late.ledger.balance("escrow")
    pass_last_call(late)
    for person in late.crowd:
        late.sp.claims.pay(late.task, unused_claim(person, 1, 2))
    assert late.ledger.balance("escrow") == before
    assert late.ledger.balance(unused_account(1)) == 0
    assert late.crowd[0].claim() == PART


def test_repro_a_false_claim_takes_nothing_from_whoever_still_comes_in_time(late: Desk):
    """What a round keeps for unused uploads is held for nobody before its last call; then it is."""
    late.run()
    counted, honest = late.crowd[0], late.crowd[4]
    for person in late.crowd[:3]:
        assert late.sp.claims.pay(late.task, unused_claim(person, 1)).disputed == {}
    sent = PendingUpload.of(honest.keys.who, honest.blobs.get("rounds/1/upload"))
    (outcome,) = late.sp.uploads.receive(late.task, 1, [sent])
    assert isinstance(outcome, tuple)
    assert outcome[1] == "unused"
    pass_last_call(late)
    assert late.sp.claims.pay(late.task, unused_claim(counted, 1)).disputed == {1: UNUSED}


def test_what_was_left_out_is_asked_for_again(late: Desk):
    """A device that was not answered about a round asks once more, an hour later, and not before."""
    late.run()
    stranger = late.crowd[4]
    stranger.blobs.put("rounds/1/unused", b"a receipt of an SP that has lost its books")
    stranger.step(unchanged)
    assert (stranger.claim(), stranger.claimed.answer.disputed) == (0, {})
    pass_last_call(late)
    assert not stranger.has_claims
    late.clock.time += 3600.0
    assert stranger.has_claims
    stranger.claim()
    assert stranger.claimed.answer.disputed == {1: UNUSED}


def test_the_requester_sees_no_single_payment_and_no_dispute(late: Desk):
    late.run()
    late.upload()
    pass_last_call(late)
    late.crowd[0].claim()
    late.sp.claims.pay(late.task, unused_claim(late.crowd[3], 1))
    late.sp.claims.pay(late.task, unused_claim(late.crowd[4], 1))
    shown = json.dumps(late.requester.report(late.task)["movements"])
    assert not any(person.keys.who in shown for person in late.crowd)
    assert "pay" not in shown


# CSP, when SP says that the task is over.


def retention(desk: Desk) -> CspRetention:
    csp = desk.csp
    key = desk.signing.public
    return CspRetention(csp.store, csp.bundles, desk.clock, csp.blobs, csp.guard, sp_key=key, forget=csp.drop)


def ends(desk: Desk) -> CspRetention:
    """SP says that the task is over: too early, for nobody has claimed."""
    found = retention(desk)
    found.end(desk.task, TaskEnd(desk.task, "cancelled", desk.clock.time).sign(desk.signing))
    return found


def test_sps_word_ends_steps_and_no_claims(desk: Desk):
    """Shares, dealt files and keys are erased, and what is left of them attests claims; no step is answered."""
    step = next(iter(desk.csp.store.answer_counts().get(desk.task, {})), None)
    assert step
    found = ends(desk)
    assert desk.csp.store.task(desk.task).state == CLAIMS
    names = [name for name in desk.csp.bundles.listing() if name.startswith(desk.task)]
    assert names == [f"{desk.task}.claims.csp"]
    assert not any("/answers/" in name or "/rounds/" in name for name in desk.csp.blobs.listing())
    kept = Look(StoredRecords(desk.csp.store, desk.csp.blobs, desk.task)).get(KeptRound, 1)
    assert kept is not None
    assert (kept.seed, kept.heard, kept.sums) == (b"", (), "")
    with pytest.raises(TaskEnded):
        desk.csp.prepare(desk.task)
    desk.clock.time += 101
    asked = replace(desk.csp.store.task(desk.task))
    desk.run()
    assert desk.csp.store.task(desk.task).steps == asked.steps
    for person in desk.crowd[:2]:
        assert person.claim() == PART
    found.sweep(desk.clock.time, counting=True)
    assert desk.csp.store.task(desk.task).state == CLAIMS, "one has not claimed"
    assert desk.crowd[2].claim() == PART
    found.sweep(desk.clock.time, counting=True)
    stored = desk.csp.store.task(desk.task)
    assert stored.state == OVER
    assert stored.end is not None
    assert stored.end.why == "cancelled"
    assert not any(desk.task in name for name in (*desk.csp.bundles.listing(), *desk.csp.blobs.listing()))


def test_claims_end_with_their_last_day_though_somebody_has_not_claimed(desk: Desk):
    found = ends(desk)
    stored = desk.csp.store.task(desk.task)
    desk.clock.time = stored.attests_until - 1
    found.sweep(desk.clock.time, counting=True)
    assert desk.csp.store.task(desk.task).state == CLAIMS
    desk.clock.time = stored.attests_until + 1
    found.end(desk.task, TaskEnd(desk.task, "cancelled", desk.clock.time).sign(desk.signing))
    assert desk.csp.store.task(desk.task).state == OVER


def test_everyone_attested_ends_it_at_once_but_not_where_csp_was_set_back(desk: Desk):
    """By CSP's own records, of which one that was set back may have lost some."""
    for person in desk.crowd:
        person.claim()
    desk.csp.store.change_task(desk.task, rolled_back=True)
    found = ends(desk)
    assert desk.csp.store.task(desk.task).state == CLAIMS
    desk.csp.store.change_task(desk.task, rolled_back=False)
    found.sweep(desk.clock.time, counting=True)
    assert desk.csp.store.task(desk.task).state == OVER


def test_a_crash_while_steps_are_erased_loses_no_key_that_claims_need(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    delete = desk.csp.bundles.delete

    def dies(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(desk.csp.bundles, "delete", dies, raising=False)
    with pytest.raises(OSError, match=desk.task):
        ends(desk)
    monkeypatch.setattr(desk.csp.bundles, "delete", delete, raising=False)
    assert desk.crowd[0].claim() == PART
    retention(desk).sweep(desk.clock.time, counting=False)
    assert [name for name in desk.csp.bundles.listing() if desk.task in name] == [f"{desk.task}.claims.csp"]
    assert desk.crowd[1].claim() == PART


@pytest.mark.parametrize("settings", [{"pay": "samples"}, HARDENED])
def test_hidden_rewards_are_attested_after_the_end_of_steps_too(tmp_path: Path, settings: Any):
    desk = Desk.funded(tmp_path, 3, rounds=1, **settings)
    desk.play()
    desk.upload()
    ends(desk)
    assert desk.csp.store.task(desk.task).state == CLAIMS
    for person in desk.crowd:
        assert person.claim() == sum(person.rewards().values()) > 0
    retention(desk).sweep(desk.clock.time, counting=True)
    assert desk.csp.store.task(desk.task).state == OVER


def test_a_csp_that_lost_what_it_attested_says_the_same_again(desk: Desk):
    """It is shown its own signed record; the payer is told nothing new."""
    person = desk.crowd[0]
    person.claim()
    before = desk.sp.store.payee(desk.task, person.keys.who).statement
    claim = person.blobs.get("claim")
    desk.csp.store.erase_answers(desk.task)
    look = Look(StoredRecords(desk.csp.store, desk.csp.blobs, desk.task))
    assert look.get(KeptClaim, who=person.keys.who) is None
    with pytest.raises(ClaimRefused):
        desk.csp.answer(desk.task, claim)
    payee = desk.sp.store.payee(desk.task, person.keys.who)
    desk.sp.store.change_payee(payee, replace(payee, statement=b"", sequence=0))
    assert desk.sp.claims.pay(desk.task, claim).paid == {1: PART}
    assert desk.sp.store.payee(desk.task, person.keys.who).statement == before
    assert paid(desk, person) == PART
