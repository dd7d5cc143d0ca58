"""KGC: makes a task's keys, deals each role its bundle, certifies invited participants, destroys what it need not keep."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.invitations import Certificate, EnrolmentRequest, Invitation
from crowdfl.documents.signed import Appointment, Definition, EnrolmentEnd
from crowdfl.errors import Forbidden, InvitationRefused, NotReady, RoundsExhausted, TaskNotRunning, UnknownTask
from crowdfl.protocols.capabilities import DealsFiles
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.dealt import file_sizes
from crowdfl.roles.limits import TaskBounds
from crowdfl.roles.participant.enrolment import Enrolled
from crowdfl.roles.ports import Blobs, Clock, KgcStore, replace_blob
from crowdfl.roles.records import StoredTask, UsedInvitation, require_in_time
from crowdfl.roles.retention import BUNDLES, OVER, SOURCE, require_not_ended

_DEALT = ("sp", "csp")


@dataclass(frozen=True)
class Created:
    """What the requester gets for a definition."""

    task: str
    appointment: str
    bundle: bytes = field(repr=False)


@dataclass
class Kgc:
    """One key generation centre. `bundles` holds key material: its implementation keeps files owner-only."""

    store: KgcStore
    bundles: Blobs
    clock: Clock
    signing: SigningKey = field(repr=False)
    insecure_test_key: bool = False
    bounds: TaskBounds = field(default_factory=TaskBounds)
    _dealing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def create_task(self, definition: str) -> Created:
        """Make the keys of a task, once; asked again with the same definition, the same answer."""
        opened = Definition.open(definition)
        task = opened.task
        profile_named(opened.settings.profile)  # refused here, an unknown one gets no appointment, and so no further
        with self._dealing:  # a retry may come while keys are made
            with contextlib.suppress(UnknownTask):
                require_not_ended(self.store.task(task))  # or other keys would be made under the same name
            if not self.bundles.has(f"{task}.dealt"):
                self.bounds.require(opened, self.clock.now())  # before keys are made, which takes long
                self._deal(opened)
        appointment = self.bundles.get(f"{task}.appointment").decode()
        self.store.add_task(StoredTask(task, definition, appointment, "open"))
        return Created(task, appointment, self.bundles.get(f"{task}.requester"))

    def _deal(self, definition: Definition) -> None:
        task = definition.task
        profile = profile_named(definition.settings.profile)
        dealing = profile.deal(definition.spec, insecure_test_key=self.insecure_test_key)
        # All of them, or the next try deals afresh: nobody has seen any of them before `dealt` is there.
        bundles = {role: getattr(dealing, role) for role in BUNDLES}
        bundles |= {SOURCE: dealing.source} if dealing.source else {}
        bundles["appointment"] = (
            Appointment(task, dealing.fingerprint.hex(), dealing.csp_key.hex()).sign(self.signing).encode()
        )
        for name, bundle in bundles.items():
            replace_blob(self.bundles, f"{task}.{name}", bundle)
        self.bundles.put(f"{task}.dealt", b"")

    def bundle(self, task: str, role: str) -> tuple[str, str, bytes]:
        """A server's bundle, for that server alone; gone once acknowledged."""
        stored = self.store.task(task)
        self._require_not_handed_over(stored, role)
        return stored.definition, stored.appointment, self.bundles.get(f"{task}.{role}")

    def dealt(self, task: str, role: str, number: int) -> Iterator[bytes]:
        """A server's file, made piece by piece as it is read: the same until that server has acknowledged, then never again."""
        stored = self.store.task(task)
        definition = stored.opened
        self._require_not_handed_over(stored, role)
        count = definition.settings.rounds * definition.settings.most_cohorts
        if not 1 <= number <= count:
            raise RoundsExhausted(f"file {number} of {count}: nothing is dealt for it")
        profile = profile_named(definition.settings.profile)
        if not isinstance(profile, DealsFiles) or role not in file_sizes(definition):
            raise NotReady(f"the profile {profile.name} deals {role} nothing but its bundle")
        return profile.dealt(definition.spec, self.bundles.get(f"{task}.{SOURCE}"), role, number)

    def _require_not_handed_over(self, stored: StoredTask, role: str) -> None:
        if role not in _DEALT:
            raise Forbidden(f"{role} is dealt no bundle of its own")
        require_not_ended(stored)
        if not self.bundles.has(f"{stored.task}.{role}"):
            raise NotReady(f"the bundle of {role} was handed over and destroyed; restore it from that role's backup")

    def holds_bundle(self, task: str, role: str) -> bool:
        return self.bundles.has(f"{task}.{role}")

    def acknowledge(self, task: str, role: str) -> bool:
        """The role has all that it is dealt durably: destroy this copy, and the source once both servers have theirs.

        True once all three are gone. Neither server takes a step before: with what is left here the other would read uploads.
        """
        if role not in (*_DEALT, "requester"):
            raise Forbidden(f"{role} is dealt no bundle of its own")
        self.store.task(task)
        self.bundles.delete(f"{task}.{role}")
        if any(self.holds_bundle(task, one) for one in _DEALT):
            return False
        self.bundles.delete(f"{task}.{SOURCE}")
        return True

    def enrol(self, task: str, invitation: str, request: str) -> bytes:
        """Certify the keys of an invitation's holder, once per invitation; an `Enrolled`, sealed to the reading key."""
        stored = self.store.task(task)
        definition = stored.opened
        opened = Invitation.open_in(invitation, definition)
        require_not_ended(stored)
        if stored.state != "open":
            raise TaskNotRunning("enrolment is closed")
        require_in_time(definition.plan, opened.device, opened.expires, self.clock.now())
        asked = EnrolmentRequest.open_under(request, opened)
        who = asked.identity.who
        certificate = Certificate(task, who, invitation, request).sign(self.signing)
        sealed = Enrolled(certificate, self.bundles.get(f"{task}.participant")).seal(asked)
        # Last: keys that cannot be used do not use an invitation up.
        self.store.use_invitation(task, UsedInvitation(opened.number, opened.device, who), certificate)
        return sealed

    def certified(self, task: str, name: str) -> str:
        """For the requester: the newest certificate under an invitation's number, or that a participant's name belongs to."""
        found = self.store.certified(task, name)
        if found is None:
            raise InvitationRefused(f"nobody has joined as {name}, or with an invitation of this number")
        return found

    def close_enrolment(self, task: str, order: str) -> None:
        """The requester closes enrolment by a signed order: the participants' bundle is destroyed."""
        definition = self.store.task(task).opened
        if EnrolmentEnd.open(order, definition.requester).task != task:
            raise Forbidden("this order is for another task")
        with self.store.transaction():  # a task that has ended meanwhile stays so
            if self.store.task(task).state != OVER:
                self.store.change_task(task, state="closed")
        self.bundles.delete(f"{task}.participant")
