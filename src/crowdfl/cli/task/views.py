"""What `crowdfl task` shows and writes: lists, states and orders in words, the task file to start from, links and codes."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdfl.cli.output import clean
from crowdfl.cli.waiting import waiting
from crowdfl.documents.signed import Definition
from crowdfl.effects import idle_settings
from crowdfl.errors import CrowdFLError, PackageMissing, ServiceUnavailable
from crowdfl.learning.datasets.sources import each_person
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.defining import DECIDED, WATCH_TASK
from crowdfl.roles.recipe_check import NOT_TRIED, RecipeTrial, norm_advice, try_recipe
from crowdfl.roles.records import EndedBy, Tombstone
from crowdfl.roles.requester import Requester
from crowdfl.roles.waiting import Wait, amount_words, waits_for
from crowdfl.schema import SettingsTable, settable
from crowdfl.services.client.opening import link_of
from crowdfl.settings import (
    AskerSettings,
    ConsentSettings,
    PlanSettings,
    TaskFile,
    TaskSettings,
    TextsSettings,
    TrainingSettings,
    money_words,
)
from crowdfl.storage.settings_texts import commented, template_text
from crowdfl.task_tables import COMMON_SETTINGS, OWN_SETTINGS, STEP, STEP_NAMES
from crowdfl.text import span_words

SUMS = ("pending", "paid_in", "offered", "earned", "returned")
_LONGEST = 76  # of a purpose, in 80 columns


def listed(requester: Requester) -> list[dict[str, Any]]:
    """The last one first. What cannot be read or asked is said in its row; a platform that is away is asked once."""
    rows, away = [], ""
    for task in requester.tasks():
        row = _from_folder(requester, task)
        if not row["problem"]:
            try:
                row |= {"problem": away} if away else _from_platform(requester, task)
            except ServiceUnavailable as why:
                row["problem"] = away = str(why)
            except CrowdFLError as why:
                row["problem"] = str(why)
        rows.append(row)
    return rows


def _from_folder(requester: Requester, task: str) -> dict[str, Any]:
    row: dict[str, Any] = {"task": task, "purpose": "", "problem": ""}
    try:
        definition = requester.definition(task)
    except CrowdFLError as why:  # one file that is damaged, or of a newer version, hides no other task
        return row | {"problem": str(why)}
    settings = definition.settings
    return row | {
        "purpose": definition.purpose,
        "profile": settings.profile,
        "rounds": settings.rounds,
        "currency": settings.currency,
    }


def _from_platform(requester: Requester, task: str) -> dict[str, Any]:
    status, report = requester.sp.status(task), requester.report(task)
    sums = {name: report[name] for name in SUMS}
    done = sum(one["state"] == "rewarded" for one in status["rounds"])
    waits = waits_for(requester.definition(task), status, report)
    return {"state": status["state"], "done": done, "enrolled": status["enrolled"], "waits": waits, **sums}


def task_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Each task's id, and below it its purpose, where it stands and what it waits for."""
    lines = []
    for row in rows:
        words = row["purpose"] if len(row["purpose"]) <= _LONGEST else f"{row['purpose'][: _LONGEST - 3]}..."
        lines += [row["task"], f"    {words}"] if words else [row["task"]]
        if "state" in row:
            people = f"{row['enrolled']} enrolled"
            lines.append(f"    {row['state']}; {row['done']} of {row['rounds']} rounds; {people}; {_money(row)}")
            lines += [f"    waits for {waited}" for waited in row["waits"]]
    return lines


