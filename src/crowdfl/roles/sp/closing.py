"""The requester's signed word that its task is cancelled, which SP carries to CSP once no round is under way.

CSP then takes no step of any round. The word is kept before the order counts, and CSP's signature under it once it has come.
"""

from crowdfl.crypto.long_bytes import whole
from crowdfl.errors import RolledBack, TaskEnded
from crowdfl.protocols.capabilities import ClosesRounds
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.records import StoredTask, TaskState
from crowdfl.roles.sp.core import UNDER_WAY, SpCore

_LONGEST = 4096  # bytes of CSP's answer


class Closing:
    """One step tells CSP of one task."""

    def __init__(self, core: SpCore) -> None:
        self._core = core
        self._ports = core.ports
        self._told: set[str] = set()  # tasks, as far as this process knows

    def keep(self, task: str, word: bytes) -> None:
        """With the order that it came with; one that CSP would not take is refused."""
        definition = self._core.definition(task)
        profile = profile_named(definition.settings.profile)
        if isinstance(profile, ClosesRounds):
            profile.check_cancellation(definition.spec, word)
            if not self._ports.blobs.has(_word(task)):
                self._ports.blobs.put(_word(task), word)

    def due(self, stored: StoredTask) -> bool:
        task = stored.task
        if stored.state != TaskState.CANCELLED or task in self._told:
            return False
        last = self._core.last_round(task)
        if last is not None and last.state in UNDER_WAY:
            return False
        blobs = self._ports.blobs
        if not blobs.has(_word(task)) or blobs.has(_answer(task)):
            self._told.add(task)
        return task not in self._told

    def step(self, task: str) -> bool:
        blobs = self._ports.blobs
        try:
            answer = whole(self._ports.csp.answer(task, blobs.get(_word(task)), _LONGEST))
        except (TaskEnded, RolledBack) as refusal:  # it answers nothing more anyway
            answer = str(refusal).encode()
        if not blobs.has(_answer(task)):
            blobs.put(_answer(task), answer)
        self._told.add(task)
        return True


def _word(task: str) -> str:
    return f"{task}/cancel"


def _answer(task: str) -> str:
    return f"{task}/cancelled"
