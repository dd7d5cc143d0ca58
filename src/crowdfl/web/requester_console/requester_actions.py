"""What a requester can do in its console. Calls may wait for a service; what takes long is a job, which the page looks at."""

import contextlib
import logging
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from crowdfl.campaigns.report import TaskReport
from crowdfl.crypto.randomness import secret_hex
from crowdfl.documents.invitations import Ticket
from crowdfl.documents.links import phone_page
from crowdfl.documents.signed import Definition
from crowdfl.errors import CampaignError, CrowdFLError, NotReady, QuotaExceeded, SettingsError
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.recipe import Recipe
from crowdfl.protocols.shares.round.upload import upload_bytes
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.roles.dealt import dealt_sizes
from crowdfl.roles.defining import defined, invitation_warning
from crowdfl.roles.phones import phone_obstacle
from crowdfl.roles.requester import Requester
from crowdfl.roles.waiting import unannounced, waits_for
from crowdfl.services.client.opening import link_of, read_invitation
from crowdfl.settings import RequesterSettings, to_millionths
from crowdfl.text import printable
from crowdfl.web.qr import qr_svg
from crowdfl.web.requester_console.form import Values, answer, contents, faults, values_of
from crowdfl.web.requester_console.model_evaluation import ModelEvaluation, Progress

ORDERS = ("pause", "resume", "cancel", "close")
MOST_INVITATIONS = 1000  # made at once
MOST_CODES = 50  # pictures of one answer
_log = logging.getLogger(__name__)
_KEPT, _AT_ONCE = 100, 8  # jobs

Invite = Callable[[str, Path, int, float, str], list[Path]]
"""Write so many invitations to a task into a folder, good for so many days, in whose place if in somebody's; their files."""
Work = Callable[[Progress], Any]
Row = dict[str, Any]


@dataclass
class Job:
    """One piece of work, as the page sees it."""

    name: str = field(default_factory=lambda: secret_hex(8))
    state: Literal["running", "done", "failed"] = "running"
    done: int = 0
    of: int = 0
    words: str = ""
    result: Any = None
    error: BaseException | None = field(default=None, repr=False)

    def progress(self, done: int, of: int, words: str) -> None:
        self.done, self.of, self.words = done, of, words

    def run(self, work: Work) -> None:
        try:
            self.result = work(self.progress)
            self.state = "done"
        except Exception as error:  # noqa: BLE001 -- a fault of this program too: the page says that there is one
            self.error, self.state = error, "failed"
            if not isinstance(error, CrowdFLError | OSError):
                _log.exception("an action of the console failed")  # the terminal shows where


