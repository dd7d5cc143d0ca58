"""`crowdfl audit poisoning`: what people who send poison do to a model, with and without the requester's reference.

Every campaign draws people: honest ones, attackers, and the few whose data the requester holds. Attackers know all that a
participant knows, and for `min-max` and `min-sum` all honest updates of the round too. Campaigns marked "real" are rounds of
`crowdfl.simulate`, with every role and both servers; the others judge in the clear, by the same sketch and the same rule.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure as Drawing

from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.errors import NothingToAverage
from crowdfl.learning.datasets.data import Source
from crowdfl.learning.datasets.npz_files import MotionSense, WindowFile
from crowdfl.learning.datasets.supplied import Synthetic
from crowdfl.learning.features import features
from crowdfl.learning.models.learner import Learner, SoftmaxLearner, Training
from crowdfl.learning.models.torch_models import TorchLearner, mlp
from crowdfl.protocols.shares.reference import LONGEST, OPPOSED
from crowdfl.protocols.shares.shape import widths_of
from crowdfl.settings import TaskSettings
from crowdfl.simulation.run import simulate
from crowdfl_lab.audit.incentives import _APART, _SECONDS, FILES, MADE_UP
from crowdfl_lab.report.plots import Picture
from crowdfl_lab.report.results import Cell, Result, ResultTable
from crowdfl_lab.timing import machine

Flat = npt.NDArray[np.float64]
NOBODY = "nobody"
_UNIT = 10**6
_TRIGGER, _TARGET, _RAISED = 3, 0, 4.0  # the first inputs of a backdoor's window, the class it stands for, and how far


@dataclass(frozen=True)
class PoisonSettings:
    """Thresholds are the protocol's own, fixed before anything was measured."""

    honest: int = 16
    attackers: tuple[int, ...] = (2, 4, 6)
    reference: int = 4  # people whose data the requester has
    rounds: int = 15
    early: int = 5
    seeds: int = 3
    hidden: int = 0
    epochs: int = 5
    batch: int = 32
    rate: float = 0.05
    lanes: int = 4096
    longest: int = LONGEST
    real: bool = False
    seed: int = 0

    @classmethod
    def quick(cls) -> "PoisonSettings":
        return cls(honest=6, attackers=(2,), reference=2, rounds=3, early=1, seeds=1, lanes=1024)

    @classmethod
    def network(cls) -> "PoisonSettings":
        return cls(hidden=50, epochs=10, rate=0.005, seeds=1, attackers=(6,))


@dataclass(frozen=True, eq=False)
class PoisonView:
    """What attackers have: honest updates of the round, their own, the bound, and random numbers that they share."""

    number: int
    bound: float
    honest: Flat
    common: np.random.Generator
    train: Callable[[str], Flat]  # on one's own data, as it is, with wrong labels, or with a trigger


def _long(change: Flat, norm: float) -> Flat:
    length = float(np.linalg.norm(change))
    return change * (norm / length) if length else change


def _farthest(view: PoisonView, total: bool) -> Flat:
    """Shejwalkar and Houmansadr 2021: against the mean, as far as honest updates lie from each other."""
    mean, ups = view.honest.mean(axis=0), view.honest
    apart = ((ups[:, None] - ups[None]) ** 2).sum(axis=2)
    most = apart.sum(axis=1).max() if total else apart.max()
    low, high, against = 0.0, 50.0, -_long(mean, 1.0)
    for _ in range(40):
        middle = (low + high) / 2
        away = ((mean + middle * against - ups) ** 2).sum(axis=1)
        low, high = (middle, high) if (away.sum() if total else away.max()) <= most else (low, middle)
    return np.asarray(mean + low * against)


ATTACKS: Mapping[str, Callable[[PoisonView], Flat]] = {
    "sign flip": lambda view: -view.train("own"),
    "sign flip at the bound": lambda view: _long(-view.train("own"), view.bound),
    "honest, then flip": lambda view: view.train("own") * (1 if view.number <= 3 else -1),
    "flipped labels": lambda view: view.train("flipped"),
    "flipped labels at the bound": lambda view: _long(view.train("flipped"), view.bound),
    "shuffled labels": lambda view: view.train("shuffled"),
    "shuffled labels at the bound": lambda view: _long(view.train("shuffled"), view.bound),
    "common noise": lambda view: _long(view.common.normal(size=view.honest.shape[1:]), view.bound),
    "boosting": lambda view: _long(view.train("own"), view.bound),
    "min-max": lambda view: _farthest(view, total=False),
    "min-sum": lambda view: _farthest(view, total=True),
    "backdoor": lambda view: _long(view.train("trigger"), view.bound),
}


