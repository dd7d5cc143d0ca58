"""CSP: answers SP's requests with its half of the key. The same request gets the same answer, across crashes."""

import hashlib
from dataclasses import dataclass, field

from crowdfl.crypto.compute import Backend, default_backend
from crowdfl.errors import DocumentError
from crowdfl.protocols.local import PROFILES
from crowdfl.protocols.profile import CspSide, Tools
from crowdfl.roles.documents import Appointment, Certificate, Definition
from crowdfl.roles.ports import Blobs, CspStore, KgcPeer, StoredParticipant, StoredTask

__all__ = ["Csp"]


@dataclass
class Csp:
    """One computation server."""

    store: CspStore
    blobs: Blobs
    bundles: Blobs
    kgc: KgcPeer
    kgc_key: bytes
    insecure_test_key: bool = False
    backend: Backend = field(default_factory=default_backend)
    _sides: dict[str, CspSide] = field(default_factory=dict, repr=False)

    def prepare(self, task: str) -> None:
        """Fetch this role's bundle from KGC, keep it durably, let KGC destroy its copy. Again is fine."""
        if not self.bundles.has(f"{task}.csp"):
            definition, appointment, bundle = self.kgc.bundle(task)
            if Definition.open(definition).task != task or Appointment.open(appointment, self.kgc_key).task != task:
                raise DocumentError("KGC sent the papers of another task")
            self.store.add_task(StoredTask(task, definition, appointment, "open"))
            self.bundles.put(f"{task}.csp", bundle)
        self.kgc.acknowledge(task)

    def enrol(self, task: str, certificate: str) -> None:
        """A participant that KGC has certified: rewards are sealed to its key, claims checked with it."""
        definition = Definition.open(self.store.task(task).definition)
        opened = Certificate.open(certificate, self.kgc_key)
        if opened.task != task:
            raise DocumentError("this certificate is for another task")
        participant = StoredParticipant(opened.identity, certificate)
        self.store.add_participant(task, participant, definition.settings.max_participants)
        if task in self._sides:
            self._sides[task].enrol(opened.identity)

    def answer(self, task: str, request: bytes) -> bytes:
        """Compute once, keep the answer before giving it."""
        name = hashlib.sha256(request).hexdigest()
        known = self.store.answered(task, name)
        if known is not None:
            return self.blobs.get(known)
        with self.store.together():  # what the side remembers and the answer stand or fall together
            reply = self._side(task).answer(request)
            blob = f"{task}/answers/{name}"
            self.blobs.delete(blob)  # left by a crash before its transaction ended: nobody has seen it
            self.blobs.put(blob, reply)
            self.store.put_answer(task, name, blob)
        return reply

    def _side(self, task: str) -> CspSide:
        if task not in self._sides:
            definition = Definition.open(self.store.task(task).definition)
            tools = Tools(self.backend, insecure_test_key=self.insecure_test_key, keep_views=False)
            bundle = self.bundles.get(f"{task}.csp")
            side = PROFILES[definition.settings.profile].csp(definition.about, bundle, tools)
            side.remember(self.store.memory(task))
            for participant in self.store.participants(task):
                side.enrol(participant.identity)
            self._sides[task] = side
        return self._sides[task]
