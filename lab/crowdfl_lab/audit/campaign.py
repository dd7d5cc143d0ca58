"""What the audits of cheating and of poison have in common: people drawn from a data set, who all train at once, and the rule
that compares them with a requester's reference, in the clear.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.errors import DataMissing
from crowdfl.learning.datasets.data import Cut, Labels, Source
from crowdfl.learning.datasets.motion_sense import MotionSense
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl.learning.datasets.supplied import Synthetic
from crowdfl.learning.features import Inputs, features
from crowdfl.learning.models.layers import with_last
from crowdfl.learning.models.learner import Learner, Training, batches
from crowdfl.learning.models.network import NetworkLearner
from crowdfl.learning.models.softmax import SoftmaxLearner
from crowdfl.protocols.shares.reference import LONGEST, OPPOSED
from crowdfl.protocols.shares.shape import widths_of
from crowdfl.settings import TaskSettings
from crowdfl_lab.wisdm_set import SET_FILE

Flat = npt.NDArray[np.float64]
FILES: Mapping[str, str] = MappingProxyType({"WISDM": SET_FILE, "MotionSense": "motionsense_24subj_acc50hz.npz"})
MADE_UP = "made-up people"
FEATURES = {"spectral features": "motion", "raw windows": "flat"}
LANES = 4096
_APART = Cut(length=100, step=100, held_out=0.3, gap=100)  # MotionSense, two seconds each, none twice
_SECONDS = Cut(length=16, step=16, held_out=0.3, gap=16, hertz=8.0)  # of made-up people
_UNIT = 10**6


@dataclass(frozen=True)
class CampaignSettings:
    """How many people there are, and how they train; `hidden` 0: softmax regression."""

    honest: int = 16
    reference: int = 4  # people whose data the requester has
    rounds: int = 5
    hidden: int = 0
    epochs: int = 5
    batch: int = 32
    rate: float = 0.05
    seed: int = 0


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
        kind = FEATURES[inputs]
        people = [source.load_person(index) for index in range(len(source.people))]
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

    def __init__(self, crowd: CrowdData, settings: CampaignSettings, draw: int, people: int) -> None:
        if len(crowd.pupils) < people:
            raise DataMissing(f"{crowd.source} has {len(crowd.pupils)} people; {people} are needed")
        order = np.random.default_rng([settings.seed, draw]).permutation(len(crowd.pupils))
        self.drawn = [crowd.pupils[place] for place in order]
        self.crowd, self._hidden = crowd, settings.hidden
        inputs = crowd.held_out.inputs.shape[1]
        self.learner: Learner = SoftmaxLearner(inputs, crowd.label_count)
        if settings.hidden:
            self.learner = NetworkLearner(inputs, with_last([settings.hidden], crowd.label_count), seed=settings.seed)
        self.start = self.learner.shape.flat(self.learner.weights())
        self.training = Training(settings.epochs, settings.batch, settings.rate, settings.seed)
        self.first = self.trained(self.start, 1, self.drawn[: settings.honest])
        self.bound = 2 * max(float(np.linalg.norm(change)) for change in self.first)

    def joined(self, start: int, count: int) -> Pupil:
        """The data of a few of those drawn, as the requester has it."""
        few = self.drawn[start : start + count]
        inputs, labels = (np.concatenate([getattr(one, part) for one in few]) for part in ("inputs", "labels"))
        return Pupil("reference", inputs, labels)

    def trained(self, base: Flat, number: int, pupils: Sequence[Pupil]) -> Flat:
        """By how much each one's training of a round changes the base, as its learner would, all of them at once."""
        return self.taught([Lesson(base, number, pupil) for pupil in pupils])

    def taught(self, lessons: Sequence["Lesson"]) -> Flat:
        """A learner for each would spend its time between small products: those with as many batches train together."""
        rules = [self.training.at(lesson.number, lesson.pupil.name) for lesson in lessons]
        groups = defaultdict[int, list[int]](list)
        for place, lesson in enumerate(lessons):
            groups[-(-len(lesson.pupil.labels) // self.training.batch)].append(place)
        changes = np.empty((len(lessons), len(self.start)))
        for places in groups.values():
            changes[places] = self._taught([lessons[place] for place in places], [rules[place] for place in places])
        return changes

    def _taught(self, lessons: Sequence["Lesson"], rules: Sequence[Training]) -> Flat:
        """By how much `SoftmaxLearner`, or a `NetworkLearner` with one hidden layer, would change each base."""
        import torch
        from torch.nn import functional

        bases = np.array([lesson.base for lesson in lessons])
        kind = torch.float32 if self._hidden else torch.float64
        arrays = zip(*map(self.learner.shape.arrays, bases), strict=True)
        own = [torch.tensor(np.stack(each), dtype=kind, requires_grad=True) for each in arrays]
        moved = torch.optim.Adam(own, self.training.rate) if self._hidden else torch.optim.SGD(own, self.training.rate)
        pupils = {id(lesson.pupil): lesson.pupil for lesson in lessons}
        starts = dict(zip(pupils, np.cumsum([0, *(len(one.labels) for one in pupils.values())]).tolist(), strict=False))
        inputs = torch.tensor(np.concatenate([one.inputs for one in pupils.values()]), dtype=kind)
        labels = torch.tensor(np.concatenate([one.labels for one in pupils.values()]), dtype=torch.int64)
        plan, offsets = cache(_plan), np.array([starts[id(lesson.pupil)] for lesson in lessons])[:, np.newaxis]
        plans = [plan(len(lesson.pupil.labels), rule) for lesson, rule in zip(lessons, rules, strict=True)]
        for batch in np.stack(plans, axis=1):
            is_in, chosen = torch.tensor(batch >= 0), np.maximum(batch, 0) + offsets
            scores = inputs[chosen]
            for place in range(0, len(own), 2):  # a matrix and its bias
                # torch has a row for each output; a product of turned matrices takes ten times as long
                matrix = own[place].mT.contiguous() if self._hidden else own[place]
                scores = (functional.relu(scores) if place else scores) @ matrix + own[place + 1][:, None]
            losses = functional.cross_entropy(scores.flatten(0, 1), labels[chosen].flatten(), reduction="none")
            moved.zero_grad()
            ((losses.view_as(is_in) * is_in).sum(dim=1) / is_in.sum(dim=1)).sum().backward()
            moved.step()
        after = torch.cat([each.detach().flatten(1) for each in own], dim=1)
        return np.asarray(after.numpy().astype(np.float64) - bases)

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


def _plan(samples: int, rule: Training) -> npt.NDArray[np.int64]:
    """The batches as rows; a short one is filled up with -1."""
    drawn = list(batches(samples, rule))
    rows = np.full((len(drawn), rule.batch), -1)
    for row, batch in zip(rows, drawn, strict=True):
        row[: len(batch)] = batch
    return rows


@dataclass
class Judge:
    """The rule of `protocols.shares.reference` in the clear; sums follow the rounds that accepted."""

    bound: float
    parameters: int
    lanes: int = LANES
    longest: float = float(LONGEST)
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
