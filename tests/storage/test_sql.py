"""Each method of the store does what `roles.ports` says, in memory and on PostgreSQL; SQLite's files are tested by others."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from tests.storage.papers import DEFINITION

from crowdfl.errors import (
    AlreadyCounted,
    Conflict,
    CrowdFLError,
    FormatError,
    InvitationRefused,
    LedgerConflict,
    NotEnoughMoney,
    NotReady,
    Overtaken,
    Replaced,
    TaskFull,
    UnknownDeposit,
    UnknownParticipant,
    UnknownTask,
)
from crowdfl.protocols.claims import KeptClaim
from crowdfl.protocols.profile import Identity, SpRecord
from crowdfl.protocols.records import Look, Place, Standing
from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import (
    ClockNotes,
    DepositState,
    EndedBy,
    Movement,
    PaymentState,
    Round,
    RoundState,
    StoredDeposit,
    StoredParticipant,
    StoredPayee,
    StoredPayment,
    StoredTask,
    Tombstone,
    Upload,
    UsedInvitation,
)
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER, earned_account
from crowdfl.storage.sql import SqlStore

TASK = StoredTask("t", DEFINITION, "appointment", "running")
DEPOSIT = Movement("deposit 1", REQUESTER, ESCROW, 100)


def person(number: int) -> StoredParticipant:
    """A participant with bytes that no text column could hold."""
    identity = Identity(f"p{number}", bytes([0, 255, number]), b"\x00reading", f"{number}")
    return StoredParticipant(identity, f"certificate {number}")


@pytest.mark.second
def test_postgresql_is_tested_too(url: str):
    """Loudly skipped where there is no server: then every test of the stores ran on SQLite alone."""
    if "CROWDFL_TEST_POSTGRES" not in os.environ:
        pytest.skip(
            "POSTGRESQL WAS NOT TESTED, all store tests ran on SQLite alone: "
            "set CROWDFL_TEST_POSTGRES=postgresql://USER@HOST/DATABASE, or run .ci/run, which starts a server"
        )
    assert url.startswith(("sqlite", "postgresql"))


def test_a_task_comes_back_as_it_went_in(store: SqlStore):
    store.add_task(TASK)
    assert store.task("t") == TASK
    assert store.tasks() == [TASK]


def test_a_task_added_again_keeps_its_state(store: SqlStore):
    """A retry of the creation must not reopen a cancelled task."""
    store.add_task(TASK)
    store.change_task("t", state="cancelled", ended_at=12.5)
    store.add_task(TASK)
    assert store.task("t") == StoredTask("t", DEFINITION, "appointment", "cancelled", 12.5)


@pytest.mark.parametrize("other", [("t", "other", "appointment"), ("t", DEFINITION, "other")])
def test_a_task_with_other_papers_is_a_conflict(store: SqlStore, other: tuple[str, str, str]):
    store.add_task(TASK)
    with pytest.raises(Conflict):
        store.add_task(StoredTask(*other, "running"))
    assert store.task("t") == TASK


def test_the_end_of_a_task_is_kept_when_its_state_changes_again(store: SqlStore):
    """Settling later does not move the claims' deadline."""
    store.add_task(TASK)
    store.change_task("t", state="finished", ended_at=1_700_000_000.123456)
    store.change_task("t", state="settled")
    assert store.task("t").ended_at == 1_700_000_000.123456


def test_an_unknown_task_is_named(store: SqlStore):
    with pytest.raises(UnknownTask):
        store.task("t")
    with pytest.raises(UnknownTask):
        store.change_task("t", state="running")


def test_participants_come_in_the_order_they_joined(store: SqlStore):
    """Not in that of their names, with every byte of their keys, apart from other tasks'."""
    store.add_task(TASK)
    store.add_task(replace(TASK, task="other"))
    people = [person(3), person(1), person(2)]
    for one in people:
        store.add_participant("t", one, 3)
    store.add_participant("other", person(9), 3)
    assert store.participants("t") == people


