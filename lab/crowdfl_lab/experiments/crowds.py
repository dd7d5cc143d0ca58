"""Who takes part in a run: everyone in a data set, their windows by real user or dealt at random, and how they train.

A data set is what `--data` says: a folder with the paper's set in it, an .npz file, or a data spec of several people. Results
are kept under a label that names the contents, never the place: the kind, the file's name and a hash of its bytes.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.errors import DataMissing, SettingsError
from crowdfl.learning.datasets.data import Labels, Person, Source, Split
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl.learning.datasets.sources import open_crowd
from crowdfl.learning.evaluation import Scores, scores
from crowdfl.learning.features import Inputs, features, scaled
from crowdfl.learning.models.learner import Training
from crowdfl.learning.models.torch_models import TorchLearner, mlp
from crowdfl_lab.experiments.experiment import Bench
from crowdfl_lab.wisdm_set import HOW_TO_GET, SET_FILE

SPLITS = ("user", "random")
_FEWEST = 3


@dataclass(frozen=True)
class NamedData:
    """A data set, and what it is called in results."""

    label: str
    source: Source


def named_data(text: str) -> NamedData:
    """What `text` names, or in one line what to download and which command to run."""
    path = Path(text).expanduser()
    if path.is_dir() or ":" not in text:
        file = path if path.suffix == ".npz" else path / SET_FILE
        if not file.exists():
            raise DataMissing(f"there is no {file}: {HOW_TO_GET}")
        return NamedData(_label("npz", file), WindowFile(file))
    kind, _, rest = text.partition(":")
    source, file = open_crowd(text), Path(rest).expanduser()
    if len(source.people) < _FEWEST:
        raise SettingsError(f"--data {text} has {len(source.people)} people; experiments need at least {_FEWEST}")
    return NamedData(_label(kind, file) if rest else kind, source)


def _label(kind: str, path: Path) -> str:
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return f"{kind}:{path.name} {digest.hexdigest()[:16]}"


@dataclass(frozen=True)
class LearnSettings:
    """The paper's settings of a run: section 8, "Configuration". `data` names the data set and its contents, no path."""

    hidden: int = 1000
    epochs: int = 30
    batch: int = 50
    rate: float = 0.001
    rounds: int = 5
    people: int = 36
    data: str = "the paper's"
    features: str = "flat"
    scale_inputs: bool = False
    split: str = "user"
    seed: int = 0
    server_step: str = "none"
    server_rate: float = 1.0
    server_momentum: float = 0.9
    server_squares: float = 0.99
    server_floor: float = 0.001

    @property
    def step(self) -> dict[str, Any]:
        """The task's settings of the server step."""
        return {name: value for name, value in vars(self).items() if name.startswith("server_")}


@dataclass(frozen=True, eq=False)
class Fed:
    """What one person's network is fed: inputs and labels to train on, and those held out."""

    name: str
    inputs: Inputs
    labels: Labels
    held_inputs: Inputs
    held_labels: Labels


@dataclass(frozen=True, eq=False)
class LearningCrowd:
    """The people of a run, the windows that all of them are tested on, and a learner at its first weights."""

    settings: LearnSettings
    splits: Sequence[Split]

    @property
    def names(self) -> list[str]:
        return [split.train.name for split in self.splits]

    @property
    def label_names(self) -> tuple[str, ...]:
        return self.splits[0].train.label_names

    @cached_property
    def fed(self) -> list[Fed]:
        """Each person's windows as inputs, scaled by their own training windows where the settings say so."""
        found = []
        for split in self.splits:
            sides = split.train, split.held_out
            train, held_out = (features(self.settings.features, side.windows) for side in sides)
            if self.settings.scale_inputs:
                train, held_out = scaled(train, train), scaled(held_out, train)
            found.append(Fed(split.train.name, train, split.train.labels, held_out, split.held_out.labels))
        return found

    def everyone(self) -> tuple[Inputs, Labels]:
        """All that there is to train on, as if it had been collected."""
        return np.concatenate([one.inputs for one in self.fed]), np.concatenate([one.labels for one in self.fed])

    def learner(self) -> TorchLearner:
        layers = mlp([self.settings.hidden], len(self.label_names))
        return TorchLearner(self.fed[0].inputs.shape[1], layers, seed=self.settings.seed)

    def training(self) -> Training:
        s = self.settings
        return Training(epochs=s.epochs, batch=s.batch, rate=s.rate, seed=s.seed)

    def score(self, learner: TorchLearner) -> Scores:
        """On what is held out of everyone's windows."""
        labels = np.concatenate([one.held_labels for one in self.fed])
        predicted = learner.predict(np.concatenate([one.held_inputs for one in self.fed])).argmax(axis=1)
        return scores(labels, predicted, len(self.label_names))


def dealt_at_random(people: Sequence[Split], seed: int) -> list[Split]:
    """As many people as before, the windows dealt at random; what was held out stays held out.

    Everyone gets as many as the person in their place had. The paper does not say whose windows are whose.
    """
    order = np.random.default_rng(seed)
    train = _deal([split.train for split in people], order)
    held_out = _deal([split.held_out for split in people], order)
    return [Split(*sides) for sides in zip(train, held_out, strict=True)]


def _deal(people: Sequence[Person], order: np.random.Generator) -> list[Person]:
    windows = np.concatenate([person.windows for person in people])
    labels = np.concatenate([person.labels for person in people])
    ends = np.cumsum([len(person) for person in people])[:-1]
    hands = enumerate(np.split(order.permutation(len(labels)), ends), start=1)
    return [Person(f"dealt-{n:02}", windows[hand], labels[hand], people[0].label_names) for n, hand in hands]


def load_crowd(settings: LearnSettings, bench: Bench) -> LearningCrowd:
    source = bench.data
    if source is None:
        raise DataMissing("this experiment trains on a data set: name one with --data")
    if len(source.people) < settings.people:
        raise SettingsError(f"{settings.people} people are asked for, the data set has {len(source.people)}")
    splits = [source.load_person(i) for i in range(settings.people)]
    if settings.split == "random":
        splits = dealt_at_random(splits, settings.seed)
    return LearningCrowd(settings, splits)
