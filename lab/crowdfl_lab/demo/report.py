"""What a demo campaign showed: tables and pictures, for the terminal and below the report that every requester has."""

from pathlib import Path

from crowdfl.campaigns.report import TaskReport
from crowdfl.disclosures import learnt_in
from crowdfl.services.run import read_ledger
from crowdfl.settings import SpSettings
from crowdfl.storage.settings_file import read_service
from crowdfl_lab.demo.both import BothRounds, both_tables, both_words, money, pay_picture
from crowdfl_lab.demo.finished import FinishedCampaign
from crowdfl_lab.demo.heard import person_of
from crowdfl_lab.demo.plain import weighted
from crowdfl_lab.report.output import section_html
from crowdfl_lab.report.plots import Canvas, Picture, Series, bars, lines, panels
from crowdfl_lab.report.results import Result, ResultTable
from crowdfl_lab.timing import machine

DROPS = 3  # this person trains in round 2, loses the connection, and sends again after the window


def campaign_result(campaign: FinishedCampaign, both: BothRounds | None = None) -> Result:
    """`both`: one of its rounds under two profiles, if that was played."""
    tables = (_reward_table, _ledger_table, _server_table)
    return Result(
        "demo",
        "A CrowdFL campaign" if campaign.definition is None else campaign.definition.purpose,
        machine(),
        {"rounds": campaign.rounds, "profile": campaign.profile},
        tables=(accuracy_table(campaign), *(both_tables(both) if both else ()), *(make(campaign) for make in tables)),
        notes=searched(campaign),
        pictures=(
            Picture("demo-accuracy", "Accuracy by round", lambda f: _draw_accuracy(f, campaign), (4.8, 3.4)),
            Picture("demo-rewards", "Rewards by person", lambda f: _draw_rewards(f, campaign), (4.8, 3.4)),
            *([pay_picture(both)] if both else ()),
        ),
        command="make demo" if campaign.profile == "shares" else f"make demo PROFILE={campaign.profile}",
    )


def searched(campaign: FinishedCampaign) -> tuple[str, str]:
    """What all this is for, and what was looked for."""
    numbers, found = sum(map(len, campaign.averages)), sum(sight.averages for sight in campaign.sights)
    public = max(sight.initial for sight in campaign.sights)
    return (
        f"The servers computed the model without seeing it: {found:,} of its {numbers:,} numbers found in their files"
        if not found
        else f"{found:,} of {numbers:,} numbers found in the servers' files",
        f"What was looked for: the {numbers:,} numbers of the {len(campaign.averages)} averages, in every file of "
        "the three servers."
        + f" Of the initial weights, which are public, {public:,} were found: the search does find." * bool(public)
        + " CSP of `paper` writes them nowhere, but reads them as it works: `crowdfl audit` shows how."
        * (campaign.profile == "paper"),
    )


def write_page(campaign: FinishedCampaign, told: TaskReport, result: Result, both: BothRounds | None = None) -> Path:
    """The task's report, and below it what a demo can compare since it has every party's folder."""
    intro = (
        f"A CrowdFL campaign: {len(campaign.names)} people of a watch data set, {campaign.rounds} rounds, profile "
        f"`{campaign.profile}`, {campaign.seconds:.0f} s. Person {DROPS} lost its connection in round 2 and came back after "
        f"the window; person {campaign.vanished} vanished after its first upload. Run it again with `{result.command}`."
    ) + (f" {both_words(both)}" if both else "")
    people = ", ".join(f"{name} {who}" for who, name in sorted(campaign.names.items(), key=lambda one: one[1]))
    first, *notes = result.notes
    changes = {"notes": notes, "facts": {"task": campaign.task, "people": people} | result.facts}
    section = section_html(result, title="What the demo compared", intro=intro, headline=first, **changes)
    path = campaign.folder / "report.html"
    path.write_text(told.html(more=section), encoding="utf-8")
    return path


def accuracy_table(campaign: FinishedCampaign) -> ResultTable:
    columns = ("round", "uploads", "CrowdFL", "FedAvg in the clear", "as participants measured it", "weights apart")
    plain, rows = campaign.plain, []
    for number in range(campaign.rounds + 1):
        models = (campaign.models.get(number), plain.averages.get(number))
        ours, clear = (f"{plain.measure(m):.3f}" if m is not None and plain.trainers else "-" for m in models)
        count = str(len(plain.people.get(number, ()))) if number else "-"
        apart = f"{campaign.apart[number]:.1e}" if number in campaign.apart else "-"
        rows.append((str(number), count, ours, clear, _as_measured(campaign, number), apart))
    return ResultTable("Accuracy of the model, by round", columns, tuple(rows), "\n".join(accuracy_notes(campaign)))


