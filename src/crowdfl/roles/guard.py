"""The guard: a second place where a server notes each step of a round before the step's bytes leave.

What KGC dealt for a round serves one content: a server that met the same masks with other contents would show the other server
all that they hide. A server's records say how far a task has come, but a database can be set back: to a backup, a snapshot, a
standby that was behind. Its guard lies where that does not reach. A note says of one step the hash of what was said, and is
durable before anything leaves, a repeated answer included. Whoever compares looks at the notes first and reads the records
then: another process may just have gone on. Of the last step alone the note may be missing, after a crash; it is written again.

A note beyond the records, or of something else, means that the server was set back: `RolledBack`, and its task ends. Notes
that are missing mean that the guard is another, is not mounted, or was set back itself: `GuardMissing`, until the operator has
put it back or given it up (`renew`). The database knows its guard by a name: an empty folder does not look like a new one.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import Conflict, GuardMissing, NotReady, RolledBack, SettingsError
from crowdfl.roles.ports import Blobs, GuardedStore
from crowdfl.roles.records import StoredTask

_NAME = "guard-id"
_OVER = "over"  # the folder with what outlives tasks
_UNKNOWN = "before this guard"  # of steps before the last: their order alone is compared
_ACT = "put it back, or give it up by `crowdfl {role} guard new`: docs/backup.md"


@dataclass(frozen=True)
class Notes:
    """What a guard has of a task."""

    steps: frozenset[int]
    is_over: bool


@dataclass
class Guard:
    """One server's, for all its tasks."""

    blobs: Blobs
    store: GuardedStore
    role: str  # "sp" or "csp"
    _known: str | None = field(default=None, repr=False)  # the name that the database has

    def look(self, task: str) -> Notes:
        """At the notes of a task; the records that they are compared with are read after this."""
        self.require_own()
        names = self.blobs.listing(task)
        return Notes(frozenset(int(name.rpartition("/")[2]) for name in names), self.blobs.has(f"{_OVER}/{task}"))

    def compare(self, notes: Notes, stored: StoredTask) -> None:
        """`RolledBack` or `GuardMissing`, unless records and notes say the same. The last note is written if it is missing."""
        task, last = stored.task, stored.steps
        if notes.is_over:
            raise self._set_back("the task has ended, and the records do not know it")
        if beyond := [step for step in notes.steps if step > last]:
            raise self._set_back(f"step {max(beyond)} of the task has left, and the records know {last}")
        if missing := set(range(1, last)) - notes.steps:
            raise GuardMissing(
                f"the guard of {self.role.upper()} has no note of step {min(missing)} of task {task}: "
                + _ACT.format(role=self.role)
            )
        if last in notes.steps:
            self._require_same(task, last, stored.said)
        elif last:
            self.note(task, last, stored.said)

    def note(self, task: str, step: int, said: str) -> None:
        """Durably. The same again is the same, and durable too; a failure is tried again with the step."""
        self.require_own()
        try:
            self.blobs.put(_place(task, step), said.encode())
        except Conflict:
            self._require_same(task, step, said)

    def finish(self, task: str) -> None:
        """Of a task that has ended: that is noted, and nothing else stays. Idempotent.

        Where the guard is missing, its notes stay, and say as much.
        """
        with contextlib.suppress(GuardMissing):
            self.require_own()
            self.blobs.put(f"{_OVER}/{task}", b"")
            self.blobs.clear(task)

    def require_own(self) -> None:
        """It is the one that the database knows; the first one it ever sees, it knows from then on."""
        found = self._name()
        if found is not None and found == self._known:  # the database's own changes with the guard's
            return
        self._known, found = self.store.guard_identity(self._named), self._name()
        if found != self._known:
            whose = "is of another database" if found else "is empty, or not mounted"
            raise GuardMissing(f"the guard of {self.role.upper()} {whose}: " + _ACT.format(role=self.role))

    def renew(self, end_doubtful: Callable[[], object] | None) -> None:
        """The operator gives up what was noted. `end_doubtful` ends tasks that may have been set back; None: none was.

        The name comes last: until then every step waits.
        """
        if self._name() not in (None, self.store.guard_identity(self._named)):
            raise SettingsError(
                f"the folder named as the guard of {self.role.upper()} is another database's: name an empty one"
            )
        self.blobs.delete(_NAME)
        if end_doubtful is not None:
            end_doubtful()
        for stored in self.store.all_tasks():
            self.blobs.clear(stored.task)
            for step in range(1, stored.steps + 1):
                self.blobs.put(_place(stored.task, step), (stored.said if step == stored.steps else _UNKNOWN).encode())
        name = secret_hex(16)
        self.store.change_guard(name)
        self.blobs.put(_NAME, name.encode())

    def _named(self) -> str:
        """Of one that no database knows yet."""
        if self._name() is None:
            with contextlib.suppress(Conflict):  # another process was first
                self.blobs.put(_NAME, secret_hex(16).encode())
        return self._name() or ""

    def _name(self) -> str | None:
        try:
            return self.blobs.get(_NAME).decode("ascii", "replace")
        except NotReady:
            return None

    def _require_same(self, task: str, step: int, said: str) -> None:
        if self.blobs.get(_place(task, step)) != said.encode():
            raise self._set_back(f"step {step} of the task has left with other contents than the records know")

    def _set_back(self, why: str) -> RolledBack:
        return RolledBack(f"{self.role.upper()} was set back to an earlier state: {why}")


def _place(task: str, step: int) -> str:
    return f"{task}/{step:08d}"
