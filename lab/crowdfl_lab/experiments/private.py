"""What differential privacy costs in accuracy, by epsilon, number of people and model; and what it takes from an attacker.

Everyone trains a softmax on their own windows; updates are clipped and rounded to integers as a device does, and each server's
noise is drawn by the protocol's own sampler. Only the sharing is left out: a test plays the same round through `simulate`.

A data set has some dozens of people. Larger crowds are made from it: each made person is one of the real ones, drawn at random,
with windows drawn from that person's training windows, with replacement. They are marked as made.

The membership attack: a reader who holds one person's windows, and knows nothing of the others, asks whether that person took
part. It plays hundreds of tasks with and without them (shadow models, Carlini et al. 2022), and takes the likelier case.
"""

import hashlib
import math
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.shares.noise import discrete_gaussian
from crowdfl.errors import DataMissing
from crowdfl.learning.datasets.data import Source
from crowdfl.learning.features import features, scaled
from crowdfl.learning.server_steps import PlainStep
from crowdfl.protocols.exchange import Silent
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.protocols.shares.round.upload import integers_within
from crowdfl.settings import TaskSettings
from crowdfl.simulation.sides import Parties
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
from crowdfl_lab.report.plots import Canvas, Picture, Series, lines, panels

_Floats = npt.NDArray[np.float64]
_Inputs = npt.NDArray[np.float32]
_Labels = npt.NDArray[np.int64]
Noise = Callable[[int, int], npt.NDArray[np.int64]]
"""From a round's number and a count to what both servers have added, in units."""
_FEW = 360  # up to so many people every seed is run, beyond it one
_COMPARED = "spectral"  # the model that is run with one server's noise too
_COST = 0.03  # of accuracy, that privacy may take


class Model(NamedTuple):
    """A softmax on features, behind a front of random ones if `front` says how many; nothing of it is fitted to data."""

    features: str
    front: int = 0


MODELS: Mapping[str, Model] = {
    "spectral": Model("spectral"),
    "spectral, 32 random": Model("spectral", 32),
    "motion": Model("motion"),
}


@dataclass(frozen=True)
class PrivateSettings:
    """Rate, norm and momentum are the best of a few that were tried with seed 0."""

    data: str = "the paper's"
    crowds: tuple[int, ...] = (36, 100, 360, 1000, 3600)
    epsilons: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    seeds: int = 3
    rounds: int = 20
    windows: int = 24  # of each person
    steps: int = 3  # over all of them, in each round
    rate: float = 1.0
    max_norm: float = 0.3
    server_momentum: float = 0.9

    def task(self, people: int, epsilon: float | None) -> TaskSettings:
        step = {"server_step": "fedavgm", "server_momentum": self.server_momentum, "check": "none"}
        private = {"decimals": 4} if epsilon is None else {"epsilon": epsilon, "noise": "any"}
        chosen: dict[str, Any] = {"weighting": "equal", "max_norm": self.max_norm, "rounds": self.rounds}
        return TaskSettings.of(**chosen, **step, **private, max_participants=people)


@dataclass(frozen=True, eq=False)
class Fed:
    """Everyone's inputs, with a one behind them for the bias, and labels: people x windows; and all that is held out."""

    inputs: _Inputs
    labels: _Labels
    held_inputs: _Inputs
    held_labels: _Labels
    classes: int

    @property
    def parameters(self) -> int:
        return int(self.inputs.shape[2]) * self.classes

    def updates(self, weights: _Floats, steps: int, rate: float) -> _Floats:
        """How each person's weights change in so many steps over all of their windows."""
        start = weights.reshape(-1, self.classes).astype(np.float32)
        own = np.repeat(start[None], len(self.inputs), axis=0)
        targets = np.eye(self.classes, dtype=np.float32)[self.labels]
        turned = self.inputs.transpose(0, 2, 1)
        for _ in range(steps):
            scores = self.inputs @ own
            chances = np.exp(scores - scores.max(axis=2, keepdims=True))
            chances /= chances.sum(axis=2, keepdims=True)
            own -= rate / self.inputs.shape[1] * (turned @ (chances - targets))
        return np.asarray((own - start).reshape(len(own), -1), dtype=np.float64)

    def accuracy(self, weights: _Floats) -> float:
        found = (self.held_inputs @ weights.reshape(-1, self.classes)).argmax(axis=1)
        return float((found == self.held_labels).mean())


