"""Phones with nothing to do are told when to look again: the more there are, the less often, and never all at once."""

from dataclasses import replace

import pytest

from crowdfl.roles.participant.agent import Agent
from tests.hosts import Desk, unchanged


def told(desk: Desk, monkeypatch: pytest.MonkeyPatch, active: int, looks: int = 200) -> list[float]:
    """What so many phones of a crowd of this size hear."""
    whole = desk.sp.store.status
    with monkeypatch.context() as patched:
        patched.setattr(desk.sp.store, "status", lambda task: replace(whole(task), active=active))
        return [desk.sp.tasks.status(desk.task)["come_back"] for _ in range(looks)]


@pytest.mark.parametrize(
    ("active", "rate", "least", "most"),
    [(3, 50.0, 0.0, 0.1), (1_000, 50.0, 20.0, 30.0), (100_000, 50.0, 2000.0, 3000.0), (100_000, 1000.0, 100.0, 150.0)],
)
def test_a_crowd_looks_as_often_a_second_as_sp_is_set_to_answer(tmp_path, monkeypatch, active, rate, least, most):
    """Whatever the window, which is a hundred seconds here."""
    desk = Desk(tmp_path)
    desk.sp.core.options.looks_per_second = rate
    heard = told(desk, monkeypatch, active)
    assert sum(active / seconds for seconds in heard) / len(heard) <= rate or active == 3
    assert least <= min(heard) <= max(heard) <= most
    assert active == 3 or max(heard) - min(heard) > (most - least) / 2


def test_a_phone_comes_back_when_the_next_round_opens(tmp_path, monkeypatch):
    desk = Desk.funded(tmp_path, 3, plan={"every": 86_400.0}, rounds=2)
    desk.play()
    assert desk.sp.store.round(desk.task, 1).state == "rewarded"
    desk.clock.time += 86_400 - 600
    assert desk.sp.tasks.status(desk.task)["next_round"] is not None
    assert all(2500.0 < seconds <= 3601.0 for seconds in told(desk, monkeypatch, 100_000))


@pytest.mark.parametrize(("says", "waits"), [(40, 40.0), (10**9, 3600.0), (-5, 0.0), ("soon", 0.0), (None, 0.0)])
def test_an_agent_waits_as_long_as_it_is_told(tmp_path, monkeypatch, says, waits):
    """At most an hour, and at least as long as it would by itself; nonsense changes nothing."""
    desk = Desk(tmp_path)
    (person,) = desk.invite(1)
    whole = desk.sp_link.status
    monkeypatch.setattr(person.sp, "status", lambda task: whole(task) | {"come_back": says}, raising=False)
    slept = []

    class Enough(Exception):
        pass

    def sleep(seconds):
        slept.append(seconds)
        raise Enough

    class Trainer:
        prepare, train, evaluate = staticmethod(lambda _shape: None), staticmethod(unchanged), staticmethod(dict)

    agent = Agent(person, sleep, jitter=lambda _low, high: high)
    with pytest.raises(Enough):
        agent.take_part(desk.sp.core.definition(desk.task), Trainer(), "")
    assert slept == [max(waits, 1.0)]
