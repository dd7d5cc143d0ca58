"""SP and KGC as a Flower client reaches them: through the records of the message that is being answered."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from crowdfl.errors import NotReady, UnknownParticipant
from crowdfl.flower.wire import Instruction
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.roles.ports import Blobs
from crowdfl.roles.records import PaidClaim


class AskedToEnrol(Exception):
    """Not a failure: KGC was asked, through the server, and its answer comes with a later message."""


@dataclass
class RelayedKgc:
    """KGC behind the server: its answer, sealed to this client, comes with the next message."""

    sealed: bytes = field(repr=False)
    request: str = ""

    def enrol(self, task: str, invitation: str, request: str) -> bytes:
        del task, invitation
        self.request = request
        if not self.sealed:
            raise AskedToEnrol
        return self.sealed


def last_read(blobs: Blobs) -> int:
    """The number of the last round whose average this client has read. Not counted from a number that the server chose."""
    kept = [name.split("/") for name in blobs.listing() if name.endswith("/chain")]
    return max((int(parts[1]) for parts in kept if parts[0] == "rounds" and parts[1].isdigit()), default=0)


@dataclass
class MessageSp:
    """What a participant asks SP for, from one message; what it gives SP is kept for the reply."""

    instruction: Instruction
    blobs: Blobs
    certificate: str = ""

    def papers(self, task: str) -> tuple[str, str]:
        del task
        return self.instruction.definition, self.instruction.appointment

    def initial_weights(self, task: str) -> bytes:
        del task
        if not self.instruction.initial:
            raise NotReady("the server has not sent the initial weights")
        return self.instruction.initial

    def status(self, task: str) -> dict[str, Any]:
        """The rounds that are new to this client, and the one that is open."""
        told, last = self.instruction, last_read(self.blobs)
        rounds = [(number, state) for number, state in told.rounds() if number > last]
        rounds += [(told.number, "open")] if told.number else []
        entries = [{"number": number, "state": state, "uploads": 0} for number, state in rounds]
        return {"task": task, "state": "running", "epoch": "", "dropped": 0, "rounds": entries}

    def enrol(self, task: str, certificate: str) -> str:
        del task
        self.certificate = certificate
        return ""

    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        """It leaves with the reply. Whether it was averaged, CSP's signed word in the round's publication says."""
        del task, number, keys
        return hashlib.sha256(upload).hexdigest()

    def uploaded(self, task: str, number: int, keys: ParticipantKeys) -> str | None:
        del task, keys
        return hashlib.sha256(self.blobs.get(f"rounds/{number}/upload")).hexdigest()

    def average(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        del task, keys
        sent = dict(zip(self.instruction.numbers, self.instruction.publications, strict=False))
        if number not in sent:
            raise NotReady(f"the server has not sent the average of round {number}")
        return sent[number]

    def reward(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        del task
        sent = dict(zip(self.instruction.rewarded, self.instruction.envelopes, strict=False))
        if number not in sent:
            raise UnknownParticipant(f"{keys.who} has no reward of round {number}: its upload was not averaged")
        return sent[number]

    def claim(self, task: str, claim: bytes, keys: ParticipantKeys) -> PaidClaim:
        del task, claim, keys
        raise NotReady("rewards of a run with Flower are claimed once the run is over: docs/flower.md")

    def leave(self, task: str, keys: ParticipantKeys) -> None:
        del task, keys


def pruned(blobs: Blobs) -> int:
    """Forget averages and uploads that nothing builds on any more; the number of the last round that was read."""
    last = last_read(blobs)
    for name in list(blobs.listing()):
        folder, _, rest = name.partition("/")
        number, _, what = rest.partition("/")
        if folder == "rounds" and number.isdigit():
            old_average = what == "average" and int(number) < last
            old_upload = what == "upload" and int(number) <= last
            if old_average or old_upload:
                blobs.delete(name)
    return last
