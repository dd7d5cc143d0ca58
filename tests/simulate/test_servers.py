"""crowdfl.local_servers and crowdfl.connect: what was simulated, on servers that are processes of their own."""

import os
import signal
import socket
import sys
import time
import tomllib
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import crowdfl
from crowdfl.campaigns import local
from crowdfl.campaigns.following import FollowedCell, FollowedLines, FollowedStatus, followed, state_words
from crowdfl.campaigns.task import with_people
from crowdfl.errors import NotReady, ServiceUnavailable, SettingsError, TakingPartStopped
from crowdfl.notebook import picture_of
from crowdfl.roles.defining import defined
from tests import subprocesses
from tests.simulate.lines import START, evaluate, people, train

PATIENCE = 900.0
DATA = people(5)


@pytest.fixture(scope="module")
def servers():
    with crowdfl.local_servers(progress=False) as started:
        yield started


@pytest.fixture(scope="module")
def simulated():
    return crowdfl.simulate(train, evaluate, DATA, rounds=2, initial=START, budget="36.00", progress=False)


def take_part(task, count=5, function=train, **more):
    links = task.invite(count)
    found = zip(DATA.values(), links, strict=False)
    return [crowdfl.join(link, **more).start(function, evaluate, data) for data, link in found]


@pytest.mark.second
def test_servers_of_ones_own_do_what_was_simulated(servers, simulated, capfd):
    """By the same names: everyone is in the first round, paid, and nothing was asked."""
    task = servers.create(simulated, initial=START)
    going = take_part(task)
    told = []
    assert task.wait(timeout=PATIENCE, evaluate_central=lambda model: {"w": model[0][0]}, on_round=told.append) is task
    assert [one.number for one in told] == [1, 2]
    assert all(one.participants == 5 for one in told)
    assert told[1].numbers == {"central_w": pytest.approx(simulated.model[0][0], abs=1e-8)}
    assert task.history == tuple(told)
    for own, other in zip(task.model, simulated.model, strict=True):
        assert own == pytest.approx(other, abs=1e-8)
    report = task.report()
    assert (report.state, report.people, [one["uploads"] for one in report.rounds]) == ("settled", 5, [5, 5])
    assert (report.paid_in, report.earned, report.returned) == (Decimal(72), Decimal(72), 0)
    assert [one.result(PATIENCE).paid for one in going] == [Decimal("14.4")] * 5
    assert [one.task for one in (going[0].result(), servers.task(task.id).report())] == [task.id] * 2
    assert task.id in [one.id for one in servers.tasks()]
    assert "".join(capfd.readouterr()) == ""  # progress is for somebody who looks


@pytest.mark.second
def test_what_a_persons_function_raises_is_raised_where_it_is_awaited(servers):
    """Others would wait for that person to the end of the window."""

    def fit(model, data):
        if data is DATA["p0"]:
            raise ZeroDivisionError("mine")
        return train(model, data)

    task = servers.create(initial=START, rounds=1)
    going = take_part(task, 3, fit)
    with pytest.raises(ZeroDivisionError, match="mine") as raised:
        task.wait(timeout=PATIENCE)
    assert "round 1" in raised.value.__notes__[0]
    task.cancel()
    task.wait("settled", timeout=PATIENCE)
    with pytest.raises(NotReady):
        _ = task.model
    with pytest.raises(ZeroDivisionError):
        going[0].result(PATIENCE)


@pytest.mark.second
def test_who_stops_takes_no_further_part_in_this_program(servers):
    task = servers.create(initial=START, rounds=1)
    (one,) = take_part(task, 1)
    one.stop()
    with pytest.raises(TakingPartStopped):
        one.result(PATIENCE)
    with pytest.raises(NotReady, match="goes on"):
        task.wait(timeout=0.5)
    task.cancel()


