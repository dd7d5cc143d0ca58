"""Rows of scores: accuracy, precision, recall and F1 of a model, and MAD, its mean absolute difference to NN's four."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple

import numpy as np

from crowdfl.learning.evaluation import Scores
from crowdfl_lab.experiments.records import Record, Records, Value, number
from crowdfl_lab.report.plots import Series

SCORES = ("accuracy", "precision", "recall", "f1")
COLUMNS = (*SCORES, "mad")
DRAWN = {"accuracy": "accuracy", "f1": "F1 score"}
SPLIT_WORDS = {"user": "by real user", "random": "windows dealt at random"}
DIGITS = ".4f"  # as the paper's table 3 prints


def spread(values: Sequence[float]) -> str:
    """Mean and sample standard deviation; of one value, the value."""
    mean = f"{statistics.fmean(values):{DIGITS}}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):{DIGITS}}"


def values_of(rows: Records, name: str, **where: Value) -> list[float]:
    return [number(row, name) for row in rows if all(row[key] == value for key, value in where.items())]


def mean_of(rows: Records, name: str, **where: Value) -> float:
    return statistics.fmean(values_of(rows, name, **where))


def same_digits(a: Record, b: Record) -> bool:
    return all(f"{number(a, name):{DIGITS}}" == f"{number(b, name):{DIGITS}}" for name in COLUMNS if name in a)


def level(x: Sequence[float], y: float, style: str = "-", colour: str = "black") -> Series:
    return Series(x, [y] * len(x), style=style, colour=colour)


def mad(found: Scores, baseline: Scores) -> float:
    return float(np.abs(np.subtract(astuple(found), astuple(baseline))).mean())


def scored_row(found: Record, baselines: Mapping[Value, Record]) -> Record:
    scheme = "PriFedAvg" if "key_bits" in found else f"FedAvg_{found['round']}" if "round" in found else "NN"
    row = found | {"scheme": scheme, "mad": None}
    if scheme != "NN":
        pair = found, baselines[found["seed"]]
        row["mad"] = mad(*(Scores(*(number(each, name) for name in SCORES)) for each in pair))
    return {name: row[name] for name in ("scheme", "split", "seed", "hidden", *COLUMNS)}


def mean_row(rows: Records, scheme: Value, split: Value) -> Record:
    """Mean and deviation over the seeds."""
    columns = SCORES if scheme == "NN" else COLUMNS
    found: Record = {name: spread(values_of(rows, name, scheme=scheme, split=split)) for name in columns}
    return {"scheme": scheme, "data": SPLIT_WORDS.get(str(split), split)} | found