def problem_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Each problem once, with the tasks that have it."""
    problems: dict[str, list[str]] = {}
    for row in rows:
        if row["problem"]:
            problems.setdefault(row["problem"], []).append(row["task"][:8])
    return [f"not known of {', '.join(tasks)}: {why}" for why, tasks in problems.items()]


def _money(row: Mapping[str, Any]) -> str:
    sums = {name: f"{amount_words(row[name])} {row['currency']}" for name in ("pending", "paid_in", "returned")}
    returned = f", {sums['returned']} returned" if row["returned"] else ""
    pending = f", {sums['pending']} pending" if row["pending"] else ""
    return f"{sums['paid_in']} paid in{returned}{pending}"


_AFTER: Mapping[str, str] = {
    "pause": "the task is paused: no upload is taken and no round opens until `crowdfl task resume {task}`",
    "resume": "the task goes on; `crowdfl task watch {task}` shows where it stands",
    "cancel": "the task is cancelled: there are no further rounds, people can claim what they have earned, and the rest of "
    "the money is returned; `crowdfl task report {task}` shows it, `crowdfl task fetch {task} FILE` gets the last model",
    "close": "enrolment is closed: nobody else can join, and KGC has destroyed the key that it kept for newcomers; "
    "`crowdfl task watch {task}` shows what the task waits for",
}


def order_words(action: str, task: str) -> str:
    return _AFTER[action].format(task=task)


def sum_words(report: Mapping[str, Any], currency: str) -> dict[str, str]:
    """The sums of a report; what people have earned is known when claims have ended."""
    amounts = {name: report[name] for name in SUMS}
    return {
        name.replace("_", " "): "not known yet" if amount is None else money_words(amount, currency)
        for name, amount in amounts.items()
    }


def compared_words(report: Mapping[str, Any], currency: str) -> list[str]:
    """What CSP has signed, beside what SP says to have paid by it; nothing before claims have ended."""
    lines = []
    if report["sp_word"]:
        lines.append(f"{money_words(report['sp_word'], currency)} for unused uploads, on SP's word: CSP attests none")
    if report["attested"] is None:
        return lines
    lines.append(f"CSP has attested {money_words(report['attested'], currency)} in all, signed")
    if not report["attested_complete"]:
        lines.append("CSP was set back to an earlier state, and may have attested more than it knows")
    if report["difference"]:
        more = "more" if report["difference"] > 0 else "less"
        amount = money_words(abs(report["difference"]), currency)
        lines.append(f"DIFFERENCE: SP says to have paid {amount} {more} than CSP has attested: ask SP's operator why")
    return lines


def fund_words(task: str, deposit: str, amount: int, currency: str) -> str:
    paid = amount_words(amount)
    return (
        f"{paid} {currency} is announced as the deposit {deposit}. It counts once the money is with the platform and its "
        f"operator has confirmed it there: `crowdfl sp deposit confirm SETTINGS {task} {deposit} {paid} {currency}`"
    )


def created_words(task: str) -> list[str]:
    """What comes after a task was made, in the order in which it is done."""
    return [
        f"next: crowdfl task invite {task} invitations -n 5    one file for each person",
        f"      crowdfl task watch {task}                      what it waits for",
    ]


def status_words(status: Mapping[str, Any]) -> str:
    """A line on where the task stands, and one for each thing that it waits for."""
    task, now = status["task"], time.time()
    lines = [status_line(status)]
    for waited in status.get("waits", ()):
        lines.append(f"  waits for {waited}{_more(waited, task, status, now)}")
    if status["state"] == "finished":
        lines.append(f"  the model is there: `crowdfl task fetch {task} model.safetensors`")
    left = status.get("claim_seconds_left")
    if left and status["state"] in ("finished", "cancelled"):
        lines.append(f"  rewards can be claimed for another {span_words(left)}")
    return "\n".join(lines)


def status_line(status: Mapping[str, Any]) -> str:
    rounds = ", ".join(f"round {r['number']} {r['state']} ({r['uploads']} uploads)" for r in status["rounds"])
    warning = f" [{status['key']}]" if status.get("insecure") else ""
    ended = status.get("ended")
    why = f" ({Tombstone(ended['why'], EndedBy(ended['by']), ended['reason']).words()})" if ended else ""
    return f"{status['state']}{why}: {status['enrolled']} enrolled; {rounds or 'no round yet'}{warning}"


def _more(waited: Wait, task: str, status: Mapping[str, Any], now: float) -> str:
    """The command that helps, or how long it can take."""
    if waited.code == "people":
        return f": `crowdfl task invite {task} FOLDER`"
    if waited.code in ("money", "unannounced") and "to_fund" in status:
        return f": `crowdfl task fund {task} {amount_words(status['to_fund'])}` pays for all rounds"
    if waited.code == "uploads":
        left = max(0.0, status["rounds"][-1]["last_call"] - now)
        return f"; the window closes in {span_words(left)}, or once all have come"
    if waited.code == "you":
        return f": `crowdfl task resume {task}`"
    return ""


Try = Annotated[
    list[str] | None,
    typer.Option(
        "--try",
        metavar="DATA",
        help="Somebody's data, such as npz:FILE#USER, or everyone's, such as csv:FOLDER: training on it shows whether the "
        "task and its `max_norm` fit. Repeatable.",
    ),
]


def tried(
    data: Sequence[str] | None,
    definition: Definition,
    initial: Weights,
    code: tuple[str | None, str | None, str | None] = (None, None, None),
    *,
    quiet: bool,
) -> list[RecipeTrial]:
    """Each of them, or what does not fit. `code` is what was named for a module, a learner and a loss."""
    module, learner, loss = code
    found = []
    for one in (spec for text in data or () for spec in each_person(text)):
        with waiting(f"trying the task on {one}", quiet=quiet):
            found.append(try_recipe(definition, initial, one, module, learner=learner, loss=loss))
    return found


def trial_lines(trials: Sequence[RecipeTrial], definition: Definition) -> list[str]:
    lines = [line for one in trials for line in (one.told, *(f"note: {words}" for words in one.warnings))]
    lines += [advice] if (advice := norm_advice(trials, definition)) else []
    return lines or ([] if Recipe.of(definition.training).takes_functions else [NOT_TRIED])


def tell_trials(trials: Sequence[RecipeTrial], definition: Definition, *, as_json: bool) -> None:
    """On standard error: a command's answer stands alone on standard output."""
    for line in () if as_json else trial_lines(trials, definition):
        typer.echo(clean(line), err=True)


