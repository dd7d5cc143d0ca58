"""What a demo campaign showed: tables and pictures, for the terminal and for one HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING

from crowdfl.services.run import read_ledger
from crowdfl.settings import SpSettings, from_millionths
from crowdfl.storage.settings_file import read_service
from crowdfl_lab.demo.finished import ROUNDS, FinishedCampaign, person_of, row_of, weighted
from crowdfl_lab.report.output import page_html, section_html
from crowdfl_lab.report.plots import Picture, Series, bars, lines, panels
from crowdfl_lab.report.results import Result, ResultTable
from crowdfl_lab.timing import machine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DROPS = 3  # this person trains in round 2, loses the connection, and sends again after the window
VANISHES = 8  # this person is never heard of again after its first upload
_READABLE = {
    "kgc": "who was invited, under pseudonyms",
    "sp": "the definition, sizes and times; amounts once they are claimed",
    "csp": "masked numbers, uniform whatever the data; amounts once they are claimed",
}


def campaign_result(campaign: FinishedCampaign) -> Result:
    tables = (accuracy_table, _reward_table, _ledger_table, _server_table)
    return Result(
        "demo",
        "A CrowdFL campaign" if campaign.definition is None else campaign.definition.purpose,
        machine(),
        {"rounds": ROUNDS, "profile": campaign.profile},
        tables=tuple(make(campaign) for make in tables),
        notes=(headline(campaign), _search_line(campaign)),
        pictures=(
            Picture("demo-accuracy", "Accuracy by round", lambda f: _draw_accuracy(f, campaign), (4.8, 3.4)),
            Picture("demo-rewards", "Rewards by person", lambda f: _draw_rewards(f, campaign), (4.8, 3.4)),
        ),
        command=_command(campaign),
    )


def headline(campaign: FinishedCampaign) -> str:
    """What all this is for."""
    found = sum(sight.averages for sight in campaign.sights)
    return f"{found:,} of {_numbers(campaign):,} numbers found in the servers' files"


def write_page(campaign: FinishedCampaign, result: Result) -> Path:
    intro = (
        f"A CrowdFL campaign: ten people of a watch data set, {ROUNDS} rounds, profile `{campaign.profile}`, "
        f"{campaign.seconds:.0f} s. Person {DROPS} lost its connection in round 2 and came back after the window; "
        f"person {VANISHES} vanished after its first upload. Run it again with `{_command(campaign)}`."
    )
    people = ", ".join(f"{name} {who}" for who, name in sorted(campaign.names.items(), key=lambda one: one[1]))
    first, *notes = result.notes
    changes = {"notes": notes, "facts": {"task": campaign.task, "people": people} | result.facts}
    path, section = (
        campaign.folder / "report.html",
        section_html(result, title="", intro=intro, headline=first, **changes),
    )
    path.write_text(page_html(result.title, (), [section]), encoding="utf-8")
    return path


def _command(campaign: FinishedCampaign) -> str:
    return "make demo" if campaign.profile == "hardened" else f"make demo PROFILE={campaign.profile}"


def accuracy_table(campaign: FinishedCampaign) -> ResultTable:
    columns = (
        "round",
        "uploads",
        "CrowdFL",
        "FedAvg in the clear",
        "as participants measured it",
        "weights apart",
        "of it, in this round",
    )
    rows = tuple(_accuracy_row(campaign, number) for number in range(ROUNDS + 1))
    note = "Round 0 is the initial model, before anyone trained. Accuracy is measured on everyone's held-out windows."
    return ResultTable("Accuracy of the model, by round", columns, rows, "\n".join([note, *why_apart(campaign)]))


def _accuracy_row(campaign: FinishedCampaign, number: int) -> tuple[str, ...]:
    plain, ours, clear = campaign.plain, "-", "-"
    if number in campaign.models and plain.trainers:
        ours = f"{plain.measure(campaign.models[number]):.3f}"
    if number in plain.averages:
        clear = f"{plain.over(number):.3f}"
    count = str(len(plain.people.get(number, ()))) if number else "-"
    return str(number), count, ours, clear, _as_measured(campaign, number), *map(_small, campaign.apart(number))


def _as_measured(campaign: FinishedCampaign, number: int) -> str:
    measured = [said for _, said in campaign.said("read") if said["round"] == number]
    if measured:
        return f"{weighted(measured):.3f} by {len(measured)} people"
    return "the requester's alone" if number == ROUNDS else "-"


def _small(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _reward_table(campaign: FinishedCampaign) -> ResultTable:
    numbers = range(1, ROUNDS + 1)
    columns = ("participant", *(f"round {n}" for n in numbers), "paid")
    paid = {name: details["millionths"] for name, details in campaign.said("paid")}
    rows = tuple(
        (name, *(_money(earned.get(n)) for n in numbers), _money(paid.get(name)))
        for name, earned in campaign.rewards.items()
    )
    note = f"Person {VANISHES} vanished before it read what round 1 paid it. Nobody claimed it: it went back to the requester."
    return ResultTable("Rewards, as each participant read its own", columns, rows, note)


def _ledger_table(campaign: FinishedCampaign) -> ResultTable:
    told = ", ".join(f"{n.replace('_', ' ')} {_money(campaign.report[n])}" for n in ("paid_in", "rewards", "returned"))
    # From SP's own store: the requester is told sums alone.
    books = read_ledger(read_service(SpSettings, campaign.folder / "roles/sp/settings.toml"), campaign.task)
    rows = tuple((*_named(campaign, m.name, m.source, m.target), _money(m.amount)) for m in books.movements)
    note = f"The requester is told sums alone: {told}."
    return ResultTable("The ledger, as SP keeps it", ("movement", "from", "to", "amount"), rows, note)


def _named(campaign: FinishedCampaign, *texts: str) -> tuple[str, ...]:
    """With people's names in the place of their pseudonyms."""
    for who, name in campaign.names.items():
        texts = tuple(text.replace(f"participant {who}", name).replace(who, name) for text in texts)
    return texts


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


