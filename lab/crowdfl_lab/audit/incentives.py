"""`crowdfl audit incentives`: what people who cheat would earn under each rule of payment, on real data.

Campaigns in the clear: honest people train, cheaters upload what their cheat says, each declaring as many samples as anyone
has, or as many as the task allows. A cheater knows what every participant knows: all averages so far, the task's norm bound,
its own data. Those of a group also share random numbers, so that they can agree on an upload. All uploads enter the average, as
they would in a campaign, and everyone goes on from there. No rule of pay changes that: it decides who is paid. That is why one
campaign serves all rules but `reference`: equal pay of those whom a requester's reference leaves in the average.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np

from crowdfl.learning.oracle import count_weights, distance_weights, equal_weights, fedavg, rewards_from, updates_of
from crowdfl_lab.audit.campaign import (
    FEATURES,
    Campaign,
    CampaignSettings,
    CrowdData,
    Flat,
    Judge,
    Pupil,
    bounded,
    load_sources,
    scaled,
)
from crowdfl_lab.report.results import Result, ResultTable
from crowdfl_lab.timing import machine

TrainedOn = Literal["own data", "flipped labels", "one of each class", "random inputs"]
NOBODY = "nobody cheats"
_FAINT = 0.01


@dataclass(frozen=True, eq=False)
class CheaterView:
    """What a cheater has when it makes its upload. `averages` ends with the base; `train` takes what to train on."""

    averages: Sequence[Flat]
    bound: float
    own: np.random.Generator
    common: np.random.Generator
    train: Callable[[TrainedOn], Flat]

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
    declares_most: bool = False  # as many samples as the task allows


def _noise(generator: np.random.Generator, like: Flat, norm: float) -> Flat:
    return scaled(generator.normal(size=like.shape), norm)


def _noisy_replay(view: CheaterView) -> Flat:
    last = view.step(1)
    return last + _noise(view.own, last, float(np.linalg.norm(last)))


def _sleeper(view: CheaterView) -> Flat:
    return view.train("own data") if len(view.averages) == 1 else view.step(1)


def _disguised(view: CheaterView) -> Flat:
    """Fraboni et al. (2021): noise that starts as long as the first step of the average, and fades like honest updates."""
    rounds = len(view.averages)
    first = float(np.linalg.norm(view.averages[1] - view.averages[0])) if rounds > 1 else view.bound / 2
    return _noise(view.own, view.averages[-1], first / rounds)


CHEATS = (
    Cheat("echo", "uploads the last average unchanged", lambda view: np.zeros_like(view.averages[-1])),
    Cheat("faint echo", "moves it by a hundredth of the last step of the average", lambda view: _FAINT * view.step(1)),
    Cheat("replay", "repeats the last step of the average", lambda view: view.step(1)),
    Cheat("older replay", "repeats the step before the last", lambda view: view.step(2)),
    Cheat("noisy replay", "repeats the last step with as much noise", _noisy_replay),
    Cheat("replay at the bound", "repeats the last step, as long as allowed", lambda v: scaled(v.step(1), v.bound)),
    Cheat("noise", "uploads noise as long as an honest update", lambda v: _noise(v.own, v.averages[-1], v.bound / 2)),
    Cheat(
        "flipped labels",
        "trains on its data with the labels in reverse order",
        lambda view: view.train("flipped labels"),
    ),
    Cheat("boosting", "trains, and scales up as far as allowed", lambda v: scaled(v.train("own data"), v.bound)),
    Cheat(
        "collusion",
        "all upload one common noise, as long as allowed",
        lambda view: _noise(view.common, view.averages[-1], view.bound),
        least=2,
    ),
    Cheat("most samples", "trains, and declares `max_samples`", lambda v: v.train("own data"), declares_most=True),
    Cheat("one of each", "trains on one sample of each class that it has", lambda v: v.train("one of each class")),
    Cheat(
        "self-distillation", "trains on random inputs, labelled by the public model", lambda v: v.train("random inputs")
    ),
    Cheat("sleeper", "trains in the first round, then repeats the last step", _sleeper),
    Cheat("disguised free rider", "uploads noise that fades as updates do", _disguised),
)


@dataclass(frozen=True)
class IncentiveSettings(CampaignSettings):
    """Of all campaigns. `draws`: how often other people are drawn from the data set."""

    groups: tuple[int, ...] = (1, 2, 4)
    draws: int = 3
    max_samples: int = 1000  # of the task; people have far fewer

    @classmethod
    def quick(cls) -> "IncentiveSettings":
        return cls(honest=6, groups=(1, 2), rounds=3, draws=1, reference=2)

    @classmethod
    def network(cls) -> "IncentiveSettings":
        """One hidden layer; fewer draws, for it takes longer."""
        return cls(draws=1, hidden=64, epochs=10, rate=0.005)

    @property
    def people(self) -> int:
        """So many are drawn: cheaters have data, too, which some cheats use; and so has the requester."""
        return self.honest + max(self.groups) + self.reference


def load_crowds(settings: IncentiveSettings, folder: Path | None) -> Iterator[CrowdData]:
    """Both data sets with both kinds of features; without a folder, made-up people."""
    for name, source in load_sources(folder, settings.people, settings.seed).items():
        yield from (CrowdData.of(name, source, inputs) for inputs in FEATURES)


@dataclass(frozen=True, eq=False)
class RoundUploads:
    """A round's updates D_i, cheaters last, with declared samples; and who was in."""

    updates: Flat
    samples: tuple[int, ...]
    accepted: tuple[int, ...]


