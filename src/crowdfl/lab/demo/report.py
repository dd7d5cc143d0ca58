"""What a demo campaign showed: tables and a picture, for the terminal and for one HTML page."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdfl.cli.settings_file import read_service
from crowdfl.cli.task.files import read_model
from crowdfl.lab.demo.plain import Heard, Plain, uploads_of, weighted
from crowdfl.lab.demo.servers import Sight, look_at
from crowdfl.lab.report.html import page_html, result_section, section_html
from crowdfl.lab.report.plots import Picture, Series, bars, lines, panels
from crowdfl.lab.report.results import Result, ResultTable
from crowdfl.lab.timing import machine
from crowdfl.learning.models.shape import Weights
from crowdfl.roles.participant import arrays_from_npz
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.services.run import read_ledger
from crowdfl.settings import SpSettings, from_millionths

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FinishedCampaign", "campaign_result", "write_page"]

_READABLE = {
    "kgc": "who was invited, under pseudonyms",
    "sp": "the definition, sizes and times; amounts once they are claimed",
    "csp": "masked numbers, uniform whatever the data; amounts once they are claimed",
}


@dataclass
class FinishedCampaign:
    """A finished campaign, as its processes told it and as their files show it."""

    folder: Path
    task: str
    heard: Heard
    report: dict[str, Any]
    rounds: int
    drops: int
    vanishes: int
    plain: Plain = field(repr=False)
    seconds: float = 0.0

    def said(self, event: str) -> Heard:
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
        return uploads_of(self.heard)

    @cached_property
    def rewards(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for name, details in self.said("rewarded"):
            found.setdefault(name, {})[details["round"]] = details["millionths"]
        return dict(sorted(found.items()))

    @cached_property
    def late(self) -> list[str]:
        rows = self.said("uploaded")
        return [f"{name}'s of round {details['round']}" for name, details in rows if details["late"]]

    @cached_property
    def final(self) -> Weights | None:
        """The model that the requester fetched."""
        path = self.folder / "model.npz"
        return read_model(path)[1] if path.exists() else None

    @cached_property
    def averages(self) -> dict[int, Weights]:
        """What readers hold of each round: a participant's copy, and the requester's of the last."""
        found = {} if self.final is None else {self.rounds: self.final}
        for number in range(1, self.rounds):
            for path in sorted(self.folder.glob(f"person-*/rounds/{number}/average"))[:1]:
                found[number] = arrays_from_npz(path.read_bytes(), read_model(self.folder / "model.npz")[0])
        return dict(sorted(found.items()))

    @cached_property
    def sights(self) -> list[Sight]:
        with np.load(self.folder / "roles" / "sp" / "blobs" / self.task / "initial", allow_pickle=False) as file:
            initial = _row(list(file.values()))
        return look_at(self.folder / "roles", self.task, [_row(model) for model in self.averages.values()], initial)


def _row(arrays: Weights) -> npt.NDArray[np.float64]:
    return np.concatenate([np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays])


def campaign_result(campaign: FinishedCampaign) -> Result:
    """Accuracy, rewards, ledger, and what the servers saw."""
    tables = (_accuracy_table, _reward_table, _ledger_table, _server_table)
    late = f"Late uploads that still counted: {', '.join(campaign.late) or 'none'}."
    return Result(
        "demo",
        "A CrowdFL campaign",
        machine(),
        {"task": campaign.task, "rounds": campaign.rounds, "profile": "hardened", "key_bits": 2048},
        tables=tuple(make(campaign) for make in tables),
        notes=(late, _search_line(campaign)),
        pictures=(Picture("demo", "Accuracy and rewards", lambda f: _draw(f, campaign), (12.0, 4.2)),),
        command="make demo",
    )


def write_page(campaign: FinishedCampaign, result: Result) -> Path:
    """One HTML page, pictures inside."""
    intro = (
        f"Ten people of a watch data set, {campaign.rounds} rounds, profile `hardened`, 2048-bit keys, "
        f"{campaign.seconds:.0f} s. Person {campaign.drops} lost its connection in round 2 and came back after the window; "
        f"person {campaign.vanishes} vanished after its first upload. Run it again with `make demo`."
    )
    section = replace(result_section(result), title=f"Task {campaign.task}", intro=intro)
    path = campaign.folder / "report.html"
    path.write_text(page_html(result.title, (), [section_html(section)]), encoding="utf-8")
    return path


def _accuracy_table(campaign: FinishedCampaign) -> ResultTable:
    columns = ("round", "uploads", "accuracy, as participants measured it", "plain FedAvg, same data", "weights apart")
    rows = tuple(_accuracy_row(campaign, number) for number in range(1, campaign.rounds + 1))
    note = "Round 1 differs by the rounding to six decimals; later rounds train on from there, which can amplify it."
    return ResultTable("The model, on held-out windows", columns, rows, note)


def _accuracy_row(campaign: FinishedCampaign, number: int) -> tuple[str, ...]:
    measured, plain = campaign.measured(number), campaign.plain
    ours, clear, apart = "-", "-", "-"
    if measured:
        ours = f"{weighted(list(measured.values())):.3f} by {len(measured)} people"
        clear = f"{plain.over(number, list(measured)):.3f}"
    elif number == campaign.rounds and campaign.final is not None:
        ours = f"not theirs to read; the requester's model: {plain.measure(campaign.final):.3f}"
        clear = f"{plain.over(number, list(plain.trainers)):.3f}"
    if number in campaign.averages and number in plain.averages:
        apart = f"{np.abs(_row(campaign.averages[number]) - _row(plain.averages[number])).max():.1e}"
    return str(number), str(len(campaign.uploads.get(number, []))), ours, clear, apart


def _reward_table(campaign: FinishedCampaign) -> ResultTable:
    numbers = range(1, campaign.rounds + 1)
    columns = ("participant", *(f"round {n}" for n in numbers), "paid")
    paid = {name: details["millionths"] for name, details in campaign.said("paid")}
    rows = tuple(
        (name, *(_money(earned.get(n)) for n in numbers), _money(paid.get(name)))
        for name, earned in campaign.rewards.items()
    )
    return ResultTable("Rewards, as each participant read its own", columns, rows)


def _ledger_table(campaign: FinishedCampaign) -> ResultTable:
    told = ", ".join(f"{n.replace('_', ' ')} {_money(campaign.report[n])}" for n in ("paid_in", "rewards", "returned"))
    rows = tuple((m.name, m.source, m.target, _money(m.amount)) for m in campaign.books.movements)
    note = f"The requester is told sums alone: {told}."
    return ResultTable("The ledger, as SP keeps it", ("movement", "from", "to", "amount"), rows, note)


def _server_table(campaign: FinishedCampaign) -> ResultTable:
    columns = ("server", "key shares in its files", "received", "its folder", "could read")
    rows = tuple(
        (sight.server.upper(), ", ".join(sight.shares) or "none", sight.received, sight.keeps, _READABLE[sight.server])
        for sight in campaign.sights
    )
    return ResultTable("What each server saw", columns, rows)


def _money(millionths: int | None) -> str:
    return "-" if millionths is None else f"{from_millionths(millionths):.6f}"


def _search_line(campaign: FinishedCampaign) -> str:
    looked = sum(_row(model).size for model in campaign.averages.values())
    found, public = sum(s.averages for s in campaign.sights), max(s.initial for s in campaign.sights)
    return (
        f"Of the {looked:,} numbers of the {len(campaign.averages)} averages, {found} were found in the servers' files; "
        f"of the initial weights, which are public, {public:,} (so the search does find)."
    )


def _draw(figure: "Figure", campaign: FinishedCampaign) -> None:
    left, right = panels(figure, 2)
    plain, everyone = campaign.plain, list(campaign.plain.trainers)
    ours = {number: plain.measure(model) for number, model in campaign.averages.items()}
    clear = {number: plain.over(number, everyone) for number in plain.averages}
    series = {
        "CrowdFL, encrypted": Series(list(ours), list(ours.values())),
        "FedAvg, in the clear": Series(list(clear), list(clear.values()), style="x--"),
    }
    lines(left, series, xlabel="round", ylabel="accuracy on everyone's held-out windows")
    left.set(xticks=list(clear), ylim=(0, 1))
    rounds = range(1, campaign.rounds + 1)
    stacks = {f"round {n}": [earned.get(n, 0) / 1e6 for earned in campaign.rewards.values()] for n in rounds}
    bars(right, list(campaign.rewards), stacks, stacked=True, xlabel="participant", ylabel="reward")
    right.tick_params(axis="x", rotation=45)