class Jobs:
    """Each in a thread of its own, which does not keep the program from ending: what is cut off can be asked for again."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, work: Work) -> Job:
        job = Job()
        with self._lock:
            if sum(one.state == "running" for one in self._jobs.values()) >= _AT_ONCE:
                raise QuotaExceeded(f"{_AT_ONCE} actions are going on: wait until one of them has ended")
            self._jobs[job.name] = job
            ended = [name for name, one in self._jobs.items() if one.state != "running"]
            for name in ended[: max(0, len(self._jobs) - _KEPT)]:
                del self._jobs[name]
        threading.Thread(target=job.run, args=(work,), name=f"job {job.name}", daemon=True).start()
        return job

    def get(self, name: str) -> Job:
        job = self._jobs.get(name)
        if job is None:
            raise NotReady("this action is not known any more: start it again")
        return job


@dataclass
class RequesterActions:
    """A requester, its file, and its work."""

    requester: Requester
    settings: RequesterSettings
    folder: Path  # where its settings lie
    invite_into: Invite
    jobs: Jobs = field(default_factory=Jobs)

    def __post_init__(self) -> None:
        self.evaluation = ModelEvaluation(self.requester)
        self._explaining = threading.Lock()

    def overview(self) -> dict[str, Any]:
        """Who this is, and its tasks."""
        own = self.settings
        tasks = []
        unread = []
        for task in self.requester.tasks():
            try:
                tasks.append(_summary(self.requester.definition(task)))
            except CrowdFLError as why:  # one file that is damaged, or of a newer version, hides no other task
                unread.append({"task": task, "why": printable(str(why))})
        about = {"name": own.name, "sp": own.sp, "kgc": own.kgc, "folder": str(self.folder)}
        return about | {"tasks": tasks, "unread": unread}

    def task(self, task: str) -> dict[str, Any]:
        """What was defined: nobody is asked."""
        definition = self.requester.definition(task)
        return {**_summary(definition), "values": values_of(definition), "folder": str(self._invitations(task))}

    def status(self, task: str) -> dict[str, Any]:
        """Where it stands, what it waits for, and its money."""
        definition = self.requester.definition(task)
        status = self.requester.sp.status(task)
        report = self.requester.report(task)
        unpaid = unannounced(definition, report)
        waits = [one.coded() for one in waits_for(definition, status, report)]
        return {"status": status, "report": report, "waits": waits, "unpaid": unpaid, "now": time.time()}

    def explain(self, values: Values) -> dict[str, Any]:
        """What the form's values lead to; nothing is sent anywhere."""
        with self._explaining:  # a large model takes memory: one at a time
            found = asdict(answer(values, time.time()))
        if found["body"]:
            found["body"]["requester"] = self.requester.signing.public.hex()
        return found

    def create(self, values: Values) -> Job:
        """Post the task of a form that is right; the same values are always the same task."""
        wrong = faults(values)
        if wrong:
            raise SettingsError("some settings are wrong: each says what is expected", wrong)
        return self._posting(lambda: defined("the form", contents(values)))

    def post(self, task: str) -> Job:
        """Once more, for a task whose creation was cut off."""
        definition = self.requester.definition(task)
        return self._posting(lambda: (definition, Recipe.of(definition.training).make_learner().weights()))

    def _posting(self, make: Callable[[], tuple[Definition, Weights]]) -> Job:
        def work(progress: Progress) -> dict[str, str]:
            progress(0, 2, "making the initial model")
            definition, initial = make()
            progress(1, 2, "KGC makes the task's keys")
            return {"task": self.requester.create(definition, initial)}

        return self.jobs.start(work)

    def fund(self, task: str, amount: str, name: str | None) -> dict[str, Any]:
        """Announce a payment. With the same name, a repeat is the same payment."""
        self.requester.definition(task)
        millionths = to_millionths(amount.strip())
        if millionths == 0:
            raise SettingsError("an amount of 0 pays for nothing: say how much you pay in")
        return {"deposit": self.requester.fund(task, millionths, name), "amount": millionths, "state": "pending"}

    def invite(self, task: str, count: int, days: float, replaces: str = "") -> dict[str, Any]:
        """New invitations, in the requester's own folder; a warning if the task would not wait for so many."""
        definition = self.requester.definition(task)
        folder = self._invitations(task)
        made = self.invite_into(task, folder, count, days, replaces)
        return {
            "made": [_number(path) for path in made],
            "warning": invitation_warning(definition, len(self._files(task))),
        }

    def people(self, task: str) -> dict[str, Any]:
        """Invitations that were made here, what became of each, and who else has joined; without pictures."""
        definition = self.requester.definition(task)
        page = self._page(task)
        used = {(one.number, one.device): one.who for one in self.requester.kgc.invitations(task)}
        found = self.requester.sp.compliance(task)
        rows = {one["who"]: one for one in found["people"]}
        now = self.requester.clock.now()
        files = self._files(task)
        named_files = _places(files)
        own = [_invitation(path, page, used, rows, now, named_files) for path in files]
        named = {one["who"] for one in own}
        others = [
            {"number": None, "link": None, "file": None, "replaces": None, **rows[who]}
            for who in rows
            if who not in named
        ]
        return {
            "invitations": [*own, *others],
            "rounds": found["rounds"],
            "folder": str(self._invitations(task)),
            "no_phones": phone_obstacle(definition),
        }

    def codes(self, task: str, first: int) -> dict[str, str]:
        """Pictures of some invitations' links, by number, from this number on."""
        page = self._page(task)
        paths = [path for path in self._files(task) if _number(path) >= first][:MOST_CODES]
        links = dict[str, str]()
        for path in paths if page else ():
            with contextlib.suppress(CrowdFLError):  # one damaged file hides no other
                links[str(_number(path))] = link_of(path, page or "")
        return {
            number: f"data:image/svg+xml;base64,{b64encode(qr_svg(link)).decode()}" for number, link in links.items()
        }

    def order(self, task: str, action: str) -> None:
        """Pause, resume, cancel, or close enrolment."""
        if action not in ORDERS:
            raise CampaignError(f"a task can be given the orders {', '.join(ORDERS)}")
        self.requester.order(task, action)

    def known(self, task: str) -> dict[str, list[Row]]:
        """What each party saw of this task."""
        definition = self.requester.definition(task)
        return _known(definition, self.requester.sp.status(task))

    def report(self, task: str, language: str) -> str:
        """The campaign's report, as one page of HTML."""
        return TaskReport.of(self.requester, task).html(language)

    def evaluate(self, task: str, data: Sequence[str]) -> Job:
        self.requester.definition(task)
        return self.jobs.start(lambda progress: self.evaluation.evaluate(task, data, progress))

    def accuracy(self, task: str, data: Sequence[str]) -> Job:
        self.requester.definition(task)
        return self.jobs.start(lambda progress: self.evaluation.by_round(task, data, progress))

    def save(self, task: str, path: str) -> dict[str, str]:
        """The model into a file of this machine."""
        return {"model": self.evaluation.save(task, path)}

    def _invitations(self, task: str) -> Path:
        return self.folder / "invitations" / self.requester.definition(task).task

    def _files(self, task: str) -> list[Path]:
        folder = self._invitations(task)
        return sorted(folder.glob("invitation-*.json"), key=_number) if folder.is_dir() else []

    def _page(self, task: str) -> str | None:
        """The phone's page, for a task that phones can take part in."""
        return phone_page(self.settings) if phone_obstacle(self.requester.definition(task)) is None else None


