"""CSP is told of everyone who joins, by the worker: who joins waits for SP alone.

How far CSP was told is durable, in the order in which people joined, and so is whom it has refused. A process that dies in
between tells some of them again, which changes nothing at CSP. Before a round is computed, whoever is in it and was not told of
yet is told of: in a round of people whom CSP knows, nothing is sent.
"""

from collections.abc import Callable

from crowdfl.errors import BadSignature, Conflict, CrowdFLError, DocumentError, RoundEnded, TaskEnded, TaskFull
from crowdfl.roles.records import StoredParticipant, StoredTask, TaskState
from crowdfl.roles.sp.core import SpCore
from crowdfl.text import printable

_REFUSALS = (BadSignature, Conflict, DocumentError, TaskFull)  # of one certificate, by CSP, for good
_AT_ONCE = 20


class CspEnrolment:
    """One step tells CSP of a few people. `end` hears, with the reason, of a task that CSP answers no more."""

    def __init__(self, core: SpCore, end: Callable[[str, str], None]) -> None:
        self._core, self._ports, self._end = core, core.ports, end

    def due(self, stored: StoredTask) -> bool:
        running = stored.state == TaskState.RUNNING
        return running and bool(self._ports.store.participants(stored.task, stored.csp_told))

    def step(self, task: str) -> bool:
        try:
            return self._tell_some(task) > 0
        except TaskEnded as refusal:
            self._end(task, str(refusal))
            return True

    def require_known(self, task: str, number: int) -> None:
        """Whoever uploaded, CSP must know: the message of an enrolment may have been lost.

        One whom CSP refuses for good voids the round at once. Leaving it out at CSP's word would let CSP choose the crowd.
        """
        while self._tell_some(task):
            self._core.renew_lease(task)
        store = self._ports.store
        for who in store.refused(task):
            if store.upload(task, number, who) is not None:
                self._insist(task, number, store.participant(task, who))

    def _insist(self, task: str, number: int, participant: StoredParticipant) -> None:
        """Once more: CSP's operator may have mended what was wrong."""
        refusal = self._tell(task, participant)
        if refusal is not None:
            who = participant.identity.who
            said = printable(f"CSP does not take {who}, who is in round {number}: {refusal}")
            raise RoundEnded(said) from refusal

    def _tell_some(self, task: str) -> int:
        """Of the next few that CSP was not told of; how many they were."""
        store = self._ports.store
        before = told = store.task(task).csp_told  # another process may have told some
        try:
            for participant in store.participants(task, told)[:_AT_ONCE]:
                self._tell(task, participant)
                told += 1
        finally:
            if told > before:
                store.change_task(task, csp_told=told)
        return told - before

    def _tell(self, task: str, participant: StoredParticipant) -> CrowdFLError | None:
        """One whom CSP refuses must not keep the others waiting; if it uploads, its round is void at once."""
        who, store = participant.identity.who, self._ports.store
        try:
            self._ports.csp.enrol(task, participant.certificate)
        except _REFUSALS as refusal:
            store.mark_refused(task, who, refused=True)
            error = type(refusal).__name__
            self._core.options.events("participant refused by CSP", task=task, who=who, error=error)
            return refusal
        if participant.refused:
            store.mark_refused(task, who, refused=False)
        return None