class CheatedCampaign(Campaign):
    """People of whom some cheat."""

    def __init__(self, crowd: CrowdData, settings: IncentiveSettings, draw: int) -> None:
        super().__init__(crowd, settings, draw, settings.people)
        self._settings, self._draw = settings, draw
        self._reference = self.joined(settings.people - settings.reference, settings.reference)

    def play(self, cheat: Cheat | None, group: int = 0, *, referred: bool = False) -> list[RoundUploads]:
        """Every round with the first `group` cheaters; none of them without a cheat. With a reference everyone counts once."""
        averages, rounds = [self.start], list[RoundUploads]()
        counts = [len(pupil.labels) for pupil in self.drawn[: self._settings.honest]]
        declared = self._settings.max_samples if cheat is not None and cheat.declares_most else max(counts)
        samples = [1] * (len(counts) + group) if referred else [*counts, *[declared] * group]
        judge = Judge(self.bound, len(self.start))
        for number in range(1, self._settings.rounds + 1):
            models = self._models(averages, number, cheat, group)
            kept = list(range(len(samples)))
            if referred:
                wanted = self.trained(averages[-1], number, [self._reference])[0]
                coins = hashlib.sha256(f"{self._draw} {number}".encode()).digest()
                kept = judge.accepted(np.array(models) - averages[-1], wanted, coins)
            rounds.append(RoundUploads(updates_of(models, samples, averages[-1]), tuple(samples), tuple(kept)))
            is_void = 2 * len(kept) < len(samples)
            averages.append(averages[-1] if is_void else fedavg([models[k] for k in kept], [samples[k] for k in kept]))
        return rounds

    def _models(self, averages: Sequence[Flat], number: int, cheat: Cheat | None, group: int) -> list[Flat]:
        base, honest = averages[-1], self._settings.honest
        changes = list(self.first if number == 1 else self.trained(base, number, self.drawn[:honest]))
        for place in range(group if cheat is not None else 0):
            seed = self._settings.seed, self._draw, number
            own, common = np.random.default_rng([*seed, place + 1]), np.random.default_rng([*seed, 0])

            def train(on: TrainedOn, place: int = place, own: np.random.Generator = own) -> Flat:
                return np.asarray(
                    self.trained(base, number, [self._pupil(self.drawn[honest + place], base, on, own)])[0]
                )

            if cheat is not None:
                changes.append(cheat.change(CheaterView(averages, self.bound, own, common, train)))
        return list(base + bounded(changes, self.bound))

    def _pupil(self, one: Pupil, base: Flat, on: TrainedOn, own: np.random.Generator) -> Pupil:
        inputs, labels = one.inputs, one.labels
        if on == "flipped labels":
            labels = self.crowd.label_count - 1 - labels
        elif on == "one of each class":
            kept = np.unique(labels, return_index=True)[1]
            inputs, labels = inputs[kept], labels[kept]
        elif on == "random inputs":
            inputs = own.normal(size=inputs.shape).astype(inputs.dtype)
            labels = self.classified(base, inputs)
        return Pupil(one.name, inputs, labels)


def _accepted_weights(uploads: RoundUploads) -> Flat:
    weights = np.zeros(len(uploads.samples))
    weights[list(uploads.accepted)] = 1.0
    return weights if 2 * len(uploads.accepted) >= len(weights) else 0 * weights  # a void round pays nothing