def test_a_participant_joins_once(store: SqlStore):
    """Again is fine even when the task is full; with other keys it is a conflict."""
    store.add_task(TASK)
    store.add_participant("t", person(1), 1)
    store.add_participant("t", person(1), 1)
    with pytest.raises(Conflict):
        store.add_participant("t", StoredParticipant(Identity("p1", b"other", b"keys"), "certificate"), 1)
    assert store.participants("t") == [person(1)]


def test_a_full_task_refuses_the_next(store: SqlStore):
    """Someone who left still holds a place: the width budget counted on it."""
    store.add_task(TASK)
    store.add_participant("t", person(1), 2)
    store.add_participant("t", person(2), 2)
    store.leave("t", "p1")
    with pytest.raises(TaskFull):
        store.add_participant("t", person(3), 2)


def test_who_leaves_is_marked(store: SqlStore):
    store.add_task(TASK)
    store.add_participant("t", person(1), 2)
    store.leave("t", "p1")
    store.leave("t", "p1")
    assert [p.left for p in store.participants("t")] == [True]
    with pytest.raises(UnknownParticipant):
        store.leave("t", "p2")


def test_rounds_are_inserted_updated_and_in_order(store: SqlStore):
    store.set_round("t", None, Round(2, 20.5))
    store.set_round("t", None, Round(1, 1_700_000_000.25))
    changed = Round(2, 20.5, RoundState.CLOSED, extended=True, asked=True, average="a" * 64, left_over="b" * 64)
    store.set_round("t", Round(2, 20.5), changed)
    assert store.rounds("t") == [Round(1, 1_700_000_000.25), changed]


def test_a_round_that_is_not_as_it_was_read_stays_as_it_is(store: SqlStore):
    """Whatever differs; a new one is one that nobody has made before."""
    first = Round(1, 0.0, RoundState.CLOSED)
    store.set_round("t", None, first)
    others = ({"asked": True}, {"rewards": "a" * 64}, {"opened_at": 1.0}, {"state": RoundState.WEIGHED})
    for known in (None, *(replace(first, **other) for other in others)):
        with pytest.raises(Conflict):
            store.set_round("t", known, replace(first, state=RoundState.REWARDED))
        assert store.round("t", 1) == first
    with pytest.raises(Conflict):
        store.set_round("t", Round(2, 0.0), Round(2, 0.0, RoundState.CLOSED))
    assert store.rounds("t") == [first]


def test_an_upload_is_in_once(store: SqlStore):
    """New, known, or another one of the same participant's; each round by itself."""
    store.set_round("t", None, Round(1, 0.0))
    store.set_round("t", None, Round(2, 0.0))
    assert store.acknowledge("t", 1, [Upload("p1", "a" * 64, late=False)]) == [True]
    assert store.acknowledge("t", 1, [Upload("p1", "a" * 64, late=True)]) == [False]
    (refused,) = store.acknowledge("t", 1, [Upload("p1", "b" * 64, late=False)])
    assert isinstance(refused, AlreadyCounted)
    assert store.acknowledge("t", 2, [Upload("p1", "b" * 64, late=False)]) == [True]
    assert store.acknowledge("t", 1, [Upload("p0", "c" * 64, late=True)]) == [True]
    assert store.uploads("t", 1) == [Upload("p1", "a" * 64, late=False), Upload("p0", "c" * 64, late=True)]


def test_sps_record_is_set_in_place_of_what_was_read(store: SqlStore):
    """The task's and the round's together: if either has changed, neither is set."""
    first = SpRecord(b"task", b"\x00\xff")
    store.set_sp_record("t", 1, SpRecord(), first)
    assert store.sp_record("t", 1) == first
    assert store.sp_record("t", 2) == SpRecord(b"task")
    store.set_sp_record("t", 2, SpRecord(b"task"), SpRecord(b"later", b"two"))
    for known in (first, SpRecord(b"later"), SpRecord(b"later", b"other")):
        with pytest.raises(Conflict):
            store.set_sp_record("t", 1, known, SpRecord(b"mine", b"mine"))
    assert store.sp_record("t", 1) == SpRecord(b"later", b"\x00\xff")
    store.erase_seeds("t", 1)
    assert store.sp_record("t", 1) == SpRecord(b"later")
    assert store.sp_record("t", 2).round == b"two"


