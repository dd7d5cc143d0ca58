"""What the operator of a role sees of its tasks at three in the morning, and can do about them."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from crowdfl.cli.doctor.role import role_checks
from crowdfl.roles.records import PaymentState, Round, StoredPayment
from crowdfl.roles.waiting import format_time
from crowdfl.services.client.transport import SystemClock
from crowdfl.settings import TaskSettings
from crowdfl.simulation.host import Host
from crowdfl.storage import migrations
from crowdfl.storage.sql import SqlStore
from tests.cli.program import Result, call
from tests.hosts import INITIAL_MODEL, SMALL_TASK, FileDisk, small_definition, test_tools

DAY = 86400.0


class _Migrated(FileDisk):
    def store(self, role: str) -> SqlStore:
        migrations.upgrade(f"sqlite:///{self.folder}/{role}/state.db")
        return super().store(role)


class _LaterClock(SystemClock):
    days = 0.0

    def now(self) -> float:
        return super().now() + self.days * DAY


class Office:
    """A folder as `crowdfl init` makes it, with a task in it; no service runs, and every command works all the same."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.disk = folder, _LaterClock(), _Migrated(folder)
        assert call("init", folder, "--insecure-test-key").code == 0
        self.host = Host(test_tools(), disk=self.disk, clock=self.clock)
        settings = TaskSettings.of(**(SMALL_TASK | {"window": 3600.0}))
        self.task = self.host.create(small_definition(settings, claim_window=7 * DAY), INITIAL_MODEL)

    def __call__(self, role: str, *words: object) -> Result:
        action, *rest = words
        return call(role, "task", action, self.folder / role / "settings.toml", *rest)

    def row(self, role: str) -> dict[str, object]:
        (row,) = json.loads(self(role, "list", "--json").out)
        return row

    def about(self, role: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self(role, "show", self.task, "--json").out)
        return found

    def refused(self, name: str, *words: str, said: str) -> None:
        result = self(*words)
        assert result.code == 3
        assert name in result.err
        assert said in result.err, result.err

    def doctor(self, role: str) -> list[tuple[str, str, str]]:
        found = role_checks(self.folder / role / "settings.toml")
        about = [check for check in found if "held" in check.what or "keys" in check.what]
        return [(check.verdict, check.found, check.advice) for check in about]


@pytest.fixture
def office(tmp_path):
    found = Office(tmp_path / "campaign")
    yield found
    found.disk.close()


def test_a_cancelled_task_that_owes_nobody_anything_is_purged_before_its_time_to_claim_is_over(office):
    host, task = office.host, office.task
    for name in ("a", "b", "c"):
        host.join(task, name)
    host.requester.fund(task, 36_000_000, "first")
    host.run()
    host.sp.deposits.announce(task, "second", 1_000_000)
    assert office("sp", "cancel", task, "--reason", "a mistake").code == 0
    host.run()
    office.refused("TaskNotEnded", "sp", "purge", task, said="a deposit that is not decided")
    assert call("sp", "deposit", "reject", office.folder / "sp" / "settings.toml", task, "second").code == 0
    assert office("sp", "purge", task, "--results").code == 0
    assert office.about("sp")["held"] == {}
    assert office.row("sp")["state"] == "settled"


def test_what_a_cancelled_task_owes_keeps_it_until_claims_have_ended(office):
    host, task = office.host, office.task
    for name in ("a", "b", "c"):
        host.join(task, name)
    host.requester.fund(task, 36_000_000, "first")
    host.run()
    for person in host.people.values():
        person.step(lambda arrays, _settings, _round=0: (arrays, 5))
    host.run()
    assert office("sp", "cancel", task, "--reason", "enough").code == 0
    host.run()
    office.refused("TaskNotEnded", "sp", "purge", task, said="what people earned would be lost")
    assert str(office.row("sp")["waits_for"]).startswith("claims, until 20")
    (line,) = office.doctor("sp")
    assert line[0] == "ok"
    assert line[1].startswith("1 task, claims open until 20")


def test_csp_lets_people_claim_longer_once(office):
    """By the time to claim at most; everyone hears of it from the last day of claims on."""
    until = office.host.sp.core.definition(office.task).claims_until
    office.refused("DocumentError", "csp", "extend", office.task, "--days", "8", said="claims are extended")
    found = office("csp", "extend", office.task, "--days", "7")
    assert found.out.startswith(f"claims are taken until {format_time(until + 7 * DAY)}")
    office.refused("Conflict", "csp", "extend", office.task, "--days", "1", said="once is all")
    assert office("sp", "extend", office.task, "--days", "1").code == 2


