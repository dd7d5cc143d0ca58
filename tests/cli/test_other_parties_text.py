"""What another party says is shown, and steers no terminal."""

import json

import pytest
from rich.table import Table
from rich.text import Text

from crowdfl.cli.main import run
from crowdfl.cli.output import show
from crowdfl.cli.participant import say
from crowdfl.errors import TaskEnded
from crowdfl.services.http.wire import PROBLEM_TYPE, error_from
from crowdfl.text import printable

EVIL = "a\x1b]0;owned\x07\x1b[2J\r\x9bb\u202e"
SHOWN = "a?]0;owned??[2J ?b?"


def table() -> Table:
    """With one cell."""
    found = Table("said")
    found.add_row(EVIL)
    return found


@pytest.mark.parametrize("told", [f"first\n{EVIL}", Text(f"first\n{EVIL}"), table()])
def test_a_status_is_shown_without_escapes(told, capsys):
    """In words, with colours and in a table; lines stay lines."""
    show({}, told, as_json=False)
    out = capsys.readouterr().out
    assert "?]0;owned" in out
    assert "b?" in out
    assert all(line.isprintable() for line in out.split("\n"))


def test_an_event_is_told_without_escapes(capsys):
    """As the person at the device sees it."""
    say("refused", {"round": 1, "why": EVIL})
    assert capsys.readouterr().out == f"round 1: the upload was not taken: {SHOWN}\n"


def test_json_keeps_what_was_said(capsys):
    """It is escaped there anyway."""
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
    """Whichever way it came."""

    def fail() -> None:
        raise TaskEnded(EVIL)

    monkeypatch.setattr("crowdfl.cli.main.app", fail)
    with pytest.raises(SystemExit):
        run()
    said = capsys.readouterr().err
    assert SHOWN in said
    assert said.strip().isprintable()
