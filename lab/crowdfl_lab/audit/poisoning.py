"""`crowdfl audit poisoning`: what people who send poison do to a model, with and without the requester's reference.

Every campaign draws people: honest ones, attackers, and the few whose data the requester holds. Attackers know all that a
participant knows, and for `min-max` and `min-sum` all honest updates of the round too. With `--real` rounds are those of
`crowdfl.simulate`, with every role and both servers, and their verdicts are compared with those of the rule in the clear on the
same coins; else all judge in the clear, with coins of their own.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.protocols.shares.circuits import lanes
from crowdfl.protocols.shares.reference import LONGEST
from crowdfl.simulation.run import simulate
from crowdfl_lab.audit.campaign import (
    LANES,
    Campaign,
    CampaignSettings,
    CrowdData,
    Flat,
    Judge,
    Lesson,
    Pupil,
    bounded,
    load_sources,
    scaled,
)
from crowdfl_lab.audit.shares.deviating_round import switched
from crowdfl_lab.report.plots import Canvas, Picture, panels
from crowdfl_lab.report.results import Cell as TableCell
from crowdfl_lab.report.results import Result, ResultTable
from crowdfl_lab.timing import machine

NOBODY = "nobody"
Cell = tuple[str, int, str]
"""An attack, by how many, and the rule that they meet."""
_BELOW = 0.95  # of the limit, for lengths are sketched
_TRIGGER, _TARGET, _RAISED = 3, 0, 4.0  # the first inputs of a backdoor's window, the class it stands for, and how far


@dataclass(frozen=True)
class PoisonSettings(CampaignSettings):
    """Thresholds are the protocol's own, fixed before anything was measured."""

    rounds: int = 15
    attackers: tuple[int, ...] = (2, 4, 6)
    early: int = 5
    seeds: int = 3
    inputs: str = "spectral features"
    lanes: int = LANES
    longest: float = float(LONGEST)
    real: bool = False

    @classmethod
    def quick(cls) -> "PoisonSettings":
        return cls(honest=6, attackers=(2,), reference=2, rounds=3, early=1, seeds=1, lanes=1024)

    @classmethod
    def network(cls) -> "PoisonSettings":
        return cls(hidden=50, epochs=10, rate=0.005)


@dataclass(frozen=True, eq=False)
class PoisonView:
    """What an attacker has: all honest updates of the round, what it trained itself, the bound, how long the reference lets it
    be, which nobody knows, and random numbers that all of them share."""

    number: int
    bound: float
    limit: float
    honest: Flat
    common: np.random.Generator
    own: Flat

    @property
    def at_bound(self) -> Flat:
        return scaled(self.own, self.bound)

    @property
    def at_limit(self) -> Flat:
        return scaled(self.own, _BELOW * self.limit)


def _farthest(view: PoisonView, total: bool) -> Flat:
    """Shejwalkar and Houmansadr 2021: against the mean, as far as honest updates lie from each other."""
    mean, ups = view.honest.mean(axis=0), view.honest
    apart = ((ups[:, None] - ups[None]) ** 2).sum(axis=2)
    most = apart.sum(axis=1).max() if total else apart.max()
    low, high, against = 0.0, 50.0, -scaled(mean, 1.0)
    for _ in range(40):
        middle = (low + high) / 2
        away = ((mean + middle * against - ups) ** 2).sum(axis=1)
        low, high = (middle, high) if (away.sum() if total else away.max()) <= most else (low, middle)
    return np.asarray(mean + low * against)


@dataclass(frozen=True)
class Poison:
    """What an attacker uploads, and what it trains on for that: its data as they are, with wrong labels, or with a trigger."""

    change: Callable[[PoisonView], Flat]
    on: str = "own"


