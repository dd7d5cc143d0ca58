"""The ports of participants and requesters, over HTTP."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdfl.crypto.sealing import SigningKey
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.roles.kgc import Created
from crowdfl.services.client.credentials import Credential, Owner, Signer
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Service, connect

__all__ = ["Link", "ParticipantLink", "RequesterKgcLink", "RequesterSpLink"]

_WHOLE = 256 * 1024


@dataclass(frozen=True)
class Link:
    """How to reach a service: its address, whom to trust about it, whether plain HTTP was asked for."""

    url: str
    ca: Path | None = None
    plain_http: bool = False

    def open(self, credential: Credential | None = None) -> Service:
        """Connect with a credential, or as anyone."""
        return connect(self.url, ca=self.ca, credential=credential, plain_http=self.plain_http)

    def as_requester(self, token: str, signing: SigningKey) -> Service:
        """Connect as a requester, whose key its tasks' definitions name."""
        return self.open(Owner(token, signing))


class ParticipantLink:
    """SP as a participant reaches it: open routes as anyone, its own with its key."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._open = SpClient(link.open())
        self._own: SpClient | None = None

    def papers(self, task: str) -> tuple[str, str]:
        """Definition and appointment."""
        about = self._open.about(task)
        return str(about["definition"]), str(about["appointment"])

    def initial_weights(self, task: str) -> bytes:
        """The initial weights."""
        return self._open.initial(task)

    def status(self, task: str) -> dict[str, Any]:
        """Where the task stands."""
        status: dict[str, Any] = self._open.about(task)["status"]
        return status

    def enrol(self, task: str, certificate: str) -> str:
        """Join."""
        return self._open.enrol(task, certificate)

    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        """Upload, a long one in pieces, so that a lost connection costs one of them; the signed receipt."""
        client = self._as(keys)
        whole = len(upload) <= _WHOLE
        return client.upload(task, number, upload) if whole else client.upload_in_pieces(task, number, upload)

    def average(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        """A round's publication."""
        return self._as(keys).average(task, number)

    def reward(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        """A round's reward envelope."""
        return self._as(keys).reward(task, number)

    def claim(self, task: str, claim: bytes) -> int:
        """Claim; millionths paid."""
        return self._open.claim(task, claim)

    def quit(self, task: str, keys: ParticipantKeys) -> None:
        """Leave."""
        self._as(keys).leave(task)

    def close(self) -> None:
        """Hang up."""
        self._open.service.close()
        if self._own is not None:
            self._own.service.close()

    def _as(self, keys: ParticipantKeys) -> SpClient:
        if self._own is None:
            self._own = SpClient(self._link.open(Signer(keys.who, keys.signing)))
        return self._own


class RequesterKgcLink:
    """KGC as a requester reaches it."""

    def __init__(self, link: Link, token: str, signing: SigningKey) -> None:
        self._client = KgcClient(link.as_requester(token, signing))

    def create_task(self, definition: str) -> Created:
        """Have keys made."""
        return self._client.create_task(definition)

    def done(self, task: str) -> None:
        """The requester's bundle is durable here."""
        self._client.done(task)

    def close_enrolment(self, task: str, order: str) -> None:
        """No further participants."""
        self._client.close_enrolment(task, order)

    def close(self) -> None:
        """Hang up."""
        self._client.service.close()


class RequesterSpLink:
    """SP as a requester reaches it."""

    def __init__(self, link: Link, token: str, signing: SigningKey) -> None:
        self._client = SpClient(link.as_requester(token, signing))

    def create_task(self, definition: str, appointment: str, initial: bytes) -> str:
        """Post a task."""
        return self._client.create_task(definition, appointment, initial)

    def deposit(self, task: str, name: str, amount: int) -> None:
        """Pay in."""
        self._client.deposit(task, name, amount)

    def order(self, task: str, order: str) -> None:
        """Pause, resume, cancel."""
        self._client.order(task, order)

    def status(self, task: str) -> dict[str, Any]:
        """Where the task stands."""
        status: dict[str, Any] = self._client.about(task)["status"]
        return status

    def final(self, task: str, number: int) -> bytes:
        """The requester's publication of a round."""
        return self._client.average(task, number)

    def movements(self, task: str) -> list[dict[str, Any]]:
        """The books."""
        movements: list[dict[str, Any]] = self._client.ledger(task)["movements"]
        return movements

    def close(self) -> None:
        """Hang up."""
        self._client.service.close()
