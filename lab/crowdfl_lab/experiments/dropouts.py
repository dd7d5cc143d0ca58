"""Figure 3: accuracy and F1 under dropouts, for CrowdFL-D and CrowdFL-R, with NN as a line."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crowdfl.errors import SettingsError
from crowdfl_lab.experiments.crowds import LearnSettings
from crowdfl_lab.experiments.experiment import Experiment, ExperimentPoint, Part, Record, Records, remarks, table_of
from crowdfl_lab.experiments.federated import TRAINING, ProfileRun, Strategy, baseline_point, run_point
from crowdfl_lab.experiments.table3 import (
    DIGITS,
    DRAWN,
    RUNS,
    SCORES,
    AccuracySettings,
    Variation,
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

    variations: tuple[Variation, ...] = ()
    rates: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    checked_rate: float = 0.3


def _drop_points(settings: DropSettings) -> list[ExperimentPoint]:
    points = [baseline_point(settings.plain(seed)) for seed in settings.seeds]
    for strategy in _STRATEGIES:
        for rate in settings.rates:
            points += [run_point(settings.plain(seed), rate=rate, strategy=strategy) for seed in settings.seeds]
    for run in settings.chosen:
        for strategy in _STRATEGIES:
            for keys in (None, settings.keys_of(run)):
                learn = settings.encrypted(run)
                points.append(run_point(learn, keys=keys, rate=settings.checked_rate, strategy=strategy))
    return points


def _present_drops(settings: DropSettings, results: Sequence[Records]) -> Part:
    rest = iter(results)
    kinds = [("NN", None), *((scheme, rate) for scheme in _STRATEGIES.values() for rate in settings.rates)]
    rows = [_drop_row(*kind, "clear", next(rest)[-1]) for kind in kinds for _ in settings.seeds]
    checks = [
        _drop_row(scheme, settings.checked_rate, f"check, {how}", next(rest)[-1]) | {"profile": run.profile}
        for run in settings.chosen
        for scheme in _STRATEGIES.values()
        for how in ("clear", "encrypted")
    ]
    means: Records = []
    for scheme, rate in kinds:
        found: Record = {
            label: spread(values_of(rows, name, scheme=scheme, rate=rate)) for label, name in _PAIR.items()
        }
        means.append(found | {"scheme": scheme, "dropout rate": None if rate is None else f"{rate:.0%}"})
    checked = [r | {"dropout rate": f"{r['rate']:.0%}", "run": str(r["how"])[7:], "F1": r["f1"]} for r in checks]
    title = f"After {settings.learn.rounds} rounds, {settings.learn.hidden:,} hidden units, over {len(settings.seeds)} seeds"
    beside = "One point of each, encrypted and in the clear"
    tables = (
        table_of(title, means, ("scheme", "dropout rate", *_PAIR)),
        table_of(beside, checked, ("scheme", "dropout rate", "profile", "hidden", "run", *_PAIR), DIGITS),
    )
    picture = Picture("fig3", "Accuracy and F1 against the dropout rate", lambda f: _draw_drops(f, settings, rows))
    return Part(rows + checks, tables, (picture,), _drop_remarks(settings, rows, checks))


def _drop_row(scheme: str, rate: float | None, how: str, found: Record) -> Record:
    row: Record = {"scheme": scheme, "rate": rate, "seed": found["seed"], "hidden": found["hidden"], "how": how}
    return row | {name: found[name] for name in SCORES}


def _drop_remarks(settings: DropSettings, rows: Records, checks: Records) -> tuple[str, ...]:
    nn = mean_of(rows, "accuracy", scheme="NN")
    drop, again = (
        {rate: mean_of(rows, "accuracy", scheme=scheme, rate=rate) for rate in settings.rates}
        for scheme in _STRATEGIES.values()
    )
    found = remarks(
        "fig3",
        settings,
        better=sum(again[rate] > drop[rate] for rate in settings.rates if rate),
        dropping=sum(rate > 0 for rate in settings.rates),
        above=sum(accuracy > nn for accuracy in drop.values()),
        rates=len(settings.rates),
    )
    return found + tuple(said for run in settings.chosen for said in _equality(settings, run, checks))


def _equality(settings: DropSettings, run: ProfileRun, checks: Records) -> tuple[str, ...]:
    own = [row for row in checks if row["profile"] == run.profile]
    equal = "equal" if all(map(same_digits, own[0::2], own[1::2])) else "do NOT equal"
    return remarks("encrypted with dropouts", settings, run=run, key=settings.keys_of(run), equal=equal)


def _draw_drops(figure: Canvas, settings: DropSettings, rows: Records) -> None:
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
_FULL = DropSettings(runs=RUNS)
_QUICK = DropSettings(LearnSettings(hidden=50), runs=_CHECKED)
FIG_3 = Experiment(
    "fig3",
    "Figure 3: dropouts",
    _drop_points,
    _present_drops,
    _FULL,
    _QUICK,
    options={**TRAINING, "dropout": _with_dropout},
)
