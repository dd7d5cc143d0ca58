"""Crowds in batches: what is done once for all of them, and people whose data is a function of the name."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest

import crowdfl
from crowdfl.crypto import sealing, signing
from crowdfl.errors import SettingsError
from crowdfl.learning.models.forms import ModelForm
from crowdfl.protocols.shares.round import average, manifest
from crowdfl.reasons import Reason
from crowdfl.roles.participant.participant import Participant
from crowdfl.settings import TaskSettings
from crowdfl.simulation.clear import RuleAveraging, fedavg
from crowdfl.simulation.crowd_engine import Averaged, CrowdEngine
from crowdfl.simulation.draws import seeded_draw
from crowdfl.simulation.parallel import ParallelTrainer, Trainers, Workers
from crowdfl.simulation.run import simulate
from tests.simulate.lines import START, evaluate, people, train

MANY = people(9)
USUAL: dict[str, Any] = {"rounds": 2, "initial": START, "progress": False, "lanes": 128}


def flat(result: Any) -> Any:
    return np.append(*result.model)


def _counted(patch: pytest.MonkeyPatch, found: Counter[str], owner: Any, name: str) -> None:
    real: Callable[..., Any] = getattr(owner, name)

    def counting(*given: Any, **named: Any) -> Any:
        found[name] += 1
        return real(*given, **named)

    patch.setattr(owner, name, counting)


def operations(count: int) -> Counter[str]:
    """Of the operations that roles do for each person, how many a crowd of so many people takes."""
    found = Counter[str]()
    with pytest.MonkeyPatch.context() as patch:
        _counted(patch, found, signing.SigningKey, "sign")
        _counted(patch, found, sealing.ReaderKey, "open")
        _counted(patch, found, average, "seal_to")
        _counted(patch, found, average, "verify")
        _counted(patch, found, manifest, "open_seed")
        _counted(patch, found, average.AverageReader, "read")
        _counted(patch, found, Participant, "join")
        data = {f"p{place}": MANY["p0"] for place in range(count)}
        crowdfl.simulate(train, evaluate, data, budget="4.00", pay="equal", **USUAL)
    return found


def test_nothing_but_training_and_adding_grows_with_the_crowd() -> None:
    """One opening for all readers; nobody enrols, seals or signs."""
    few = operations(4)
    assert few["read"] == USUAL["rounds"]
    assert not few["join"] + few["open_seed"]
    assert operations(24) == few


def test_data_as_a_function_of_the_name_is_loaded_for_who_is_drawn_alone() -> None:
    loaded, evaluated = Counter[str](), Counter[str]()

    def load(name: str) -> Any:
        loaded[name] += 1
        return MANY[f"p{int(name.removeprefix('person-')) % len(MANY)}"]

    def score(model: Any, data: Any, info: Any) -> Any:
        evaluated[info.person] += 1
        return evaluate(model, data)

    made = Counter[str]()
    with pytest.MonkeyPatch.context() as patch:
        _counted(patch, made, ParallelTrainer, "__init__")
        result = simulate(train, score, load, people=100_000, per_round=5, evaluate_per_round=3, **USUAL)
    assert made["__init__"] <= len(loaded) + 1  # and the first one, whose form of the model is everyone's
    drawn = Counter(name for one in result.history for name in one.sampled)
    assert sum(drawn.values()) == 10
    assert sum(evaluated.values()) == 6
    assert loaded == drawn + evaluated
    assert [set(one.by_person) <= set(evaluated) and len(one.by_person) for one in result.history] == [3, 3]
    assert result.settings.max_participants == 100_000


def test_nothing_of_loaded_data_stays() -> None:
    class Own:
        def __init__(self, data: Any) -> None:
            self.data = data

    alive, left = WeakSet[Own](), list[int]()

    def load(name: str) -> Own:
        own = Own(MANY[name])
        alive.add(own)
        return own

    crowdfl.simulate(
        lambda model, own: (train(model, own.data), 10),
        lambda model, own: evaluate(model, own.data),
        load,
        people=list(MANY),
        on_round=lambda _done: left.append(len(alive)),
        **USUAL,
    )
    assert left == [0, 0]


def test_loaded_data_gives_what_the_same_data_gives_at_hand(tmp_path: Any) -> None:
    """In workers too, and in a campaign that goes on; `max_samples` follows from who was drawn."""
    given = USUAL | {"per_round": 4, "max_samples": 100}
    at_hand = crowdfl.simulate(train, evaluate, MANY, **given)
    for more in ({}, {"workers": 2}):
        loaded = crowdfl.simulate(train, evaluate, MANY.__getitem__, people=list(MANY), **given, **more)
        assert flat(loaded).tolist() == flat(at_hand).tolist()
        assert [one.metrics for one in loaded.history] == [one.metrics for one in at_hand.history]
    given["rounds"] = 1
    crowdfl.simulate(train, evaluate, MANY.__getitem__, people=list(MANY), folder=tmp_path / "here", **given)
    given["rounds"] = 2
    on = crowdfl.simulate(train, evaluate, MANY.__getitem__, people=list(MANY), folder=tmp_path / "here", **given)
    assert flat(on) == pytest.approx(flat(at_hand), abs=1e-8)
    assert on.history[-1].metrics == pytest.approx(at_hand.history[-1].metrics)


def test_what_loading_raises_comes_out_with_the_name() -> None:
    with pytest.raises(KeyError) as raised:
        crowdfl.simulate(train, None, {}.__getitem__, people=["ada", "bob", "eve"], **USUAL)
    assert "`data` of ada" in "".join(raised.value.__notes__)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"data": MANY.__getitem__}, "`people` is None"),
        ({"data": MANY.__getitem__, "people": True}, "`people` is True"),
        ({"data": MANY.__getitem__, "people": ["p0", "p1", "p1"]}, "twice"),
        ({"data": lambda: 1, "people": 5}, r"expected data\(name\)"),
        ({"people": 5}, "`people` says who there is"),
        ({"engine": "fast"}, '"crowd" or "roles"'),
        ({"engine": "crowd", "profile": "hardened", "lanes": 0}, "plays the profile shares"),
        ({"engine": "roles", "in_the_clear": fedavg, "lanes": None}, "`in_the_clear` has none"),
        ({"evaluate_per_round": 0}, "`evaluate_per_round` is 0"),
        ({"evaluate_per_round": 10}, "expected 1 to 9"),
        ({"evaluate_fraction": 0}, "`evaluate_fraction` is 0"),
        ({"evaluate_fraction": 0.5, "evaluate_per_round": 3}, "say the same"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, Any], named: str) -> None:
    asked = {key: value for key, value in (USUAL | {"data": MANY} | given).items() if value is not None}
    with pytest.raises(SettingsError, match=named):
        crowdfl.simulate(train, evaluate, **asked)


@pytest.mark.parametrize("engine", ["crowd", "roles"])
def test_a_share_of_the_people_evaluates_drawn_anew(engine: str) -> None:
    result = crowdfl.simulate(train, evaluate, MANY, engine=engine, evaluate_fraction=0.34, **USUAL | {"rounds": 4})
    assert [len(one.by_person) for one in result.history] == [3] * 4
    assert len({tuple(one.by_person) for one in result.history}) > 1
    assert all("loss" in one.metrics for one in result.history)


class _Rejecting(RuleAveraging):
    """Leaves p1 out in the first round, as a sketch may by chance."""

    def close(self, arrays: Any, number: int) -> Averaged:
        found = super().close(arrays, number)
        return replace(found, rejected={"p1": Reason.OUT_OF_BOUNDS}) if number == 1 else found


@pytest.mark.parametrize("reference", [False, True])
def test_who_is_left_out_though_within_the_bounds_takes_no_further_part(reference: bool) -> None:
    """As a device does that is asked about; where people are compared with a reference, honest ones may be left out."""
    settings = TaskSettings.of(rounds=3, max_participants=9, weighting="equal", max_norm=1.0, reference=reference)
    form, trained = ModelForm.of(START), Counter[int]()

    def noted(model: Any, data: Any, info: Any) -> Any:
        trained[info.round] += info.person == "p1"
        return train(model, data)

    def make(name: str) -> ParallelTrainer:
        return ParallelTrainer(noted, None, MANY[name], form, name, 3)

    trainers = Trainers(MANY, make)
    trainers.count(0)
    Workers(None, None).start(trainers)
    averaging = _Rejecting(fedavg, form, 3, 0)
    CrowdEngine(
        settings,
        form.arrays(START),
        trainers,
        lambda _number: frozenset(),
        averaging,
        draw=seeded_draw(0),
        evaluated=lambda _number: None,
    ).run()
    assert [trained[number] for number in (1, 2, 3)] == ([1, 1, 1] if reference else [1, 0, 0])