@dataclass
class Judge:
    """The rule of `protocols.shares.reference` on sketches with fresh coins; sums follow the rounds that accepted."""

    settings: PoisonSettings
    bound: float
    parameters: int
    sums: dict[int, float] = field(default_factory=dict)

    def accepted(self, updates: Flat, reference: Flat, number: int) -> list[int]:
        task = {"weighting": "equal", "max_norm": self.bound, "clip": self.bound, "lanes": self.settings.lanes}
        widths = widths_of(TaskSettings.of(reference=True, **task), self.parameters)
        coins = hashlib.sha256(f"{self.settings.seed} {number}".encode()).digest()
        sketch = Sketch(coins, self.parameters, widths.rows, widths.buckets)
        whole = np.rint(np.vstack([updates, reference[None]]) * _UNIT).astype(np.int64)
        lanes = sketch.lanes(whole.view(np.uint64)).view(np.int64).astype(np.float64)
        found, c = list[int](), float(lanes[-1] @ lanes[-1])
        for place, lane in enumerate(lanes[:-1]):
            a, g = float(lane @ lane), float(lane @ lanes[-1])
            opposed = g < 0 and g * g > float(OPPOSED) ** 2 * a * c
            if not opposed and self.sums.get(place, 0) + g > 0 and a <= self.settings.longest**2 * c:
                found.append(place)
                self.sums[place] = self.sums.get(place, 0) + g
        return found


Rule = Callable[[Flat, Flat, int], Flat]  # updates, the reference, how many attack


def _krum(updates: Flat, _reference: Flat, bad: int) -> Flat:
    """Multi-Krum: the mean of those nearest to their neighbours."""
    apart = np.sort(((updates[:, None] - updates[None]) ** 2).sum(axis=2), axis=1)
    near = apart[:, 1 : max(2, len(updates) - bad - 1)].sum(axis=1)
    return np.asarray(updates[np.argsort(near)[: len(updates) - bad]].mean(axis=0))


def _fltrust(updates: Flat, reference: Flat, _bad: int) -> Flat:
    norms = np.linalg.norm(updates, axis=1)
    length = float(np.linalg.norm(reference))
    trust = np.maximum(0, updates @ reference / np.maximum(norms * length, 1e-12))
    scaled = updates * (length / np.maximum(norms, 1e-12))[:, None]
    return np.asarray(trust @ scaled / max(float(trust.sum()), 1e-12))


def _trimmed(updates: Flat, _reference: Flat, bad: int) -> Flat:
    return np.asarray(np.sort(updates, axis=0)[bad : len(updates) - bad].mean(axis=0))


RULES: Mapping[str, Rule] = {
    "bound alone": lambda updates, _reference, _bad: np.asarray(updates.mean(axis=0)),
    "median": lambda updates, _reference, _bad: np.asarray(np.median(updates, axis=0)),
    "trimmed mean": _trimmed,
    "multi-Krum": _krum,
    "FLTrust": _fltrust,
}
REFERENCE = "reference"


@dataclass(frozen=True)
class PoisonOutcome:
    """Of one campaign: accuracy after some rounds and at the end, honest people left out, rounds void, backdoor's success."""

    data: str
    attack: str
    attackers: int
    rule: str
    seed: int
    early: float
    late: float
    left_out: float
    void: int
    success: float
    real: bool


