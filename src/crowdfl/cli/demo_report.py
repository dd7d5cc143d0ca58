"""What a demo campaign showed: tables for the terminal, and one HTML page with plots."""

import base64
import html
import io
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from crowdfl.cli.task import template
from crowdfl.cli.training import evaluator, load_person, make_learner, trainer
from crowdfl.learning.fedavg import fedavg
from crowdfl.learning.model_files import from_npz
from crowdfl.protocols.settings import from_millionths

__all__ = ["Outcome", "print_outcome", "write_report"]


@dataclass
class Outcome:
    """A finished campaign, as its processes told it."""

    folder: Path
    task: str
    heard: list[tuple[str, dict[str, Any]]]
    report: dict[str, Any]
    rounds: int
    budget: int
    drops: int
    vanishes: int
    seconds: float = 0.0

    def said(self, event: str) -> list[tuple[str, dict[str, Any]]]:
        """Every event of a kind."""
        return [(name, details) for name, details in self.heard if details.get("event") == event]

    def accuracies(self) -> dict[int, float]:
        """Per round, over all held-out windows, as the participants measured it on their own."""
        found: dict[int, list[tuple[float, float]]] = {}
        for _, details in self.said("read"):
            found.setdefault(details["round"], []).append((details["accuracy"], details["windows"]))
        return {number: _weighted(rows) for number, rows in sorted(found.items())}

    def uploads(self) -> dict[int, list[int]]:
        """Who was in which round."""
        who: dict[int, list[int]] = {}
        for name, details in self.said("uploaded"):
            who.setdefault(details["round"], []).append(int(name.split()[1]))
        return {number: sorted(people) for number, people in sorted(who.items())}

    def rewards(self) -> dict[str, dict[int, int]]:
        """As each participant read its own."""
        found: dict[str, dict[int, int]] = {}
        for name, details in self.said("rewarded"):
            found.setdefault(name, {})[details["round"]] = details["millionths"]
        return dict(sorted(found.items()))


def _weighted(rows: list[tuple[float, float]]) -> float:
    values = np.array(rows)
    return float(np.average(values[:, 0], weights=values[:, 1]))


def _plain(outcome: Outcome) -> dict[int, float]:
    """FedAvg in the clear, on the same data, with the same people in each round."""
    training = tomllib.loads(template)["training"]
    learner = make_learner(training)
    shape, model = learner.shape, learner.weights()
    splits = {person: load_person(f"watch:{person}") for people in outcome.uploads().values() for person in people}
    accuracies = {}
    for number, people in outcome.uploads().items():
        trained = [trainer(splits[person], learner)(model, training, number) for person in people]
        model = shape.arrays(fedavg([shape.flat(arrays) for arrays, _ in trained], [samples for _, samples in trained]))
        accuracies[number] = _held_out(model, splits, learner, training)
    return accuracies


def _held_out(model: Any, splits: Any, learner: Any, training: Any) -> float:  # noqa: ANN401 -- learning's own types
    rows = [evaluator(split, learner, training)(model) for split in splits.values()]
    return _weighted([(row["accuracy"], row["windows"]) for row in rows])


def _final(outcome: Outcome) -> float:
    """The model that the requester fetched, on everyone's held-out windows: measured here, for comparison alone."""
    training = tomllib.loads(template)["training"]
    learner = make_learner(training)
    model = from_npz(learner.shape, (outcome.folder / "model.npz").read_bytes())
    people = {person for people in outcome.uploads().values() for person in people}
    return _held_out(model, {person: load_person(f"watch:{person}") for person in people}, learner, training)


def print_outcome(outcome: Outcome, console: Console) -> None:
    """Accuracy, rewards, books and what the servers held."""
    for table in _tables(outcome):
        console.print(table)
    console.print(f"{outcome.seconds:.0f} s in all.")


def _tables(outcome: Outcome) -> list[Table]:
    return [_accuracy_table(outcome), _reward_table(outcome), _money_table(outcome), _server_table(outcome)]