_FOR_OTHERS = {"module", "form", "scale_inputs", "target", "proximal"}  # for code, values and people of other kinds
_NOT_AT_FIRST = _FOR_OTHERS | {"hidden", "layers", "standardise", "held_out"}  # at their defaults, as comments

_KEYED_READERS = "The requester reads the last average; every participant reads the others."

_HEAD = """\
# A task: every setting. A line that begins with "# name =" shows what holds if it is left out.
"""
_FEW = """\
# What a person decides. `crowdfl task new --all` prints every setting, with what holds where it is left out.
"""
_ABOUT_STEP = "What readers make of a round's average; a table as this, without the #: docs/shares.md.\n"
_ABOUT_WHO = """\
# People read this before they join, and nothing proves it: tell them the beginning of your key by another way.
"""
_ABOUT_PLAN = """\
# As it stands this is a trial: rounds run as soon as `min_participants` have joined and all who have joined have sent.
"""
_ABOUT_CONSENT = """\
# With both, whoever joins signs that they agree; with neither, nobody is asked.
"""
_ABOUT_TEXTS = "For each language that people read besides; a table as this, without the #.\n"
_ABOUT_DATA = """\
# `labels`, `channels`, `window` and `hertz` say which data people need: these are the watch data's (watch:0 to watch:9).
# `crowdfl train --look --data DATA` prints them for yours; `crowdfl task create --try DATA` checks it before anyone is asked.
"""


def task_text(profile: str = "shares", *, every: bool = True) -> str:
    """A task file to start from: every setting, or what a person decides."""
    task, own = dict(WATCH_TASK["task"]), dict(WATCH_TASK["settings"]) | {"profile": profile}
    decided = {section: list(names) for section, names in DECIDED.items()}
    if profile != "shares":
        task["readers"] = _KEYED_READERS
        own = {name: value for name, value in own.items() if name not in OWN_SETTINGS["shares"]} | {"max_samples": 1000}
        decided["settings"].append("max_samples")
        decided["profile"] = []
    return _every(task, own) if every else _decided(task, own, decided)


