"""What `crowdfl train --look` shows of a data set."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from crowdfl.cli.output import marked, show
from crowdfl.cli.waiting import waiting
from crowdfl.learning.datasets.data import UNLABELLED, Source
from crowdfl.learning.datasets.sources import open_person, open_source, parse_spec


def show_data(data: str, *, as_json: bool) -> None:
    """Who is in it, how many windows of each label they have, and what was wrong with it; without a person, everyone."""
    spec = parse_spec(data)
    with waiting("reading the data", quiet=as_json):
        if spec.person is None:
            source = open_source(spec)
            rows = [_counts(source, index) for index in range(len(source.people))]
        else:
            source, index = open_person(data)
            rows = [_counts(source, index)]
    about = {"people": list(source.people), "labels": list(source.label_names), "notes": list(source.notes)}
    table = Table("person", "window", *map(escape, source.label_names), title="windows to train on + held out")
    for row in rows:
        cells = (f"{train} + {held}" for train, held in zip(row["train"], row["held_out"], strict=True))
        table.add_row(escape(row["person"]), "x".join(map(str, row["window"])), *cells)
    show({**about, "windows": rows}, table, *marked(source.notes), _for_a_task(source, rows), as_json=as_json)


def _for_a_task(source: Source, rows: Sequence[Mapping[str, Any]]) -> str:
    """What a task file says to take this data as it is."""
    length, channels = rows[0]["window"]
    values = source.load_person(0).train.value_names if source.label_names == (UNLABELLED,) else ()
    target = 'target = "value", ' if values else ""
    labels = json.dumps(list(values or source.label_names), ensure_ascii=False)
    return f"in a task file's [training]: {target}window_samples = {length}, channels = {channels}, labels = {labels}"


def _counts(source: Source, index: int) -> dict[str, Any]:
    split = source.load_person(index)
    labels = len(source.label_names)
    return {
        "person": split.train.name,
        "window": list(split.train.windows.shape[1:]),
        "train": np.bincount(split.train.labels, minlength=labels).tolist(),
        "held_out": np.bincount(split.held_out.labels, minlength=labels).tolist(),
    }