def _accuracy_rows(outcome: Outcome) -> list[tuple[str, str, str, str]]:
    ours, plain, uploads = outcome.accuracies(), _plain(outcome), outcome.uploads()
    rows = []
    for number in range(1, outcome.rounds + 1):
        measured = f"{ours[number]:.3f}" if number in ours else f"{_final(outcome):.3f} (the requester's model)"
        rows.append((str(number), str(len(uploads.get(number, []))), measured, f"{plain[number]:.3f}"))
    return rows


def _accuracy_table(outcome: Outcome) -> Table:
    table = Table(
        "round", "uploads", "accuracy, as participants measured it", "plain FedAvg, same data", title="The model"
    )
    for row in _accuracy_rows(outcome):
        table.add_row(*row)
    return table


def _reward_table(outcome: Outcome) -> Table:
    numbers = range(1, outcome.rounds + 1)
    table = Table(
        "participant", *(f"round {n}" for n in numbers), "paid", title="Rewards, as each participant read its own"
    )
    paid = {name: details["millionths"] for name, details in outcome.said("paid")}
    for name, earned in outcome.rewards().items():
        cells = [f"{from_millionths(earned[n]):.6f}" if n in earned else "-" for n in numbers]
        table.add_row(name, *cells, f"{from_millionths(paid[name]):.6f}" if name in paid else "-")
    return table


def _money_table(outcome: Outcome) -> Table:
    table = Table("movement", "from", "to", "amount", title="The ledger")
    for movement in outcome.report["movements"]:
        amount = f"{from_millionths(movement['amount']):.6f}"
        table.add_row(movement["name"], movement["source"], movement["target"], amount)
    return table


def _server_table(outcome: Outcome) -> Table:
    table = Table("server", "held", "could read", title="What each server saw")
    roles = outcome.folder / "roles"
    uploads = list((roles / "sp" / "blobs").rglob("*"))
    answers = [path for path in (roles / "csp" / "blobs").rglob("*") if path.is_file()]
    table.add_row(
        "SP", f"{sum(p.is_file() for p in uploads)} files of ciphertexts and sealed numbers", "sizes and times"
    )
    table.add_row("CSP", f"{len(answers)} answers to masked requests", "masked numbers; amounts once claimed")
    return table


def write_report(outcome: Outcome, folder: Path) -> Path:
    """One HTML page, pictures inside."""
    recorder = Console(record=True, width=140, file=io.StringIO())
    print_outcome(outcome, recorder)
    tables = recorder.export_html(inline_styles=True, code_format="<pre style='font-family:monospace'>{code}</pre>")
    pictures = "".join(f'<img alt="{html.escape(name)}" src="{data}">' for name, data in _plots(outcome))
    page = f"""<!doctype html><meta charset="utf-8"><title>CrowdFL demo</title>
<body style="font-family:sans-serif;max-width:75rem;margin:2rem auto"><h1>A CrowdFL campaign</h1>
<p>Task {html.escape(outcome.task)}: ten people of a watch data set, three rounds, profile hardened, 2048-bit keys. Person
{outcome.drops} lost its connection in round 2 and sent again after the window; person {outcome.vanishes} vanished after
its first upload. Run it again with <code>make demo</code>.</p>{pictures}{tables}</body>"""
    path = folder / "report.html"
    path.write_text(page)
    return path


def _plots(outcome: Outcome) -> list[tuple[str, str]]:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    ours, plain = outcome.accuracies() | {outcome.rounds: _final(outcome)}, _plain(outcome)
    left.plot(list(ours), list(ours.values()), "o-", label="CrowdFL, encrypted")
    left.plot(list(plain), list(plain.values()), "x--", label="FedAvg, in the clear")
    left.set(xlabel="round", ylabel="accuracy on held-out windows", xticks=list(plain), ylim=(0, 1))
    left.legend()
    names = list(outcome.rewards())
    bottom = np.zeros(len(names))
    for number in range(1, outcome.rounds + 1):
        heights = np.array([outcome.rewards()[name].get(number, 0) / 1e6 for name in names])
        right.bar(names, heights, bottom=bottom, label=f"round {number}")
        bottom += heights
    right.set(ylabel="reward", xlabel="participant")
    right.tick_params(axis="x", rotation=45)
    right.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    return [("accuracy and rewards", "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode())]
