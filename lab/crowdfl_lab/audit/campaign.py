"""What the audits of cheating and of poison have in common: people drawn from a data set, who all train at once, and the rule
that compares them with a requester's reference, in the clear.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.errors import DataMissing
from crowdfl.learning.datasets.data import Cut, Labels, Source
from crowdfl.learning.datasets.npz_files import MotionSense, WindowFile
from crowdfl.learning.datasets.supplied import Synthetic
from crowdfl.learning.features import Inputs, features
from crowdfl.learning.models.learner import Learner, SoftmaxLearner, Training, batches
from crowdfl.learning.models.torch_models import TorchLearner, mlp
from crowdfl.protocols.shares.reference import LONGEST, OPPOSED
from crowdfl.protocols.shares.shape import widths_of
from crowdfl.settings import TaskSettings
from crowdfl_lab.wisdm_set import SET_FILE

Flat = npt.NDArray[np.float64]
_Numbers = npt.NDArray[Any]  # of float32 for networks, as the learners have it
FILES: Mapping[str, str] = MappingProxyType({"WISDM": SET_FILE, "MotionSense": "motionsense_24subj_acc50hz.npz"})
MADE_UP = "made-up people"
FEATURES = {"spectral features": "motion", "raw windows": "flat"}
LANES = 4096
_APART = Cut(length=100, step=100, held_out=0.3, gap=100)  # MotionSense, two seconds each, none twice
_SECONDS = Cut(length=16, step=16, held_out=0.3, gap=16, hertz=8.0)  # of made-up people
_UNIT = 10**6


class CampaignSettings(Protocol):
    """Of how people train; `hidden` 0: softmax regression."""

    @property
    def hidden(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def rate(self) -> float: ...
    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Pupil:
    """What somebody trains on. The name decides the order of the samples."""

    name: str
    inputs: Inputs = field(repr=False)
    labels: Labels = field(repr=False)


@dataclass(frozen=True, eq=False)
class CrowdData:
    """Everyone of a data set under one kind of features, and all windows that nobody trains on."""

    source: str
    inputs: str
    pupils: tuple[Pupil, ...]
    label_count: int
    held_out: Pupil
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.source}, {self.inputs}"

    @classmethod
    def of(cls, name: str, source: Source, inputs: str) -> "CrowdData":
        kind, people = FEATURES[inputs], [source.load_person(index) for index in range(len(source.people))]
        pupils = tuple(Pupil(p.train.name, features(kind, p.train.windows), p.train.labels) for p in people)
        windows, labels = ([getattr(p.held_out, part) for p in people] for part in ("windows", "labels"))
        held_out = Pupil("all", features(kind, np.concatenate(windows)), np.concatenate(labels))
        return cls(name, inputs, pupils, len(source.label_names), held_out, source.notes)


def load_sources(folder: Path | None, people: int, seed: int) -> dict[str, Source]:
    """Both data sets; a file that is not there is an error. Without a folder, so many made-up people."""
    if folder is None:
        return {MADE_UP: Synthetic(people, seed=seed, cut=_SECONDS)}
    if missing := missing_files(folder):
        raise DataMissing(f"{', '.join(missing)} not found in {folder}: name the folder with --data")
    wisdm, motion = (folder / name for name in FILES.values())
    return {"WISDM": WindowFile(wisdm), "MotionSense": MotionSense(motion, _APART)}


def missing_files(folder: Path) -> list[str]:
    return [file for file in FILES.values() if not (folder / file).exists()]


def scaled(change: Flat, norm: float) -> Flat:
    """The same direction with this norm; zero stays zero."""
    length = float(np.linalg.norm(change))
    return change * (norm / length) if length > 0 else change


def bounded(changes: Iterable[Flat], bound: float) -> Flat:
    """A phone scales its update down to the bound; an upload that is larger would be left out."""
    return np.array([scaled(change, min(bound, float(np.linalg.norm(change)))) for change in changes])


class Campaign:
    """One draw of people, honest ones first, and the norm bound that a trial of them suggests: twice the largest update."""

    def __init__(self, crowd: CrowdData, settings: CampaignSettings, draw: int, people: int, honest: int) -> None:
        if len(crowd.pupils) < people:
            raise DataMissing(f"{crowd.source} has {len(crowd.pupils)} people; {people} are needed")
        order = np.random.default_rng([settings.seed, draw]).permutation(len(crowd.pupils))
        self.drawn = [crowd.pupils[place] for place in order]
        self.crowd, self._hidden = crowd, settings.hidden
        inputs = crowd.held_out.inputs.shape[1]
        self.learner: Learner = SoftmaxLearner(inputs, crowd.label_count)
        if settings.hidden:
            self.learner = TorchLearner(inputs, mlp([settings.hidden], crowd.label_count), seed=settings.seed)
        self.start = self.learner.shape.flat(self.learner.weights())
        self.training = Training(settings.epochs, settings.batch, settings.rate, settings.seed)
        self.first = self.trained(self.start, 1, self.drawn[:honest])
        self.bound = 2 * max(float(np.linalg.norm(change)) for change in self.first)

    def trained(self, base: Flat, number: int, pupils: Sequence[Pupil]) -> Flat:
        """By how much each one's training of a round changes the base, as its learner would, all of them at once."""
        return self.taught([Lesson(base, number, pupil) for pupil in pupils])

    def taught(self, lessons: Sequence["Lesson"]) -> Flat:
        rules = [self.training.at(lesson.number, lesson.pupil.name) for lesson in lessons]
        return _teach(lessons, rules, self._hidden, self.crowd.label_count)

    def accuracy(self, model: Flat) -> float:
        held_out = self.crowd.held_out
        return float((self.classified(model, held_out.inputs) == held_out.labels).mean())

    def classified(self, model: Flat, inputs: Inputs) -> Labels:
        self.learner.load(self.learner.shape.arrays(model))
        return np.asarray(np.argmax(self.learner.predict(inputs), axis=1))


