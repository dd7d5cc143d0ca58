"""What a demo campaign showed: tables and a picture, for the terminal and for one HTML page.

It is compared with FedAvg in the clear, on the same data, with the same people in each round.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdfl.cli.settings_file import read_service
from crowdfl.lab.demo.servers import KeySight, Row, Sight, look_at
from crowdfl.lab.report.html import page_html, result_section, section_html
from crowdfl.lab.report.plots import Picture, Series, bars, lines, panels
from crowdfl.lab.report.results import Result, ResultTable
from crowdfl.lab.timing import machine
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.training import LocalTrainer
from crowdfl.roles.participant import arrays_from_npz
from crowdfl.services.run import read_ledger
from crowdfl.settings import SpSettings, from_millionths
from crowdfl.storage.model_files import read_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUNDS = 3
DROPS = 3  # this person trains in round 2, loses the connection, and sends again after the window
VANISHES = 8  # this person is never heard of again after its first upload
_READABLE = {
    "kgc": "who was invited, under pseudonyms",
    "sp": "the definition, sizes and times; amounts once they are claimed",
    "csp": "masked numbers, uniform whatever the data; amounts once they are claimed",
}
_Heard = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Plain:
    """The average of each round, and how it does on the held-out windows of each person who was ever in."""

    averages: Mapping[int, Weights]
    accuracy: Mapping[int, Mapping[int, Mapping[str, float]]]  # by round and person: accuracy, windows
    trainers: Mapping[int, LocalTrainer]

    def over(self, number: int, people: Sequence[int]) -> float:
        return _weighted([self.accuracy[number][person] for person in people])

    def measure(self, model: Weights) -> float:
        return _weighted([trainer.evaluate(model) for trainer in self.trainers.values()])


def _uploads(heard: _Heard) -> dict[int, list[int]]:
    who: dict[int, list[int]] = {}
    for name, details in heard:
        if details["event"] == "uploaded":
            who.setdefault(details["round"], []).append(int(name.split()[1]))
    return {number: sorted(people) for number, people in sorted(who.items())}


def plain_fedavg(task_file: Path, heard: _Heard) -> Plain:
    training, rounds = tomllib.loads(task_file.read_text())["training"], _uploads(heard)
    trainers = {person: LocalTrainer(f"watch:{person}", training) for people in rounds.values() for person in people}
    averages: dict[int, Weights] = {}
    accuracy = {}
    learner = next(iter(trainers.values())).learner
    model = learner.weights()
    for number, people in rounds.items():
        trained = [trainers[person].train(model, training, number) for person in people]
        average = fedavg([learner.shape.flat(arrays) for arrays, _ in trained], [samples for _, samples in trained])
        model = averages[number] = learner.shape.arrays(average)
        accuracy[number] = {person: trainer.evaluate(model) for person, trainer in trainers.items()}
    return Plain(averages, accuracy, trainers)


def _weighted(rows: Sequence[Mapping[str, float]]) -> float:
    return float(np.average([row["accuracy"] for row in rows], weights=[row["windows"] for row in rows]))


@dataclass
class FinishedCampaign:
    """A finished campaign, as its processes told it and as their files show it."""

    folder: Path
    task: str
    heard: _Heard
    report: dict[str, Any]
    plain: Plain = field(repr=False)
    keys: KeySight = field(repr=False)
    profile: str
    seconds: float = 0.0

    def said(self, event: str) -> _Heard:
        return [(name, details) for name, details in self.heard if details.get("event") == event]

    @cached_property
    def rewards(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for name, details in self.said("rewarded"):
            found.setdefault(name, {})[details["round"]] = details["millionths"]
        return dict(sorted(found.items()))

    @cached_property
    def final(self) -> Weights | None:
        path = self.folder / "model.npz"
        return read_model(path)[1] if path.exists() else None

    @cached_property
    def averages(self) -> dict[int, Weights]:
        """What readers hold of each round: a participant's copy, and the requester's of the last."""
        found = {} if self.final is None else {_ROUNDS: self.final}
        for number in range(1, _ROUNDS):
            for path in sorted(self.folder.glob(f"person-*/rounds/{number}/average"))[:1]:
                found[number] = arrays_from_npz(path.read_bytes(), read_model(self.folder / "model.npz")[0])
        return dict(sorted(found.items()))

    @cached_property
    def sights(self) -> list[Sight]:
        with np.load(self.folder / "roles" / "sp" / "blobs" / self.task / "initial", allow_pickle=False) as file:
            initial = _row(list(file.values()))
        averages = [_row(model) for model in self.averages.values()]
        return look_at(self.folder / "roles", self.task, self.keys, averages, initial)


def _row(arrays: Weights) -> Row:
    return np.concatenate([np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays])


def campaign_result(campaign: FinishedCampaign) -> Result:
    tables = (_accuracy_table, _reward_table, _ledger_table, _server_table)
    late = [f"{name}'s of round {upload['round']}" for name, upload in campaign.said("uploaded") if upload["late"]]
    return Result(
        "demo",
        "A CrowdFL campaign",
        machine(),
        {"task": campaign.task, "rounds": _ROUNDS, "profile": campaign.profile},
        tables=tuple(make(campaign) for make in tables),
        notes=(f"Late uploads that still counted: {', '.join(late) or 'none'}.", _search_line(campaign)),
        pictures=(Picture("demo", "Accuracy and rewards", lambda f: _draw(f, campaign), (12.0, 4.2)),),
        command=_command(campaign),
    )


def write_page(campaign: FinishedCampaign, result: Result) -> Path:
    intro = (
        f"Ten people of a watch data set, {_ROUNDS} rounds, profile `{campaign.profile}`, "
        f"{campaign.seconds:.0f} s. Person {DROPS} lost its connection in round 2 and came back after the window; "
        f"person {VANISHES} vanished after its first upload. Run it again with `{_command(campaign)}`."
    )
    section = replace(result_section(result), title=f"Task {campaign.task}", intro=intro)
    path = campaign.folder / "report.html"
    path.write_text(page_html(result.title, (), [section_html(section)]), encoding="utf-8")
    return path


def _command(campaign: FinishedCampaign) -> str:
    return "make demo" if campaign.profile == "hardened" else f"make demo PROFILE={campaign.profile}"


def _accuracy_table(campaign: FinishedCampaign) -> ResultTable:
    columns = ("round", "uploads", "accuracy, as participants measured it", "plain FedAvg, same data", "weights apart")
    rows = tuple(_accuracy_row(campaign, number) for number in range(1, _ROUNDS + 1))
    note = "Round 1 differs by the rounding to six decimals; later rounds train on from there, which can amplify it."
    return ResultTable("The model, on held-out windows", columns, rows, note)


def _accuracy_row(campaign: FinishedCampaign, number: int) -> tuple[str, ...]:
    plain, ours, clear, apart = campaign.plain, "-", "-", "-"
    measured = {int(name.split()[1]): said for name, said in campaign.said("read") if said["round"] == number}
    if measured:
        ours = f"{_weighted(list(measured.values())):.3f} by {len(measured)} people"
        clear = f"{plain.over(number, list(measured)):.3f}"
    elif number == _ROUNDS and campaign.final is not None:
        ours = f"not theirs to read; the requester's model: {plain.measure(campaign.final):.3f}"
        clear = f"{plain.over(number, list(plain.trainers)):.3f}"
    if number in campaign.averages and number in plain.averages:
        apart = f"{np.abs(_row(campaign.averages[number]) - _row(plain.averages[number])).max():.1e}"
    return str(number), str(len(_uploads(campaign.heard).get(number, []))), ours, clear, apart


def _reward_table(campaign: FinishedCampaign) -> ResultTable:
    numbers = range(1, _ROUNDS + 1)
    columns = ("participant", *(f"round {n}" for n in numbers), "paid")
    paid = {name: details["millionths"] for name, details in campaign.said("paid")}
    rows = tuple(
        (name, *(_money(earned.get(n)) for n in numbers), _money(paid.get(name)))
        for name, earned in campaign.rewards.items()
    )
    return ResultTable("Rewards, as each participant read its own", columns, rows)


def _ledger_table(campaign: FinishedCampaign) -> ResultTable:
    told = ", ".join(f"{n.replace('_', ' ')} {_money(campaign.report[n])}" for n in ("paid_in", "rewards", "returned"))
    # From SP's own store: the requester is told sums alone.
    books = read_ledger(read_service(SpSettings, campaign.folder / "roles/sp/settings.toml"), campaign.task)
    rows = tuple((m.name, m.source, m.target, _money(m.amount)) for m in books.movements)
    note = f"The requester is told sums alone: {told}."
    return ResultTable("The ledger, as SP keeps it", ("movement", "from", "to", "amount"), rows, note)


def _server_table(campaign: FinishedCampaign) -> ResultTable:
    columns = ("server", "secrets in its files", "after the end", "received", "its folder", "could read")
    rows = tuple(
        (
            sight.server.upper(),
            ", ".join(sight.held) or "none",
            ", ".join(sight.left) or "none",
            sight.received,
            sight.keeps,
            _READABLE[sight.server],
        )
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
        "CrowdFL, protected": Series(list(ours), list(ours.values())),
        "FedAvg, in the clear": Series(list(clear), list(clear.values()), style="x--"),
    }
    lines(left, series, xlabel="round", ylabel="accuracy on everyone's held-out windows")
    left.set(xticks=list(clear), ylim=(0, 1))
    rounds = range(1, _ROUNDS + 1)
    stacks = {f"round {n}": [earned.get(n, 0) / 1e6 for earned in campaign.rewards.values()] for n in rounds}
    bars(right, list(campaign.rewards), stacks, stacked=True, xlabel="participant", ylabel="reward")
    right.tick_params(axis="x", rotation=45)
