"""CSP's word that people can claim longer: SP asks for it towards the last day, and closes no books before it has asked."""

from crowdfl.documents.signed import ClaimsExtension
from crowdfl.errors import TaskEnded, UnknownTask
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.records import StoredTask, TaskState
from crowdfl.roles.sp.core import SpCore
from crowdfl.settings import DAY

_APART = 3600.0  # seconds between two questions


class Extension:
    """One step asks CSP about one task."""

    def __init__(self, core: SpCore) -> None:
        self._core, self._ports = core, core.ports
        self._asked: dict[str, float] = {}  # when CSP last said that there is none, by task

    def due(self, stored: StoredTask) -> bool:
        """Phones see it on the last day already."""
        if stored.state == TaskState.SETTLED or not self._can_come(stored):
            return False
        now = self._core.now()
        return (
            stored.claims_until - DAY < now and self._asked.get(stored.task, 0.0) + _APART <= now < stored.attests_until
        )

    def may_come(self, stored: StoredTask) -> bool:
        """Whether CSP may have signed one that SP has not heard of; an absent CSP is awaited for as long as one can last."""
        longest = stored.attests_until + stored.opened.claim_window
        asked = self._asked.get(stored.task, 0.0)
        return self._can_come(stored) and asked < stored.claims_until and self._core.now() < longest

    def step(self, task: str) -> bool:
        """Keep it, once it is what the definition allows."""
        now = self._core.now()
        try:
            document = self._ports.csp.claims_extended(task)
        except (TaskEnded, UnknownTask):  # it attests nothing any more
            document = ""
        if document:
            definition = self._core.definition(task)
            side = profile_named(definition.settings.profile).sp(
                definition.spec, self._core.bundle(task), self._core.options.tools
            )
            ClaimsExtension.open_of(document, definition, side.csp_key)
            self._ports.store.change_task(task, claims_extended=document)
        self._asked[task] = now
        return True

    @staticmethod
    def _can_come(stored: StoredTask) -> bool:
        return stored.claims_extended is None and stored.opened.settings.budget is not None