def test_a_movement_is_made_once(store: SqlStore):
    """The same again is no second movement; other contents under its name are refused."""
    assert store.post("t", DEPOSIT)
    assert not store.post("t", DEPOSIT)
    with pytest.raises(LedgerConflict):
        store.post("t", Movement("deposit 1", REQUESTER, ESCROW, 99))
    assert store.movements("t") == [DEPOSIT]


def test_money_that_is_not_there_does_not_move(store: SqlStore):
    store.post("other", DEPOSIT)
    with pytest.raises(NotEnoughMoney):
        store.post("t", Movement("fund round 1", ESCROW, "round 1", 1))
    assert store.movements("t") == []


def test_amounts_go_up_to_63_bits_and_not_beyond(sql_store: SqlStore):
    """More than a 32-bit column holds, and a named refusal instead of a driver's overflow."""
    sql_store.post("t", Movement("deposit 1", REQUESTER, ESCROW, 2**63 - 1))
    assert sql_store.movements("t")[0].amount == 2**63 - 1
    with pytest.raises(FormatError):
        sql_store.post("t", Movement("deposit 2", REQUESTER, ESCROW, 2**63))


def test_a_lease_has_one_owner_until_it_ends(store: SqlStore):
    assert store.lease("t", "a", 0.0, 60.0)
    assert not store.lease("t", "b", 59.9, 60.0)
    assert store.lease("t", "a", 59.9, 60.0)
    assert not store.lease("t", "b", 100.0, 60.0)
    assert store.lease("t", "b", 119.9, 60.0)
    assert not store.lease("t", "a", 120.0, 60.0)


def test_a_lease_far_in_the_future_keeps_nobody_waiting(store: SqlStore):
    """It was taken by a clock that was ahead, before somebody set it right."""
    assert store.lease("t", "a", 1e9, 60.0)
    assert store.lease("t", "b", 1000.0, 60.0)
    assert not store.lease("t", "a", 1001.0, 60.0)


def test_a_lease_may_be_kept_for_whoever_had_it_last(store: SqlStore):
    """Until then nobody else gets it, and its owner does at once."""
    assert store.lease("t", "a", 0.0, 30.0)
    store.release("t", "b", 0.0)
    store.release("t", "a", 3.0)
    assert [store.lease("t", who, 2.0, 30.0) for who in ("b", "a")] == [False, True]
    store.release("t", "a", 3.0)
    assert store.lease("t", "b", 3.0, 30.0)


def test_a_released_lease_is_free_and_only_its_owner_releases_it(store: SqlStore):
    """A process that lost its lease must not free its successor's."""
    store.lease("t", "a", 0.0, 60.0)
    store.release("t", "b")
    assert not store.lease("t", "b", 1.0, 60.0)
    store.release("t", "a")
    assert store.lease("t", "b", 1.0, 60.0)


def test_an_invitation_serves_one_holder(store: SqlStore):
    store.use_invitation("t", UsedInvitation("7", 1, "p1"), "c1")
    store.use_invitation("t", UsedInvitation("7", 1, "p1"), "c1")
    with pytest.raises(InvitationRefused):
        store.use_invitation("t", UsedInvitation("7", 1, "p2"), "c2")
    store.use_invitation("other", UsedInvitation("7", 1, "p2"), "c2")
    with pytest.raises(InvitationRefused, match="nobody has joined"):
        store.use_invitation("t", UsedInvitation("8", 2, "p3"), "c3")
    store.use_invitation("t", UsedInvitation("7", 3, "p3"), "c3")  # the second one never came
    with pytest.raises(InvitationRefused, match="taken this one's place"):
        store.use_invitation("t", UsedInvitation("7", 2, "p4"), "c4")
    assert store.used_invitations("t") == [UsedInvitation("7", 1, "p1"), UsedInvitation("7", 3, "p3")]
    assert [store.certified("t", name) for name in ("7", "p1", "p3", "p4")] == ["c3", "c3", "c3", None]


