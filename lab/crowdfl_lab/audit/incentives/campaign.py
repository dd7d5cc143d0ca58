"""What people upload who want to be paid without the work, or for spoilt work. Each declares as many samples as it may.

A cheater knows what every participant knows: all averages so far, the task's norm bound, its own data. Those of a group also
share random numbers, so that they can agree on an upload.

Campaigns in the clear with people who cheat: honest people train on real data, cheaters upload what their cheat says.

All uploads enter the average, as they would in a campaign, and everyone goes on from there. No rule changes that: it decides
who is paid. That is why one campaign serves all rules.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMissing
from crowdfl.learning.datasets.data import Cut, Labels, Source
from crowdfl.learning.datasets.npz_files import MotionSense, WindowFile
from crowdfl.learning.datasets.supplied import Synthetic
from crowdfl.learning.features import Inputs, features
from crowdfl.learning.models.learner import Learner, SoftmaxLearner, Training
from crowdfl.learning.models.torch_models import TorchLearner, mlp
from crowdfl.learning.oracle import PlainStep, fedavg, updates_of
from crowdfl_lab.wisdm_set import SET_FILE

Flat = npt.NDArray[np.float64]
_FAINT = 0.01


@dataclass(frozen=True, eq=False)
class CheaterView:
    """What a cheater has when it makes its upload. `averages` ends with the base; `train` takes whether labels are flipped.

    In a task with a server step they are the models that rounds started from, and `last` is the last average.
    """

    averages: Sequence[Flat]
    bound: float
    own: np.random.Generator
    common: np.random.Generator
    train: Callable[[bool], Flat]
    last: Flat | None = None

    def step(self, ago: int) -> Flat:
        """By what an average differed from the one before; 1 is the last. Zero where there were not that many rounds."""
        if len(self.averages) <= ago:
            return np.zeros_like(self.averages[-1])
        return self.averages[-ago] - self.averages[-ago - 1]


@dataclass(frozen=True)
class Cheat:
    """A way to cheat: the change of the base that it uploads. `least` is the smallest group that it makes sense for."""

    name: str
    does: str
    change: Callable[[CheaterView], Flat]
    least: int = 1


def scaled(change: Flat, norm: float) -> Flat:
    """The same direction with this norm; zero stays zero."""
    length = float(np.linalg.norm(change))
    return change * (norm / length) if length > 0 else change


def _noise(generator: np.random.Generator, like: Flat, norm: float) -> Flat:
    return scaled(generator.normal(size=like.shape), norm)


def _noisy_replay(view: CheaterView) -> Flat:
    last = view.step(1)
    return last + _noise(view.own, last, float(np.linalg.norm(last)))


CHEATS = (
    Cheat("echo", "uploads the last average unchanged", lambda view: np.zeros_like(view.averages[-1])),
    Cheat("faint echo", "moves it by a hundredth of the last step of the average", lambda view: _FAINT * view.step(1)),
    Cheat("replay", "repeats the last step of the average", lambda view: view.step(1)),
    Cheat("older replay", "repeats the step before the last", lambda view: view.step(2)),
    Cheat("noisy replay", "repeats the last step with as much noise", _noisy_replay),
    Cheat("replay at the bound", "repeats the last step, as long as allowed", lambda v: scaled(v.step(1), v.bound)),
    Cheat("noise", "uploads noise as long as an honest update", lambda v: _noise(v.own, v.averages[-1], v.bound / 2)),
    Cheat("flipped labels", "trains on its data with the labels in reverse order", lambda view: view.train(True)),
    Cheat("boosting", "trains, and scales up as far as allowed", lambda view: scaled(view.train(False), view.bound)),
    Cheat(
        "collusion",
        "all upload one common noise, as long as allowed",
        lambda view: _noise(view.common, view.averages[-1], view.bound),
        least=2,
    ),
)
STEP_CHEATS = (  # without a server step the last average is the base, and this is an echo
    Cheat(
        "average again",
        "uploads the last average",
        lambda v: (v.averages[-1] if v.last is None else v.last) - v.averages[-1],
    ),
)

FILES: Mapping[str, str] = MappingProxyType({"WISDM": SET_FILE, "MotionSense": "motionsense_24subj_acc50hz.npz"})
MADE_UP = "made-up people"
SPECTRAL, RAW = "spectral features", "raw windows"
_FEATURES = {SPECTRAL: "motion", RAW: "flat"}
_APART = Cut(length=100, step=100, held_out=0.3, gap=100)  # MotionSense, two seconds each, none twice
_SECONDS = Cut(length=16, step=16, held_out=0.3, gap=16, hertz=8.0)  # of made-up people


@dataclass(frozen=True)
class IncentiveSettings:
    """Of all campaigns. `draws`: how often other people are drawn from the data set. `hidden` 0: softmax regression."""

    honest: int = 16
    groups: tuple[int, ...] = (1, 2, 4)
    rounds: int = 5
    draws: int = 3
    hidden: int = 0
    epochs: int = 5
    batch: int = 32
    rate: float = 0.05
    lanes: int = 4096
    seed: int = 0
    server_step: str = "none"
    server_rate: float = 1.0

    @classmethod
    def quick(cls) -> "IncentiveSettings":
        return cls(honest=6, groups=(1, 2), rounds=3, draws=1)

    @classmethod
    def network(cls) -> "IncentiveSettings":
        """One hidden layer, by torch; fewer draws, for it takes longer."""
        return cls(draws=1, hidden=64, epochs=10, rate=0.005)

    @property
    def cheats(self) -> tuple[Cheat, ...]:
        return CHEATS if self.server_step == "none" else (*CHEATS, *STEP_CHEATS)

    @property
    def people(self) -> int:
        """So many are drawn: cheaters have data, too, which some cheats use."""
        return self.honest + max(self.groups)


@dataclass(frozen=True, eq=False)
class Pupil:
    """A person's training data as a network is fed it."""

    name: str
    inputs: Inputs
    labels: Labels


