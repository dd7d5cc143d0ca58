"""Why FedAvg stays below NN here, where the paper's figure 3 has CrowdFL above it: what was tried.

First, other ways to train, of what the paper leaves open: optimiser, activation, first weights, the scale of the
inputs, and moments that are kept between rounds. FedAvg after the rounds and NN are both trained so. Then, other readings of
"NN": of whom it learns, how long, and on whose windows it is tried. All in the clear: the protocol changes no printed digit.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMissing
from crowdfl.learning.datasets.npz_files import read_arrays
from crowdfl.learning.evaluation import Scores, scores
from crowdfl.learning.features import Inputs
from crowdfl.learning.models.learner import Training, batches
from crowdfl.learning.models.torch_models import build
from crowdfl_lab.experiments.experiment import (
    Bench,
    Experiment,
    ExperimentPoint,
    Found,
    Part,
    Points,
    Record,
    Records,
    joined,
    number,
    remarks,
    table_of,
)
from crowdfl_lab.experiments.federated import (
    TRAINING,
    Attendance,
    Clear,
    Fed,
    LearnSettings,
    TrainSettings,
    federated,
    load_crowd,
)
from crowdfl_lab.report.plots import Canvas, Picture, bars, panels

if TYPE_CHECKING:
    import torch

_OURS = "as everywhere else here"
_COLUMNS = {
    "tried": "tried",
    "FedAvg: accuracy": "accuracy",
    "F1": "f1",
    "NN: accuracy": "nn accuracy",
    "NN: F1": "nn f1",
}
_READ = {
    "reading": "tried",
    "accuracy": "accuracy",
    "F1": "f1",
    "FedAvg beside it: accuracy": "beside",
    "FedAvg: F1": "beside f1",
}


@dataclass(frozen=True)
class Way:
    """How a network is trained; the defaults are ours."""

    name: str = _OURS
    activation: str = "relu"
    weights: str = "torch's"
    optimiser: str = "adam"
    rate: float = 0.001
    batch: int = 50
    inputs: str = "own scale"
    kept: bool = False  # whether everyone keeps the optimiser's moments between rounds


_SIGMOID = Way("sigmoid, Xavier weights, plain gradient steps at 0.1", "sigmoid", "xavier", "sgd", 0.1)
WAYS = (
    Way(),
    Way("Xavier weights and zero biases", weights="xavier"),
    Way("inputs on one scale for all", inputs="one scale"),
    Way("inputs in m/s2", inputs="m/s2"),
    Way("inputs in m/s2, moments kept between rounds", inputs="m/s2", kept=True),
    Way("moments kept between rounds", kept=True),
    Way("tanh", "tanh", "xavier"),
    _SIGMOID,
    Way("Nesterov at 0.01", weights="xavier", optimiser="nesterov", rate=0.01),
    Way("Nesterov at 0.1", weights="xavier", optimiser="nesterov", rate=0.1),
    Way("Adam at 0.01", rate=0.01),
)


@dataclass(frozen=True)
class GapSettings(TrainSettings):
    """Which ways."""

    ways: tuple[Way, ...] = WAYS


@dataclass(frozen=True)
class ReadingSettings(TrainSettings):
    """Which readings."""

    few: int = 4  # epochs of an NN that takes about as many steps as FedAvg does in all its rounds
    long: int = 36  # rounds in which FedAvg takes as many steps as NN; 0 leaves that reading out
    rates: tuple[float, ...] = (0.3, 0.6, 0.9)


class Net:
    """One network in torch with its optimiser, of any way to train."""

    def __init__(self, way: Way, inputs: int, hidden: int, labels: int, seed: int) -> None:
        import torch

        layers = build(inputs, [f"linear {hidden}", "relu", f"linear {labels}"], seed)
        activations = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "sigmoid": torch.nn.Sigmoid}
        layers[1] = activations[way.activation]()
        if way.weights == "xavier":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                for layer in (layers[0], layers[2]):
                    torch.nn.init.xavier_normal_(layer.weight)
                    torch.nn.init.zeros_(layer.bias)
        self.way, self.layers = way, layers
        self.parameters = list(layers.parameters())
        self._moments: dict[str, Any] = {}

    def train(self, one: Fed, training: Training) -> None:
        import torch

        rows, wanted = torch.from_numpy(one.inputs), torch.from_numpy(one.labels)
        optimiser = self._optimiser()
        if self.way.kept and one.name in self._moments:
            optimiser.load_state_dict(self._moments[one.name])
        for batch in batches(len(wanted), training):
            chosen = torch.from_numpy(batch)
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.layers(rows[chosen]), wanted[chosen])
            torch.autograd.backward(loss)
            optimiser.step()
        if self.way.kept:
            self._moments[one.name] = optimiser.state_dict()

    def _optimiser(self) -> "torch.optim.Optimizer":
        import torch

        if self.way.optimiser == "adam":
            return torch.optim.Adam(self.parameters, self.way.rate)
        momentum = 0.9 if self.way.optimiser == "nesterov" else 0.0
        return torch.optim.SGD(self.parameters, self.way.rate, momentum, nesterov=bool(momentum))

    def weights(self) -> npt.NDArray[np.float64]:
        return np.concatenate([each.detach().numpy().ravel() for each in self.parameters]).astype(np.float64)

    def load(self, flat: npt.NDArray[np.float64]) -> None:
        import torch

        with torch.no_grad():
            for each in self.parameters:
                part, flat = flat[: each.numel()], flat[each.numel() :]
                each.copy_(torch.from_numpy(part.reshape(tuple(each.shape))))

    def predict(self, inputs: Inputs) -> npt.NDArray[np.int64]:
        import torch

        with torch.no_grad():
            return np.asarray(self.layers(torch.from_numpy(inputs)).argmax(dim=1).numpy())


class World:
    """Everyone's inputs under one way to train, and the scores of a network on them."""

    def __init__(self, learn: LearnSettings, way: Way, bench: Bench) -> None:
        self.crowd = load_crowd(learn, bench)
        self.learn, self.way, self.labels = learn, way, len(self.crowd.label_names)
        self.fed = self.crowd.fed if way.inputs == "own scale" else _rescaled(self.crowd.fed, way.inputs, bench)
        self.training = Training(epochs=learn.epochs, batch=way.batch, rate=way.rate, seed=learn.seed)

    def net(self) -> Net:
        return Net(self.way, self.fed[0].inputs.shape[1], self.learn.hidden, self.labels, self.learn.seed)

    def federate(self, rounds: int) -> Net:
        net = self.net()
        model = net.weights()
        for number_ in range(1, rounds + 1):
            found = []
            for one in self.fed:
                net.load(model)
                net.train(one, self.training.at(number_, one.name))
                found.append(net.weights() * len(one.labels))
            model = np.sum(found, axis=0) / sum(len(one.labels) for one in self.fed)
        net.load(model)
        return net

    def together(self, people: Sequence[Fed], epochs: int | None = None) -> Net:
        """NN: one network on all windows of these people."""
        inputs, labels = (np.concatenate([getattr(one, name) for one in people]) for name in ("inputs", "labels"))
        net = self.net()
        every = replace(people[0], name="everyone", inputs=inputs, labels=labels)
        net.train(every, replace(self.training, epochs=epochs or self.learn.epochs))
        return net

    def scores(self, net: Net, people: Sequence[Fed] | None = None) -> Scores:
        tried = self.fed if people is None else people
        labels = np.concatenate([one.held_labels for one in tried])
        return scores(labels, net.predict(np.concatenate([one.held_inputs for one in tried])), self.labels)


