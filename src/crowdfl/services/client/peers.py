"""KGC, SP and CSP as their callers see them. `KgcClient` and `CspClient` fill the roles' ports KgcPeer and CspPeer.

Every method raises the error that the service raised, by the same name; `ServiceUnavailable` when none can be had.
"""

import hashlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from crowdfl.errors import (
    Conflict,
    Forbidden,
    NotAuthenticated,
    NotReady,
    ServiceUnavailable,
    Truncated,
    WrongProtocol,
)
from crowdfl.roles.kgc import Created, Enrolled
from crowdfl.services.client.credentials import Signer
from crowdfl.services.client.transport import Service
from crowdfl.services.http.wire import from_base64

__all__ = ["CspClient", "KgcClient", "SpClient"]

_OCTETS = "application/octet-stream"
_PIECE = 256 * 1024
_RESTARTS = 5
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class KgcClient:
    """KGC, for a requester with its token and key, a participant, or a server with its own token."""

    service: Service

    def key(self) -> bytes:
        """The key that KGC signs with."""
        return bytes.fromhex(self.service.call("GET", "/v1/key").text("key"))

    def create_task(self, definition: str) -> Created:
        """Requester: have a task's keys made."""
        reply = self.service.send_json("POST", "/v1/tasks", {"definition": definition})
        return Created(reply.text("task"), reply.text("appointment"), from_base64(reply.text("bundle")))

    def enrol(self, task: str, invitation: str, signing: bytes, reading: bytes) -> Enrolled:
        """Participant: a certificate for an invitation."""
        body = {"invitation": invitation, "signing": signing.hex(), "reading": reading.hex()}
        reply = self.service.send_json("POST", f"/v1/tasks/{task}/participants", body)
        return Enrolled(reply.text("certificate"), from_base64(reply.text("sealed")))

    def close_enrolment(self, task: str, order: str) -> None:
        """Requester: nobody else may join."""
        self.service.send_json("POST", f"/v1/tasks/{task}/close", {"order": order})

    def bundle(self, task: str) -> tuple[str, str, bytes]:
        """SP or CSP: definition, appointment and the caller's own bundle."""
        reply = _as_peer("KGC", lambda: self.service.call("GET", f"/v1/tasks/{task}/bundle"))
        return reply.text("definition"), reply.text("appointment"), from_base64(reply.text("bundle"))

    def acknowledge(self, task: str) -> None:
        """SP or CSP: the bundle is durable here."""
        _as_peer("KGC", lambda: self.done(task))

    def done(self, task: str) -> None:
        """Requester: the bundle is durable here."""
        self.service.call("POST", f"/v1/tasks/{task}/acknowledge")


@dataclass(frozen=True)
class CspClient:
    """CSP, for SP."""

    service: Service
    patience: float = 3600.0  # seconds that one answer may take

    def prepare(self, task: str) -> None:
        """Have the task's bundle fetched."""
        _as_peer("CSP", lambda: self.service.call("POST", f"/v1/tasks/{task}/prepare"))

    def enrol(self, task: str, certificate: str) -> None:
        """Pass a participant's certificate on."""
        body = {"certificate": certificate}
        _as_peer("CSP", lambda: self.service.send_json("POST", f"/v1/tasks/{task}/participants", body))

    def answer(self, task: str, request: bytes) -> bytes:
        """One request, one reply, however long it takes and whatever happens to CSP meanwhile."""
        return _as_peer("CSP", lambda: self._answer(task, request))

    def _answer(self, task: str, request: bytes) -> bytes:
        digest, posted = hashlib.sha256(request).hexdigest(), False
        attempts = replace(self.service.retries, deadline=self.patience).start()
        while True:
            if not posted:
                reply = self.service.call("POST", f"/v1/tasks/{task}/requests", request, media_type=_OCTETS)
                posted = True
            else:
                try:
                    reply = self.service.call("GET", f"/v1/tasks/{task}/requests/{digest}")
                except NotReady:  # CSP was restarted and has forgotten what it was doing
                    posted = False
                    continue
            if reply.status != 202:
                return reply.body
            if not attempts.wait():
                raise ServiceUnavailable(f"CSP has not answered within {self.patience:.0f} s; ask again later")


