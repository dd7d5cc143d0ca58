"""What a caller of crowdfl.simulate is told of each round, and what it may say: to stop, to evaluate, to go on later."""

import gc
import tracemalloc
from collections import Counter

import numpy as np
import pytest

import crowdfl
from crowdfl.errors import LearningError, SettingsError
from crowdfl.protocols.shares.round.average import RoundRecord
from crowdfl.simulation.host import Host
from crowdfl.simulation.replayed import seeded
from tests.simulate.lines import START, evaluate, people, plain, train

UNCHECKED = {"check": "none"}  # what is told of rounds is the same
CLOSE = 2e-7


def run(train=train, evaluate=evaluate, data=None, **given):
    usual = {"rounds": 3, "initial": START, "progress": False} | ({} if "budget" in given else UNCHECKED)
    return crowdfl.simulate(train, evaluate, people() if data is None else data, **usual | given)


def losses(model, data):
    return {who: evaluate(model, own) for who, own in data.items()}


def test_each_round_is_told_with_its_model_and_everyones_metrics():
    """Also the last one, whose average is the requester's; what is handed over is the caller's to alter."""
    data, seen = people(), []

    def on_round(done):
        seen.append((done.number, np.append(*done.model), done.by_person, done.metrics, done.costs["SP"].messages))
        done.model[0][:] = np.nan

    result = run(data=data, on_round=on_round)
    assert [number for number, *_ in seen] == [1, 2, 3]
    for (_, model, by_person, metrics, _), expected in zip(seen, plain(data, 3), strict=True):
        assert model == pytest.approx(expected, abs=CLOSE)
        assert by_person == {who: pytest.approx(one) for who, one in losses((model[:3], model[3]), data).items()}
        weights = [len(own[1]) for own in data.values()]
        assert metrics["loss"] == pytest.approx(
            np.average([one["loss"] for one in by_person.values()], weights=weights)
        )
    assert seen[0][4] < seen[1][4] < seen[2][4]
    assert [one.by_person for one in result.history] == [by_person for _, _, by_person, *_ in seen]
    assert len(result.person_rows()) == 3 * len(data)
    assert result.person_rows()[0] == {"round": 1, "person": "p0", **seen[0][2]["p0"]}


def test_one_seed_is_one_simulation():
    """With the same source of secrets, to the last byte that anyone sends and keeps; with another, the same averages."""
    seen = []
    for seed in (b"1", b"1", b"2"):
        sent = []
        with seeded(seed), pytest.MonkeyPatch.context() as patch:
            carry = Host.carry
            patch.setattr(Host, "carry", lambda *call, carry=carry, sent=sent: sent.append(call[1:5]) or carry(*call))
            result = run(dropouts={"p1": [2]}, seed=7, budget="4.00", engine="roles")
        seen.append((repr(sent), np.append(*result.model).tolist(), result.rewards, result.costs))
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[2][0]
    assert seen[0][1:3] == seen[2][1:3]


@pytest.mark.parametrize("step", ["none", "fedavgm"])
def test_what_is_handed_over_is_what_the_next_round_starts_from(step):
    started, handed = {}, {}

    def train_noted(model, own, info):
        started[info.round] = np.append(*model)
        return train(model, own)

    def on_round(done):
        handed[done.number] = np.append(*done.model)

    result = run(train_noted, on_round=on_round, server_step=step)
    assert [started[2].tolist(), started[3].tolist()] == [handed[1].tolist(), handed[2].tolist()]
    assert handed[3].tolist() == np.append(*result.model).tolist()


def test_true_stops_and_keeps_the_model_and_what_was_earned():
    """NumPy's too. Nobody trains for a round that does not come; everyone is paid for those that did."""
    calls, data = Counter(), people()

    def train_counted(model, own, info):
        calls[info.round] += 1
        return train(model, own)

    result = run(train_counted, data=data, rounds=9, budget="4.00", on_round=lambda done: done.number == 2 and np.True_)
    assert calls == {1: 4, 2: 4}
    assert [one.number for one in result.history] == [1, 2]
    assert np.append(*result.model) == pytest.approx(plain(data, 2)[-1], abs=CLOSE)
    assert sum(result.rewards.values()) == 8
    assert result.notes == ("`on_round` has stopped the campaign after round 2",)