class PoisonCampaign:
    """One draw of people. Everything follows from the seed, so that each rule meets the same people."""

    def __init__(self, name: str, source: Source, settings: PoisonSettings, seed: int) -> None:
        self.name, self.settings, self.seed = name, settings, seed
        rng = np.random.default_rng([settings.seed, seed])
        people = [source.load_person(int(place)) for place in rng.permutation(len(source.people))]
        self._train = [(features("motion", one.train.windows), one.train.labels) for one in people]
        own, honest = settings.reference, settings.honest
        self._reference = tuple(np.concatenate(parts) for parts in zip(*self._train[:own], strict=True))
        self._honest = self._train[own : own + honest]
        rest = self._train[own + honest :] or self._honest
        self._attackers = [rest[place % len(rest)] for place in range(max(settings.attackers))]
        self._test = features("motion", np.concatenate([one.held_out.windows for one in people]))
        self._labels = np.concatenate([one.held_out.labels for one in people])
        self._classes, inputs = len(source.label_names), self._test.shape[1]
        self._learner: Learner = SoftmaxLearner(inputs, self._classes)
        if settings.hidden:
            self._learner = TorchLearner(inputs, mlp([settings.hidden], self._classes), seed=settings.seed)
        self.start = self._learner.shape.flat(self._learner.weights())
        firsts = [self._trained(self.start, 1, one, f"h{place}") for place, one in enumerate(self._honest)]
        self.bound = 2 * max(float(np.linalg.norm(change)) for change in firsts)

    def changes(self, base: Flat, number: int, attack: str, attackers: int) -> tuple[Flat, Flat]:
        """Everyone's update, attackers last, none beyond the bound; and the reference."""
        honest = [self._trained(base, number, one, f"h{place}") for place, one in enumerate(self._honest)]
        ups = honest
        for place in range(attackers if attack in ATTACKS else 0):
            common = np.random.default_rng([self.seed, number])

            def train(how: str, place: int = place) -> Flat:
                return self._trained(base, number, self._attackers[place], f"a{place}", how)

            view = PoisonView(number, self.bound, np.array(honest), common, train)
            ups = [*ups, ATTACKS[attack](view)]
        bounded = [_long(up, min(self.bound, float(np.linalg.norm(up)))) for up in ups]
        return np.array(bounded), self._trained(base, number, self._reference, "reference")

    def _trained(self, base: Flat, number: int, own: Any, name: str, how: str = "own") -> Flat:  # noqa: ANN401
        inputs, labels = own
        if how == "flipped":
            labels = self._classes - 1 - labels
        if how == "shuffled":
            labels = np.random.default_rng([self.seed, number, len(name)]).permutation(labels)
        if how == "trigger":
            marked = _marked(inputs)
            inputs, labels = np.concatenate([inputs, marked]), np.concatenate([labels, np.full(len(labels), _TARGET)])
        self._learner.load(self._learner.shape.arrays(base))
        rule = Training(self.settings.epochs, self.settings.batch, self.settings.rate, self.settings.seed)
        self._learner.train(inputs, labels, rule.at(number, name))
        return self._learner.shape.flat(self._learner.weights()) - base

    def accuracy(self, model: Flat) -> float:
        return float((self._classified(model, self._test) == self._labels).mean())

    def success(self, model: Flat) -> float:
        """Of held-out windows of other classes, with the trigger."""
        others = self._labels != _TARGET
        return float((self._classified(model, _marked(self._test[others])) == _TARGET).mean())

    def _classified(self, model: Flat, inputs: Any) -> Any:  # noqa: ANN401
        self._learner.load(self._learner.shape.arrays(model))
        return np.argmax(self._learner.predict(inputs), axis=1)

    def play(self, attack: str, attackers: int, rule: str) -> PoisonOutcome:
        if self.settings.real and rule == REFERENCE:
            return self._served(attack, attackers)
        model, judge = self.start.copy(), Judge(self.settings, self.bound, len(self.start))
        early, out, void, honest = 0.0, 0, 0, self.settings.honest
        for number in range(1, self.settings.rounds + 1):
            updates, wanted = self.changes(model, number, attack, attackers)
            if rule == REFERENCE:
                kept = judge.accepted(updates, wanted, number)
                out += honest - sum(place < honest for place in kept)
                void += 2 * len(kept) < len(updates)
                model = model + (updates[kept].mean(axis=0) if 2 * len(kept) >= len(updates) else 0)
            else:
                model = model + RULES[rule](updates, wanted, attackers)
            early = self.accuracy(model) if number == self.settings.early else early
        return self._outcome(attack, attackers, rule, model, (early, out, void), real=False)

    def _served(self, attack: str, attackers: int) -> PoisonOutcome:
        """The same by KGC, SP, CSP and everyone's agent."""
        rounds, people = dict[int, tuple[Flat, Flat]](), self.settings.honest + attackers

        def train(model: Flat, place: int, info: Any) -> tuple[Flat, int]:  # noqa: ANN401
            if info.round not in rounds:
                rounds[info.round] = self.changes(model, info.round, attack, attackers)
            updates, wanted = rounds[info.round]
            return model + (wanted if place < 0 else updates[place]), 1

        found = simulate(
            train,
            None,
            {f"{place:02}": place for place in range(people)},
            reference=-1,
            initial=self.start,
            rounds=self.settings.rounds,
            evaluate_central=self.accuracy,
            lanes=self.settings.lanes,
            max_norm=self.bound,
            clip=self.bound,
            progress=False,
            seed=self.seed,
        )
        history = found.history
        out = sum(int(name) < self.settings.honest for one in history for name in one.rejected)
        void = sum(not one.is_averaged for one in history)
        early = float(next(iter(history[self.settings.early - 1].central.values()), 0.0))
        return self._outcome(attack, attackers, REFERENCE, np.asarray(found.model), (early, out, void), real=True)

    def _outcome(
        self, attack: str, attackers: int, rule: str, model: Flat, found: tuple[float, int, int], *, real: bool
    ) -> PoisonOutcome:
        early, out, void = found
        share = out / (self.settings.honest * self.settings.rounds)
        late, success = self.accuracy(model), self.success(model)
        return PoisonOutcome(self.name, attack, attackers, rule, self.seed, early, late, share, void, success, real)