def fed_crowd(source: Source, model: Model, people: int, windows: int, seed: int) -> Fed:
    """So many people: the real ones where there are as many, else made ones."""
    order, real = np.random.default_rng([seed, people]), len(source.people)
    splits = [source.load_person(place) for place in range(real)]
    sides = []
    for split in splits:
        train, held = (features(model.features, side.windows) for side in (split.train, split.held_out))
        sides.append((_front(scaled(train, train), model), _front(scaled(held, train), model)))
    inputs, labels = [], []
    for place in range(people):
        whose = place if people == real else int(order.integers(real))
        has = len(splits[whose].train)
        drawn = order.choice(has, windows, replace=people != real or has < windows)
        inputs.append(sides[whose][0][drawn])
        labels.append(splits[whose].train.labels[drawn])
    held_labels = np.concatenate([split.held_out.labels for split in splits])
    held = np.concatenate([held for _, held in sides])
    return Fed(np.stack(inputs), np.stack(labels), held, held_labels, len(splits[0].train.label_names))


def _front(inputs: _Inputs, model: Model) -> _Inputs:
    if model.front:
        drawn = np.random.default_rng(0).standard_normal((inputs.shape[1], model.front)) / math.sqrt(inputs.shape[1])
        inputs = np.tanh(inputs @ drawn.astype(np.float32))
    return np.concatenate([inputs, np.ones((len(inputs), 1), dtype=np.float32)], axis=1)


def summed(updates: _Floats, task: TaskSettings) -> npt.NDArray[np.int64]:
    """The sum of what devices would send: each clipped, rounded, and no longer than the task's norm as integers."""
    norms = np.sqrt((updates * updates).sum(axis=1))
    change = updates * np.minimum(1, float(task.max_norm or 1) / np.maximum(norms, 1e-300))[:, None] * 10**task.decimals
    whole = np.rint(change).astype(np.int64)
    for place in np.flatnonzero((whole * whole).sum(axis=1) > task.length_units**2):
        whole[place] = integers_within(change[place], task.length_units)
    found: npt.NDArray[np.int64] = whole.sum(axis=0)
    return found


def drawn_noise(task: TaskSettings, servers: int, *names: object) -> Noise:
    """Of so many servers: one, trusted, would add what each of both does."""

    def draw(place: int, count: int) -> npt.NDArray[np.int64]:
        if task.sigma is None:
            return np.zeros(count, dtype=np.int64)
        seed = hashlib.sha256(repr((*names, place)).encode()).digest()
        each = discrete_gaussian(seed, b"experiment", task.sigma, servers * count)
        found: npt.NDArray[np.int64] = each.reshape(servers, count).sum(axis=0)
        return found

    return draw


def models_of(fed: Fed, settings: PrivateSettings, task: TaskSettings, noise: Noise) -> list[_Floats]:
    """The model before each round, and after the last."""
    unit, step = 10**task.decimals, PlainStep.of(task)
    found = [np.zeros(fed.parameters)]
    for place in range(1, task.rounds + 1):
        total = summed(fed.updates(found[-1], settings.steps, settings.rate), task) + noise(place, fed.parameters)
        average = (np.rint(found[-1] * unit) + np.rint(total / len(fed.inputs))) / unit
        found.append(np.rint(step.next_model(found[-1], average) * unit) / unit)
    return found