def _places(files: Sequence[Path]) -> dict[tuple[str, int], int]:
    """The number of the file with each place's devices; a damaged one hides no other."""
    found = dict[tuple[str, int], int]()
    for path in files:
        with contextlib.suppress(CrowdFLError):
            opened = Ticket.parse(read_invitation(path).invitation).opened
            found[opened.number, opened.device] = _number(path)
    return found


def _invitation(
    path: Path,
    page: str | None,
    used: Mapping[tuple[str, int], str],
    rows: Mapping[str, Any],
    now: float,
    files: Mapping[tuple[str, int], int],
) -> dict[str, Any]:
    """One file, and what became of it; with a page for phones, its link. One that is damaged hides no other."""
    about = {"number": _number(path), "file": str(path)}
    try:
        invitation = Ticket.parse(read_invitation(path).invitation).opened
    except CrowdFLError:
        return about | {"link": None, "replaces": None, "who": None, "state": "damaged", "sent": [], "drawn": []}
    who = used.get((invitation.number, invitation.device))
    fresh = "unused" if who is None and invitation.expires > now else "expired" if who is None else "joining"
    row = rows.get(who or "", {"who": who, "state": fresh, "sent": [], "drawn": []})
    before = (
        invitation.number,
        invitation.device - 1,
    )  # whose place it takes: by the file, else by the name in the task
    replaces = None if invitation.device == 1 else str(files.get(before, used.get(before, "?")))
    return {**about, "replaces": replaces, "link": None if page is None else link_of(path, page), **row}


def _number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else -1


def _summary(definition: Definition) -> dict[str, Any]:
    settings = definition.settings
    return {
        "task": definition.task,
        "purpose": definition.purpose,
        "profile": settings.profile,
        "rounds": settings.rounds,
        "parameters": definition.spec.parameters,
        "budget": to_millionths(settings.budget or 0),
        "whole": definition.plan.whole_cost(settings),
        "currency": settings.currency,
        "least": settings.min_participants,
        "most": settings.max_participants,
        "step": settings.server_step,
        "labels": list(definition.training.get("labels", ())),
        "consent": definition.consent.version,
        "recruits": definition.recruits,
    }


def _known(definition: Definition, status: Mapping[str, Any]) -> dict[str, list[Row]]:
    """By row of the table of who learns what: codes and values, for which the page has words."""
    sizes = dealt_sizes(definition)
    profile = definition.settings.profile
    rounds = status["rounds"]
    sp: list[Row] = [{"code": "model", "count": definition.spec.parameters}]
    if profile == "shares":
        sp.append({"code": "upload", "count": upload_bytes(SharesShape(definition.spec))})
    sp += [{"code": "uploads", "number": entry["number"], "count": entry["uploads"]} for entry in rounds]
    csp: list[Row] = [{"code": "enrolled", "count": status["enrolled"]}]
    in_all = sum(sizes.values()) * definition.settings.rounds
    return {
        f"{profile}_sp": [*sp, *_dealt(sizes, "sp")],
        f"{profile}_csp": [*csp, *_dealt(sizes, "csp")],
        "every_kgc": [{"code": "dealtInAll", "count": in_all}] if sizes else [],
    }


def _dealt(sizes: Mapping[str, int], role: str) -> list[Row]:
    return [{"code": "dealt", "count": sizes[role]}] if role in sizes else []