@dataclass(frozen=True, eq=False)
class Lesson:
    """That somebody trains in a round, from this base."""

    base: Flat = field(repr=False)
    number: int
    pupil: Pupil


def _teach(lessons: Sequence[Lesson], rules: Sequence[Training], hidden: int, classes: int) -> Flat:
    """By how much `SoftmaxLearner`, or a `TorchLearner` with one hidden layer, would change each base.

    One step of everyone is a few products of stacks of matrices: a learner for each would spend its time between them.
    """
    pupils = {id(lesson.pupil): lesson.pupil for lesson in lessons}
    starts = dict(zip(pupils, np.cumsum([0, *(len(one.labels) for one in pupils.values())]).tolist(), strict=False))
    plan = cache(_plan)
    plans = [plan(len(one.pupil.labels), rule) for one, rule in zip(lessons, rules, strict=True)]
    order = sorted(range(len(lessons)), key=lambda place: -len(plans[place]))  # whoever still trains comes first
    lengths = np.array([len(plans[place]) for place in order])
    inputs, labels = (np.concatenate([getattr(one, part) for one in pupils.values()]) for part in ("inputs", "labels"))
    stack = _Stack(np.array([lessons[place].base for place in order]), inputs.shape[1], hidden, classes)
    inputs, wanted = inputs.astype(stack.kind), np.eye(classes, dtype=stack.kind)[labels]
    offsets = np.array([starts[id(lessons[place].pupil)] for place in order])[:, np.newaxis]
    for step, active in enumerate((lengths > np.arange(lengths[0])[:, np.newaxis]).sum(axis=1)):
        batch = np.array([plans[place][step] for place in order[:active]])
        is_in = (batch >= 0)[..., np.newaxis]
        parts = is_in / is_in.sum(axis=1, keepdims=True).astype(stack.kind)  # what fills a batch up weighs nothing
        chosen = np.maximum(batch, 0) + offsets[:active]
        stack.step(inputs[chosen], wanted[chosen], parts, rules[0].rate)
    changes = np.empty(stack.all.shape)
    changes[order] = stack.all
    return np.asarray(changes - np.array([lesson.base for lesson in lessons]))


def _plan(samples: int, rule: Training) -> npt.NDArray[np.int64]:
    """The batches as rows; a short one is filled up with -1."""
    drawn = list(batches(samples, rule))
    rows = np.full((len(drawn), rule.batch), -1)
    for row, batch in zip(rows, drawn, strict=True):
        row[: len(batch)] = batch
    return rows


