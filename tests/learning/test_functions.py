"""Somebody's own functions: what they are given, how samples are counted, and what they may return."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from crowdfl.errors import LearningError, NothingToContribute, SettingsError
from crowdfl.learning.functions import (
    FunctionRaised,
    FunctionTrainer,
    TrainingInfo,
    first_model,
    metrics_of,
    require_functions,
    samples_of,
    split_result,
    weighted_mean,
)
from crowdfl.learning.models.forms import ModelForm
from crowdfl.learning.models.learner import Update

X, Y = np.zeros((7, 3)), np.zeros(7)
INFO = TrainingInfo.of(1, 5, "ada", 0)


class Model:
    """A training that is a method, or an object."""

    def train(self, model, data):
        return model, data

    def __call__(self, model, data, info):
        return model, data, info


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda model: (model,), ("m",)),
        (lambda model, data: (model, data), ("m", "d")),
        (lambda model, own: (model, own), ("m", "d")),
        (lambda model, data, third: (model, data, third), ("m", "d", INFO)),
        (lambda model, data, epochs=3: (model, data, epochs), ("m", "d", 3)),
        (lambda model, data, epochs=3, info=None: (model, data, epochs, info), ("m", "d", 3, INFO)),
        (lambda model, info: (model, info), ("m", INFO)),
        (lambda model, *, info: (model, info), ("m", INFO)),
        (lambda model, data=None: (model, data), ("m", "d")),
        (lambda model, *, data: (model, data), ("m", "d")),
        (lambda model, *, data, info: (model, data, info), ("m", "d", INFO)),
        (lambda *given: given, ("m", "d")),
        (Model().train, ("m", "d")),
        (Model(), ("m", "d", INFO)),
        (partial(lambda rate, model, data: (model, data, rate), 0.1), ("m", "d", 0.1)),
    ],
)
def test_a_function_is_given_what_it_asks_for(function, given):
    """The model, then the data; the rest by its name, or where it is needed."""
    seen = []

    def noting(*args, **kwargs):
        seen.append(function(*args, **kwargs))
        return [1.0], 1

    noting.__signature__ = __import__("inspect").signature(function)
    trainer = FunctionTrainer(noting, None, "d", ModelForm.of([0.5]), "ada", 5)
    trainer.train([np.array(2.0)], {}, 1)
    assert seen == [tuple([2.0] if part == "m" else part for part in given)]


@pytest.mark.parametrize(
    ("data", "samples"),
    [
        (X, 7),
        ((X, Y), 7),
        ([X, Y], 7),
        ({"x": X, "y": Y}, 7),
        ([1, 2, 3], 3),
        ([Y, Y, Y], 3),  # a list of samples that are alike
        ([X, X], None),  # also inputs and targets of one shape
        ([Y, Y], None),  # inputs and answers of one number each, or two samples
        (SimpleNamespace(dataset=[1, 2, 3, 4]), 4),  # as torch's DataLoader, whose own length counts batches
        ((X, np.zeros(5)), None),
        (((X, Y), (X, Y)), None),
        ({"path": "x"}, None),
        ("a path", None),
        (None, None),
        (np.array(3.0), None),
        (iter([1]), None),
    ],
)
def test_samples_are_counted_where_that_is_clear(data, samples):
    """And not guessed where it is not: (inputs, labels) are not two samples."""
    assert samples_of(data) == samples


def test_a_trained_model_comes_alone_with_samples_or_as_an_update():
    """A model that is a pair of arrays is not taken for a model and its samples."""
    assert split_result([X], X) == ([X], 7, {})
    assert split_result(([X], np.int64(3)), None) == ([X], 3, {})
    assert split_result(([X], 3.0), None) == ([X], 3, {})
    pair = (X, Y)
    assert split_result(pair, X) == (pair, 7, {})
    model, samples, metrics = split_result(Update({"w": Y}, 4), None)
    assert (list(model), samples, metrics) == (["w"], 4, {})
    assert split_result(([X], 3, {"loss": 0.5}), X) == ([X], 3, {"loss": 0.5})
    with pytest.raises(LearningError, match=r"return \(model, samples\)"):
        split_result([X], "a path")


@pytest.mark.parametrize(
    ("train", "evaluate", "named"),
    [
        (None, None, "`train` is of the type NoneType; expected a function"),
        (X, None, "`train` is of the type ndarray"),
        (len, {"loss": 1}, "`evaluate` is of the type dict"),
        (
            SimpleNamespace,
            None,
            r"`train` is the class SimpleNamespace; expected a function, or SimpleNamespace\(\.\.\.\)",
        ),
    ],
)
def test_what_is_no_function_is_refused_at_once(train, evaluate, named):
    """Neither is a class, which would be made anew with each model."""
    with pytest.raises(SettingsError, match=named):
        require_functions(train, evaluate)
    require_functions(len, None)


def test_what_a_function_raises_is_carried_with_a_note():

    def fail(error):
        def train(_model):
            raise error

        return FunctionTrainer(train, None, X, ModelForm.of([0.5]), "ada", 5)

    error = OSError("mine")
    with pytest.raises(FunctionRaised) as raised:
        fail(error).train([np.array(0.0)], {}, 3)
    assert raised.value.error is error
    assert error.__notes__ == ["(from CrowdFL: ada, round 3)"]
    with pytest.raises(NothingToContribute):
        fail(NothingToContribute("none")).train([np.array(0.0)], {}, 3)
    with pytest.raises(FunctionRaised) as raised:
        first_model(lambda model: model.missing, X, INFO)
    assert "pass `initial`" in raised.value.error.__notes__[0]


def test_metrics_are_numbers_by_name():
    assert metrics_of(None) == {}
    assert metrics_of(np.float32(0.5)) == {"score": 0.5}
    assert metrics_of({"loss": np.array(2), "right": True}) == {"loss": 2.0, "right": 1.0}
    for wrong in ({"loss": "0.5"}, {"loss": None}, {"loss": [1, 2]}, "0.5", {3: 1.0}):
        with pytest.raises(LearningError):
            metrics_of(wrong)


def test_means_are_weighted_by_samples():
    """By those that the metrics name, else by those of the training; a metric that some lack is of the others."""
    rows = [({"loss": 1.0, "samples": 1.0}, 100), ({"loss": 4.0, "more": 2.0}, 2)]
    assert weighted_mean(rows) == {"loss": 3.0, "samples": 1.0, "more": 2.0}
    assert weighted_mean([]) == {}


def test_seeds_are_of_a_person_and_a_round():
    assert TrainingInfo.of(1, 5, "ada", 0) == INFO
    others = [TrainingInfo.of(*given).seed for given in ((2, 5, "ada", 0), (1, 5, "bea", 0), (1, 5, "ada", 1))]
    assert len({INFO.seed, *others}) == 4
