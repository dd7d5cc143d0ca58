"""A participant's agent: when it polls, what it waits for, and how a task goes from joining to being paid."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from crowdfl.errors import (
    ClaimRefused,
    Forbidden,
    ModelMismatch,
    NotAuthenticated,
    NotReady,
    ServiceUnavailable,
    StorageFull,
    StoreUnavailable,
    TaskNotRunning,
    TooLate,
    TooSlow,
    UnknownTask,
)
from crowdfl.retry import no_jitter
from crowdfl.roles.participant.agent import Agent
from crowdfl.services.http.wire import error_from
from tests.hosts import Desk, heard

AWAY = ServiceUnavailable("gone")
DEFINITION = SimpleNamespace(shape="the shape", settings=SimpleNamespace(window=100.0, budget="1.00"))


class Trainer:
    def prepare(self, _shape):
        pass

    def train(self, arrays, _settings, number):
        return [array + number for array in arrays], 5

    def evaluate(self, _arrays, _number):
        return {"accuracy": 0.5}


class Unfit(Trainer):
    def prepare(self, _shape):
        raise ModelMismatch("another model")


@dataclass
class Person:
    """A participant that does as it is told: each list holds what the next calls return, or raise; then the default."""

    joined: bool = True
    has_left: bool = False
    state: str = "running"
    come_back: float = 0.0
    has_claims: bool = False
    awaits_rewards: bool = False
    looks: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    stocks: list = field(default_factory=list)
    claims: list = field(default_factory=list)
    calls: list = field(default_factory=list)
    events: list = field(default_factory=list)

    @property
    def blobs(self):
        return SimpleNamespace(has=lambda name: {"certificate": self.joined}[name])

    def on_event(self, what, details):
        self.events.append((what, details))

    def on_wait(self, why, seconds):
        self.on_event("waiting", {"why": str(why), "seconds": round(seconds, 1)})

    def look(self):
        return self._next("look", self.looks, DEFINITION)

    def join(self, invitation):
        self.calls.append(f"join {invitation}")
        self.joined = True

    def step(self, _train, _evaluate):
        if not self.steps:
            self.state = "finished"
        return self._next("step", self.steps, False)

    def stock_up(self):
        return self._next("stock up", self.stocks, False)

    def claim(self):
        return self._next("claim", self.claims, 7)

    def _next(self, name, answers, default):
        self.calls.append(name)
        answer = answers.pop(0) if answers else default
        if isinstance(answer, Exception):
            raise answer
        return answer


def agent_of(person):
    """An agent that only notes how long it would have waited."""
    waits = []
    return Agent(person, waits.append, jitter=no_jitter), waits


def test_who_has_joined_waits_for_a_platform_that_is_away():
    """Each wait is an event, and longer than the one before."""
    person = Person(looks=[AWAY, AWAY, AWAY])
    agent, waits = agent_of(person)
    assert agent.look() is DEFINITION
    assert waits == [1.5, 3.0, 6.0]
    assert person.events == [("waiting", {"why": "gone", "seconds": seconds}) for seconds in waits]


def test_who_has_not_joined_is_told_at_once_that_the_platform_is_away():
    """A mistyped address would be waited for without end."""
    person = Person(joined=False, looks=[AWAY])
    agent, waits = agent_of(person)
    with pytest.raises(ServiceUnavailable):
        agent.look()
    assert (waits, person.events) == ([], [])


def test_who_cannot_train_takes_no_place():
    """The data and the model are tried before joining, and not again after it."""
    person = Person(joined=False)
    agent, _ = agent_of(person)
    with pytest.raises(ModelMismatch):
        agent.take_part(DEFINITION, Unfit(), "invitation")
    assert person.calls == []
    person.joined = True
    agent.take_part(DEFINITION, Unfit(), "invitation")
    assert person.calls[0] == "join invitation"


def test_it_polls_less_often_while_nothing_happens():
    """Up to a fifteenth of the window; something done starts the pauses again."""
    person = Person(steps=[False] * 7 + [True, False])
    agent, waits = agent_of(person)
    agent.take_part(DEFINITION, Trainer(), "invitation", claim=False)
    assert waits == pytest.approx([1.0, 1.5, 2.25, 3.375, 5.0625, 100 / 15, 100 / 15, 1.0])


def test_idle_time_is_used_for_randomizers():
    """No pause while some are missing; none are made for someone who has left."""
    person = Person(steps=[False, False, False], stocks=[True, True])
    agent, waits = agent_of(person)
    agent.take_part(DEFINITION, Trainer(), "invitation", claim=False)
    assert (person.calls.count("stock up"), waits) == (4, [1.0])
    gone = Person(has_left=True)
    agent_of(gone)[0].take_part(DEFINITION, Trainer(), "invitation", claim=False)
    assert gone.calls == ["step"]  # and it does not join again by itself


@pytest.mark.parametrize(
    "failure",
    [
        StorageFull("no room"),
        StoreUnavailable("no database"),
        TooSlow("slow"),
        error_from(500, None),
        error_from(502, "<html>"),
    ],
    ids=lambda failure: f"{type(failure).__name__} {failure}",
)
def test_whatever_may_pass_is_waited_for_and_told_at_the_first_miss(failure):
    """A full disk, a database that is away for minutes, a failing service, a proxy's page: nobody has to start it again."""
    person = Person(steps=[failure] * 12, claims=[failure])
    agent, waits = agent_of(person)
    agent.take_part(DEFINITION, Trainer(), "invitation")
    assert person.calls.count("step") == 13
    assert person.calls.count("claim") == 2
    assert [waits[0], max(waits)] == [1.5, 80.0]
    assert person.events[0] == ("waiting", {"why": str(failure), "seconds": 1.5})
    assert len(person.events) == len(waits) == 13