class _Stack:
    """Everyone's weights as rows, and layers as views of them: (people, inputs, outputs) and (people, 1, outputs)."""

    def __init__(self, bases: Flat, inputs: int, hidden: int, classes: int) -> None:
        self.kind = np.float32 if hidden else np.float64  # as the learners
        self.all: _Numbers = bases.astype(self.kind)
        self._grads, self._means, self._squares = (np.zeros_like(self.all) for _ in range(3))
        self._steps = 0
        sides = [(inputs, hidden), (hidden, classes)] if hidden else [(inputs, classes)]
        self._layers, self._slopes = (
            self._views(whole, sides, turned=bool(hidden)) for whole in (self.all, self._grads)
        )

    def _views(
        self, whole: _Numbers, sides: Sequence[tuple[int, int]], *, turned: bool
    ) -> list[tuple[_Numbers, _Numbers]]:
        at, found = 0, []
        for wide, high in sides:
            flat = whole[:, at : at + wide * high]
            matrix = flat.reshape(-1, high, wide).transpose(0, 2, 1) if turned else flat.reshape(-1, wide, high)
            at += wide * high + high
            found.append((matrix, whole[:, np.newaxis, at - high : at]))
        return found

    def step(self, rows: _Numbers, wanted: _Numbers, parts: _Numbers, rate: float) -> None:
        """Of the first ones, as many as there are rows: plain gradient descent for softmax, Adam for a network."""
        active, through = len(rows), [rows]
        for matrix, bias in self._layers:
            scores = through[-1] @ matrix[:active] + bias[:active]
            through.append(np.maximum(scores, 0))
        scores -= scores.max(axis=2, keepdims=True)
        powers = np.exp(scores)
        error = (powers / powers.sum(axis=2, keepdims=True) - wanted) * parts
        for place in reversed(range(len(self._layers))):
            matrix, bias = self._slopes[place]
            np.matmul(through[place].transpose(0, 2, 1), error, out=matrix[:active])
            bias[:active] = error.sum(axis=1, keepdims=True)
            if place:
                error = (error @ self._layers[place][0][:active].transpose(0, 2, 1)) * (through[place] > 0)
        self._move(active, rate)

    def _move(self, active: int, rate: float) -> None:
        grads, mean, square = self._grads[:active], self._means[:active], self._squares[:active]
        if self.kind == np.float64:
            self.all[:active] -= rate * grads
            return
        self._steps += 1
        mean += (grads - mean) * 0.1
        square *= 0.999
        square += 0.001 * grads * grads
        spread = np.sqrt(square) / (1 - 0.999**self._steps) ** 0.5 + 1e-8
        self.all[:active] -= rate / (1 - 0.9**self._steps) * mean / spread


@dataclass
class Judge:
    """The rule of `protocols.shares.reference` in the clear; sums follow the rounds that accepted."""

    bound: float
    parameters: int
    lanes: int = LANES
    longest: float = LONGEST
    sums: dict[int, float] = field(default_factory=dict)

    def accepted(self, updates: Flat, reference: Flat, coins: bytes) -> list[int]:
        """The places of those who are in, by the sketch of these coins."""
        task = {"weighting": "equal", "max_norm": self.bound, "clip": self.bound, "lanes": self.lanes}
        widths = widths_of(TaskSettings.of(reference=True, **task), self.parameters)
        sketch = Sketch(coins, self.parameters, widths.rows, widths.buckets)
        whole = np.rint(np.vstack([updates, reference[None]]) * _UNIT).astype(np.int64)
        *lanes, c = sketch.lanes(whole.view(np.uint64)).view(np.int64).astype(np.float64)
        found = list[int]()
        for place, lane in enumerate(lanes):
            product, long = float(lane @ c), float(lane @ lane)
            opposed = product < 0 and product**2 > float(OPPOSED) ** 2 * long * float(c @ c)
            if not opposed and self.sums.get(place, 0) + product > 0 and long <= self.longest**2 * float(c @ c):
                found.append(place)
                self.sums[place] = self.sums.get(place, 0) + product
        return found