ATTACKS: Mapping[str, Poison] = {
    NOBODY: Poison(lambda view: view.own),
    "sign flip": Poison(lambda view: -view.own),
    "sign flip at the bound": Poison(lambda view: -view.at_bound),
    "honest, then flip": Poison(lambda view: view.own * (1 if view.number <= 3 else -1)),
    "flipped labels": Poison(lambda view: view.own, "flipped"),
    "flipped labels at the bound": Poison(lambda view: view.at_bound, "flipped"),
    "shuffled labels": Poison(lambda view: view.own, "shuffled"),
    "shuffled labels at the bound": Poison(lambda view: view.at_bound, "shuffled"),
    "common noise": Poison(lambda view: scaled(view.common.normal(size=view.own.shape), view.bound)),
    "boosting": Poison(lambda view: view.at_bound),
    "min-max": Poison(lambda view: _farthest(view, total=False)),
    "min-sum": Poison(lambda view: _farthest(view, total=True)),
    "backdoor": Poison(lambda view: view.at_bound, "trigger"),
    "flipped labels at the limit": Poison(lambda view: view.at_limit, "flipped"),
    "boosting at the limit": Poison(lambda view: view.at_limit),
    "backdoor at the limit": Poison(lambda view: view.at_limit, "trigger"),
}
_AT_BOUND = (NOBODY, "sign flip at the bound", "flipped labels at the bound")
VARIANTS: Mapping[str, tuple[Mapping[str, Any], Sequence[str]]] = {
    "": ({}, tuple(ATTACKS)),
    ", raw windows": ({"inputs": "raw windows"}, _AT_BOUND),
    ", a reference of one person": ({"reference": 1}, _AT_BOUND),
    ", uploads up to 2 times as long": ({"longest": 2.0}, (NOBODY, "backdoor")),
    ", uploads up to 3 times as long": ({"longest": 3.0}, (NOBODY, "backdoor")),
}


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
    """Of one campaign: accuracy after some rounds and at the end, the part of honest people's uploads that was left out, rounds
    void, a backdoor's success; of real rounds, how many verdicts differ from those of the rule in the clear on the same coins.
    """

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
    differs: int | None = None

    @property
    def key(self) -> tuple[str, str, int, str, int]:
        return self.data, self.attack, self.attackers, self.rule, self.seed


@dataclass
class _Played:
    """So far."""

    model: Flat
    early: float = 0.0
    left_out: int = 0
    void: int = 0
    differs: int | None = None


class PoisonCampaign(Campaign):
    """One draw of people. Everything follows from the seed, so that each rule meets the same people."""

    def __init__(self, name: str, crowd: CrowdData, settings: PoisonSettings, seed: int) -> None:
        honest, few = settings.honest, settings.reference
        super().__init__(crowd, settings, seed, honest + few)
        self.name, self.settings, self.seed = name, settings, seed
        self._honest, self._reference = self.drawn[:honest], self.joined(honest, few)
        rest = self.drawn[honest + few :] or self._honest  # MotionSense has 24 people: some attack twice
        self._attackers = [
            replace(rest[place % len(rest)], name=f"a{place}") for place in range(max(settings.attackers))
        ]

    def lessons(self, base: Flat, number: int, attack: str, attackers: int) -> list[Lesson]:
        """Of honest people, of attackers, and of the requester."""
        bad = [self._poisoned(one, number, ATTACKS[attack].on) for one in self._attackers[:attackers]]
        return [Lesson(base, number, one) for one in (*self._honest, *bad, self._reference)]

    def uploads(self, learnt: Flat, number: int, attack: str) -> Flat:
        """Of everyone but the requester, who is last: none beyond the bound."""
        honest = learnt[: len(self._honest)]
        sent, limit = list(honest), self.settings.longest * float(np.linalg.norm(learnt[-1]))
        for own in learnt[len(honest) : -1]:
            common = np.random.default_rng([self.seed, number])
            sent.append(ATTACKS[attack].change(PoisonView(number, self.bound, limit, honest, common, own)))
        return bounded(sent, self.bound)

    def _poisoned(self, own: Pupil, number: int, on: str) -> Pupil:
        inputs, labels = own.inputs, own.labels
        if on == "flipped":
            labels = self.crowd.label_count - 1 - labels
        if on == "shuffled":
            labels = np.random.default_rng([self.seed, number]).permutation(labels)
        if on == "trigger":
            inputs = np.concatenate([inputs, _marked(inputs)])
            labels = np.concatenate([labels, np.full_like(labels, _TARGET)])
        return Pupil(own.name, inputs, labels)

    def success(self, model: Flat) -> float:
        """Of held-out windows of other classes, with the trigger."""
        held_out = self.crowd.held_out
        marked = _marked(held_out.inputs[held_out.labels != _TARGET])
        return float((self.classified(model, marked) == _TARGET).mean())

    def play_all(self, cells: Sequence[Cell]) -> list[PoisonOutcome]:
        """Campaigns side by side: everyone of all of them trains at once. Real rounds come one after the other."""
        served = [cell for cell in cells if self.settings.real and cell[2] == REFERENCE]
        found = {cell: self._served(*cell[:2]) for cell in served}
        running = {cell: self._cleared(*cell) for cell in cells if cell not in found}
        asked = {cell: next(steps) for cell, steps in running.items()}
        while asked:
            learnt = self.taught([lesson for lessons in asked.values() for lesson in lessons])
            for cell, lessons in list(asked.items()):
                own, learnt = learnt[: len(lessons)], learnt[len(lessons) :]
                try:
                    asked[cell] = running[cell].send(own)
                except StopIteration as end:
                    found[cell] = end.value
                    del asked[cell]
        return [self._outcome(cell, found[cell]) for cell in cells]

    def _outcome(self, cell: Cell, done: _Played) -> PoisonOutcome:
        share = done.left_out / (self.settings.honest * self.settings.rounds)
        late, success = self.accuracy(done.model), self.success(done.model)
        return PoisonOutcome(
            self.name, *cell, self.seed, done.early, late, share, done.void, success, differs=done.differs
        )

    def _cleared(self, attack: str, attackers: int, rule: str) -> Generator[list[Lesson], Flat, _Played]:
        done = _Played(self.start)
        judge = self._judge()
        honest = self.settings.honest
        for number in range(1, self.settings.rounds + 1):
            learnt = yield self.lessons(done.model, number, attack, attackers)
            updates, wanted = self.uploads(learnt, number, attack), learnt[-1]
            if rule == REFERENCE:
                coins = hashlib.sha256(f"{self.seed} {number}".encode()).digest()
                kept = judge.accepted(updates, wanted, coins)
                done.left_out += honest - sum(place < honest for place in kept)
                done.void += 2 * len(kept) < len(updates)
                step = updates[kept].mean(axis=0) if 2 * len(kept) >= len(updates) else 0.0
            else:
                step = RULES[rule](updates, wanted, attackers)
            done.model = done.model + step
            if number == self.settings.early:
                done.early = self.accuracy(done.model)
        return done

    def _judge(self) -> Judge:
        return Judge(self.bound, len(self.start), self.settings.lanes, self.settings.longest)

    def _served(self, attack: str, attackers: int) -> _Played:
        """The same by KGC, SP, CSP and everyone's agent."""
        rounds, people = dict[int, tuple[Flat, Flat]](), self.settings.honest + attackers
        drawn = dict[bytes, None]()  # the coins of each round, in order

        def train(model: Flat, place: int, info: Any) -> tuple[Flat, int]:  # noqa: ANN401
            if info.round not in rounds:
                learnt = self.taught(self.lessons(model, info.round, attack, attackers))
                rounds[info.round] = self.uploads(learnt, info.round, attack), learnt[-1]
            updates, wanted = rounds[info.round]
            return model + (wanted if place < 0 else updates[place]), 1

        def sketch(coins: bytes, *sizes: int) -> Sketch:
            drawn[coins] = None
            return Sketch(coins, *sizes)

        with switched(lanes, "Sketch", sketch):
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
        done, judge = _Played(np.asarray(found.model), differs=0), self._judge()
        for one, coins in zip(found.history, drawn, strict=True):
            out = {int(name) for name in one.rejected}
            clear = set(range(people)).difference(judge.accepted(*rounds[one.number], coins))
            done.differs = (done.differs or 0) + len(out ^ clear)
            done.left_out += sum(place < self.settings.honest for place in out)
            done.void += not one.is_averaged
        done.early = found.history[self.settings.early - 1].central.get("score", 0.0)
        return done