def _points(settings: PrivateSettings) -> Points:
    points: dict[Hashable, ExperimentPoint] = {}
    for name in MODELS:
        for people in settings.crowds:
            facts: Record = {key: value for key, value in vars(settings).items() if key not in ("crowds", "epsilons")}
            facts |= {"model": name, "people": people, "epsilons": str(settings.epsilons)}
            points[name, people] = ExperimentPoint("private run", facts, partial(_measure, settings, name, people))
    return points


def _measure(settings: PrivateSettings, name: str, people: int, bench: Bench) -> Records:
    """Without noise, with that of both servers, and, of the first model, with that of one."""
    source, rows = _source(bench), list[Record]()
    for seed in range(settings.seeds if people <= _FEW else 1):
        fed = fed_crowd(source, MODELS[name], people, settings.windows, seed)
        for epsilon in (None, *settings.epsilons):
            task = settings.task(people, epsilon)
            for servers in (2, 1) if epsilon and name == _COMPARED else (2,):
                models = models_of(fed, settings, task, drawn_noise(task, servers, name, people, epsilon, seed))
                row: Record = {"model": name, "parameters": fed.parameters, "people": people}
                row |= {"made": people != len(source.people), "epsilon": epsilon, "servers": servers if epsilon else 0}
                length = math.sqrt(servers * fed.parameters) * task.noise_ratio / people
                rows.append(row | {"noise": length, "seed": seed, "accuracy": fed.accuracy(models[-1])})
    return rows


def _source(bench: Bench) -> Source:
    if bench.data is None:
        raise DataMissing("this experiment trains on a data set: name one with --data")
    return bench.data


def _means(rows: Records) -> Records:
    """Over the seeds, with what noise costs."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("model", "parameters", "people", "made", "epsilon", "servers", "noise"))
        groups.setdefault(key, []).append(number(row, "accuracy"))
    means = {key: statistics.fmean(values) for key, values in groups.items()}
    without = {key[:3]: mean for key, mean in means.items() if key[4] is None}
    names = ("model", "parameters", "people", "made", "epsilon", "servers", "noise")
    return [
        dict(zip(names, key, strict=True)) | {"accuracy": mean, "cost": without[key[:3]] - mean}
        for key, mean in means.items()
    ]


def enough(means: Records, name: str, epsilon: float) -> int | None:
    """The fewest people tried from which on noise costs less than three points."""
    chosen = [row for row in means if (row["model"], row["epsilon"], row["servers"]) == (name, epsilon, 2)]
    found = None
    for row in sorted(chosen, key=lambda row: -number(row, "people")):
        if number(row, "cost") >= _COST:
            break
        found = int(number(row, "people"))
    return found


def _present(settings: PrivateSettings, found: Found) -> Part:
    rows = joined(found.values())
    means = _means(rows)
    table = table_of(
        "Accuracy by model, people and epsilon",
        means,
        {"model": "model", "parameters": "parameters", "people": "people", "made": "made", "epsilon": "epsilon"}
        | {"servers": "servers", "noise / longest update": "noise", "accuracy": "accuracy", "cost": "cost"},
        ".3f",
    )
    needed: Records = [
        {"model": name, "epsilon": epsilon, "people": enough(means, name, epsilon)}
        for name in MODELS
        for epsilon in settings.epsilons
    ]
    points = table_of("People from which on noise costs less than three points", needed, ("model", "epsilon", "people"))
    picture = Picture("privacy", "Accuracy against people, by epsilon", partial(_draw, settings, means), (11.0, 4.0))
    smallest = min(MODELS, key=lambda name: next(number(row, "parameters") for row in means if row["model"] == name))
    return Part(rows, (points, table), (picture,), remarks("privacy", settings, smallest=smallest))


def _draw(settings: PrivateSettings, means: Records, canvas: Canvas) -> None:
    for axes, name in zip(panels(canvas, len(MODELS)), MODELS, strict=True):
        series = {}
        for epsilon, servers in [(None, 0), *((each, 2) for each in settings.epsilons), (1.0, 1)]:
            chosen = [r for r in means if (r["model"], r["epsilon"], r["servers"]) == (name, epsilon, servers)]
            label = "no noise" if epsilon is None else f"epsilon {epsilon:g}" + (", one server" if servers == 1 else "")
            if chosen:
                crowds, scores = ([number(r, what) for r in chosen] for what in ("people", "accuracy"))
                series[label] = Series(crowds, scores, style="s:" if servers == 1 else "o-")
        count = next(int(number(r, "parameters")) for r in means if r["model"] == name)
        lines(axes, series, title=f"{name}: {count} parameters", xlabel="people", ylabel="accuracy", xscale="log")


def _with_data(settings: Any, data: Any) -> Any:  # noqa: ANN401 -- as the options of other experiments
    return replace(settings, data=data.label)


PRIVACY = Experiment(
    "privacy",
    "Differential privacy: what noise costs",
    _points,
    _present,
    PrivateSettings(),
    PrivateSettings(crowds=(36, 360), seeds=1),
    options={"data": _with_data, "rounds": lambda settings, rounds: replace(settings, rounds=rounds)},
)


@dataclass(frozen=True)
class MemberSettings(PrivateSettings):
    """Few people and few rounds: an attacker's best case."""

    crowds: tuple[int, ...] = (10,)
    epsilons: tuple[float, ...] = (8.0, 2.0, 1.0)
    rounds: int = 3
    shadows: int = 200  # of each case, for each person that is attacked
    victims: int = 6
    real: int = 20  # tasks of each case, through the protocol, for each of them