def test_sp_lists_consents_as_the_requester_does(office):
    """By the same word; CSP and KGC have none."""
    assert office("sp", "consents", office.task).out.startswith("who,state,version,")
    assert json.loads(office("sp", "consents", office.task, "--json").out) == []
    assert "No such command" in office("csp", "consents", office.task).err


def test_sp_says_what_each_task_waits_for(office):
    """From the day it was made to the day it can be forgotten."""
    host, task = office.host, office.task
    assert office.row("sp")["waits_for"] == "3 more participants and a confirmed deposit of 36.00 EUR"
    host.join(task, "a")
    host.join(task, "b")
    assert office.row("sp")["waits_for"] == "1 more participant and a confirmed deposit of 36.00 EUR"
    host.join(task, "c")
    host.sp.deposits.announce(task, "first", 72_000_000)
    assert office.row("sp")["waits_for"] == "a confirmed deposit of 36.00 EUR"
    host.confirm_deposits(task)
    assert office.row("sp")["waits_for"] == "round 1 to open"
    host.run()
    row = office.row("sp")
    assert (row["state"], row["round"], row["enrolled"]) == ("running", "1/2", 3)
    until = format_time(host.sp.store.round(task, 1).last_call(host.sp.core.definition(task).settings))
    assert row["waits_for"] == f"uploads to round 1, until {until}: 0 of 3 have come"
    assert office("sp", "list").out.split("\t")[:4] == [task, "running", "1/2", "3"]
    host.requester.order(task, "pause")
    assert str(office.row("sp")["waits_for"]).startswith("its requester, who paused it on 20")
    host.requester.order(task, "resume")

    for person in host.people.values():
        person.step(lambda arrays, _settings, _round=0: (arrays, 5))
    host.csp.answer = _away
    for _ in range(2):
        with pytest.raises(ConnectionError):
            host.run()
    assert str(office.row("sp")["waits_for"]).startswith("CSP, which has not answered round 1 since 20")
    host.restart()
    host.run()
    assert "round 2" in str(office.row("sp")["waits_for"])
    assert office.about("csp")["rounds_answered"] == [1]
    assert office.about("csp")["participants"] == 3
    assert office.about("sp")["deposits"] == ["first: 72.00 EUR, confirmed"]
    assert office.about("sp")["rounds"] == ["1: rewarded, 3 uploads", "2: open, 0 uploads"]


def _away(_task: str, _request: bytes, _longest: int) -> bytes:
    raise ConnectionError("nobody answers")


def test_an_operator_cancels_a_task_and_everyone_can_read_why(office):
    """The money of the open round returns; nothing is erased while something is owed."""
    host, task = office.host, office.task
    for name in ("a", "b", "c"):
        host.join(task, name)
    host.requester.fund(task, 36_000_000, "first")
    host.run()
    office.refused("TaskNotEnded", "sp", "purge", task, said="cancel it first")
    for reason in ("", "x" * 501, "two\nlines"):
        office.refused("SettingsError", "sp", "cancel", task, "--reason", reason, said="reason")
    assert office("sp", "cancel", task).code == 2
    office.refused("UnknownTask", "sp", "cancel", "0" * 64, "--reason", "x", said="0000")
    for _ in range(2):  # safe to repeat
        assert office("sp", "cancel", task, "--reason", "the requester cannot be reached").code == 0
    assert host.sp.tasks.status(task)["ended"]["reason"] == "the requester cannot be reached"
    office.refused(
        "TaskNotEnded", "sp", "purge", task, said="what people earned would be lost"
    )  # escrow is not returned yet
    host.run()
    assert host.requester.report(task)["returned"] == 36_000_000
    assert office.about("sp")["returned"] == "36.00 EUR: pay it back to where the deposits came from"
    assert office.row("sp")["waits_for"] == "KGC and CSP to hear that it is over"
    assert [line[0] for line in office.doctor("sp")] == ["warn", "warn", "warn"]
    assert office("sp", "purge", task).code == 0
    assert office.about("sp")["held"].keys() == {"results"}
    host.sp.store.change_task(task, kgc_told_end=1.0)
    assert office.about("sp")["not_told"] == ["CSP"]
    assert ("ok", "nothing secret of any task", "") in office.doctor("sp")
    assert office("sp", "purge", task, "--results").code == 0
    assert office.about("sp")["held"] == {}
    assert office.about("sp")["not_told"] == ["KGC", "CSP"]  # told again: one may have been restored from a backup
    assert office.about("sp")["deposits"] == ["first: 36.00 EUR, confirmed"]
    office.refused("TaskNotRunning", "sp", "cancel", task, "--reason", "again", said="settled")