@dataclass(frozen=True, eq=False)
class CrowdData:
    """Everyone of a data set under one kind of features."""

    source: str
    inputs: str
    pupils: tuple[Pupil, ...]
    label_count: int
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.source}, {self.inputs}"


@dataclass(frozen=True, eq=False)
class RoundUploads:
    """A round's updates D_i, cheaters last, with declared samples, and the sum of the round before (None in the first)."""

    updates: Flat
    samples: tuple[int, ...]
    previous_sum: Flat | None


def load_crowds(settings: IncentiveSettings, folder: Path | None) -> Iterator[CrowdData]:
    """Both data sets with both kinds of features. Without a folder, made-up people; a file that is not there is an error."""
    sources = {MADE_UP: _made_up(settings)} if folder is None else {name: _opened(name, folder) for name in FILES}
    for name, source in sources.items():
        yield from (_crowd(name, source, inputs) for inputs in (SPECTRAL, RAW))


def missing_files(folder: Path) -> list[str]:
    return [file for file in FILES.values() if not (folder / file).exists()]


def _made_up(settings: IncentiveSettings) -> Source:
    return Synthetic(settings.people, seed=settings.seed, cut=_SECONDS)


def _opened(name: str, folder: Path) -> Source:
    path = folder / FILES[name]
    if not path.exists():
        raise DataMissing(f"{path.name} was not found in {folder}: name its folder with --data")
    return WindowFile(path) if name == "WISDM" else MotionSense(path, _APART)


def _crowd(name: str, source: Source, inputs: str) -> CrowdData:
    people = [source.load_person(index).train for index in range(len(source.people))]
    pupils = tuple(Pupil(one.name, features(_FEATURES[inputs], one.windows), one.labels) for one in people)
    return CrowdData(name, inputs, pupils, len(source.label_names), source.notes)


class CheatedCampaign:
    """One draw of people, honest ones first, and the norm bound that a trial of them suggests: twice the largest update."""

    def __init__(self, crowd: CrowdData, settings: IncentiveSettings, draw: int) -> None:
        if len(crowd.pupils) < settings.people:
            raise DataMissing(f"{crowd.source} has {len(crowd.pupils)} people; {settings.people} are needed")
        self._settings, self._draw = settings, draw
        order = np.random.default_rng([settings.seed, draw]).permutation(len(crowd.pupils))[: settings.people]
        drawn = [crowd.pupils[place] for place in order]
        self._honest, self._cheaters = drawn[: settings.honest], drawn[settings.honest :]
        self._labels = crowd.label_count
        self._learner = _learner(crowd, settings)
        self._start = self._learner.shape.flat(self._learner.weights())
        self._training = Training(settings.epochs, settings.batch, settings.rate, settings.seed)
        # A trial, and at the same time everyone's first round, whoever cheats.
        self._first = [self._train(self._start, 1, one) for one in self._honest]
        self.bound = 2 * max(float(np.linalg.norm(change)) for change in self._first)

    def play(self, cheat: Cheat | None, group: int = 0) -> list[RoundUploads]:
        """Every round with the first `group` cheaters; none of them without a cheat."""
        averages, previous, rounds = [self._start], None, list[RoundUploads]()
        step, last = PlainStep(self._settings.server_step, self._settings.server_rate), self._start
        counts = [len(one.labels) for one in self._honest]
        samples = [*counts, *[max(counts)] * group]
        for number in range(1, self._settings.rounds + 1):
            models = self._models(averages, last, number, cheat, group)
            updates = updates_of(models, samples, averages[-1])
            rounds.append(RoundUploads(updates, tuple(samples), previous))
            previous = updates.sum(axis=0)
            last = fedavg(models, samples)
            averages.append(step.next_model(averages[-1], last))
        return rounds

    def _models(self, averages: Sequence[Flat], last: Flat, number: int, cheat: Cheat | None, group: int) -> list[Flat]:
        base = averages[-1]
        changes = list(self._first) if number == 1 else [self._train(base, number, one) for one in self._honest]
        if cheat is not None:
            changes += [cheat.change(self._view(averages, last, number, place)) for place in range(group)]
        # A phone scales its update down to the bound; an upload that is larger would be left out.
        return [base + scaled(change, min(self.bound, float(np.linalg.norm(change)))) for change in changes]

    def _view(self, averages: Sequence[Flat], last: Flat, number: int, place: int) -> CheaterView:
        seed = self._settings.seed, self._draw, number
        own, common = np.random.default_rng([*seed, place + 1]), np.random.default_rng([*seed, 0])
        one, base = self._cheaters[place], averages[-1]
        return CheaterView(
            averages, self.bound, own, common, lambda flip: self._train(base, number, one, flip=flip), last
        )

    def _train(self, base: Flat, number: int, one: Pupil, *, flip: bool = False) -> Flat:
        shape, labels = self._learner.shape, self._labels - 1 - one.labels if flip else one.labels
        self._learner.load(shape.arrays(base))
        self._learner.train(one.inputs, labels, self._training.at(number, one.name))
        return shape.flat(self._learner.weights()) - base


def _learner(crowd: CrowdData, settings: IncentiveSettings) -> Learner:
    inputs = crowd.pupils[0].inputs.shape[1]
    if not settings.hidden:
        return SoftmaxLearner(inputs, crowd.label_count)
    return TorchLearner(inputs, mlp([settings.hidden], crowd.label_count), seed=settings.seed)
