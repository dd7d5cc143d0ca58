"""What commands say: about tasks, what is dealt, states; and what another party says steers no terminal."""

import contextlib
import json
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from crowdfl.cli.main import run
from crowdfl.cli.output import show
from crowdfl.cli.participant import say
from crowdfl.cli.task import commands
from crowdfl.cli.task.template import task_text
from crowdfl.cli.task.views import status_words
from crowdfl.durations import span_words
from crowdfl.errors import ServiceUnavailable, TaskEnded
from crowdfl.roles.following import Following
from crowdfl.roles.waiting import amount_words, waits_for
from crowdfl.services.client import opening
from crowdfl.services.http.wire import PROBLEM_TYPE, error_from
from crowdfl.settings import TaskSettings
from crowdfl.simulation.host import Host
from crowdfl.storage import model_files
from crowdfl.text import printable
from tests.cli.program import call
from tests.hosts import INITIAL_MODEL, SMALL_TASK, ManualClock, small_definition, test_tools

WHOLE = 72_000_000  # two rounds of 36


class MemoryDesk(Host):
    """All roles in this process with one task, and nothing on disk."""

    clock: ManualClock

    def __init__(self, **settings):
        super().__init__(test_tools(), clock=ManualClock(1000.0))
        self.task = self.create(small_definition(TaskSettings.of(**(SMALL_TASK | settings))), INITIAL_MODEL)

    def invite(self, count):
        for number in range(count):
            self.join(self.task, str(number))


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """All roles in this process, and the commands of the requester at it."""
    made = MemoryDesk()

    @contextmanager
    def at_the_desk(_own, _patience=None):
        yield made.requester

    own = SimpleNamespace(folder=tmp_path, settings=SimpleNamespace())
    monkeypatch.setattr(opening, "open_requester", at_the_desk)
    monkeypatch.setattr(opening.RequesterFile, "read", lambda _path: own)
    return made


def watched(desk: MemoryDesk) -> str:
    result = call("task", "watch", desk.task)
    assert result.code == 0, result
    return result.out


class TestWatch:
    """`crowdfl task watch`: what the round waits for, and what to do about it."""

    def test_people_and_money_that_are_missing_are_counted(self, desk):
        told = watched(desk)
        assert "waits for 3 more participants (0 of 3 have joined)" in told
        assert f"crowdfl task invite {desk.task}" in told
        assert "waits for money: 36.00 EUR more for the next round; no payment is announced" in told
        assert f"crowdfl task fund {desk.task} 72.00" in told, "for all rounds"

    def test_a_deposit_that_nobody_has_confirmed_is_named(self, desk):
        desk.sp.deposits.announce(desk.task, "first", WHOLE)
        told = watched(desk)
        assert "waits for the platform's operator, who must confirm the deposit first of 72.00 EUR" in told
        assert "waits for money" not in told

    def test_what_is_announced_and_too_little_is_said(self, desk):
        desk.sp.deposits.announce(desk.task, "first", 30_000_000)
        told = watched(desk)
        assert "money: 6.00 EUR more for the next round:" in told
        assert f"crowdfl task fund {desk.task} 42.00" in told

    def test_an_open_round_waits_for_uploads_until_its_window_closes(self, desk, monkeypatch):
        desk.invite(3)
        desk.requester.fund(desk.task, WHOLE, "all")
        desk.run()
        monkeypatch.setattr("crowdfl.cli.task.views.time", SimpleNamespace(time=lambda: desk.clock.time + 70))
        assert "waits for uploads to round 1: 0 of 3 have come; the window closes in 30 s" in watched(desk)

    def test_a_paused_task_waits_for_its_requester(self, desk):
        desk.requester.order(desk.task, "pause")
        assert f"`crowdfl task resume {desk.task}`" in watched(desk)

    def test_what_kgc_deals_is_waited_for_before_the_first_round(self):
        status = {"state": "running", "enrolled": 3, "rounds": []}
        books = {"movements": [], "deposits": [], "pending": 0, "paid_in": 0}
        definition = small_definition(TaskSettings.of(profile="shares", max_participants=5))
        assert waits_for(definition, status, books) == ["SP and CSP, which fetch what KGC deals and then open round 1"]
        paper = small_definition(TaskSettings.of(profile="paper", max_participants=5))
        assert waits_for(paper, status, books) == ["round 1 to open"]

    def test_time_to_claim_is_told_and_is_no_change(self, desk):
        """After the end the status differs at every look, and says nothing new."""
        desk.sp.deposits.announce(desk.task, "late", 1)  # which may still be confirmed
        desk.requester.order(desk.task, "cancel")
        desk.run()
        desk.clock.time = desk.sp.store.task(desk.task).claims_until - 500.0
        told = []

        def wait(_seconds):
            desk.clock.time += 10.0
            desk.run()

        campaign = Following(desk.requester, wait, lambda _what, status: told.append(status_words(status)))
        campaign.watch(desk.task, lambda _status: False)
        assert [words.splitlines()[0].partition(":")[0].partition(" ")[0] for words in told] == ["cancelled", "settled"]
        assert "rewards can be claimed for another 8 min" in told[0]

    def test_a_finished_task_says_how_its_model_is_fetched(self):
        status = {
            "task": "t",
            "state": "finished",
            "enrolled": 3,
            "rounds": [],
            "waits": [],
            "claim_seconds_left": 7200.0,
        }
        told = status_words(status)
        assert "`crowdfl task fetch t model.safetensors`" in told
        assert "another 2 hours" in told

    def test_json_has_the_same(self, desk):
        found = json.loads(call("task", "watch", desk.task, "--json").out)
        assert found["waits"][1].startswith("money: 36.00")
        assert found["to_fund"] == WHOLE


