"""What a demo campaign showed: tables for the terminal, and one HTML page with plots."""

import base64
import html
import io
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from crowdfl.cli.settings_file import read_service
from crowdfl.cli.task.files import read_model
from crowdfl.lab.demo.plain import Plain, uploads_of, weighted
from crowdfl.lab.demo.servers import Sight, look_at
from crowdfl.roles.participant import Arrays, arrays_from_npz
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.services.run import read_ledger
from crowdfl.settings import SpSettings, from_millionths

__all__ = ["Outcome", "print_outcome", "write_report"]

_TOLD = ("paid_in", "rewards", "returned")

_READABLE = {
    "kgc": "who was invited, under pseudonyms",
    "sp": "the definition, sizes and times; amounts once they are claimed",
    "csp": "masked numbers, uniform whatever the data; amounts once they are claimed",
}


@dataclass
class Outcome:
    """A finished campaign, as its processes told it and as their files show it."""

    folder: Path
    task: str
    heard: list[tuple[str, dict[str, Any]]]
    report: dict[str, Any]
    rounds: int
    budget: int
    drops: int
    vanishes: int
    plain: Plain = field(repr=False)
    seconds: float = 0.0

    def said(self, event: str) -> list[tuple[str, dict[str, Any]]]:
        """Every event of a kind."""
        return [(name, details) for name, details in self.heard if details.get("event") == event]

    def measured(self, number: int) -> dict[int, tuple[float, float]]:
        """A round's average on each participant's own held-out windows, as it said: accuracy, windows."""
        rows = [(name, details) for name, details in self.said("read") if details["round"] == number]
        return {int(name.split()[1]): (details["accuracy"], details["windows"]) for name, details in rows}

    @cached_property
    def books(self) -> Ledger:
        """From SP's own store: the requester is told sums alone."""
        return read_ledger(read_service(SpSettings, self.folder / "roles/sp/settings.toml"), self.task)

    @cached_property
    def uploads(self) -> dict[int, list[int]]:
        """Who was in which round."""
        return uploads_of(self.heard)

    @cached_property
    def rewards(self) -> dict[str, dict[int, int]]:
        """As each participant read its own."""
        found: dict[str, dict[int, int]] = {}
        for name, details in self.said("rewarded"):
            found.setdefault(name, {})[details["round"]] = details["millionths"]
        return dict(sorted(found.items()))

    @cached_property
    def late(self) -> list[str]:
        """Whose uploads were counted late."""
        rows = self.said("uploaded")
        return [f"{name}'s of round {details['round']}" for name, details in rows if details["late"]]

    @cached_property
    def final(self) -> Arrays | None:
        """The model that the requester fetched."""
        path = self.folder / "model.npz"
        return read_model(path)[1] if path.exists() else None

    @cached_property
    def averages(self) -> dict[int, Arrays]:
        """What readers hold of each round: a participant's copy, and the requester's of the last."""
        found = {} if self.final is None else {self.rounds: self.final}
        for number in range(1, self.rounds):
            for path in sorted(self.folder.glob(f"person-*/rounds/{number}/average"))[:1]:
                found[number] = arrays_from_npz(path.read_bytes(), read_model(self.folder / "model.npz")[0])
        return dict(sorted(found.items()))

    @cached_property
    def sights(self) -> list[Sight]:
        """What the servers' folders show."""
        with np.load(self.folder / "roles" / "sp" / "blobs" / self.task / "initial", allow_pickle=False) as file:
            initial = _row(list(file.values()))
        return look_at(self.folder / "roles", self.task, [_row(model) for model in self.averages.values()], initial)


def _row(arrays: Arrays) -> npt.NDArray[np.float64]:
    return np.concatenate([np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays])


def print_outcome(outcome: Outcome, console: Console) -> None:
    """Accuracy, rewards, books, and what the servers saw."""
    console.print(_accuracy_table(outcome))
    console.print(f"Late uploads that still counted: {', '.join(outcome.late) or 'none'}.")
    console.print(_reward_table(outcome))
    console.print(_money_table(outcome))
    console.print(_server_table(outcome))
    console.print(_search_line(outcome))


def _accuracy_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for number in range(1, outcome.rounds + 1):
        measured = outcome.measured(number)
        ours, plain, apart = "-", "-", "-"
        if measured:
            ours = f"{weighted(list(measured.values())):.3f} by {len(measured)} people"
            plain = f"{outcome.plain.over(number, list(measured)):.3f}"
        elif number == outcome.rounds and outcome.final is not None:
            ours = f"not theirs to read; the requester's model: {outcome.plain.measure(outcome.final):.3f}"
            plain = f"{outcome.plain.over(number, list(outcome.plain.lessons)):.3f}"
        if number in outcome.averages and number in outcome.plain.averages:
            apart = f"{np.abs(_row(outcome.averages[number]) - _row(outcome.plain.averages[number])).max():.1e}"
        rows.append((str(number), str(len(outcome.uploads.get(number, []))), ours, plain, apart))
    return rows


