"""Somebody's own two functions as a participant's trainer: one that trains a model, and one that evaluates it.

The functions get the model in the form that they know (`crowdfl.learning.models.forms`), and the data as it was given. What
they raise comes out as it is: an agent that waits for a platform must not take it for the platform's trouble.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import index
from typing import Any

from crowdfl.errors import CrowdFLError, DataMalformed, LearningError, NothingToContribute, SettingsError
from crowdfl.learning.models.forms import ModelForm
from crowdfl.learning.models.learner import Update, seed_of
from crowdfl.learning.models.shape import ModelShape, Weights

TrainFunction = Callable[..., Any]
"""`train(model, data)`, `train(model)` or `train(model, data, info)`: the model, (model, samples),
(model, samples, metrics), or an `Update`."""
EvaluateFunction = Callable[..., Any]
"""`evaluate(model, data)`, `evaluate(model)` or `evaluate(model, data, info)`: a mapping of numbers, a number, or None."""

_WHAT_TO_RETURN = (
    "return the trained model, (model, samples), (model, samples, metrics), or crowdfl.Update(model, samples)"
)
_NO_DATA: Any = object()  # of a function that is called with a model alone
NOT_METRICS = ("round", "state")  # what an agent tells beside the metrics
_MOST_UNITS = 10**6  # of the largest weight
_PRECISION = 1e-3  # of one weight
WEIGHT = "samples"  # the metric that says how much the others count


@dataclass(frozen=True)
class TrainingInfo:
    """What a function may ask for as its third argument, or as one that is called `info`.

    Attributes:
        round: The number of the round, from 1; 0 where the model that everyone starts from is made.
        rounds: How many rounds there are.
        person: Whose data it is.
        seed: A number for random choices, of this person and round alone; the same in every run.
        device: Where to compute, as torch names it: "cpu", or what `device` of `simulate` has for this worker.
    """

    round: int
    rounds: int
    person: str
    seed: int
    device: str = "cpu"

    @classmethod
    def of(cls, number: int, rounds: int, person: str, seed: int, device: str = "cpu") -> "TrainingInfo":
        """With a seed of its own, from one that all share."""
        return cls(number, rounds, person, seed_of(seed, number, person), device)


class FunctionRaised(Exception):
    """Carries what a function has raised past everyone who handles errors of CrowdFL's own."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass
class FunctionTrainer:
    """A person's data and functions, as `crowdfl.roles.participant.agent.Trainer` wants them."""

    train_function: TrainFunction
    evaluate_function: EvaluateFunction | None
    data: Any = field(repr=False)
    form: ModelForm
    person: str
    rounds: int
    seed: int = 0
    samples: float | None = None  # of the last training
    units: int = 1  # that a weight of 1 is counted as; with 1, weights are whole numbers
    metrics: Mapping[str, float] = field(default_factory=dict)  # what it said of itself
    device: str = "cpu"
    _counts: dict[str, Any] = field(default_factory=dict, repr=False)  # this person's own entries that are not averaged

    def prepare(self, shape: ModelShape) -> None:
        shape.match(self.form.shape)

    def train(self, arrays: Weights, _settings: Mapping[str, Any], number: int) -> tuple[Weights, int]:
        place = f"{self.person}, round {number}"
        model = self.form.model(arrays, self._counts)
        info = self.info(number)
        with _named(place):
            returned = _called(self.train_function, model, self.data, info)
        try:
            trained, samples, metrics = split_result(returned, self.data)
            weights = self.form.arrays(trained)
            self._counts = self.form.counts(trained)
        except NothingToContribute:
            raise
        except CrowdFLError as wrong:
            raise type(wrong)(f"{place}: {wrong}") from None
        self.samples, self.metrics = samples, metrics
        return weights, self.counted(samples, place)

    def counted(self, weight: float, place: str) -> int:
        """As the servers add it up; 0 as long as nobody knows in which units."""
        try:
            return counted(weight, self.units) if self.units else 0
        except DataMalformed as wrong:
            raise DataMalformed(f"{place}: {wrong}") from None

    def evaluate(self, arrays: Weights, number: int) -> dict[str, float]:
        if self.evaluate_function is None:
            return {}
        model = self.form.model(arrays, self._counts)
        with _named(f"evaluating with the data of {self.person}"):
            returned = _called(self.evaluate_function, model, self.data, self.info(number))
        try:
            return metrics_of(returned)
        except LearningError as wrong:
            raise LearningError(f"evaluating with the data of {self.person}: {wrong}") from None

    def info(self, number: int) -> TrainingInfo:
        return TrainingInfo.of(number, self.rounds, self.person, self.seed, self.device)

    @property
    def own(self) -> Mapping[str, Any]:
        """This person's entries that are not averaged."""
        return self._counts

    def restore(self, samples: float | None, own: Mapping[str, Any]) -> None:
        """As after an earlier training."""
        self.samples = samples
        self._counts = dict(own)

    def keep(self, model: object) -> None:
        """Take the entries that are not averaged from an example."""
        if model is not None:
            self._counts = self.form.counts(model)

    @property
    def weight(self) -> float:
        """How much this person's metrics count: its samples, as far as they are known."""
        return self.samples or samples_of(self.data) or 1