class TestOrders:
    """`fund`, `pause`, `resume`, `cancel`, `close`: what happened, and what comes next."""

    def test_a_payment_is_told_with_what_the_operator_types(self, desk):
        told = call("task", "fund", desk.task, "36", "--name", "first").out
        assert told.startswith("36.00 EUR is announced as the deposit first.")
        assert f"crowdfl sp deposit confirm SETTINGS {desk.task} first 36.00 EUR`" in told
        found = json.loads(call("task", "fund", desk.task, "36", "--name", "first", "--json").out)
        assert found == {"task": desk.task, "deposit": "first", "amount": 36_000_000, "state": "pending"}

    def test_an_amount_is_told_to_its_last_decimal(self, desk):
        """Rounded, the operator's command would be refused."""
        told = call("task", "fund", desk.task, "12.345678", "--name", "odd").out
        assert f"confirm SETTINGS {desk.task} odd 12.345678 EUR`" in told
        assert [amount_words(amount) for amount in (0, 1, 500_000, 36_000_000)] == ["0.00", "0.000001", "0.50", "36.00"]

    def test_every_order_says_what_it_did(self, desk):
        orders = {"pause": "resume", "resume": "watch", "close": "nobody else can join", "cancel": "task report"}
        for action, said in orders.items():
            told = call("task", action, desk.task)
            assert told.code == 0, told
            assert said in told.out
            assert desk.task in told.out
        assert json.loads(call("task", "close", desk.task, "--json").out) == {"task": desk.task, "order": "close"}

    @pytest.mark.parametrize("words", [("cancel",), ("close",), ("pause",), ("fund", "36")])
    def test_a_task_that_was_mistyped_gets_no_order_and_no_money(self, desk, words):
        result = call("task", words[0], "0" * 64, *words[1:])
        assert (result.code, result.out) == (3, "")
        assert "posted no task" in result.err
        assert "crowdfl task list" in result.err

    def test_nothing_is_no_payment(self, desk):
        result = call("task", "fund", desk.task, "0.00")
        assert (result.code, result.out) == (3, "")
        assert "pays for nothing" in result.err