REFERENCE = "reference"
RULES: Mapping[str, Callable[[RoundUploads], Flat]] = MappingProxyType(
    {
        "equal": lambda uploads: equal_weights(len(uploads.samples)),
        "samples": lambda uploads: count_weights(uploads.samples),
        "distance": lambda uploads: distance_weights(uploads.updates, uploads.samples),
        REFERENCE: _accepted_weights,
    }
)


@dataclass(frozen=True)
class Outcome:
    """Of one cheat by one group under one rule: the cheaters' part of the budget of all rounds, over all draws."""

    source: str
    inputs: str
    cheat: str
    group: int
    rule: str
    share: float


def outcomes(crowd: CrowdData, settings: IncentiveSettings, say: Callable[[str], None]) -> Iterator[Outcome]:
    """First without cheaters, then each cheat with each size of group."""
    say(f"{crowd.name}: {settings.draws} draws of people")
    campaigns = [CheatedCampaign(crowd, settings, draw) for draw in range(settings.draws)]
    for cheat in (None, *CHEATS):
        name = NOBODY if cheat is None else cheat.name
        say(f"{crowd.name}: {name}")
        for group in [0] if cheat is None else [size for size in settings.groups if size >= cheat.least]:
            played, referred = ([one.play(cheat, group, referred=rule) for one in campaigns] for rule in (False, True))
            for rule, weigh in RULES.items():
                of = referred if rule == REFERENCE else played
                earned = np.array([[rewards_from(weigh(one), 1.0) for one in rounds] for rounds in of])
                share = float(earned[..., settings.honest :].sum(axis=2).mean())  # draw, round, participant
                yield Outcome(crowd.source, crowd.inputs, name, group, rule, share)


def audit_incentives(
    settings: IncentiveSettings, folder: Path | None, say: Callable[[str], None], notes: Sequence[str], command: str
) -> Result:
    """Without a folder of data sets, on made-up people."""
    where = machine()
    found = dict[str, list[Outcome]]()
    said = list(notes)
    for crowd in load_crowds(settings, folder):
        found[crowd.name] = list(outcomes(crowd, settings, say))
        said += crowd.notes
    return Result(
        "incentives-network" if settings.hidden else "incentives",
        "What cheaters earn",
        where,
        asdict(settings),
        tables=(_summary(found), *_details(found, settings)),
        notes=(*dict.fromkeys(said), *(f"{cheat.name}: {cheat.does}" for cheat in CHEATS)),
        data={"outcomes": [asdict(one) for of in found.values() for one in of]},
        command=command,
    )


def percent(part: float) -> str:
    """Of a hundred, in two digits at most: 0, 0.4, 5.9, 47."""
    value = 100 * part
    return f"{value:.0f}" if value >= 9.95 or value == 0 else f"{value:.1f}"


def _summary(found: Mapping[str, Sequence[Outcome]]) -> ResultTable:
    rows = []
    for name, of in found.items():
        for rule in RULES:
            cheated = [one for one in of if one.rule == rule and one.group]
            worst = max(cheated, key=lambda one: one.share)
            by = f"any {worst.group}" if rule == "equal" else f"{worst.cheat}, {worst.group}"
            rows.append((name, rule, percent(worst.share), by, percent(float(np.mean([one.share for one in cheated])))))
    title = "Cheaters' part of the budget, in percent"
    return ResultTable(title, ("data", "rule", "most", "by", "mean over cheats"), tuple(rows))


def _details(found: Mapping[str, Sequence[Outcome]], settings: IncentiveSettings) -> Iterator[ResultTable]:
    """A row for each cheat, with a part for each size of group."""

    def cell(parts: Iterable[float]) -> str:
        return " / ".join(map(percent, parts))

    sizes = ", ".join(map(str, settings.groups))
    columns = ("cheat", *RULES)
    for name, of in found.items():
        rows = []
        for cheat in dict.fromkeys(one.cheat for one in of if one.group):
            own = {rule: [one.share for one in of if (one.cheat, one.rule) == (cheat, rule)] for rule in RULES}
            rows.append((cheat, *(cell(own[rule]) for rule in RULES)))
        title = f"{name}: percent with {sizes} cheaters beside {settings.honest} honest people"
        yield ResultTable(title, columns, tuple(rows))
