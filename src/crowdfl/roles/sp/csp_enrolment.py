"""CSP is told of everyone who joins, by the worker: who joins waits for SP alone.

How far CSP was told is durable, in the order in which people joined, and so is whom it has refused. A process that dies in
between tells some of them again, which changes nothing at CSP. Before a round is computed, whoever is in it and was not told of
yet is told of: in a round of people whom CSP knows, nothing is sent.
"""

from collections.abc import Callable

from crowdfl.errors import BadSignature, Conflict, CrowdFLError, DocumentError, RoundEnded, TaskEnded, TaskFull
from crowdfl.roles.ports import StoredParticipant, StoredTask
from crowdfl.roles.sp.core import SpCore
from crowdfl.roles.sp.rounds import TaskState
from crowdfl.text import printable

_TOLD = "told csp of"  # how many
_REFUSED = "refused by csp"
_REFUSALS = (BadSignature, Conflict, DocumentError, TaskFull)  # of one certificate, by CSP, for good
_AT_ONCE = 20


class CspEnrolment:
    """One step tells CSP of a few people. `end` hears, with the reason, of a task that CSP answers no more."""

    def __init__(self, core: SpCore, end: Callable[[str, str], None]) -> None:
        self._core, self._ports, self._end = core, core.ports, end
        self._told: dict[str, int] = {}  # by task, as far as this process knows: a look costs one read

    def due(self, stored: StoredTask) -> bool:
        if stored.state != TaskState.RUNNING:
            return False
        if stored.task not in self._told:
            self._told[stored.task] = self._durable(stored.task)
        return bool(self._ports.store.participants(stored.task, self._told[stored.task]))

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
        memory = self._ports.store.memory(task)
        for upload in self._ports.store.uploads(task, number):
            if f"{_REFUSED} {upload.who}" in memory:
                self._insist(task, number, self._ports.store.participant(task, upload.who))

    def _insist(self, task: str, number: int, participant: StoredParticipant) -> None:
        """Once more: CSP's operator may have mended what was wrong."""
        refusal = self._tell(task, participant)
        if refusal is not None:
            who = participant.identity.who
            said = printable(f"CSP does not take {who}, who is in round {number}: {refusal}")
            raise RoundEnded(said) from refusal

    def _tell_some(self, task: str) -> int:
        """Of the next few that CSP was not told of; how many they were."""
        before = told = self._durable(task)  # another process may have told some
        try:
            for participant in self._ports.store.participants(task, told)[:_AT_ONCE]:
                self._tell(task, participant)
                told += 1
        finally:
            self._told[task] = told
            if told > before:
                self._ports.store.memory(task)[_TOLD] = str(told).encode()
        return told - before

    def _tell(self, task: str, participant: StoredParticipant) -> CrowdFLError | None:
        """One whom CSP refuses must not keep the others waiting; if it uploads, its round is void at once."""
        mark, memory = f"{_REFUSED} {participant.identity.who}", self._ports.store.memory(task)
        try:
            self._ports.csp.enrol(task, participant.certificate)
        except _REFUSALS as refusal:
            memory[mark] = b""
            who, error = participant.identity.who, type(refusal).__name__
            self._core.options.events("participant refused by CSP", task=task, who=who, error=error)
            return refusal
        memory.pop(mark, None)
        return None

    def _durable(self, task: str) -> int:
        return int(self._ports.store.memory(task).get(_TOLD, b"0"))
