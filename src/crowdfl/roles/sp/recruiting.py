"""SP recruits, for a task whose definition names its key: it lists the task, gives places, frees those of which nothing came.

What it signs is an invitation as a requester's, to the key that somebody shows: KGC and CSP look at it themselves. SP may be
any number of those people, and nobody can tell: what that shows it is in `crowdfl.disclosures`.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from crowdfl.documents.invitations import Invitation
from crowdfl.documents.signed import Definition
from crowdfl.errors import EnrolmentOver, Forbidden, TaskFull, TaskNotRunning, TaskUnreadable, TooManyJoins
from crowdfl.roles.records import NOT_OPEN, Round, StoredParticipant, StoredTask, TaskState
from crowdfl.roles.sp.core import ENDED, SpCore
from crowdfl.roles.sp.results import rejected_in
from crowdfl.settings import DAY

_JOINING = DAY  # seconds that a place waits for whoever asked for it
_MOST_LISTED = 200
_NO_ROOM = {"full": TaskFull, "over": EnrolmentOver, "ended": TaskNotRunning}


class Recruiting:
    """`status` says where a task stands, as everyone is told it."""

    def __init__(self, core: SpCore, status: Callable[[str], dict[str, Any]]) -> None:
        self._core, self._ports = core, core.ports
        self._status = status

    def listed(self) -> list[tuple[Definition, dict[str, Any]]]:
        """Tasks that take people from the list now, each with where it stands; those with the most places left first."""
        running = [one for one in self._ports.store.tasks() if one.state == TaskState.RUNNING]
        found = []
        for definition in filter(self._is_recruiter, map(self._definition, running)):
            with contextlib.suppress(TaskUnreadable):
                found.append((definition, self._status(definition.task)))
        there = [one for one in found if one[1]["enrolment"] == "open"]
        return sorted(there, key=lambda one: -one[1]["places_left"])[:_MOST_LISTED]

    def _definition(self, stored: StoredTask) -> Definition:
        return self._core.definition(stored.task)

    def _is_recruiter(self, definition: Definition) -> bool:
        signing = self._core.options.signing
        return signing is not None and definition.recruiter == signing.public

    def give(self, task: str, key: bytes) -> str:
        """An invitation for whoever has the private half of this key; asked again, to the same place."""
        definition, signing = self._core.definition(task), self._core.options.signing
        if signing is None or not self._is_recruiter(definition):
            raise Forbidden("this task is not listed: its requester invites people, and nobody else does")
        now, store = self._core.probably_now(), self._ports.store
        expires = min(now + _JOINING, definition.plan.enrolment_end)
        invitation = Invitation.recruiting(task, key, expires)
        if not store.devices(task, invitation.number):  # else an answer was lost
            state = self._status(task)["enrolment"]
            if state in NOT_OPEN:
                raise _NO_ROOM[state](NOT_OPEN[state])
            if not store.recruit(task, invitation.number, now, self._core.options.max_joins):
                raise TooManyJoins(
                    f"{self._core.options.max_joins} places of this task were given out in the last hour, which are the most: "
                    "come back later"
                )
        return invitation.sign(signing)

    # A place of which nothing came is free for others, once a round that its owner could have sent in is over.

    def due(self, stored: StoredTask) -> bool:
        if not self._definition(stored).recruits or stored.state in ENDED:
            return False
        last = self._over(stored.task)
        return last is not None and last.number > stored.freed

    def step(self, task: str) -> bool:
        stored, last = self._ports.store.task(task), self._over(task)
        if last is None or last.number <= stored.freed:
            return False
        with self._ports.store.transaction():
            self._ports.store.free(task, last.number, self._idle(task, self._definition(stored), last))
        return True

    def _over(self, task: str) -> Round | None:
        """The last round that is over."""
        return next((one for one in reversed(self._ports.store.rounds(task)) if one.is_over), None)

    def _idle(self, task: str, definition: Definition, last: Round) -> list[str]:
        """Recruited before it opened, in it, and nothing of theirs was accepted in any round."""
        store, settings = self._ports.store, definition.settings
        if store.turnout(task, last.number)[0] >= (
            definition.plan.goal or settings.per_round or settings.max_participants
        ):
            return []  # it took no more: who had not sent yet was asked for nothing
        drawn = None if settings.per_round is None else store.drawn(task, last.number)
        sent = {who for round_ in store.rounds(task) for who in self._accepted(task, round_)}
        books = self._core.ledger(task)
        people = [one for one in store.participants(task) if _may_be_freed(one, last.opened_at)]
        names = [one.identity.who for one in people if one.identity.who not in sent]
        return [who for who in names if (drawn is None or who in drawn) and not books.unused(who)]

    def _accepted(self, task: str, round_: Round) -> set[str]:
        rejected = rejected_in(self._ports.blobs, task, round_)
        return {one.who for one in self._ports.store.uploads(task, round_.number)} - rejected.keys()


def _may_be_freed(one: StoredParticipant, opened_at: float) -> bool:
    in_time = one.joined_at is not None and one.joined_at < opened_at
    return one.recruited and in_time and not one.freed and one.replaced_by is None