@dataclass(frozen=True)
class SpClient:
    """SP, for everyone, a requester with its token and key, or a participant with its key."""

    service: Service

    def key(self) -> bytes:
        """The key that SP signs receipts with."""
        return bytes.fromhex(self.service.call("GET", "/v1/key").text("key"))

    def about(self, task: str) -> dict[str, Any]:
        """Definition, appointment and status."""
        return self.service.call("GET", f"/v1/tasks/{task}").json()

    def initial(self, task: str) -> bytes:
        """The weights that everyone starts from."""
        return self.service.call("GET", f"/v1/tasks/{task}/initial").body

    # The requester's part.

    def create_task(self, definition: str, appointment: str, initial: bytes) -> str:
        """Have SP take a task over."""
        weights = b64encode(initial).decode()
        body = {"definition": definition, "appointment": appointment, "initial": weights}
        return self.service.send_json("POST", "/v1/tasks", body).text("task")

    def deposit(self, task: str, name: str, amount: int) -> None:
        """Pay in millionths, once per name."""
        self.service.send_json("PUT", f"/v1/tasks/{task}/deposits/{name}", {"amount": amount})

    def order(self, task: str, order: str) -> None:
        """A signed order: pause, resume or cancel."""
        self.service.send_json("POST", f"/v1/tasks/{task}/orders", {"order": order})

    def ledger(self, task: str) -> dict[str, Any]:
        """Movements and balances."""
        return self.service.call("GET", f"/v1/tasks/{task}/ledger").json()

    # The participants' part.

    def enrol(self, task: str, certificate: str) -> str:
        """Join; the participant's name."""
        return self.service.send_json("POST", f"/v1/tasks/{task}/participants", {"certificate": certificate}).text(
            "who"
        )

    def leave(self, task: str) -> None:
        """Leave."""
        self.service.call("DELETE", f"/v1/tasks/{task}/participants/{self._who}")

    def upload(self, task: str, number: int, upload: bytes) -> str:
        """A whole upload; the signed receipt."""
        return self.service.call("PUT", self._place(task, number), upload, media_type=_OCTETS).text("receipt")

    def upload_in_pieces(self, task: str, number: int, upload: bytes, piece: int = _PIECE) -> str:
        """An upload over a bad connection: goes on where it stopped, across calls; the signed receipt."""
        place, digest = self._place(task, number), hashlib.sha256(upload).hexdigest()
        for _ in range(_RESTARTS):
            self._send_rest(place, upload, piece)
            try:
                return self.service.send_json("POST", f"{place}/commit", {"digest": digest}).text("receipt")
            except (NotReady, Truncated) as lost:
                if self.service.call("GET", f"{place}/offset").whole("offset") == len(upload):
                    if isinstance(lost, NotReady):
                        raise  # all bytes wait there: it is the round that has not opened
                    self.service.call("PATCH", f"{place}?offset=0", b"", media_type=_OCTETS)  # other bytes: start again
        raise ServiceUnavailable("SP keeps losing this upload; try again later")

    def average(self, task: str, number: int) -> bytes:
        """A round's average, sealed to the caller's audience."""
        return self.service.call("GET", f"/v1/tasks/{task}/rounds/{number}/average").body

    def reward(self, task: str, number: int) -> bytes:
        """The caller's reward of a round, sealed to it."""
        return self.service.call("GET", f"/v1/tasks/{task}/rounds/{number}/reward").body

    def claim(self, task: str, claim: bytes) -> int:
        """Have a claim paid: millionths. A claim whose answer was lost is refused as `AlreadyPaid` when sent again."""
        place = f"/v1/tasks/{task}/claims"
        return self.service.call("POST", place, claim, media_type=_OCTETS, repeatable=False).whole("amount")

    @property
    def _who(self) -> str:
        if not isinstance(self.service.credential, Signer):
            raise NotAuthenticated("this needs a participant's key")
        return self.service.credential.who

    def _place(self, task: str, number: int) -> str:
        return f"/v1/tasks/{task}/rounds/{number}/uploads/{self._who}"

    def _send_rest(self, place: str, upload: bytes, piece: int) -> None:
        offset = self.service.call("GET", f"{place}/offset").whole("offset")
        offset = offset if offset <= len(upload) else 0
        while offset < len(upload):
            part = upload[offset : offset + piece]
            try:
                offset = self.service.call("PATCH", f"{place}?offset={offset}", part, media_type=_OCTETS).whole(
                    "offset"
                )
            except Conflict:  # the piece was in, only its answer was lost
                offset = self.service.call("GET", f"{place}/offset").whole("offset")


def _as_peer(name: str, call: Callable[[], _Result]) -> _Result:
    """A refusal of this server's own credential is no fault of whoever called this server."""
    try:
        return call()
    except (NotAuthenticated, Forbidden, WrongProtocol) as refusal:
        raise ServiceUnavailable(f"{name} does not accept this server: {refusal}") from None