def _member_points(settings: MemberSettings) -> Points:
    facts: Record = {key: str(value) if isinstance(value, tuple) else value for key, value in vars(settings).items()}
    return {
        epsilon: ExperimentPoint(
            "membership", facts | {"epsilon": epsilon}, partial(_attack_members, settings, epsilon)
        )
        for epsilon in (None, *settings.epsilons)
    }


def _attack_members(settings: MemberSettings, epsilon: float | None, bench: Bench) -> Records:
    source = _source(bench)
    rows = list[Record]()
    people = settings.crowds[0]
    task = _plain_averages(settings.task(people, epsilon))
    for victim in range(settings.victims):
        pool = fed_crowd(source, MODELS["motion"], len(source.people), settings.windows, victim)
        known = []
        for case in (False, True):
            order = np.random.default_rng([victim, case])
            shadows = [
                _score(_crowd_of(pool, victim, people, case, order), pool, victim, settings, task, (case, turn))
                for turn in range(settings.shadows)
            ]
            known.append((statistics.fmean(shadows), max(statistics.stdev(shadows), 1e-9)))
        for case in (False, True):
            order = np.random.default_rng([victim, case, 1])
            for _ in range(settings.real):
                score = _real_score(_crowd_of(pool, victim, people, case, order), pool, victim, settings, task, bench)
                away, here = (-(((score - mean) / width) ** 2) / 2 - math.log(width) for mean, width in known)
                rows.append({"epsilon": epsilon, "victim": victim, "in": case, "ratio": here - away})
    return rows


def _plain_averages(task: TaskSettings) -> TaskSettings:
    """Plain averages: a server step is computed from them, and tells nothing more."""
    return TaskSettings.of(**{**task.model_dump(exclude_none=True), "server_step": "none"})


def _crowd_of(pool: Fed, victim: int, people: int, takes_part: bool, order: np.random.Generator) -> Fed:
    """Others drawn anew, and the victim or one more of them."""
    others = [place for place in range(len(pool.inputs)) if place != victim]
    drawn = order.choice(others, people - takes_part, replace=False).tolist() + [victim] * takes_part
    return replace(pool, inputs=pool.inputs[drawn], labels=pool.labels[drawn])


