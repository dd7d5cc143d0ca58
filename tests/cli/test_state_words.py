"""Commands show the digest of a reader's state, short for people and whole for programs, where a task has a server step."""

import contextlib
import json
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdfl.cli.participant import say
from crowdfl.cli.task import commands

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

        monkeypatch.setattr(commands, "open_requester", requester)
        monkeypatch.setattr(commands.RequesterFile, "read", lambda _path: None)
        monkeypatch.setattr(commands, "write_model", lambda *_: None)
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


def test_a_participant_is_shown_its_state(capsys):
    say("read", {"round": 2, "accuracy": 0.5, "state": STATES[2]})
    say("read", {"round": 3, "accuracy": 0.5})
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "round 2: the average is read: accuracy 0.5; its state is 0123456789abcdef",
        "round 3: the average is read: accuracy 0.5",
    ]


def test_a_campaign_that_is_run_shows_the_states_with_the_model(capsys):
    tell = commands._Teller()
    tell("fetched", {"model": "m.npz", "states": STATES})
    tell("fetched", {"model": "m.npz"})
    first, *states, last = capsys.readouterr().out.splitlines()
    assert (first, last) == ("fetched: model m.npz",) * 2
    assert [line.split()[-1] for line in states] == ["abababababababab", "0123456789abcdef"]