def _marked(inputs: Any) -> Any:  # noqa: ANN401
    marked = np.array(inputs, copy=True)
    marked[:, :_TRIGGER] = _RAISED
    return marked


def sources(settings: PoisonSettings, folder: Path | None) -> dict[str, Source]:
    if folder is None:
        people = settings.honest + max(settings.attackers) + settings.reference
        return {MADE_UP: Synthetic(people, seed=settings.seed, cut=_SECONDS)}
    wisdm, motion = (folder / name for name in FILES.values())
    return {"WISDM": WindowFile(wisdm), "MotionSense": MotionSense(motion, _APART)}


def outcomes(settings: PoisonSettings, folder: Path | None, say: Callable[[str], None]) -> Iterator[PoisonOutcome]:
    """Nobody, then every attack with every number; the rules in the clear beside the largest number alone."""
    most = max(settings.attackers)
    for (name, source), seed in product(sources(settings, folder).items(), range(settings.seeds)):
        campaign = PoisonCampaign(name, source, settings, seed)
        for attack in (NOBODY, *ATTACKS):
            say(f"{name}, seed {seed}: {attack}")
            for attackers in (0,) if attack == NOBODY else settings.attackers:
                rules = [REFERENCE, *(RULES if attackers in (0, most) else ["bound alone"])]
                try:
                    yield from [campaign.play(attack, attackers, rule) for rule in rules]
                except NothingToAverage:
                    say(f"{name}, seed {seed}: {attack} by {attackers} voided every round")


def audit_poisoning(
    settings: PoisonSettings, folder: Path | None, say: Callable[[str], None], notes: Sequence[str], command: str
) -> Result:
    where, found = machine(), list(outcomes(settings, folder, say))
    said = (*notes, "real rounds" if settings.real else "in the clear, with the same sketch and rule")
    tables = tuple(_table(found, name, settings) for name in dict.fromkeys(one.data for one in found))
    picture = Picture("poisoning", "Accuracy after the last round", lambda drawing: _draw(drawing, found))
    return Result(
        "poisoning-network" if settings.hidden else "poisoning",
        "What poison does to a model",
        where,
        asdict(settings),
        tables=tables,
        notes=said,
        data={"outcomes": [asdict(one) for one in found]},
        pictures=(picture,),
        command=command,
    )


def _mean(found: Sequence[PoisonOutcome], name: str) -> float | None:
    return float(np.mean([getattr(one, name) for one in found])) if found else None


def _table(found: Sequence[PoisonOutcome], name: str, settings: PoisonSettings) -> ResultTable:
    rows = list[tuple[Cell, ...]]()
    for attack, attackers in dict.fromkeys((one.attack, one.attackers) for one in found):
        own = [one for one in found if (one.data, one.attack, one.attackers) == (name, attack, attackers)]
        by = {rule: [one for one in own if one.rule == rule] for rule in (REFERENCE, *RULES)}
        cells = [_words(_mean(by[rule], "late")) for rule in RULES]
        reference = [_words(_mean(by[REFERENCE], column)) for column in ("early", "late", "left_out")]
        void = sum(one.void for one in by[REFERENCE])
        backdoor = [_words(_mean(by[rule], "success")) for rule in ("bound alone", REFERENCE)]
        shown = " -> ".join(backdoor) if attack == "backdoor" else "-"
        rows.append((attack, attackers, *cells, *reference, void, shown))
    first = f"reference, {settings.early} rounds"
    columns = ("attack", "by", *RULES, first, REFERENCE, "honest left out", "void", "backdoor")
    return ResultTable(f"{name}: accuracy after {settings.rounds} rounds", columns, tuple(rows))


def _words(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _draw(drawing: Drawing, found: Sequence[PoisonOutcome]) -> None:
    """Both rules for each attack, by the largest number of attackers."""
    names = list(dict.fromkeys(one.data for one in found))
    most = max(one.attackers for one in found)
    for place, name in enumerate(names, 1):
        axes = drawing.add_subplot(1, len(names), place)
        for rule, shift in (("bound alone", -0.2), (REFERENCE, 0.2)):
            of = [one for one in found if (one.data, one.rule) == (name, rule) and one.attackers in (0, most)]
            attacks = list(dict.fromkeys(one.attack for one in of))
            heights = [_mean([one for one in of if one.attack == attack], "late") or 0.0 for attack in attacks]
            axes.barh([row + shift for row in range(len(attacks))], heights, 0.38, label=rule)
            axes.set_yticks(range(len(attacks)), attacks)
        axes.set_title(f"{name}, {most} attackers")
        axes.set_xlim(0, 1)
        axes.legend()


def with_real(settings: PoisonSettings) -> PoisonSettings:
    """Fewer of them: a round by all roles takes seconds."""
    return replace(settings, real=True, seeds=1, attackers=(max(settings.attackers),), lanes=1024)