def _as_measured(campaign: FinishedCampaign, number: int) -> str:
    measured = [said for _, said in campaign.said("read") if said["round"] == number]
    if measured:
        return f"{weighted(measured):.3f} by {len(measured)} people"
    return "the requester's alone" if number == campaign.rounds else "-"


def accuracy_notes(campaign: FinishedCampaign) -> list[str]:
    late = [f"{name}'s of round {upload['round']}" for name, upload in campaign.said("uploaded") if upload["late"]]
    said = [
        "Round 0 is the initial model, before anyone trained. Accuracy is measured on everyone's held-out windows.",
        "Weights apart: the largest difference of any weight to FedAvg in the clear that starts from the same model. Averages "
        "are rounded; from round to round training enlarges such differences.",
        f"Late uploads that still counted: {', '.join(late) or 'none'}."
        + " They do not move the average: the servers' sum is the same in any order." * bool(late),
    ]
    if shortened := sum("scaled" in details for _, details in campaign.said("trained")):
        how = "longer than `max_norm` and were shortened. FedAvg in the clear does not do that."
        said.append(f"{shortened} updates were {how}")
    return said


def _reward_table(campaign: FinishedCampaign) -> ResultTable:
    numbers = range(1, campaign.rounds + 1)
    columns = ("participant", *(f"round {n}" for n in numbers), "claimed")
    claimed = {name: details["millionths"] for name, details in campaign.said("claimed")}
    rows = tuple(
        (name, *(money(earned.get(n)) for n in numbers), money(claimed.get(name)))
        for name, earned in campaign.rewards.items()
    )
    gone = f"Person {campaign.vanished} vanished before it read what round 1 paid it."
    back = f"person {campaign.vanished}" in claimed
    note = f"{gone} It came back after the end and claimed it." if back else f"{gone} It has not claimed it."
    return ResultTable("Rewards, as each participant read its own", columns, rows, note)


def _ledger_table(campaign: FinishedCampaign) -> ResultTable:
    """With people's names in the place of their pseudonyms. From SP's own store: the requester is told sums alone."""

    def named(text: str) -> str:
        for who, name in campaign.names.items():
            text = text.replace(f"participant {who}", name).replace(who, name)
        return text

    books = read_ledger(read_service(SpSettings, campaign.folder / "roles/sp/settings.toml"), campaign.task)
    rows = tuple((*map(named, (m.name, m.source, m.target)), money(m.amount)) for m in books.movements)
    told = ", ".join(
        f"{n.replace('_', ' ')} {money(campaign.report[n] or 0)}" for n in ("paid_in", "earned", "returned")
    )
    note = f"The requester is told sums alone: {told}."
    return ResultTable("The ledger, as SP keeps it", ("movement", "from", "to", "amount"), rows, note, folded=True)


def _server_table(campaign: FinishedCampaign) -> ResultTable:
    columns = ("server", "secrets in its files", "after the end", "received", "its folder", "learns")
    learnt = {row.party: row.learns for row in reversed(learnt_in(campaign.profile))}
    rows = []
    for sight in campaign.sights:
        secrets = (", ".join(found) or "none" for found in (sight.held, sight.left))
        rows.append((sight.server.upper(), *secrets, sight.received, sight.keeps, learnt[sight.server.upper()]))
    return ResultTable("What each server saw", columns, tuple(rows))


def _draw_accuracy(figure: Canvas, campaign: FinishedCampaign) -> None:
    (axes,) = panels(figure, 1)
    plain = campaign.plain
    ours = {number: plain.measure(model) for number, model in campaign.models.items() if plain.trainers}
    clear = {number: plain.measure(model) for number, model in plain.averages.items()}
    series = {
        "CrowdFL, protected": Series(list(ours), list(ours.values())),
        "FedAvg, in the clear": Series(list(clear), list(clear.values()), style="x--"),
    }
    lines(axes, series, xlabel="round (0: the initial model)", ylabel="accuracy, held-out windows")
    axes.set(xticks=list(clear), ylim=(0, 1))
    axes.legend(loc="lower right")


def _draw_rewards(figure: Canvas, campaign: FinishedCampaign) -> None:
    (axes,) = panels(figure, 1)
    people = [str(person_of(name)) for name in campaign.rewards]
    rounds = range(1, campaign.rounds + 1)
    stacks = {f"round {n}": [earned.get(n, 0) / 1e6 for earned in campaign.rewards.values()] for n in rounds}
    bars(axes, people, stacks, stacked=True, xlabel="person", ylabel="reward")
    axes.margins(y=0.2)
    axes.legend(loc="upper center", ncols=campaign.rounds)
