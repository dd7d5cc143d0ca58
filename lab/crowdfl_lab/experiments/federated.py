"""Who takes part in a run: everyone in a data set, their windows by real user or dealt at random, and how they train.

A data set is what `--data` says: a folder with the paper's set in it, an .npz file, or a data spec of several people. Results
are kept under a label that names the contents, never the place: the kind, the file's name and a hash of its bytes.

Federated training round by round, in the clear and through a real run of any profile, by one loop; and who drops out.

Also the settings of an experiment that trains: which profiles its encrypted runs go through, and what `crowdfl reproduce` may
change of it. Each experiment lists the options that it uses, by name; another one is refused.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Progress
from crowdfl.errors import DataMissing, SettingsError
from crowdfl.learning.datasets.data import Labels, Person, Source, Split
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl.learning.datasets.sources import open_crowd
from crowdfl.learning.evaluation import Scores, scores
from crowdfl.learning.features import Inputs, features, scaled
from crowdfl.learning.models.layers import with_last
from crowdfl.learning.models.learner import Training
from crowdfl.learning.models.network import NetworkLearner
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.server_steps import PlainStep
from crowdfl.protocols.capabilities import FollowsModel
from crowdfl.protocols.exchange import Silent
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.protocols.round import AggregationRound
from crowdfl.settings import TaskSettings
from crowdfl.simulation.sides import Parties
from crowdfl_lab.experiments.experiment import Bench, ExperimentPoint, Record, Records
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

    def learner(self) -> NetworkLearner:
        layers = with_last([self.settings.hidden], len(self.label_names))
        return NetworkLearner(self.fed[0].inputs.shape[1], layers, seed=self.settings.seed)

    def training(self) -> Training:
        s = self.settings
        return Training(epochs=s.epochs, batch=s.batch, rate=s.rate, seed=s.seed)

    def score(self, learner: NetworkLearner) -> Scores:
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


Strategy = Literal["discard", "retransmit"]
Flat = npt.NDArray[np.float64]
Updates = Mapping[str, tuple[Flat, int]]  # each participant's trained weights in one row, and on how many samples
PROFILES = ("paper", "hardened", "shares")
_CHECKS = 1024  # lanes of `shares` where nothing is paid: its checks of uploads need some


@dataclass(frozen=True)
class Attendance:
    """Who drops out of a round, drawn anew in each; with `retransmit`, half of them come back in time.

    The same rate and seed drop the same people under both strategies.
    """

    names: Sequence[str]
    rate: float = 0.0
    strategy: Strategy = "discard"
    seed: int = 0

    def dropped(self, round_number: int) -> list[str]:
        generator = np.random.default_rng([self.seed, round_number])
        drawn = generator.choice(len(self.names), round(self.rate * len(self.names)), replace=False)
        return [self.names[i] for i in drawn]

    def late(self, round_number: int) -> list[str]:
        return self.dropped(round_number)[::2] if self.strategy == "retransmit" else []

    def lost(self, round_number: int) -> list[str]:
        dropped = self.dropped(round_number)
        return dropped[1::2] if self.strategy == "retransmit" else dropped


class Clear:
    """FedAvg in the clear (Eq. 2), which needs no model that does not arrive."""

    lost_train = False  # whether those whose models will be lost train at all
    steps = False  # whether its average has a server step applied already

    def average(self, number: int, updates: Updates, attendance: Attendance, *, final: bool) -> Flat:
        lost = set(attendance.lost(number))
        present = [update for who, update in updates.items() if who not in lost]
        return fedavg([weights for weights, _ in present], [samples for _, samples in present])


@dataclass(frozen=True)
class Keys:
    """Of an encrypted run: profile, key size, digits, and lanes for rewards (0: none; "paper" has exact distances)."""

    key_bits: int = 2048
    insecure_test_key: bool = False
    decimals: int = 6
    lanes: int = 0
    profile: str = "hardened"

    def __str__(self) -> str:
        if self.profile == "shares":
            return "no key"
        return "an insecure test key" if self.insecure_test_key else f"|N| = {self.key_bits}"

    def task(self, crowd: LearningCrowd, budget: str | None = None) -> TaskSettings:
        """The task that such a run is; with a budget, one that pays by the paper's rule in every round."""
        settings: dict[str, Any] = {
            "profile": self.profile,
            "max_participants": crowd.settings.people,
            "max_samples": max(len(split.train) for split in crowd.splits),
            "rounds": crowd.settings.rounds,
            "key_bits": self.key_bits,
            "lanes": self.lanes,
            "decimals": self.decimals,
            **crowd.settings.step,
        }
        if self.profile == "shares":
            settings |= {"lanes": self.lanes or _CHECKS, "pay": "distance" if budget else "none", "budget": budget}
        return TaskSettings(**settings)