def test_operators_of_csp_and_kgc_see_what_is_held_and_can_refuse(office):
    """CSP's right: no answer for a task any more. Neither erases what others still rely on."""
    host, task = office.host, office.task
    host.join(task, "a")
    for role in ("kgc", "csp"):
        assert "SP to say that it is over; by itself it ends after 20" in str(office.row(role)["waits_for"])
        office.refused("TaskNotEnded", role, "purge", task, said="nothing is erased")
        (line,) = office.doctor(role)
        held = {"csp": "dealt files 2, key shares 1", "kgc": "key shares 1"}[role]
        assert line[:2] == ("ok", f"1 task, running: {held}")
    assert office.about("kgc")["held"] == {"key shares": 1}  # the participants': enrolment is open
    assert office("kgc", "cancel", task, "--reason", "x").code == 2
    for _ in range(2):
        assert office("csp", "cancel", task, "--reason", "a court order").code == 0
    assert office.row("csp")["state"] == "refused"
    with pytest.raises(Exception, match="a court order"):
        host.csp.answer(task, b"a request")
    for _ in range(2):
        assert office("csp", "purge", task).code == 0
    assert (office.row("csp")["state"], office.about("csp")["held"]) == ("ended", {})
    assert office.about("kgc")["held"] == {"key shares": 1}


def test_doctor_says_what_is_past_its_life_or_of_unknown_tasks(office, monkeypatch):
    later = time.time() + 100 * DAY
    monkeypatch.setattr(SystemClock, "now", lambda _clock: later)
    office.disk.blobs("csp/keys").put("f" * 64 + ".csp", b"share")
    found = office.doctor("csp")
    assert [(verdict, said) for verdict, said, _ in found] == [
        ("warn", "1 task, past its lifetime: dealt files 2, key shares 1"),
        ("warn", "1 task, unknown here: key shares 1"),
    ]
    assert "crowdfl csp task purge" in found[0][2]
    assert office("csp", "purge", office.task).code == 0
    assert [said for _, said, _ in office.doctor("csp")] == ["1 task, unknown here: key shares 1"]
    assert office.row("csp")["state"] == "ended"


def test_a_task_that_cannot_be_read_blinds_no_command(office):
    """`list`, `payouts` and `doctor` show it, with why, and everything of the others."""
    with office.host.sp.store._write() as c:
        c.execute(text("UPDATE tasks SET definition = 'of a later version'"))
        c.execute(text("UPDATE tasks SET state = 'running'"))
    row = office.row("sp")
    assert (row["task"], row["state"]) == (office.task, "running, unreadable")
    assert "its definition cannot be read" in str(row["waits_for"])
    office.refused("TaskUnreadable", "sp", "show", office.task, said="its money is held")
    settings = office.folder / "sp" / "settings.toml"
    (held,) = json.loads(call("sp", "payouts", settings, "--json").out)
    assert held["task"] == office.task
    assert "its definition cannot be read" in held["note"]
    assert call("sp", "deposit", "list", settings).code == 0
    (check,) = office.doctor("sp")
    assert (check[0], "cannot be read by this version" in check[1]) == ("warn", True)


def test_nor_does_a_row_beside_the_task_that_only_the_command_finds(office):
    """`payouts` shows the others' payments, and `doctor` all its other checks."""
    store, settings = office.host.sp.store, office.folder / "sp" / "settings.toml"
    definition = small_definition(TaskSettings.of(**SMALL_TASK), claim_window=7 * DAY)
    other = office.host.create(replace(definition, purpose="another"), INITIAL_MODEL)
    for task in (office.task, other):
        store.set_round(task, None, Round(1, 0.0))
        store.add_payment(StoredPayment(task, "b" * 20, 1, 5_000_000, 0, PaymentState.PENDING, 0.0))
    with store._write() as c:
        for table in ("rounds", "payments"):
            c.execute(text(f"UPDATE {table} SET state = 'brand new' WHERE task = :task"), {"task": office.task})  # noqa: S608
    shown, held = json.loads(call("sp", "payouts", settings, "--json").out)
    assert (shown["task"], shown["amount"], shown["note"]) == (other, "5.00", "")
    assert (held["task"], "held: payment 1 of bbbb" in held["note"]) == (office.task, True)
    checks = role_checks(settings)
    assert [one.verdict for one in checks if f"task {office.task[:8]} cannot be read: round 1" in one.found] == ["warn"]
    assert "sp: tokens" in [one.what for one in checks]
