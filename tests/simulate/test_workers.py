"""People who train in parallel, and layers that stay with each person."""

import os
import random
import signal

import numpy as np
import pytest

import crowdfl
from crowdfl.errors import LearningError, ModelMismatch, SettingsError, WorkerDied
from tests.simulate.lines import START, fit, people

MANY = people(5)
USUAL = {"rounds": 2, "initial": START, "progress": False, "lanes": 128}


def noisy(model, data, info):
    """With every generator that a function may use unasked, and something of its own in the data."""
    data["calls"] += 1
    chance = random.random() + np.random.random() + np.random.default_rng(info.seed).random()  # noqa: S311
    weights, offset = fit(*model, data["own"])
    return [weights + 0.01 * chance * data["calls"], offset], len(data["own"][1]) / 4, {"process": os.getpid()}


def scored(model, data):
    return {
        "loss": float(np.mean((data["own"][0] @ model[0] + model[1] - data["own"][1]) ** 2)),
        "calls": data["calls"],
    }


def test_the_result_is_the_same_for_any_number_of_workers_bit_for_bit():
    """Also of functions that no other process could load, and that keep something in their person's data."""

    def evaluate(model, own):
        return scored(model, own)

    found = {}
    for workers in (None, 1, 3):
        data = {name: {"own": own, "calls": 0} for name, own in MANY.items()}
        found[workers] = crowdfl.simulate(noisy, evaluate, data, workers=workers, **USUAL)
    for result in found.values():
        assert np.array_equal(np.append(*result.model), np.append(*found[None].model))
        assert [one.by_person for one in result.history] == [one.by_person for one in found[None].history]
        assert result.history[1].by_person["p0"]["calls"] == 2
    used = [{one["process"] for one in result.history[0].training_by_person.values()} for result in found.values()]
    assert [len(processes) for processes in used] == [1, 1, 3]
    assert used[0] == {os.getpid()} != used[1]


class Odd(Exception):
    """Cannot be made again from what it says."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


@pytest.mark.parametrize(
    ("error", "kind"), [(ZeroDivisionError("mine"), ZeroDivisionError), (Odd(1, 2), LearningError)]
)
def test_what_a_function_raises_in_a_worker_comes_out_with_whose_data_it_was(error, kind):
    def raising(model, data, info):
        if info.person == "p3":
            raise error
        return list(fit(*model, data))

    with pytest.raises(kind) as raised:
        crowdfl.simulate(raising, None, MANY, workers=2, **USUAL)
    notes = "".join(raised.value.__notes__)
    assert "p3, round 1" in notes
    assert "raised in a worker" in notes
    assert "in raising" in notes


def test_a_worker_that_dies_is_named():
    def dying(model, data, info):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerDied, match=r"round 1: the worker has ended by itself \(exit code -9"):
        crowdfl.simulate(dying, None, MANY, workers=2, **USUAL)


def test_an_interruption_ends_the_workers():
    pids = set()

    def on_round(round_):
        pids.update(int(one["process"]) for one in round_.training_by_person.values())
        raise KeyboardInterrupt

    data = {name: {"own": own, "calls": 0} for name, own in MANY.items()}
    with pytest.raises(KeyboardInterrupt):
        crowdfl.simulate(noisy, None, data, workers=2, on_round=on_round, **USUAL)
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"workers": 1.5}, {"device": []}, {"device": "cuda:99"}])
def test_workers_and_devices_that_cannot_be_are_refused_by_name(wrong):
    with pytest.raises(SettingsError, match=r"workers|device"):
        crowdfl.simulate(noisy, None, MANY, **USUAL, **wrong)


def test_a_function_is_told_its_device():
    told = []
    crowdfl.simulate(
        lambda m, d, info: (told.append(info.device), list(fit(*m, d)))[1], None, MANY, device="cpu", **USUAL
    )
    assert set(told) == {"cpu"}


def personal_train(model, data):
    """Every person's offset is its own; the weights are common."""
    assert model["head"].dtype == np.float32
    weights, offset = fit(model["w"], float(model["head"][0]), data)
    return {"w": weights, "head": np.array([offset + 1.0])}


@pytest.mark.parametrize("workers", [None, 2])
def test_layers_that_stay_with_each_person_are_neither_averaged_nor_lost(workers):
    start = {"w": START[0], "head": np.zeros(1, np.float32)}
    heads = {}

    def evaluate(model, data):
        return {"head": float(model["head"][0])}

    given = USUAL | {"initial": start, "workers": workers}
    result = crowdfl.simulate(personal_train, evaluate, MANY, personalize=["he*"], **given)
    weights, heads = START[0], dict.fromkeys(MANY, 0.0)
    for _ in range(2):
        fitted = {name: fit(weights, heads[name], own) for name, own in MANY.items()}
        heads = {name: float(np.float32(offset + 1.0)) for name, (_, offset) in fitted.items()}
        counts = [len(own[1]) for own in MANY.values()]
        weights = np.average([one for one, _ in fitted.values()], axis=0, weights=counts)
    assert result.model["w"] == pytest.approx(weights, abs=2e-7)
    assert result.model["head"] == 0  # nobody's
    for name, head in heads.items():
        assert result.personal[name]["head"] == pytest.approx(head, abs=1e-5)
        assert result.history[-1].by_person[name]["head"] == pytest.approx(head, abs=1e-5)
    assert result.history[0].bytes_up  # something was sent, and it was shorter
    whole = crowdfl.simulate(personal_train, None, MANY, **USUAL | {"initial": start})
    assert result.settings.clip < whole.settings.clip  # the heads moved furthest, and none of that left a person


def test_layers_that_are_not_there_are_refused_by_name():
    start = {"w": START[0], "head": np.zeros(1)}
    with pytest.raises(SettingsError, match="the model's entries are w, head"):
        crowdfl.simulate(personal_train, None, MANY, personalize=["tail"], **USUAL | {"initial": start})
    with pytest.raises(SettingsError, match="has no names"):
        crowdfl.simulate(noisy, None, MANY, personalize=["array 0"], **USUAL)
    with pytest.raises(ModelMismatch, match="head, which stays with each person, is missing"):
        crowdfl.simulate(lambda m, d: {"w": m["w"]}, None, MANY, personalize="head", **USUAL | {"initial": start})