def _marked(inputs: Any) -> Any:  # noqa: ANN401
    marked = np.array(inputs, copy=True)
    marked[:, :_TRIGGER] = _RAISED
    return marked


def outcomes(
    settings: PoisonSettings, folder: Path | None, say: Callable[[str], None], kept: Path | None = None
) -> Iterator[PoisonOutcome]:
    """Nobody, then every attack with every number; most rules in the clear with the largest number alone.

    What a file of an earlier run has is not computed again, and what was found is added to it every time.
    """
    lines = kept.read_text(encoding="utf-8").splitlines() if kept is not None and kept.exists() else []
    have = {one.key: one for one in (PoisonOutcome(**json.loads(line)) for line in lines)}
    people = settings.honest + max(settings.attackers) + settings.reference
    variants = {"": VARIANTS[""]} if settings.hidden else VARIANTS
    if settings.real:  # each campaign takes minutes
        variants = {"": ({}, _AT_BOUND)}
    crowds = [
        (name + words, CrowdData.of(name, source, chosen.inputs), chosen, attacks)
        for name, source in load_sources(folder, people, settings.seed).items()
        for words, (changed, attacks) in variants.items()
        for chosen in [replace(settings, **changed)]
    ]
    for stage, (name, crowd, chosen, attacks), seed in product(_STAGES, crowds, range(settings.seeds)):
        say(f"{name}, seed {seed}: {stage}")
        cells = [one for one in _cells(chosen, attacks) if _stage(chosen, *one) == stage]
        missing = [cell for cell in cells if (name, *cell, seed) not in have]
        campaign = PoisonCampaign(name, crowd, chosen, seed) if missing else None
        for part in [[cell] for cell in missing] if settings.real else [missing]:
            found = campaign.play_all(part) if campaign is not None else []
            have |= {one.key: one for one in found}
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(asdict(one)) + "\n" for one in found)
        yield from (have[(name, *cell, seed)] for cell in cells)