def _accuracy_table(outcome: Outcome) -> Table:
    columns = ("round", "uploads", "accuracy, as participants measured it", "plain FedAvg, same data", "weights apart")
    table = Table(*columns, title="The model, on held-out windows")
    for row in _accuracy_rows(outcome):
        table.add_row(*row)
    return table


def _reward_table(outcome: Outcome) -> Table:
    numbers = range(1, outcome.rounds + 1)
    columns = ("participant", *(f"round {n}" for n in numbers), "paid")
    table = Table(*columns, title="Rewards, as each participant read its own")
    paid = {name: details["millionths"] for name, details in outcome.said("paid")}
    for name, earned in outcome.rewards.items():
        cells = [f"{from_millionths(earned[n]):.6f}" if n in earned else "-" for n in numbers]
        table.add_row(name, *cells, f"{from_millionths(paid[name]):.6f}" if name in paid else "-")
    return table


def _money_table(outcome: Outcome) -> Table:
    told = ", ".join(f"{n.replace('_', ' ')} {from_millionths(outcome.report[n]):.6f}" for n in _TOLD)
    table = Table("movement", "from", "to", "amount", title="The ledger, as SP keeps it")
    table.caption = f"the requester is told sums alone: {told}"
    for movement in outcome.books.movements:
        table.add_row(movement.name, movement.source, movement.target, f"{from_millionths(movement.amount):.6f}")
    return table


def _server_table(outcome: Outcome) -> Table:
    table = Table(
        "server", "key shares in its files", "received", "its folder", "could read", title="What each server saw"
    )
    for sight in outcome.sights:
        shares = ", ".join(sight.shares) or "none"
        table.add_row(sight.server.upper(), shares, sight.received, sight.keeps, _READABLE[sight.server])
    return table


def _search_line(outcome: Outcome) -> str:
    looked = sum(_row(model).size for model in outcome.averages.values())
    found, public = sum(s.averages for s in outcome.sights), max(s.initial for s in outcome.sights)
    return (
        f"Of the {looked:,} numbers of the {len(outcome.averages)} averages, {found} were found in the servers' files; "
        f"of the initial weights, which are public, {public:,} (so the search does find)."
    )


def write_report(outcome: Outcome, folder: Path) -> Path:
    """One HTML page, pictures inside."""
    recorder = Console(record=True, width=160, file=io.StringIO())
    print_outcome(outcome, recorder)
    tables = recorder.export_html(inline_styles=True, code_format="<pre style='font-family:monospace'>{code}</pre>")
    pictures = "".join(f'<img alt="{html.escape(name)}" src="{data}">' for name, data in _plots(outcome))
    page = f"""<!doctype html><meta charset="utf-8"><title>CrowdFL demo</title>
<body style="font-family:sans-serif;max-width:80rem;margin:2rem auto"><h1>A CrowdFL campaign</h1>
<p>Task {html.escape(outcome.task)}: ten people of a watch data set, {outcome.rounds} rounds, profile hardened, 2048-bit keys,
{outcome.seconds:.0f} s. Person {outcome.drops} lost its connection in round 2 and came back after the window; person
{outcome.vanishes} vanished after its first upload. Run it again with <code>make demo</code>.</p>{pictures}{tables}</body>"""
    path = folder / "report.html"
    path.write_text(page)
    return path


def _plots(outcome: Outcome) -> list[tuple[str, str]]:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    everyone = list(outcome.plain.lessons)
    ours = {number: outcome.plain.measure(model) for number, model in outcome.averages.items()}
    plain = {number: outcome.plain.over(number, everyone) for number in outcome.plain.averages}
    left.plot(list(ours), list(ours.values()), "o-", label="CrowdFL, encrypted")
    left.plot(list(plain), list(plain.values()), "x--", label="FedAvg, in the clear")
    left.set(xlabel="round", ylabel="accuracy on everyone's held-out windows", xticks=list(plain), ylim=(0, 1))
    left.legend()
    names = list(outcome.rewards)
    bottom = np.zeros(len(names))
    for number in range(1, outcome.rounds + 1):
        heights = np.array([outcome.rewards[name].get(number, 0) / 1e6 for name in names])
        right.bar(names, heights, bottom=bottom, label=f"round {number}")
        bottom += heights
    right.set(ylabel="reward", xlabel="participant")
    right.tick_params(axis="x", rotation=45)
    right.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    return [("accuracy and rewards", "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode())]