def _along(models: Sequence[_Floats], pool: Fed, victim: int, settings: MemberSettings, task: TaskSettings) -> float:
    """How much of the victim's own updates, which whoever holds the windows can compute, is in what was published."""
    one = replace(pool, inputs=pool.inputs[[victim]], labels=pool.labels[[victim]])
    total = 0.0
    for before, after in pairwise(models):
        own = summed(one.updates(before, settings.steps, settings.rate), task)
        total += float((after - before) @ own / max(1.0, float(np.linalg.norm(own))))
    return total


def _score(fed: Fed, pool: Fed, victim: int, settings: MemberSettings, task: TaskSettings, names: object) -> float:
    models = models_of(fed, settings, task, drawn_noise(task, 2, victim, names))
    return _along(models, pool, victim, settings, task)


def _real_score(fed: Fed, pool: Fed, victim: int, settings: MemberSettings, task: TaskSettings, bench: Bench) -> float:
    """Of averages that came out of the protocol."""
    tools = Tools(bench.backend, observer=Silent())
    parties = Parties(TaskSpec("experiment", task, fed.parameters), tools, initial=np.zeros(fed.parameters))
    models = [np.zeros(fed.parameters)]
    for place in range(1, task.rounds + 1):
        updates = models[-1] + fed.updates(models[-1], settings.steps, settings.rate)
        uploads = parties.encrypt({f"p{who:02}": (row, 1) for who, row in enumerate(updates)}, place)
        final = place == task.rounds
        played = parties.play(place, uploads, final=final, readers=None)
        if not final:  # the requester reads every round, to follow to the last
            parties.read(played.publication, place, [], final=True)
        models.append(played.average.model)
    return _along(models, pool, victim, settings, task)


def _present_members(settings: MemberSettings, found: Found) -> Part:
    rows, records = joined(found.values()), list[Record]()
    for epsilon in (None, *settings.epsilons):
        chosen = [row for row in rows if row["epsilon"] == epsilon]
        right, wrong = (
            statistics.fmean(number(row, "ratio") > 0 for row in chosen if row["in"] == case) for case in (True, False)
        )
        tries = len(chosen) // 2
        error = math.sqrt((right * (1 - right) + wrong * (1 - wrong)) / tries)
        task = settings.task(settings.crowds[0], epsilon)
        # Of both servers' noise; an update that another one takes the place of is up to twice as far from it as from zero.
        mu = 2 * math.sqrt(task.rounds / 2) / task.noise_ratio if epsilon else math.inf
        bound = statistics.NormalDist().cdf(mu / 2) * 2 - 1 if epsilon else 1.0
        row: Record = {"epsilon": "no noise" if epsilon is None else f"{epsilon:g}", "found": right, "wrongly": wrong}
        records.append(row | {"advantage": right - wrong, "error": error, "at most": bound, "tries": 2 * tries})
    columns = {"epsilon": "epsilon", "found": "found", "suspected wrongly": "wrongly", "advantage": "advantage"}
    columns |= {"standard error": "error", "by theory at most": "at most", "real tasks": "tries"}
    table = table_of("Membership: how often one is told to be in who is, and who is not", records, columns, ".2f")
    picture = Picture("membership", "An attacker's advantage, by epsilon", partial(_draw_members, records), (5.5, 3.6))
    return Part(records, (table,), (picture,), remarks("membership", settings))


def _draw_members(records: Records, canvas: Canvas) -> None:
    places = list(range(len(records)))
    advantage, error = ([number(row, name) for row in records] for name in ("advantage", "error"))
    found = Series(places, advantage, error, style="o")
    bound = Series(places, [number(row, "at most") for row in records], style="_")
    (axes,) = panels(canvas, 1)
    lines(axes, {"measured, real rounds": found, "at most, by theory": bound}, ylabel="advantage", xlabel="epsilon")
    axes.set_xticks(places, [str(row["epsilon"]) for row in records])


MEMBERSHIP = Experiment(
    "membership",
    "Membership: what an attacker learns from averages",
    _member_points,
    _present_members,
    MemberSettings(),
    MemberSettings(shadows=40, victims=2, real=2),
    options={"data": _with_data},
)