class TestList:
    def test_every_task_is_there_with_its_state_people_and_money(self, desk):
        desk.invite(3)
        desk.requester.fund(desk.task, 36_000_000, "one")
        desk.sp.deposits.announce(desk.task, "two", 1_000_000)
        desk.run()
        (row,) = json.loads(call("task", "list", "--json").out)["tasks"]
        expected = {"task": desk.task, "purpose": "which exercise", "state": "running", "rounds": 2, "enrolled": 3}
        assert expected.items() <= row.items()
        assert (row["paid_in"], row["pending"], row["done"], row["problem"]) == (36_000_000, 1_000_000, 0, "")
        shown = call("task", "list").out
        assert (
            f"{desk.task}\n    which exercise\n    running; 0 of 2 rounds; 3 enrolled; 36.00 EUR paid in, 1.00 EUR pending\n"
            in shown
        )
        assert "    waits for uploads to round 1" in shown

    def test_a_platform_that_is_away_leaves_what_the_folder_knows(self, desk, monkeypatch):
        asked = []

        def away(_self, task):
            asked.append(task)
            raise ServiceUnavailable("https://sp: no answer")

        other = MemoryDesk(window=200.0)
        desk.requester.blobs.put(f"{other.task}/definition", other.requester.blobs.get(f"{other.task}/definition"))
        monkeypatch.setattr(type(desk.requester), "report", away)
        result = call("task", "list")
        assert result.code == 0, result
        assert {desk.task, other.task, "exercise"} <= set(result.out.split())
        assert result.out.count("https://sp: no answer") == len(asked) == 1
        assert all(row["problem"] for row in json.loads(call("task", "list", "--json").out)["tasks"])

    def test_a_damaged_definition_hides_no_other_task(self, desk):
        desk.requester.blobs.put(f"{'0' * 64}/definition", b"not a document")
        rows = {row["task"]: row for row in json.loads(call("task", "list", "--json").out)["tasks"]}
        assert rows["0" * 64]["problem"]
        assert rows[desk.task]["state"] == "running"

    def test_without_tasks_the_first_step_is_named(self, desk, monkeypatch):
        monkeypatch.setattr(type(desk.requester), "tasks", lambda _self: [])
        assert "crowdfl task new" in call("task", "list").out


def test_a_participant_is_told_scores_in_words(capsys):
    say("read", {"round": 2, "accuracy": 0.912345, "loss": 0.3, "windows": 128.0})
    say("read", {"round": 3, "state": "ab12"})
    say("rewarded", {"round": 3, "millionths": 0, "currency": "EUR"})
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "round 2: the average is read: accuracy 0.9123, loss 0.3 on 128 windows of yours"
    assert second == "round 3: the average is read; its state is ab12"
    assert "docs/incentives.md" in third


@pytest.mark.parametrize(
    ("seconds", "words"), [(45, "45 s"), (119, "119 s"), (3600, "60 min"), (7200, "2 hours"), (604800, "7 days")]
)
def test_time_in_words(seconds, words):
    assert span_words(seconds) == words


@pytest.fixture
def created(tmp_path, monkeypatch):
    """The command with these settings in its task file; nothing is sent anywhere."""

    @contextlib.contextmanager
    def requester(_own):
        yield SimpleNamespace(create=lambda _definition, _initial: "the-task")

    own = SimpleNamespace(settings=SimpleNamespace())
    monkeypatch.setattr(opening, "open_requester", requester)
    monkeypatch.setattr(opening.RequesterFile, "read", lambda _path: own)

    def run(profile, *options):
        file = tmp_path / "task.toml"
        file.write_text(task_text(profile).replace('learner = "network"', 'learner = "softmax"'))
        return CliRunner().invoke(commands.app, ["create", str(file), *options], catch_exceptions=False)

    return run


def test_a_task_of_shares_is_created_with_what_it_is_dealt(created):
    """For each server, by the round and in all; the id stays alone on standard output."""
    found = created("shares")
    assert found.stdout == "the-task\n"
    assert any(line.startswith("dealt by KGC: SP ") for line in found.stderr.splitlines())
    assert all(part in found.stderr for part in ("a round", "in all", "CSP "))
    assert "CSP" in json.loads(created("shares", "--json").stdout)["dealt"]


def test_of_a_task_that_is_dealt_nothing_nothing_is_said(created):
    found = created("hardened")
    assert found.stdout == "the-task\n"
    assert "dealt" not in found.stderr
    assert json.loads(created("hardened", "--json").stdout).keys() == {"task", "parameters", "tried"}