_TAKES = {  # how each function is called, and with how many arguments at most
    "train": ("train(model, data) or train(model, data, info)", 3),
    "evaluate": ("evaluate(model, data) or evaluate(model, data, info)", 3),
    "evaluate_central": ("evaluate_central(model) or evaluate_central(model, info)", 2),
    "on_round": ("on_round(done), where `done` is a FinishedRound", 1),
    "in_the_clear": ("in_the_clear(updates, start, info)", 3),
    "data": ("data(name)", 1),
}


def require_functions(train: object, evaluate: object, **others: object) -> None:
    """Before anything is done: all can be called as they are going to be. A class would be made, not called."""
    for name, function in (("train", train), ("evaluate", evaluate), *others.items()):
        if name != "train" and function is None:
            continue
        if isinstance(function, type):
            raise SettingsError(
                f"`{name}` is the class {function.__name__}; expected a function, or {function.__name__}(...)"
            )
        words, most = _TAKES[name]
        if not callable(function):
            raise SettingsError(f"`{name}` is of the type {type(function).__name__}; expected a function {words}")
        if (needed := _needed(function, most)) is not None:
            raise SettingsError(
                f"`{name}` takes {needed or 'no argument'}; expected {words}; functools.partial binds what else it needs"
            )


def _needed(function: Callable[..., Any], most: int) -> str | None:
    """What a function cannot be called without, if it cannot be called with one to so many arguments."""
    try:
        wanted = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in another language
        return None
    needed = [
        one for one in wanted if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    named = [one for one in needed if one.kind is one.KEYWORD_ONLY]
    places = [one for one in wanted if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.VAR_POSITIONAL)]
    fits = places and len(needed) - len(named) <= most and all(one.name in ("data", "info") for one in named)
    return None if fits else ", ".join(one.name for one in needed)


def loaded_data(load: Callable[[str], Any], person: str) -> Any:  # noqa: ANN401
    """Somebody's data, by a function of the name."""
    with _named(f"`data` of {person}"):
        return load(person)


def first_model(train: TrainFunction, data: object, info: TrainingInfo) -> Any:  # noqa: ANN401
    """The model that a training function makes of nothing but data."""
    place = f"train(None, data of {info.person}) makes the model that everyone starts from; pass `initial` in its place"
    with _named(place):
        returned = _called(train, None, data, info)
    if returned is None:
        raise LearningError(f"{place}: it returned nothing")
    returned, _ = _without_metrics(returned)
    if isinstance(returned, tuple) and len(returned) == 2 and _is_number(returned[1]):
        return returned[0]
    return _model_of(returned) if isinstance(returned, Update) else returned


def _model_of(update: Update) -> Weights | dict[str, Any]:
    named = dict(zip(update.names, update.weights, strict=True))
    return update.weights if all(name.startswith("array ") for name in named) else named


def split_result(returned: object, data: object) -> tuple[object, float, dict[str, float]]:
    """The trained model, the number of samples that it was trained on or another weight, and the metrics of training."""
    if isinstance(returned, Update):
        return _model_of(returned), _weight(returned.samples), metrics_of(returned.metrics)
    if returned is None:
        raise LearningError(f"the training function returned nothing: {_WHAT_TO_RETURN}")
    returned, metrics = _without_metrics(returned)
    if isinstance(returned, tuple) and len(returned) == 2 and _is_number(returned[1]):
        return returned[0], _weight(returned[1]), metrics
    samples = samples_of(data)
    if samples is None:
        raise LearningError(
            "how many samples the model was trained on does not follow from the data: return (model, samples)"
        )
    return returned, samples, metrics


def _without_metrics(returned: object) -> tuple[object, dict[str, float]]:
    """A dictionary at the end is no part of a model that is a tuple of arrays."""
    if not (isinstance(returned, tuple) and returned and isinstance(returned[-1], Mapping)):
        return returned, {}
    return returned[0] if len(returned) == 2 else returned[:-1], metrics_of(returned[-1])


def samples_of(data: object) -> int | None:
    """How many samples data holds, where its own length says that; None where it is not clear.

    Of arrays that belong together, as in (inputs, labels), the common length; of a torch DataLoader, its data set's. A list of
    two arrays of one shape may be inputs and targets, or two samples.
    """
    if isinstance(data, str | bytes) or data is None:
        return None
    if hasattr(data, "dataset") and not hasattr(data, "indices"):  # a torch Subset has some of its data set's
        data = data.dataset
    parts = list(data.values()) if isinstance(data, Mapping) else data
    if isinstance(parts, list | tuple) and (together := _common_length(parts)) is not None:
        return together
    if isinstance(data, Mapping | tuple) or not isinstance(data, Sized) or _is_pair(data):
        return None
    try:
        return len(data)
    except TypeError:  # a DataLoader over a stream, an array without a side
        return None


