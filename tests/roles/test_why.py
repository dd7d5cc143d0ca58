"""Whoever asks why a task stands still is told whom it waits for, since when, what was tried, and the very commands."""

import errno
import inspect
import re
from pathlib import Path

import pytest
import structlog

from crowdfl.errors import ServiceUnavailable
from crowdfl.roles.records import PaymentState, StoredPayment
from crowdfl.roles.sp.why import Around, causes, told
from crowdfl.services.background.workers import FailureBackoff
from tests.cli.program import call
from tests.hosts import Desk, raising


def reasons(desk: Desk, around: Around | None = None) -> list[tuple[str, list[str]]]:
    """The code and the commands of each."""
    stored = desk.sp.store.task(desk.task)
    found = causes(desk.sp.store, desk.sp.blobs, stored, around or Around(csp_patience=50.0))
    return [(one.wait.code, [*one.do, *(f"the requester: $ {asked}" for asked in one.ask)]) for one in found]


def words(desk: Desk, around: Around | None = None) -> str:
    stored = desk.sp.store.task(desk.task)
    return told(stored, causes(desk.sp.store, desk.sp.blobs, stored, around or Around(csp_patience=50.0)), "sp.toml")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk.funded(tmp_path / "desk", 3)
    log = structlog.get_logger()
    desk.sp.options.failures = FailureBackoff(log, store=desk.sp.store, clock=lambda: desk.clock.time)
    return desk


def test_a_csp_that_is_away(desk, monkeypatch):
    """Since when, how often it was asked, when the round is given up by itself, and how to end the wait."""
    desk.upload()
    answer = desk.sp.ports.csp.answer
    desk.sp.ports.csp.answer = raising(ServiceUnavailable("CSP does not answer"))
    for _ in range(6):
        desk.sp.tick()
        desk.clock.time += 40.0
    ((code, commands),) = reasons(desk)
    assert code == "csp"
    assert commands[0] == "crowdfl doctor SETTINGS"
    assert commands[1:] == [f"crowdfl sp round {how} SETTINGS {desk.task} 1" for how in ("retry", "void")]
    (trouble,) = desk.sp.store.troubles(desk.task)
    assert (trouble.error, trouble.reason) == ("ServiceUnavailable", "CSP does not answer")
    assert trouble.times >= 2
    assert f"tried {trouble.times} times" in words(desk)
    assert "the round is given up" in words(desk)
    desk.sp.ports.csp.answer = answer
    desk.run()
    assert desk.states()[0] == "rewarded"
    assert desk.sp.store.troubles() == []  # what has passed is no reason any more


def test_a_note_of_a_process_that_has_ended_goes_with_the_next_success(desk):
    desk.sp.options.failures.record_failure(desk.task, ServiceUnavailable("before"))
    again = FailureBackoff(structlog.get_logger(), store=desk.sp.store)
    again.record_success(desk.task)
    assert desk.sp.store.troubles() == []


def test_a_full_disk_comes_first(desk):
    """By what a step met, or by what whoever asks sees."""
    assert reasons(desk, Around(disk_full=True))[0] == ("disk", ["df -h"])
    desk.sp.options.failures.record_failure(desk.task, OSError(errno.ENOSPC, "no space"))
    assert [code for code, _ in reasons(desk)] == ["disk", "uploads_until"]


@pytest.mark.parametrize(("around", "code"), [(Around(guard="not mounted"), "guard"), (Around(clock="doubt"), "clock")])
def test_what_keeps_all_tasks_waiting_is_named(desk, around, code):
    found = reasons(desk, around)
    assert found[0][0] == code
    assert any(command.startswith("crowdfl sp ") for command in found[0][1])


def test_a_missing_reference(tmp_path):
    desk = Desk.funded(tmp_path / "desk", 3, reference=True, max_norm=3.0, lanes=1024, weighting="equal")
    (code, (command,)), _ = reasons(desk)
    assert (code, command) == (
        "reference",
        f"the requester: $ crowdfl task watch {desk.task} --reference DATA --until settled",
    )
    assert "without it the round is given up" in words(desk)


def test_too_few_people_and_no_money(tmp_path):
    desk = Desk(tmp_path / "desk")
    desk.invite(1)
    desk.requester.fund(desk.task, 1_000_000, "first")
    assert reasons(desk) == [
        ("people", [f"the requester: $ crowdfl task invite {desk.task} FOLDER --count 2"]),
        ("deposit", [f"the requester: $ crowdfl task fund {desk.task} 35.00"]),
    ]
    desk.sp.deposits.announce(desk.task, "second", 35_000_000)
    assert reasons(desk)[1] == ("deposit", [f"crowdfl sp deposit confirm SETTINGS {desk.task} second 35.00 EUR"])


def test_a_pause_a_restore_and_a_payment_that_nobody_knows(desk):
    desk.requester.order(desk.task, "pause")
    assert reasons(desk)[0][0] == "requester"
    desk.sp.store.change_task(desk.task, unreconciled=True)
    desk.sp.store.add_payment(StoredPayment(desk.task, "x", 1, 5, 0, PaymentState.UNKNOWN, 0.0))
    (first, payment) = reasons(desk)
    assert first == ("reconciling", [f"crowdfl sp reconcile SETTINGS {desk.task} --returned AMOUNT"])
    key = desk.sp.store.payments()[0].key
    assert payment[1] == [f"crowdfl sp resolve SETTINGS {desk.task} {key} {how}" for how in ("paid", "again")]


def test_every_command_is_one_that_there_is():
    """A command that was renamed since would cost an operator the night."""
    source = Path(inspect.getsourcefile(causes) or "").read_text(encoding="utf-8")
    commands = {
        tuple(words.split())
        for words in re.findall(r"crowdfl ([a-z -]+?)(?: \\{how\\})? (?:SETTINGS|\\{task\\}|\\{stored)", source)
    }
    assert ("sp", "task", "cancel") in commands
    for words in sorted(commands):
        assert call(*words, "--help").code == 0, words