@pytest.mark.second
def test_a_round_may_end_the_task(servers):
    """As `on_round` of a simulation may. People of one program may share a network: their functions take turns."""
    inside, together = [], []

    def fit(model, _data):
        inside.append(model)
        together.append(len(inside))
        time.sleep(0.2)
        inside.pop()
        return model + 1.0  # an array, as `initial` is

    task = servers.create(initial=np.zeros(3), rounds=9)
    links = task.invite(3)
    for link in links:
        crowdfl.join(link).start(fit, None, [1, 2])
    task.wait(timeout=PATIENCE, on_round=lambda done: done.number == 1)
    assert (task.status["state"] in ("cancelled", "settled"), len(task.history)) == (True, 1)
    assert task.model[0] >= 1.0
    assert set(together) == {1}


@pytest.mark.second
def test_a_requesters_settings_are_the_same_object(servers):
    """The texts are said, people are asked, and no money is there before an operator says so."""
    with crowdfl.connect(servers.folder / "requester/settings.toml") as real:
        with pytest.raises(SettingsError, match="`purpose` is missing"):
            real.create(initial=START)
        words = {"purpose": "Fit a line", "terms": "Data stays with you."}
        task = real.create(initial=START, rounds=1, budget="10.00", **words)
        assert task.settings.min_participants == 5
        links = task.invite(5)
        with pytest.raises(SettingsError, match="If you agree"):
            crowdfl.join(links[0])
        task.fund()
        task.fund()  # the same payment
        assert (task.report().pending, task.report().paid_in) == (10, 0)
        task.cancel()
        assert "Fit a line" in crowdfl.join(links[0], yes=True).look()


@pytest.mark.second
def test_a_port_that_somebody_took_in_between_is_no_obstacle(monkeypatch):
    free, asked = local._free, []

    def ports(count):
        asked.append(count)
        return [taken.getsockname()[1], *free(count - 1)] if len(asked) == 1 else free(count)

    monkeypatch.setattr(local, "_free", ports)
    with socket.create_server(("127.0.0.1", 0)) as taken, crowdfl.local_servers(progress=False) as started:
        assert started.is_running
    assert len(asked) == 2


SCRIPT = """
import signal, sys, time, crowdfl
signal.signal(signal.SIGINT, signal.default_int_handler)  # a program that was started in the background ignores it
with crowdfl.local_servers(progress=True) as servers:
    print(servers.folder, *(one.process.pid for one in servers._processes), flush=True)
    time.sleep(600)
"""


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.second
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_servers_whose_program_is_gone(number, tmp_path):
    """Ctrl-C, and a program that cannot say goodbye."""
    log = tmp_path / "log"
    with log.open("w") as out:
        command = [sys.executable, "-c", SCRIPT]
        with subprocesses.running(
            command, stdout=out, stderr=out, env=os.environ | {"TMPDIR": str(tmp_path)}
        ) as program:
            found = subprocesses.until(
                lambda: [x for x in log.read_text().splitlines() if x.startswith("/")], log.read_text
            )
            folder, *pids = found[0].split()
            assert len(pids) == 3
            assert all(map(is_alive, pids))
            program.send_signal(number)
            program.wait(PATIENCE)
            subprocesses.until(lambda: not any(map(is_alive, pids)), log.read_text)
    assert Path(folder).exists() == (number == signal.SIGKILL)
    assert "1 of 3 listen" in log.read_text()
    assert ("KeyboardInterrupt" in log.read_text()) == (number == signal.SIGINT)


@pytest.mark.second
def test_a_server_that_ends_is_named_with_its_last_word(tmp_path):
    """And those that started before it end too."""
    own = crowdfl.local_servers(tmp_path / "kept", progress=False)
    with own:
        task = own.create(initial=START, rounds=1)
        _ = task.id
        assert own.is_running
    settings = tmp_path / "kept/sp/settings.toml"
    before = settings.read_text()
    settings.write_text(f"porto = 1\n{before}")
    with pytest.raises(ServiceUnavailable, match=r"sp has ended: .*porto"):
        own.start()
    assert not own.is_running
    settings.write_text(before)
    with own:
        assert [one.id for one in own.tasks()] == [task.id]  # what was kept is there