_STAGES = "most attackers", "fewer attackers", "other rules"  # in this order, for what matters comes first


def _stage(settings: PoisonSettings, _attack: str, attackers: int, rule: str) -> str:
    if rule not in (REFERENCE, "bound alone"):
        return _STAGES[2]
    return _STAGES[attackers not in (0, max(settings.attackers))]


def _cells(settings: PoisonSettings, attacks: Sequence[str]) -> Iterator[Cell]:
    for attack in attacks:
        for attackers in (0,) if attack == NOBODY else settings.attackers:
            others = RULES if attackers in (0, max(settings.attackers)) and not settings.real else ("bound alone",)
            yield from ((attack, attackers, rule) for rule in (REFERENCE, *others))


def audit_poisoning(
    settings: PoisonSettings,
    folder: Path | None,
    say: Callable[[str], None],
    notes: Sequence[str],
    command: str,
    out: Path | None,
) -> Result:
    name = "poisoning" + "-network" * bool(settings.hidden) + "-real" * settings.real
    kept = None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        kept = out / f"{name}-campaigns.jsonl"
    where, found = machine(), list(outcomes(settings, folder, say, kept))
    said = (*notes, "real rounds" if settings.real else "in the clear, with the same sketch and rule")
    tables = tuple(_table(found, of, settings) for of in dict.fromkeys(one.data for one in found))
    picture = Picture(
        name, f"Accuracy after {settings.rounds} rounds", lambda canvas: _draw(canvas, found), (10.0, 5.0)
    )
    return Result(
        name,
        "What poison does to a model",
        where,
        asdict(settings),
        tables=tables,
        notes=said,
        data={"outcomes": [asdict(one) for one in found]},
        pictures=(picture,),
        command=command,
    )


_ORDER = {attack: place for place, attack in enumerate(ATTACKS)}


def _mean(found: Sequence[PoisonOutcome], name: str) -> float | None:
    return float(np.mean([getattr(one, name) for one in found])) if found else None


def _table(found: Sequence[PoisonOutcome], name: str, settings: PoisonSettings) -> ResultTable:
    rows = list[tuple[TableCell, ...]]()
    here = [one for one in found if one.data == name]
    for attack, attackers in sorted(
        {(one.attack, one.attackers) for one in here}, key=lambda row: (_ORDER[row[0]], row[1])
    ):
        own = [one for one in here if (one.attack, one.attackers) == (attack, attackers)]
        by = {rule: [one for one in own if one.rule == rule] for rule in (REFERENCE, *RULES)}
        cells = [_words(_mean(by[rule], column)) for rule in (REFERENCE, *RULES) for column in ("early", "late")]
        judged = by[REFERENCE]
        left = _words(_mean(judged, "left_out")), _words(max(one.left_out for one in judged))
        differs = sum(one.differs or 0 for one in judged) if settings.real else "-"
        success = [_words(_mean(by[rule], "success")) for rule in ("bound alone", REFERENCE)]
        rows.append((attack, attackers, *cells, *left, sum(one.void for one in judged), *success, differs))
    accuracies = [f"{rule}, {rounds}" for rule in (REFERENCE, *RULES) for rounds in (settings.early, settings.rounds)]
    left_out = "honest left out", "most of a draw"
    columns = ("attack", "by", *accuracies, *left_out, "void", "trigger, bound alone", "trigger, reference", "differ")
    title = f"{name}: accuracy after {settings.early} and {settings.rounds} rounds, {settings.seeds} draws"
    return ResultTable(title, columns, tuple(rows))


def _words(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _draw(canvas: Canvas, found: Sequence[PoisonOutcome]) -> None:
    """Both rules for each attack, by the largest number of attackers."""
    most = max(one.attackers for one in found)
    shown = [one for one in found if one.attackers in (0, most) and "," not in one.data]
    names = list(dict.fromkeys(one.data for one in shown))
    attacks = list(dict.fromkeys(one.attack for one in shown))[::-1]
    for name, axes in zip(names, panels(canvas, len(names)), strict=True):
        for rule, shift in ((REFERENCE, 0.2), ("bound alone", -0.2)):
            own = [
                [one for one in shown if one.key[:4:3] == (name, rule) and one.attack == attack] for attack in attacks
            ]
            axes.barh(
                [row + shift for row in range(len(own))], [_mean(of, "late") or 0.0 for of in own], 0.38, label=rule
            )
        axes.set_yticks(range(len(attacks)), attacks)
        axes.set_title(f"{name}, {most} attackers")
        axes.set_xlim(0, 1)
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.06), ncols=2)


def with_real(settings: PoisonSettings) -> PoisonSettings:
    """Fewer of them: a round by all roles takes seconds."""
    return replace(settings, real=True, seeds=1, attackers=(max(settings.attackers),), lanes=1024)