def _rescaled(fed: Sequence[Fed], inputs: str, bench: Bench) -> list[Fed]:
    """Back to m/s2 as nearly as the published set allows; for one scale, then standardised over all training windows."""
    path = getattr(bench.data, "path", None)
    arrays = {} if path is None else read_arrays(path)
    if "est_sigma" not in arrays:
        raise DataMissing("this data set does not say what gives m/s2 back: leave out --data, or the ways that need it")
    # As the loader: the people are the users in order.
    found = []
    for one, deviation, mean in zip(fed, arrays["est_sigma"], arrays["est_mu"], strict=True):

        def back(rows: Inputs, deviation: Any = deviation, mean: Any = mean) -> Inputs:  # noqa: ANN401 -- arrays
            windows = rows.reshape(len(rows), -1, len(mean)) * deviation + mean
            return np.asarray(windows.reshape(len(rows), -1), dtype=np.float32)

        found.append(replace(one, inputs=back(one.inputs), held_inputs=back(one.held_inputs)))
    if inputs == "m/s2":
        return found
    every = np.concatenate([one.inputs for one in found])
    middle, spread = every.mean(), every.std()
    return [
        replace(one, inputs=(one.inputs - middle) / spread, held_inputs=(one.held_inputs - middle) / spread)
        for one in found
    ]


_Reading = Callable[[ReadingSettings, World], Records]


def _ways(settings: GapSettings) -> Points:
    facts: Record = dict(vars(settings.learn))
    return {
        way: ExperimentPoint("gap way", facts | dict(vars(way)), _way(settings.learn, way)) for way in settings.ways
    }


def _readings(settings: ReadingSettings) -> Points:
    points: dict[Hashable, ExperimentPoint] = {}
    for name, extra, measure in (
        ("alone", {}, _alone),
        ("fewer", {"rates": str(settings.rates)}, _fewer),
        ("steps", {"few": settings.few, "long": settings.long}, _steps),
    ):
        if name == "steps" and not settings.long:
            continue
        given: Record = dict(vars(settings.learn)) | {"reading": name} | extra
        points[name] = ExperimentPoint("gap reading", given, partial(_read, settings, measure))
    return points


def _read(settings: ReadingSettings, measure: _Reading, bench: Bench) -> Records:
    return measure(settings, World(settings.learn, Way(), bench))