def metrics_of(returned: object) -> dict[str, float]:
    """What an evaluating function returned, as numbers by name; a single number is the `score`."""
    if returned is None:
        return {}
    found: Mapping[Any, Any] = returned if isinstance(returned, Mapping) else {"score": returned}
    metrics = {}
    for name, value in found.items():
        if not isinstance(name, str) or name in NOT_METRICS:
            raise LearningError(f"a metric cannot be called {name!r}: choose another name")
        try:
            metrics[name] = float(value + 0)  # a string is not a number, though `float` reads some
        except (TypeError, ValueError):
            raise LearningError(
                f"the metric {name!r} is a {type(value).__name__}: return a number, or a dictionary of numbers"
            ) from None
    return metrics


def central_metrics(function: EvaluateFunction, model: object, info: TrainingInfo) -> dict[str, float]:
    """Of the requester's own test set: `function(model)` or `function(model, info)`."""
    place = f"`evaluate_central`, round {info.round}"
    with _named(place):
        returned = _called(function, model, _NO_DATA, info)
    try:
        return metrics_of(returned)
    except LearningError as wrong:
        raise LearningError(f"{place}: {wrong}") from None


def weighted_mean(rows: Sequence[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """The mean of each metric over people, by their weights; one that has a metric `samples` counts so often itself."""
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for metrics, usual in rows:
        weight = metrics.get(WEIGHT, usual)
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0.0) + (value if name == WEIGHT else value * weight)
            weights[name] = 1.0 if name == WEIGHT else weights.get(name, 0.0) + weight
    return {name: total / weights[name] if weights[name] else math.nan for name, total in sums.items()}


def _common_length(parts: list[Any] | tuple[Any, ...]) -> int | None:
    """Of arrays that describe the same samples; a list of arrays that are all alike is a list of samples."""
    shapes = [getattr(part, "shape", None) for part in parts]
    if not shapes or not all(shapes) or len({shape[0] for shape in shapes if shape}) != 1:
        return None
    alike = isinstance(parts, list) and len({tuple(shape) for shape in shapes if shape}) == 1
    return None if alike else int(shapes[0][0])  # type: ignore[index]


def _is_pair(data: object) -> bool:
    return isinstance(data, list) and len(data) == 2 and all(getattr(part, "shape", None) for part in data)


def _is_number(value: Any) -> bool:  # noqa: ANN401
    try:
        index(value)
    except TypeError:
        return isinstance(value, float)
    return not isinstance(value, bool) and getattr(value, "shape", ()) == ()


def _weight(samples: Any) -> float:  # noqa: ANN401
    if isinstance(samples, float) and samples.is_integer():
        samples = int(samples)
    try:
        weight = samples if isinstance(samples, float) else index(samples)
    except TypeError:
        raise DataMalformed(f"samples are a number, or a weight above 0, not {samples!r}") from None
    if not 0 <= weight < math.inf:
        raise DataMalformed(f"{weight} samples: a number of samples is not negative, and a weight is finite")
    return weight


def units_for(weights: Sequence[float]) -> int:
    """What a weight of 1 is counted as: a power of ten by which all are whole, as far as the largest has no more units."""
    largest = max(weights, default=1)
    units = 1
    while largest * units * 10 <= _MOST_UNITS and not all(_is_exact(weight, units) for weight in weights):
        units *= 10
    return units


def counted(weight: float, units: int) -> int:
    """A weight as the servers add it up: a whole number of units, within a thousandth of itself.

    Raises:
        DataMalformed: It is not.
    """
    if _is_exact(weight, units):
        return round(weight * units)
    if units == 1:
        raise DataMalformed(f"samples are counted in whole numbers here, not {weight!r}")
    if abs(round(weight * units) / (weight * units) - 1) > _PRECISION:
        raise DataMalformed(
            f"the weight {weight!r} is too small beside the others: weights are multiples of {1 / units:g} here, and each is "
            "kept to a thousandth of itself"
        )
    return round(weight * units)


def _is_exact(weight: float, units: int) -> bool:
    return math.isclose(weight * units, round(weight * units), rel_tol=1e-9, abs_tol=0.0)


def _called(function: Callable[..., Any], model: object, data: object, info: TrainingInfo) -> Any:  # noqa: ANN401
    """With the model, the data as the second argument, and `info` where it is asked for."""
    plain = [model] if data is _NO_DATA else [model, data]
    try:
        wanted = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in another language
        return function(*plain)
    if any(one.kind is one.VAR_POSITIONAL for one in wanted):
        return function(*plain)
    places = [one for one in wanted if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)][1:]
    given: list[object] = [model]
    if data is _NO_DATA:
        pass
    elif any(one.name == "data" and one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in wanted):
        function = partial(function, data=data)
    elif places and places[0].name != "info":
        given.append(data)
        places = places[1:]
    if any(one.name == "info" for one in wanted):
        return function(*given, info=info)
    asks = bool(places) and places[0].default is inspect.Parameter.empty
    return function(*given, *([info] if asks else []))


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Around a call of somebody's function: what it raises is carried out, with a note where it happened."""
    try:
        yield
    except NothingToContribute:  # the one thing that a function may say of its data by an error
        raise
    except Exception as error:
        error.add_note(f"(from CrowdFL: {place})")
        raise FunctionRaised(error) from error
