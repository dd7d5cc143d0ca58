"""What a requester can do at its desk. Calls may wait for a service; what takes long is a job."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crowdfl.documents.links import phone_page
from crowdfl.documents.signed import Definition
from crowdfl.errors import CampaignError, CrowdFLError, SettingsError
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.defining import defined
from crowdfl.roles.phone_support import phone_obstacle
from crowdfl.roles.requester import Requester
from crowdfl.roles.waiting import waits_for
from crowdfl.settings import RequesterSettings, to_millionths
from crowdfl.text import printable
from crowdfl.web.requester_console.disclosures import learnt
from crowdfl.web.requester_console.form import Values, answer, contents, faults, values_of
from crowdfl.web.requester_console.invitations import invitation_files, shown_invitation
from crowdfl.web.requester_console.jobs import Job, Jobs, Progress
from crowdfl.web.requester_console.model_evaluation import Learned

ORDERS = ("pause", "resume", "cancel", "close")

Invite = Callable[[str, Path, int, float], list[Path]]
"""Write so many invitations to a task into a folder, good for so many days; their files."""


@dataclass
class Desk:
    """A requester, its file, and its work."""

    requester: Requester
    settings: RequesterSettings
    folder: Path  # where its settings lie
    invite_into: Invite
    jobs: Jobs = field(default_factory=Jobs)

    def __post_init__(self) -> None:
        self.learned, self._explaining = Learned(self.requester), threading.Lock()

    def overview(self) -> dict[str, Any]:
        """Who this is, and its tasks."""
        own, tasks, unread = self.settings, [], []
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
        status, report = self.requester.sp.status(task), self.requester.report(task)
        return {"status": status, "report": report, "waits": waits_for(definition, status, report), "now": time.time()}

    def explain(self, values: Values) -> dict[str, Any]:
        """What the form's values lead to; nothing is sent anywhere."""
        with self._explaining:  # a large model takes memory: one at a time
            return asdict(answer(values, self.settings.min_claim_window))

    def create(self, values: Values) -> Job:
        """Post the task of a form that is right; the same values are always the same task."""
        wrong = faults(values)
        if wrong:
            raise SettingsError("some settings are wrong: each says what is expected", wrong)

        def work(progress: Progress) -> dict[str, str]:
            progress(0, 2, "making the initial model")
            definition, initial = defined("the form", contents(values), None, self.settings.min_claim_window)
            progress(1, 2, "KGC makes the task's keys")
            return {"task": self.requester.create(definition, initial)}

        return self.jobs.start(work)

    def post(self, task: str) -> Job:
        """Once more, for a task whose creation was cut off."""
        definition = self.requester.definition(task)

        def work(progress: Progress) -> dict[str, str]:
            progress(0, 2, "making the initial model")
            initial = Recipe.of(definition.training).make_learner().weights()
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

    def invite(self, task: str, count: int, days: float) -> dict[str, Any]:
        """New invitations, in the requester's own folder."""
        folder = self._invitations(task)
        return self._shown(task, self.invite_into(task, folder, count, days))

    def invitations(self, task: str) -> dict[str, Any]:
        """All that were made here; who has used one, KGC alone knows."""
        return self._shown(task, invitation_files(self._invitations(task)))

    def order(self, task: str, action: str) -> None:
        """Pause, resume, cancel, or close enrolment."""
        self.requester.definition(task)
        if action not in ORDERS:
            raise CampaignError(f"a task can be given the orders {', '.join(ORDERS)}")
        if action == "close":
            self.requester.close_enrolment(task)
        else:
            self.requester.order(task, action)

    def learnt(self, task: str) -> dict[str, Any]:
        """What each party saw."""
        definition = self.requester.definition(task)
        return learnt(definition, self.requester.sp.status(task))

    def evaluate(self, task: str, data: Sequence[str]) -> Job:
        self.requester.definition(task)
        return self.jobs.start(lambda progress: self.learned.evaluate(task, data, progress))

    def accuracy(self, task: str, data: Sequence[str]) -> Job:
        self.requester.definition(task)
        return self.jobs.start(lambda progress: self.learned.by_round(task, data, progress))

    def save(self, task: str, path: str) -> dict[str, str]:
        """The model into a file of this machine."""
        return {"model": self.learned.save(task, path)}

    def _invitations(self, task: str) -> Path:
        return self.folder / "invitations" / self.requester.definition(task).task

    def _shown(self, task: str, paths: Sequence[Path]) -> dict[str, Any]:
        why = phone_obstacle(self.requester.definition(task))
        page = phone_page(self.settings) if why is None else None
        shown = [shown_invitation(path, page) for path in paths]
        return {"folder": str(self._invitations(task)), "invitations": shown, "no_phones": why}


def _summary(definition: Definition) -> dict[str, Any]:
    settings = definition.settings
    return {
        "task": definition.task,
        "purpose": definition.purpose,
        "profile": settings.profile,
        "rounds": settings.rounds,
        "parameters": definition.spec.parameters,
        "budget": to_millionths(settings.budget or 0),
        "least": settings.min_participants,
        "most": settings.max_participants,
        "key": settings.key,
        "step": settings.server_step,
        "labels": list(definition.training.get("labels", ())),
    }