class Encrypted:
    """A task with every party in this process: everyone encrypts; what the network loses or delays, SP does not see in time;
    participants read the average of each round, and the requester reads the last."""

    lost_train, steps = True, True

    def __init__(self, crowd: LearningCrowd, keys: Keys, bench: Bench, budget: str | None = None) -> None:
        self.task = keys.task(crowd, budget)
        learner = crowd.learner()
        spec = TaskSpec("experiment", self.task, learner.shape.parameters)
        tools = Tools(bench.backend, Progress(bench.progress), keys.insecure_test_key, observer=Silent())
        self.parties = Parties(spec, tools, initial=learner.shape.flat(learner.weights()))

    def average(self, number: int, updates: Updates, attendance: Attendance, *, final: bool) -> Flat:
        round_, _ = self.collect(number, updates, attendance)
        return self.read(self.parties.publish(round_, final=final), number, final=final)

    def read(self, publication: bytes, number: int, *, final: bool) -> Flat:
        """What the requester reads of the last round, and participants of the others; whoever follows the model reads all
        rounds: an update is relative to the model that its sender holds."""
        people = list(self.parties.people)
        if not isinstance(self.parties.requester, FollowsModel):
            return self.parties.read(publication, number, people[:1], final=final).model
        requesters = self.parties.read(publication, number, [], final=True)
        return (requesters if final else self.parties.read(publication, number, people)).model

    def collect(self, number: int, updates: Updates, attendance: Attendance) -> tuple[AggregationRound, list[str]]:
        """Everyone's upload on its way: most arrive, some are sent again later, some never arrive. Whose did, in order."""
        uploads = self.parties.encrypt(updates, number)
        dropped, late = set(attendance.dropped(number)), attendance.late(number)
        arrived = [who for who in uploads if who not in dropped] + [who for who in late if who in uploads]
        round_ = self.parties.open(number)
        for who in arrived:
            round_.collect({who: uploads[who]})
        return round_, arrived


def federated(crowd: LearningCrowd, aggregator: Clear | Encrypted, attendance: Attendance) -> Iterator[Scores]:
    """In each round everyone trains from the last average; the scores of each round's average."""
    learner, training = crowd.learner(), crowd.training()
    shape, model = learner.shape, learner.weights()
    step = PlainStep.of(TaskSettings(profile="shares", **crowd.settings.step))
    for number in range(1, crowd.settings.rounds + 1):
        updates = {}
        idle = set() if aggregator.lost_train else set(attendance.lost(number))
        for one in (one for one in crowd.fed if one.name not in idle):
            learner.load(model)
            used = learner.train(one.inputs, one.labels, training.at(number, one.name))
            updates[one.name] = shape.flat(learner.weights()), used
        final = number == crowd.settings.rounds
        average = aggregator.average(number, updates, attendance, final=final)
        model = shape.arrays(average if aggregator.steps else step.next_model(shape.flat(model), average))
        learner.load(model)
        yield crowd.score(learner)


def run_point(
    settings: LearnSettings, *, keys: Keys | None = None, rate: float = 0.0, strategy: Strategy = "discard"
) -> ExperimentPoint:
    facts: Record = dict(vars(settings)) | {"rate": rate, "strategy": strategy if rate else "discard"}
    if keys is not None:
        facts |= dict(vars(keys))

    def measure(bench: Bench) -> Records:
        crowd = load_crowd(settings, bench)
        attendance = Attendance(crowd.names, rate, strategy, settings.seed)
        aggregator = Clear() if keys is None else Encrypted(crowd, keys, bench)
        return [
            facts | {"round": number} | dict(vars(found))
            for number, found in enumerate(federated(crowd, aggregator, attendance), start=1)
        ]

    return ExperimentPoint("federated run" if keys is None else "encrypted run", facts, measure)


def baseline_point(settings: LearnSettings) -> ExperimentPoint:
    facts = dict(vars(settings))

    def measure(bench: Bench) -> Records:
        crowd = load_crowd(settings, bench)
        learner = crowd.learner()
        learner.train(*crowd.everyone(), crowd.training())
        return [facts | dict(vars(crowd.score(learner)))]

    return ExperimentPoint("central run", facts, measure)


@dataclass(frozen=True)
class ProfileRun:
    """The size of one profile's encrypted run: hidden units, and lanes where it pays (`paper` has exact distances)."""

    profile: str
    hidden: int
    lanes: int = 0


@dataclass(frozen=True)
class RunSettings:
    """Of an experiment that trains: how, and through which profiles besides in the clear."""

    learn: LearnSettings = field(default_factory=LearnSettings)
    runs: tuple[ProfileRun, ...] = ()
    profiles: tuple[str, ...] = ("hardened", "shares")
    keys: Keys = field(default_factory=Keys)

    @property
    def chosen(self) -> list[ProfileRun]:
        return [run for run in self.runs if run.profile in self.profiles]

    def keys_of(self, run: ProfileRun) -> Keys:
        return replace(self.keys, profile=run.profile, lanes=run.lanes)

    def with_learn(self, **changes: Any) -> Self:  # noqa: ANN401 -- as dataclasses.replace
        return replace(self, learn=replace(self.learn, **changes))

    def with_runs(self, **changes: Any) -> Self:  # noqa: ANN401
        return replace(self, runs=tuple(replace(run, **changes) for run in self.runs))


TRAINING: Mapping[str, Callable[[Any, Any], Any]] = {
    "rounds": lambda settings, rounds: settings.with_learn(rounds=rounds),
    "hidden": lambda settings, hidden: settings.with_learn(hidden=hidden).with_runs(hidden=hidden),
    "profile": lambda settings, profiles: replace(settings, profiles=profiles),
    "data": lambda settings, data: settings.with_learn(data=data.label, people=len(data.source.people)),
}
"""The options of every experiment that trains."""