def _way(learn: LearnSettings, way: Way) -> Any:  # noqa: ANN401 -- a point's measure
    def measure(bench: Bench) -> Records:
        world = World(learn, way, bench)
        federated_, nn = world.scores(world.federate(learn.rounds)), world.scores(world.together(world.fed))
        row: Record = {"of": "way", "tried": way.name, "accuracy": federated_.accuracy, "f1": federated_.f1}
        return [row | {"nn accuracy": nn.accuracy, "nn f1": nn.f1}]

    return measure


def _mean(found: Sequence[Scores]) -> Record:
    return {name: float(np.mean([getattr(one, name) for one in found])) for name in ("accuracy", "f1")}


def _reading(name: str, nn: Scores | Sequence[Scores], beside: Scores | Sequence[Scores]) -> Record:
    own, other = (_mean([found] if isinstance(found, Scores) else found) for found in (nn, beside))
    return {"of": "reading", "tried": name, **own, "beside": other["accuracy"], "beside f1": other["f1"]}


def _alone(settings: ReadingSettings, world: World) -> Records:
    """Non-federated as everyone for themselves."""
    average = world.federate(settings.learn.rounds)
    model = average.weights()
    own, everyone, again = [], [], []
    for one in world.fed:
        net = world.together([one])
        everyone.append(world.scores(net))
        own.append(world.scores(net, [one]))
        average.load(model)
        average.train(one, world.training.at(settings.learn.rounds + 1, one.name))
        again.append(world.scores(average, [one]))
    average.load(model)
    each = [world.scores(average, [one]) for one in world.fed]
    return [
        _reading("each person alone, tried on everyone's windows, mean", everyone, world.scores(average)),
        _reading("each person alone, tried on their own windows, mean", own, each),
        _reading("the same, beside the average that each trained once more", own, again),
    ]


def _fewer(settings: ReadingSettings, world: World) -> Records:
    """NN of the windows of those who did not drop out of the first round, beside CrowdFL-D."""
    rows: Records = []
    for rate in settings.rates:
        attendance = Attendance([one.name for one in world.fed], rate, "discard", settings.learn.seed)
        gone = set(attendance.dropped(1))
        nn = world.scores(world.together([one for one in world.fed if one.name not in gone]))
        *_, dropped = federated(world.crowd, Clear(), attendance)
        rows.append(_reading(f"of those who stay at {rate:.0%} dropouts", nn, dropped))
    return rows


def _steps(settings: ReadingSettings, world: World) -> Records:
    """As many steps on both sides: a person takes one step an epoch, NN one for each batch of everyone's windows."""
    short = world.scores(world.together(world.fed, settings.few))
    usual = world.scores(world.together(world.fed))
    five, long = (world.scores(world.federate(rounds)) for rounds in (settings.learn.rounds, settings.long))
    return [
        _reading(f"{settings.few} epochs: about as many steps as FedAvg in all its rounds", short, five),
        _reading(f"as everywhere else here, beside FedAvg of {settings.long} rounds: as many steps as NN", usual, long),
    ]


def _present(settings: GapSettings, found: Found) -> Part:
    ways = joined(found.values())
    title = f"FedAvg after {settings.learn.rounds} rounds and NN, other ways to train, seed {settings.learn.seed}, by real user"
    tables = (table_of(title, ways, _COLUMNS, ".4f"),)
    best = max(ways, key=lambda row: number(row, "accuracy"))
    above = sum(number(row, "accuracy") > number(row, "nn accuracy") for row in ways)

    def draw(canvas: Canvas) -> None:
        (axes,) = panels(canvas, 1)
        series = {
            name: [round(number(row, key), 3) for row in ways]
            for name, key in (("FedAvg", "accuracy"), ("NN", "nn accuracy"))
        }
        bars(
            axes,
            [str(place) for place in range(1, len(ways) + 1)],
            series,
            xlabel="way, as in the table",
            ylabel="accuracy",
        )

    picture = Picture("gap", "Accuracy of FedAvg and NN under other ways to train", draw, (11.0, 4.0))
    said = remarks(
        "gap", settings, best=best["tried"], accuracy=f"{number(best, 'accuracy'):.4f}", above=above, ways=len(ways)
    )
    return Part(ways, tables, (picture,), said)


def _present_readings(settings: ReadingSettings, found: Found) -> Part:
    rows = joined(found.values())
    title = f"Other readings of NN, {settings.learn.hidden:,} hidden units, seed {settings.learn.seed}, by real user"
    return Part(rows, (table_of(title, rows, _READ, ".4f"),), remarks=remarks("readings", settings))


_OPTIONS = {"data": TRAINING["data"], "rounds": TRAINING["rounds"]}
GAP = Experiment(
    "gap",
    "The gap between FedAvg and NN: other ways to train",
    _ways,
    _present,
    GapSettings(),
    GapSettings(LearnSettings(hidden=50), (Way(), WAYS[1], WAYS[6])),
    options=_OPTIONS,
)
READINGS = Experiment(
    "readings",
    "The gap between FedAvg and NN: other readings of NN",
    _readings,
    _present_readings,
    ReadingSettings(),
    ReadingSettings(LearnSettings(hidden=50), long=0),
    "quick",
    options=_OPTIONS,
)