@dataclass
class Source:
    """A store's records of one task, as CSP reads them."""

    store: SqlStore
    task: str = "t"

    def standing(self, place: Place) -> Standing:
        return self.store.record(self.task, place)

    def file(self, number: int, name: str) -> bytes:
        raise NotReady(f"{number} {name}")


def test_a_request_has_one_answer(store: SqlStore):
    """Whoever comes second sets nothing; the task is seen in the same look."""
    store.add_task(TASK)
    store.add_participant("t", person(1), 2)
    assert store.answer_context("t", "r") == (TASK, 1, None)
    store.set_records("t", Look(Source(store)), "r", "blob")
    late = Look(Source(store))
    late.put(KeptClaim(destination=b"late"), who="p")
    with pytest.raises(Overtaken):
        store.set_records("t", late, "r", "other")
    assert store.answered("t", "r") == "blob"
    assert store.record("t", Place(KeptClaim.kind, who="p")) == Standing()
    assert store.answer_context("t", "r") == (TASK, 1, "blob")
    assert store.answer_context("u", "r") == (None, 0, None)


def test_records_are_set_if_all_that_was_read_stands(store: SqlStore):
    """What was read and is not written is compared too, and what is new must not be there."""
    first, reader, writer, blind = (Look(Source(store)) for _ in range(4))
    first.put(KeptClaim(destination=b"1"), 1, who="p")
    store.set_records("t", first, "first", None)
    assert store.answered("t", "first") is None
    assert reader.get(KeptClaim, 1, who="p") == KeptClaim(destination=b"1")
    assert reader.get(KeptClaim, 2, who="p") is None
    reader.put(KeptClaim(destination=b"by the reader"), 3)
    assert writer.get(KeptClaim, 2, who="p") is None
    writer.put(KeptClaim(destination=b"2"), 2, who="p")
    store.set_records("t", writer, "writer", "blob")
    blind.put(KeptClaim(destination=b"3"), 2, who="p")
    for look in (reader, blind, first):
        with pytest.raises(Overtaken):
            store.set_records("t", look, "reader", "blob of the reader")
    assert store.answered("t", "reader") is None
    assert store.record("t", Place(KeptClaim.kind, 3)) == Standing()
    assert store.recorded_rounds("t") == [1, 2]


def test_a_record_that_was_erased_is_not_a_new_one(store: SqlStore):
    """Else a look of before its time could not tell."""
    early, maker = Look(Source(store)), Look(Source(store))
    assert early.get(KeptClaim, 1) is None
    maker.put(KeptClaim(destination=b"1"), 1)
    store.set_records("t", maker, "1", None)
    eraser = Look(Source(store))
    eraser.erase(KeptClaim, 1)
    store.set_records("t", eraser, "2", None)
    assert Look(Source(store)).get(KeptClaim, 1) is None
    early.put(KeptClaim(destination=b"2"), 1)
    with pytest.raises(Overtaken):
        store.set_records("t", early, "3", None)


def test_of_a_task_single_columns_change(store: SqlStore):
    store.add_task(TASK)
    end = Tombstone("cancelled", EndedBy.REQUESTER, "enough", "signed")
    changes = {"end": end, "paused_at": 0.1, "epoch": "e", "unreconciled": True, "sole_holder": True}
    store.change_task("t", **changes)
    assert store.task("t") == replace(TASK, **changes)
    store.change_task("t", paused_at=None, rolled_back=True, kgc_told_end=2.5)
    changed = replace(TASK, **changes | {"paused_at": None, "rolled_back": True, "kgc_told_end": 2.5})
    assert store.tasks() == [changed]
    assert changed.unnotified(["kgc", "csp"]) == ["csp"]


def test_a_reply_is_used_once(store: SqlStore):
    """Another digest is told the one that counts, until the round is forgotten."""
    assert store.use_reply("t", 1, "r", b"1") == store.use_reply("t", 1, "r", b"2") == b"1"
    assert (store.replies("t", 1), store.replies("t", 2)) == ({"r": b"1"}, {})
    store.forget_replies("t", 1)
    assert store.replies("t", 1) == {}