def _decided(task: Mapping[str, Any], own: Mapping[str, Any], names: Mapping[str, Collection[str]]) -> str:
    profile = own["profile"]
    settings = {"window": TaskSettings.model_fields["window"].default} | dict(own)
    training = _start(TrainingSettings) | dict(WATCH_TASK["training"])
    sections: list[tuple[str, type[SettingsTable], Mapping[str, Any], Collection[str]]] = [
        ("[who]", AskerSettings, {"name": ""}, names["who"]),
        ("[settings]", TaskSettings, settings, names["settings"]),
        (f"[{profile}]", TaskSettings, settings, names["profile"]),
        ("[plan]", PlanSettings, {}, names["plan"]),
        ("[training]", TrainingSettings, training, names["training"]),
    ]
    head = f"{_FEW}{template_text(TaskFile, task, names=names['task'], short=True)}"
    parts = [f"\n{title}\n{template_text(model, own, names=some, short=True)}" for title, model, own, some in sections]
    return head + "".join(part.rstrip("\n") + "\n" for part in parts)


def _every(task: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    profile = own["profile"]
    idle = idle_settings(TaskSettings(**own))
    chosen = {name: value for name, value in _start(TaskSettings).items() if name not in idle} | dict(own)
    training = {name: value for name, value in _start(TrainingSettings).items() if name not in _NOT_AT_FIRST} | dict(
        WATCH_TASK["training"]
    )
    tables = {name for name in OWN_SETTINGS[profile] if name not in STEP_NAMES}
    step = "".join(f"{commented(short, settable(TaskSettings)[name])}\n" for name, short in STEP_NAMES.items())
    steps = f"\n# [shares.{STEP}]  {_ABOUT_STEP}{step}" if profile == "shares" else ""
    own_table = (
        f"# {settable(TaskFile)[profile].description}\n[{profile}]\n{template_text(TaskSettings, chosen, names=tables)}"
    )
    return (
        f"{_HEAD}{template_text(TaskFile, task)}"
        f"\n[settings]\n{template_text(TaskSettings, chosen, names=COMMON_SETTINGS)}"
        f"\n{own_table}{steps}"
        f"\n[who]\n{_ABOUT_WHO}{template_text(AskerSettings, {})}"
        f"\n[plan]\n{_ABOUT_PLAN}{template_text(PlanSettings, _start(PlanSettings))}"
        f"\n[consent]\n{_ABOUT_CONSENT}{template_text(ConsentSettings, {})}"
        f"\n# [texts.de]  {_ABOUT_TEXTS}{template_text(TextsSettings, {})}"
        f"\n[training]\n{_ABOUT_DATA}{template_text(TrainingSettings, training)}"
    )


def _start(model: type[SettingsTable]) -> dict[str, Any]:
    return {name: field.default for name, field in settable(model).items() if field.default is not None}


template = task_text()


def write_links(invitations: Iterable[Path], page: str) -> list[Path]:
    """invitation-3.txt beside invitation-3.json, and so on."""
    return [_write(path.with_suffix(".txt"), f"{link_of(path, page)}\n".encode()) for path in invitations]


def write_codes(invitations: Iterable[Path], page: str) -> list[Path]:
    """The same as pictures, invitation-3.svg."""
    return [_write(path.with_suffix(".svg"), _qr().qr_svg(link_of(path, page))) for path in invitations]


def code_in_letters(link: str) -> str:
    return str(_qr().qr_terminal(link))


def _write(path: Path, data: bytes) -> Path:
    """Private; without waiting for the disk, since it can be made again from its invitation."""
    path.unlink(missing_ok=True)
    path.touch(0o600, exist_ok=False)
    path.write_bytes(data)
    return path


def _qr() -> Any:  # noqa: ANN401 -- a module that not every install can load
    try:
        return import_module("crowdfl.web.qr")
    except ModuleNotFoundError as missing:
        raise PackageMissing(f"QR codes need {missing.name}: `pip install segno`") from None