def test_a_round_that_was_given_up_is_told_of_with_the_model_before_it():
    seen = []

    def on_round(done):
        seen.append((done.is_averaged, done.central, np.append(*done.model)))

    away = dict.fromkeys(["p0", "p1"], 2)
    run(on_round=on_round, dropouts=away, evaluate_central=lambda _: 1.0)
    assert [(averaged, central) for averaged, central, _ in seen] == [
        (True, {"score": 1}),
        (False, {}),
        (True, {"score": 1}),
    ]
    assert seen[0][2].tolist() == seen[1][2].tolist() != seen[2][2].tolist()


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        ({"on_round": lambda done: done.metrics}, SettingsError, "`on_round` returned a dict; expected True"),
        ({"evaluate_central": crowdfl.TrainingInfo}, SettingsError, "`evaluate_central` is the class TrainingInfo"),
        (
            {"evaluate_central": lambda _: "low"},
            LearningError,
            "`evaluate_central`, round 1: the metric 'score' is a str",
        ),
        ({"train": lambda model, _: (model, 3, {"loss": "low"})}, LearningError, "p0, round 1: the metric 'loss' is a"),
    ],
)
def test_mistakes_are_named(given, error, named):
    with pytest.raises(error, match=named):
        run(**given)


def test_an_error_of_a_callback_comes_out_as_it_is():
    with pytest.raises(ZeroDivisionError):
        run(on_round=lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError) as raised:
        run(evaluate_central=lambda _: 1 / 0)
    assert raised.value.__notes__[0] == "(from CrowdFL: `evaluate_central`, round 1)"


def test_the_requesters_test_set_is_evaluated_once_a_round():
    """By a function of the model, which may ask for `info`; in the record, the table, the rows and the pictures."""
    data, test, calls = people(), people(seed=9)["p3"], []

    def central(model, info):
        calls.append((info.round, info.rounds))
        return evaluate(model, test)

    result = run(data=data, evaluate_central=central)
    assert calls == [(1, 3), (2, 3), (3, 3)]
    for round_, model in zip(result.history, plain(data, 3), strict=True):
        assert round_.central == {"loss": pytest.approx(evaluate((model[:3], model[3]), test)["loss"], abs=1e-5)}
    assert result.rows()[2]["central_loss"] == result.history[2].central["loss"] != result.rows()[2]["loss"]
    assert "central_loss" in str(result).splitlines()[0].split()
    pytest.importorskip("matplotlib")
    assert [axes.get_ylabel() for axes in result.plot().axes] == ["loss", "central_loss", "participants"]


def test_evaluating_is_told_the_round_and_the_person_too():
    seen = []

    def evaluate_told(_model, _own, info):
        seen.append((info.round, info.person))

    run(train, evaluate_told)
    assert sorted(seen) == [(number, f"p{place}") for number in (1, 2, 3) for place in range(4)]


@pytest.mark.parametrize("form", ["three", "two", "update"])
def test_training_may_say_something_of_itself(form):
    """By person and by round; what does not train says nothing."""
    data = people()

    def train_told(model, own, info):
        made, told = train(model, own), {"steps": float(info.round + len(own[1]))}
        if form == "update":
            return crowdfl.Update(made, len(own[1]), metrics=told)
        return (made, len(own[1]), told) if form == "three" else (made, told)

    result = run(train_told, None, data, dropouts={"p1": 2})
    assert np.append(*result.model) == pytest.approx(plain(data, 3, {2: ["p1"]})[-1], abs=CLOSE)
    second = result.history[1]
    assert second.training_by_person == {who: {"steps": 2.0 + len(own[1])} for who, own in data.items() if who != "p1"}
    counts = [len(own[1]) for who, own in data.items() if who != "p1"]
    assert second.training == {"steps": pytest.approx(np.average([2 + count for count in counts], weights=counts))}
    assert result.rows()[1]["training_steps"] == second.training["steps"]
    assert result.person_rows()[0] == {"round": 1, "person": "p0", "training_steps": 11.0}


@pytest.mark.second
def test_what_is_held_and_read_does_not_grow_with_rounds_and_people(monkeypatch):
    """An upload goes with its round; a record that names everyone is read once, not by everyone."""
    parsed, held, parameters, crowd = [], [], 4000, 40
    from_bytes = RoundRecord.from_bytes
    monkeypatch.setattr(RoundRecord, "from_bytes", lambda *given: parsed.append(1) or from_bytes(*given))

    def on_round(done):
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])

    def train_any(model, own, info):
        return model + np.random.default_rng(info.seed).normal(scale=0.01, size=parameters), own + 1

    tracemalloc.start()
    try:
        run(train_any, None, list(range(crowd)), initial=np.zeros(parameters), rounds=6, on_round=on_round)
    finally:
        tracemalloc.stop()
    assert (held[4] - held[1]) / 3 < 0.25 * crowd * 8 * parameters, "some models each round, not everyone's uploads"
    assert len(parsed) <= 6 * 6