def device(who: str, place: str, number: int) -> StoredParticipant:
    return StoredParticipant(Identity(who, who.encode(), b"reading", place), "certificate", number)


def test_the_first_keys_of_an_invitation_stand(store: SqlStore):
    """Whoever comes with others under it is refused, and so is one who is known under another."""
    store.add_task(TASK)
    store.add_participant("t", device("a", "7", 1), 3)
    with pytest.raises(Conflict, match="first keys stand"):
        store.add_participant("t", device("b", "7", 1), 3)
    with pytest.raises(Conflict, match="another invitation"):
        store.add_participant("t", device("a", "8", 1), 3)
    assert [one.identity.who for one in store.participants("t")] == ["a"]


def test_a_newer_device_takes_the_place_and_no_older_one_comes_back(store: SqlStore):
    """Also one that never came: it takes no second place in a full task."""
    store.add_task(TASK)
    store.add_participant("t", device("a", "7", 1), 1)
    store.add_participant("t", device("c", "7", 3), 1)
    for who, number in (("a", 1), ("b", 2)):
        with pytest.raises(Replaced):
            store.add_participant("t", device(who, "7", number), 1)
    assert [(one.identity.who, one.state) for one in store.participants("t")] == [("a", "replaced"), ("c", "in")]
    assert store.devices("t", "7") == ["a", "c"]
    with pytest.raises(TaskFull):
        store.add_participant("t", device("d", "8", 2), 1)


def test_the_clock_is_noted_bit_by_bit(store: SqlStore):
    assert store.clock_notes() == ClockNotes()
    store.note_clock(seen=1.5)
    store.note_clock(in_doubt=True)
    store.note_clock(confirmed=2.5)
    assert store.clock_notes() == ClockNotes(1.5, 2.5, in_doubt=True)


def test_where_uploads_stand_is_told_in_one_look(store: SqlStore):
    """Those who were asked about, and nobody else; a round that has not opened is None."""
    store.add_task(TASK)
    for number in (1, 2, 3):
        store.add_participant("t", person(number), 3)
    store.leave("t", "p2")
    store.set_round("t", None, Round(1, 0.5))
    mine, other = Upload("p1", "a" * 64, late=False), Upload("p3", "c" * 64, late=False)
    store.acknowledge("t", 1, [mine, other])
    found = store.upload_context("t", 1, ["p1", "p2", "p9"])
    assert (found.state, found.round) == ("running", Round(1, 0.5))
    assert (found.enrolled, found.left, found.uploads) == ({"p1", "p2"}, {"p2"}, {"p1": mine})
    assert store.turnout("t", 1) == (2, 0)
    assert store.turnout("t", 2) == (0, 2)
    assert store.upload_context("t", 2, ["p1"]).round is None
    with pytest.raises(UnknownTask):
        store.upload_context("u", 1, ["p1"])


@pytest.mark.parametrize("name", ["x" * 65, "a\0b", "\ud800"], ids=["long", "NUL", "half a character"])
def test_names_that_one_database_could_not_hold_are_refused_by_all(store: SqlStore, name: str):
    """As a named error, whether asked for or written."""
    with pytest.raises(FormatError):
        store.task(name)
    with pytest.raises(FormatError):
        store.use_invitation("t", UsedInvitation(name, 1, "p1"), "c")
    with pytest.raises(FormatError):
        store.add_task(StoredTask(name, "definition", "appointment", "running"))
    assert store.tasks() == []


@pytest.mark.parametrize("number", [-1, 2**31, 10**30])
def test_rounds_that_cannot_be_are_refused_by_all(store: SqlStore, number: int):
    """They come from paths of requests, so no driver's overflow may surface."""
    with pytest.raises(FormatError):
        store.uploads("t", number)


ANNOUNCED = StoredDeposit("t", "a", 5, DepositState.PENDING, 1.5)
PAYMENT = StoredPayment("t", "ada", 1, 7, 2, PaymentState.PENDING, 1.5)


