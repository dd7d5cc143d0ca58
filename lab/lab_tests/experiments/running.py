"""Experiments at a size that takes seconds, under insecure test keys."""

import csv
import html
import io
import re
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from crowdfl.crypto.compute import Threads
from crowdfl.learning.datasets.data import Cut, Source
from crowdfl.learning.datasets.supplied import Synthetic
from crowdfl_lab.experiments.command import CATALOG
from crowdfl_lab.experiments.experiment import Bench, reproduce

__all__ = ["KEY", "MADE_UP", "bench", "run", "silent", "text_of", "tiny"]

KEY = {"key_bits": 1536, "insecure_test_key": True}
MADE_UP = Synthetic(5, cut=Cut(length=8, step=8, held_out=0.3, gap=8, hertz=8.0))


def silent() -> Progress:
    """Bars that count and show nothing."""
    return Progress(console=Console(quiet=True), disable=True)


def bench(data: Source = MADE_UP) -> Bench:
    return Bench(Threads(1), data)


def tiny(experiment, **settings):
    """The experiment with a quick size of these settings."""
    return replace(experiment, quick=replace(experiment.quick, **settings))


def run(experiment, out: Path, data: Source = MADE_UP) -> list[dict[str, str]]:
    """Run it; the rows of its CSV."""
    catalog = list((CATALOG | {experiment.name: experiment}).values())
    reproduce([experiment], out, bench(data), silent(), size="quick", catalog=catalog)
    text = (out / experiment.name / f"{experiment.name}.csv").read_text()
    return list(csv.DictReader(io.StringIO(text)))


def text_of(out: Path) -> str:
    """What a reader of the page sees, without pictures and markup."""
    page = (out / "report.html").read_text()
    return html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r'src="data:[^"]*"', "", page)))
