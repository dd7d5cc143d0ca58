"""Figure 3: accuracy and F1 under dropouts, for CrowdFL-D and CrowdFL-R, with NN as a line."""

import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from crowdfl.errors import SettingsError
from crowdfl_lab.experiments.crowds import LearnSettings
from crowdfl_lab.experiments.experiment import (
    Experiment,
    ExperimentPoint,
    Found,
    Part,
    Points,
    Record,
    Records,
    remarks,
    table_of,
)
from crowdfl_lab.experiments.federated import TRAINING, Strategy, baseline_point, run_point
from crowdfl_lab.experiments.table3 import (
    DIGITS,
    DRAWN,
    RUNS,
    SCORES,
    AccuracySettings,
    level,
    mean_of,
    same_digits,
    spread,
    values_of,
)
from crowdfl_lab.report.plots import Canvas, Picture, Series, lines, panels

_PAIR = {"accuracy": "accuracy", "F1": "f1"}
_STRATEGIES: dict[Strategy, str] = {"discard": "CrowdFL-D", "retransmit": "CrowdFL-R"}


@dataclass(frozen=True)
class DropSettings(AccuracySettings):
    """Runs in the clear for every rate and seed; one rate of each strategy also through an encrypted run of each profile."""

    rates: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    checked_rate: float = 0.3


def _points(settings: DropSettings) -> Points:
    points: dict[Hashable, ExperimentPoint] = {
        ("NN", None, s): baseline_point(settings.plain(s)) for s in settings.seeds
    }
    for strategy, scheme in _STRATEGIES.items():
        for rate in settings.rates:
            for seed in settings.seeds:
                points[scheme, rate, seed] = run_point(settings.plain(seed), rate=rate, strategy=strategy)
        for run in settings.chosen:
            for how, keys in (("clear", None), ("encrypted", settings.keys_of(run))):
                learn, rate = settings.encrypted(run), settings.checked_rate
                points[run, scheme, how] = run_point(learn, keys=keys, rate=rate, strategy=strategy)
    return points


def _present(settings: DropSettings, found: Found) -> Part:
    kinds = [("NN", None), *((scheme, rate) for scheme in _STRATEGIES.values() for rate in settings.rates)]
    rows = [_row(*kind, "clear", found[*kind, seed][-1]) for kind in kinds for seed in settings.seeds]
    means: Records = []
    for scheme, rate in kinds:
        scores: Record = {
            label: spread(values_of(rows, name, scheme=scheme, rate=rate)) for label, name in _PAIR.items()
        }
        means.append(scores | {"scheme": scheme, "dropout rate": None if rate is None else f"{rate:.0%}"})
    checks, said = list[Record](), list(_remarks(settings, rows))
    for run in settings.chosen:
        own = [
            _row(scheme, settings.checked_rate, f"check, {how}", found[run, scheme, how][-1]) | {"profile": run.profile}
            for scheme in _STRATEGIES.values()
            for how in ("clear", "encrypted")
        ]
        equal = "equal" if all(map(same_digits, own[0::2], own[1::2])) else "do NOT equal"
        said += remarks("encrypted with dropouts", settings, run=run, key=settings.keys_of(run), equal=equal)
        checks += own
    checked = [r | {"dropout rate": f"{r['rate']:.0%}", "run": str(r["how"])[7:], "F1": r["f1"]} for r in checks]
    title = f"After {settings.learn.rounds} rounds, {settings.learn.hidden:,} hidden units, over {len(settings.seeds)} seeds"
    beside = "One point of each, encrypted and in the clear"
    tables = (
        table_of(title, means, ("scheme", "dropout rate", *_PAIR)),
        table_of(beside, checked, ("scheme", "dropout rate", "profile", "hidden", "run", *_PAIR), DIGITS),
    )
    picture = Picture("fig3", "Accuracy and F1 against the dropout rate", lambda f: _draw(f, settings, rows))
    return Part(rows + checks, tables, (picture,), tuple(said))


def _row(scheme: str, rate: float | None, how: str, found: Record) -> Record:
    row: Record = {"scheme": scheme, "rate": rate, "seed": found["seed"], "hidden": found["hidden"], "how": how}
    return row | {name: found[name] for name in SCORES}


def _remarks(settings: DropSettings, rows: Records) -> tuple[str, ...]:
    nn = mean_of(rows, "accuracy", scheme="NN")
    drop, again = (
        {rate: mean_of(rows, "accuracy", scheme=scheme, rate=rate) for rate in settings.rates}
        for scheme in _STRATEGIES.values()
    )
    counts = {
        "better": sum(again[rate] > drop[rate] for rate in settings.rates if rate),
        "dropping": sum(rate > 0 for rate in settings.rates),
        "above": sum(accuracy > nn for accuracy in drop.values()),
        "rates": len(settings.rates),
    }
    return remarks("fig3", settings, **counts)


def _draw(figure: Canvas, settings: DropSettings, rows: Records) -> None:
    percent = [100 * rate for rate in settings.rates]
    for axes, (name, label) in zip(panels(figure, 2), DRAWN.items(), strict=True):
        series = {}
        for scheme, mark in zip(_STRATEGIES.values(), ("o-", "s--"), strict=True):
            found = [values_of(rows, name, scheme=scheme, rate=rate) for rate in settings.rates]
            spreads = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in found]
            series[scheme] = Series(percent, list(map(statistics.fmean, found)), spreads, mark)
        series["NN"] = level(percent, mean_of(rows, name, scheme="NN"))
        lines(axes, series, xlabel="dropout rate, %", ylabel=label)


def _with_dropout(settings: DropSettings, rates: Sequence[float]) -> DropSettings:
    """These rates alone; the first is the one that is also run encrypted."""
    if not all(0 <= rate < 1 for rate in rates):
        raise SettingsError("--dropout is a share of the people, from 0 to below 1, as in --dropout 0.3")
    return replace(settings, rates=tuple(sorted(set(rates))), checked_rate=rates[0])


_CHECKED = tuple(replace(run, hidden=min(run.hidden, 50)) for run in RUNS)
FIG_3 = Experiment(
    "fig3",
    "Figure 3: dropouts",
    _points,
    _present,
    DropSettings(),
    DropSettings(LearnSettings(hidden=50), runs=_CHECKED),
    options={**TRAINING, "dropout": _with_dropout},
)