def test_a_deposit_is_kept_as_it_was_announced_and_decided(store: SpStore):
    store.add_deposit(ANNOUNCED)
    store.add_deposit(replace(ANNOUNCED, task="u"))
    store.add_deposit(replace(ANNOUNCED, name="b"))
    assert store.deposit("t", "a") == ANNOUNCED
    decided = replace(ANNOUNCED, state=DepositState.CONFIRMED, decided_at=2.25)
    store.decide_deposit(decided)
    assert store.deposits("t") == [decided, replace(ANNOUNCED, name="b")]
    assert len(store.deposits()) == 3
    with pytest.raises(UnknownDeposit, match="'c'"):
        store.deposit("t", "c")


def test_a_name_is_used_once(store: SpStore):
    """Of deposits and of payments; a transaction that tries it twice leaves nothing."""
    store.add_deposit(ANNOUNCED)
    store.add_payment(PAYMENT)

    def twice(again: Callable[[], None]) -> None:
        with store.transaction():
            store.add_deposit(replace(ANNOUNCED, name="other"))
            again()

    for again in (lambda: store.add_deposit(replace(ANNOUNCED, amount=6)), lambda: store.add_payment(PAYMENT)):
        with pytest.raises(CrowdFLError):
            twice(again)
    assert store.deposits() == [ANNOUNCED]
    assert store.payments() == [PAYMENT]


def test_a_payment_is_changed_by_whoever_knows_it_as_it_is(store: SpStore):
    """Of two who saw the same, one is second, whatever differs."""
    store.add_payment(PAYMENT)
    taken = replace(PAYMENT, state=PaymentState.RUNNING, owner="one", since=2.125, until=3.0625, attempts=1)
    assert store.change_payment(PAYMENT, taken) is True
    assert store.change_payment(PAYMENT, replace(taken, owner="two")) is False
    assert store.payment("t", "ada", 1) == taken
    for other in (replace(taken, until=9.0), replace(taken, attempts=2), replace(taken, error="e")):
        assert store.change_payment(other, replace(taken, state=PaymentState.PAID)) is False
    assert store.change_payment(taken, replace(taken, state=PaymentState.UNKNOWN, until=None, error="why")) is True
    assert store.payments(states=[PaymentState.UNKNOWN]) == [store.payment("t", "ada", 1)]
    assert store.payments(states=[PaymentState.PENDING, PaymentState.RUNNING]) == []
    assert store.payment("t", "bob", 1) is None
    assert store.payment("t", "ada", 2) is None
    assert store.payments("u") == []


def test_instalments_of_one_person_are_rows_of_their_own(store: SpStore):
    """In order of their sequence, whichever was added first; a change is of one."""
    second = replace(PAYMENT, sequence=3)
    for one in (second, PAYMENT, replace(PAYMENT, who="bob")):
        store.add_payment(one)
    paid = replace(second, state=PaymentState.PAID)
    assert store.change_payment(second, paid) is True
    assert store.instalments("t", "ada") == [PAYMENT, paid]
    assert len({one.key for one in store.payments()}) == 3


def test_what_the_payer_is_shown_is_kept_by_person(store: SpStore):
    """Of two who saw the same, one is second."""
    nothing = store.payee("t", "ada")
    assert nothing == StoredPayee("t", "ada")
    said = replace(nothing, offered=b"a", destination=b"b", statement=b"c", sequence=3, named=b"d")
    assert store.change_payee(nothing, said) is True
    assert store.change_payee(nothing, replace(said, offered=b"other")) is False
    assert store.payees("t") == {"ada": said}
    assert store.payees("u") == {}


def test_what_the_bank_has_paid_before_is_kept_by_key(store: SpStore):
    store.mark_paid_before("t", {"k": 5, "l": 6})
    store.mark_paid_before("t", {"k": 5})
    assert store.paid_before("t") == {"k": 5, "l": 6}
    assert store.paid_before("u") == {}


def test_a_change_that_is_undone_has_not_been_made(store: SpStore):
    """Payments stand or fall with the movements of their transaction."""

    def pay() -> None:
        with store.transaction():
            store.add_payment(PAYMENT)
            store.post("t", Movement("pay ada round 1", earned_account(1), "participant ada", 7))

    with pytest.raises(NotEnoughMoney):
        pay()
    assert store.payments() == []
