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


@pytest.mark.parametrize(("active", "least", "most"), [(3, 0.0, 0.1), (1_000, 10.0, 20.0), (100_000, 25.0, 50.0)])
def test_the_looks_of_a_crowd_are_spread(tmp_path, monkeypatch, active, least, most):
    """Over half of the window of a hundred seconds at most: everyone must have time to take part."""
    heard = told(Desk(tmp_path), monkeypatch, active)
    assert least <= min(heard) <= max(heard) <= most
    assert active == 3 or max(heard) - min(heard) > (most - least) / 2


def test_a_phone_comes_back_when_the_next_round_opens(tmp_path, monkeypatch):
    desk = Desk.funded(tmp_path, 3, plan={"every": 86_400.0}, rounds=2)
    desk.play()
    assert desk.sp.store.round(desk.task, 1).state == "rewarded"
    desk.clock.time += 86_400 - 600
    assert desk.sp.tasks.status(desk.task)["next_round"] is not None
    assert all(500.0 < seconds <= 651.0 for seconds in told(desk, monkeypatch, 100_000))


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