def test_a_task_file_makes_what_was_simulated(simulated, tmp_path):
    text = simulated.task_file(tmp_path / "task.toml", purpose="Fit a line", terms="Stays")
    assert (tmp_path / "task.toml").read_text() == text
    found = tomllib.loads(text)
    arrays = {"array 0": START[0], "array 1": START[1]}
    definition, start = defined("task.toml", found, initial=arrays)
    assert definition.settings == simulated.settings
    assert (definition.purpose, definition.terms) == ("Fit a line", "Stays")
    assert [array.tolist() for array in start] == [array.tolist() for array in START]
    assert "SAY HERE" in simulated.task_file()


def test_a_task_file_says_which_form_functions_take():
    torch = pytest.importorskip("torch")
    start = {"w": torch.zeros(2)}
    result = crowdfl.simulate(lambda model, _data: model, None, [[1]] * 3, rounds=1, initial=start, progress=False)
    assert tomllib.loads(result.task_file())["training"]["learner"] == "torch functions"


def test_a_first_round_waits_for_everyone_who_is_invited(simulated):
    definition, _ = defined("t", tomllib.loads(simulated.task_file()), initial={"w": np.zeros(2)})
    assert with_people(definition, 4).plan.start_with == 4
    assert with_people(definition, 2) == definition  # too few for a round: more are coming
    more = with_people(definition, 40)
    assert (more.plan.start_with, more.settings.max_participants) == (40, 40)


def test_what_cannot_be_meant_is_refused(servers_off):
    for given, said in [
        ({"model": START}, "did you mean `initial`"),
        ({"initial": START, "lr": 1}, "yours, in `train`"),
        ({"initial": START, "pay": "equal"}, "budget"),
        ({}, "`initial` is missing"),
        ({"initial": START, "rounds": 0}, "`rounds`"),
        ({"like": 3}, "`like` is a int"),
        ({"initial": START}, "not running"),
    ]:
        with pytest.raises(SettingsError, match=said):
            servers_off.create(**given)


@pytest.fixture
def servers_off():
    return crowdfl.local_servers(progress=False)


def test_help_names_every_call():
    """And what it names is there."""
    assert all(
        name in (crowdfl.__doc__ or "") for name in ("simulate(", "local_servers()", "connect(", "join(links[0]).run")
    )
    for name in ("create", "task", "tasks"):
        assert hasattr(crowdfl.Servers, name)
    for name in ("invite", "wait", "model", "report"):
        assert hasattr(crowdfl.Task, name)


STATUS = {
    "state": "running",
    "enrolled": 4,
    "rounds": [{"number": 1, "state": "rewarded", "uploads": 4}, {"number": 2, "state": "open", "uploads": 1}],
    "waits": ["uploads"],
}


def test_where_a_task_stands_is_shown_where_somebody_looks(monkeypatch, capsys):
    words = state_words(STATUS)
    assert words == "running: 4 people, round 2 open; waits for uploads"
    assert type(followed(None, 3)).__name__ == "Followed"
    lines = followed(True, 3)
    assert isinstance(lines, FollowedLines)
    lines.tell(words, STATUS, {})
    lines.tell(words, STATUS, {})
    assert capsys.readouterr().err == f"{words}\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with followed(None, 3) as status:
        assert isinstance(status, FollowedStatus)
        status.tell(words, STATUS, {})


def test_a_notebook_shows_a_picture_of_a_task(monkeypatch):
    told = []
    handle = type("Handle", (), {"update": lambda _self, data, raw: told.append(data)})()
    display = type("Display", (), {"display": staticmethod(lambda *_a, **_k: handle)})
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    FollowedCell(3).tell("words <b>", STATUS, {"loss": [3.0, 1.0]})
    (shown,) = told
    assert "1 of 3 rounds are over" in shown["text/html"]
    assert "words &lt;b&gt;" in shown["text/html"]


@pytest.mark.parametrize(
    "curves", [{}, {"loss": []}, {"loss": [1.0]}, {"a<": [1.0, float("nan"), 2.0], "b": [2.0, 2.0]}]
)
def test_a_picture_is_drawn_of_whatever_there_is(curves):
    drawn = picture_of(4, 2, 0.5, curves)
    assert drawn.count("<polyline") == len(curves)
    assert "nan" not in drawn
    assert "a<<" not in drawn