STATES = {1: "ab" * 32, 2: "0123456789abcdef" * 4}


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """The command for a requester whose task has these states."""

    def run(states, *options):
        @contextlib.contextmanager
        def requester(_own):
            yield SimpleNamespace(
                definition=lambda _task: None, model=lambda _task: [np.zeros(1)], states=lambda _task: states
            )

        monkeypatch.setattr(opening, "open_requester", requester)
        monkeypatch.setattr(opening.RequesterFile, "read", lambda _path: None)
        monkeypatch.setattr(model_files, "write_model", lambda *_: None)
        called = ["fetch", "the-task", str(tmp_path / "model.npz"), *options]
        return CliRunner().invoke(commands.app, called, catch_exceptions=False).stdout

    return run


def test_the_requester_is_shown_the_state_after_each_round(fetched, tmp_path):
    first, *rest = fetched(STATES).splitlines()
    assert first == str(tmp_path / "model.npz")
    assert rest == ["state after round 1: abababababababab", "state after round 2: 0123456789abcdef"]
    assert json.loads(fetched(STATES, "--json"))["states"] == {"1": STATES[1], "2": STATES[2]}


def test_without_a_step_nothing_is_said_of_a_state(fetched, tmp_path):
    assert fetched({}) == f"{tmp_path / 'model.npz'}\n"
    assert json.loads(fetched({}, "--json")).keys() == {"model"}


def test_a_campaign_that_is_run_shows_the_states_with_the_model(capsys):
    tell = commands._Teller("EUR")
    tell("fetched", {"model": "m.npz", "states": STATES})
    tell("fetched", {"model": "m.npz"})
    first, *states, last = capsys.readouterr().out.splitlines()
    assert (first, last) == ("fetched: model m.npz",) * 2
    assert [line.split()[-1] for line in states] == ["abababababababab", "0123456789abcdef"]


EVIL = "a\x1b]0;owned\x07\x1b[2J\r\x9bb\u202e"
SHOWN = "a?]0;owned??[2J ?b?"


def table() -> Table:
    found = Table("said")
    found.add_row(EVIL)
    return found


@pytest.mark.parametrize("told", [f"first\n{EVIL}", Text(f"first\n{EVIL}"), table()])
def test_a_status_is_shown_without_escapes(told, capsys):
    show({}, told, as_json=False)
    out = capsys.readouterr().out
    assert "?]0;owned" in out
    assert "b?" in out
    assert all(line.isprintable() for line in out.split("\n"))


def test_an_event_is_told_without_escapes(capsys):
    say("refused", {"round": 1, "why": EVIL})
    assert capsys.readouterr().out == f"round 1: the upload was not taken: {SHOWN}\n"


def test_json_keeps_what_was_said(capsys):
    show({"said": EVIL}, as_json=True)
    out = capsys.readouterr().out
    assert (json.loads(out), out.strip().isprintable()) == ({"said": EVIL}, True)


def test_an_error_of_another_party_is_one_printable_line_of_bounded_length():
    """Where it comes in, so that logs and stores get no other."""
    problem = {"type": f"{PROBLEM_TYPE}task-ended", "detail": f"{EVIL}\n{'x' * 10_000}"}
    error = error_from(410, problem)
    assert isinstance(error, TaskEnded)
    assert str(error).startswith(SHOWN)
    assert len(str(error)) == 2000
    assert str(error).isprintable()
    wrong = error_from(422, {"type": f"{PROBLEM_TYPE}invalid-request", "detail": "no", "errors": [EVIL]})
    assert str(wrong).isprintable()
    assert printable("") == ""


def test_the_command_line_prints_an_error_without_escapes(monkeypatch, capsys):
    def fail() -> None:
        raise TaskEnded(EVIL)

    monkeypatch.setattr("crowdfl.cli.main.app", fail)
    with pytest.raises(SystemExit):
        run()
    said = capsys.readouterr().err
    assert SHOWN in said
    assert said.strip().isprintable()