def _numbers(campaign: FinishedCampaign) -> int:
    return sum(row_of(model).size for model in campaign.averages.values())


def _search_line(campaign: FinishedCampaign) -> str:
    public = max(sight.initial for sight in campaign.sights)
    return (
        f"What was looked for: the {_numbers(campaign):,} numbers of the {len(campaign.averages)} averages, in every file of "
        f"the three servers. Of the initial weights, which are public, {public:,} were found: the search does find."
    )


def why_apart(campaign: FinishedCampaign) -> list[str]:
    """What makes the weights differ, and what does not: in words, with what was measured."""
    late = [f"{name}'s of round {upload['round']}" for name, upload in campaign.said("uploaded") if upload["late"]]
    said = [f"Late uploads that still counted: {', '.join(late) or 'none'}."]
    if late:
        said[0] += (
            " They do not move the average: a late upload was made from the same model as the others, "
            "and the servers' sum is the same in any order."
        )
    if alone := [one for number in campaign.averages if (one := campaign.apart(number)[1]) is not None]:
        said.append(
            f"Why `weights apart` grows from round to round, whether or not anyone is late: each average is rounded, and "
            f"people train on from it. Training enlarges the difference: a unit or a step of the optimiser may go the other "
            f"way. If FedAvg starts every round from CrowdFL's own last model, at most {max(alone):.1e} is left."
        )
    shortened = sum("scaled" in details for _, details in campaign.said("trained"))
    if shortened:
        said.append(
            f"{shortened} updates were longer than `max_norm` and were shortened. FedAvg in the clear does not do that."
        )
    return said


def _draw_accuracy(figure: "Figure", campaign: FinishedCampaign) -> None:
    (axes,) = panels(figure, 1)
    plain = campaign.plain
    ours = {number: plain.measure(model) for number, model in campaign.models.items() if plain.trainers}
    clear = {number: plain.over(number) for number in plain.averages}
    series = {
        "CrowdFL, protected": Series(list(ours), list(ours.values())),
        "FedAvg, in the clear": Series(list(clear), list(clear.values()), style="x--"),
    }
    lines(axes, series, xlabel="round (0: the initial model)", ylabel="accuracy, held-out windows")
    axes.set(xticks=list(clear), ylim=(0, 1))
    axes.legend(loc="lower right")


def _draw_rewards(figure: "Figure", campaign: FinishedCampaign) -> None:
    (axes,) = panels(figure, 1)
    rounds = range(1, ROUNDS + 1)
    stacks = {f"round {n}": [earned.get(n, 0) / 1e6 for earned in campaign.rewards.values()] for n in rounds}
    bars(
        axes,
        [str(person_of(name)) for name in campaign.rewards],
        stacks,
        stacked=True,
        xlabel="person",
        ylabel="reward",
    )
    axes.margins(y=0.2)
    axes.legend(loc="upper center", ncols=ROUNDS)