@pytest.mark.parametrize("refusal", [UnknownTask("no"), Forbidden("no"), TaskNotRunning("no")])
def test_a_refusal_by_name_ends_it(refusal):
    person = Person(steps=[refusal])
    agent, waits = agent_of(person)
    with pytest.raises(type(refusal)):
        agent.take_part(DEFINITION, Trainer(), "invitation")
    assert waits == []


def test_a_platform_that_does_not_know_it_is_asked_again_for_a_while():
    """It may have been restored from a backup; the next look enrols again. One that insists is believed."""
    person = Person(steps=[NotAuthenticated("who?")] * 3)
    agent, waits = agent_of(person)
    agent.take_part(DEFINITION, Trainer(), "invitation")
    assert waits[:3] == [1.5, 3.0, 6.0]
    assert ("waiting", {"why": "who?", "seconds": 1.5}) in person.events
    insisting = Person(steps=[NotAuthenticated("who?")] * 100)
    agent, waits = agent_of(insisting)
    with pytest.raises(NotAuthenticated):
        agent.take_part(DEFINITION, Trainer(), "invitation")
    assert len(waits) == 9
    assert sum(waits) < 600


def test_a_claim_waits_for_the_end_of_the_task():
    person = Person(claims=[NotReady("later"), AWAY, NotReady("later")])
    agent, waits = agent_of(person)
    agent.take_part(DEFINITION, Trainer(), "invitation")
    assert person.calls.count("claim") == 4
    assert waits == [1.0, 1.5, 1.5]


def test_what_is_earned_is_claimed_while_the_task_runs_and_a_refusal_stops_nothing():
    person = Person(steps=[True, True], claims=[7, ClaimRefused("not now"), NotReady("not yet")], has_claims=True)
    agent, _ = agent_of(person)
    agent.take_part(DEFINITION, Trainer(), "invitation")
    assert [call for call in person.calls if call in ("step", "claim")] == ["step", "claim"] * 3 + ["claim"]
    assert person.events == [("not paid", {"why": "not now"})]


@pytest.mark.parametrize("refusal", [ClaimRefused("not yours"), TooLate("too late")])
def test_a_refused_claim_is_told_and_not_repeated(refusal):
    person = Person(claims=[refusal])
    agent, waits = agent_of(person)
    agent.claim()
    assert (person.events, waits) == ([("not paid", {"why": str(refusal)})], [])


@pytest.mark.parametrize(("budget", "claim"), [(None, True), ("1.00", False)])
def test_nothing_is_claimed_without_a_budget_or_against_the_wish(budget, claim):
    """`--no-claim` leaves the claim for later."""
    person = Person()
    definition = SimpleNamespace(shape="", settings=SimpleNamespace(window=100.0, budget=budget))
    agent_of(person)[0].take_part(definition, Trainer(), "invitation", claim=claim)
    assert "claim" not in person.calls


def test_an_agent_takes_part_from_joining_to_being_paid(tmp_path):
    """With the real roles: the others do their part whenever the agent waits."""
    desk = Desk.funded(tmp_path, 3)
    person, *others = desk.crowd
    said = heard(person)

    def wait(seconds):
        desk.later(seconds)
        desk.upload(others, Trainer().train)
        desk.run()

    (invitation,) = desk.requester.invite(desk.task, 1, 1000)
    Agent(person, wait).take_part(person.look(), Trainer(), invitation)
    assert [what for what, _ in said] == [
        "joined",
        *("trained", "uploaded", "read", "rewarded"),
        *("trained", "uploaded", "claimed"),
        *("rewarded", "claimed"),
    ]
    assert person.claim() == sum(person.rewards().values()) > 0
