"""KGC, SP and CSP as their callers see them: these classes fill the roles' ports.

Every method raises the error that the service raised, by the same name; `ServiceUnavailable` when there is no answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crowdfl.crypto.long_bytes import Long, sha256_of, whole
from crowdfl.errors import (
    Forbidden,
    FormatError,
    NotAuthenticated,
    NotReady,
    ServiceUnavailable,
    WrongProtocol,
)
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.protocols.uploads import Head, upload_digest
from crowdfl.roles.kgc import Created
from crowdfl.roles.records import PaidClaim, PayWord, UsedInvitation
from crowdfl.services.client.breaker import allow
from crowdfl.services.client.in_pieces import InPieces, goes_whole
from crowdfl.services.client.transport import RESPONSE_LIMIT, Reply, Service, Signer, in_time
from crowdfl.services.http.wire import OCTETS, REQUEST_HEADER, before_hash, from_base64

_DEALING_SECONDS = 300.0  # for one file that KGC makes, and until CSP has all of its own


@contextmanager
def _as_peer(name: str) -> Iterator[None]:
    """A refusal of this server's own credential is not the fault of whoever called this server."""
    try:
        yield
    except (NotAuthenticated, Forbidden, WrongProtocol) as refusal:
        raise ServiceUnavailable(f"{name} does not accept this server: {refusal}") from None


@dataclass(frozen=True)
class KgcClient:
    """KGC, for a requester with its token and key, a participant, or a server with its own token."""

    service: Service

    def key(self) -> bytes:
        return self.service.call("GET", "/v1/key").hex("key")

    def create_task(self, definition: str) -> Created:
        reply = self.service.send_json("POST", "/v1/tasks", {"definition": definition})
        return Created(reply.text("task"), reply.text("appointment"), from_base64(reply.text("bundle")))

    def enrol(self, task: str, invitation: str, request: str) -> bytes:
        body = {"invitation": invitation, "request": request}
        reply = self.service.send_json("POST", f"/v1/tasks/{task}/participants", body)
        return from_base64(reply.text("sealed"))

    def close_enrolment(self, task: str, order: str) -> None:
        self.service.send_json("POST", f"/v1/tasks/{task}/close", {"order": order})

    def invitations(self, task: str) -> list[UsedInvitation]:
        """The requester: who, by the name in the task, has used which invitation."""
        reply = self.service.call("GET", f"/v1/tasks/{task}/invitations")
        return [
            UsedInvitation(one.get("number", ""), one.get("device", 0), one.get("who", ""))
            for one in reply.tables("used")
        ]

    def certified(self, task: str, name: str) -> str:
        return self.service.call("GET", f"/v1/tasks/{task}/invitations/{name}").text("certificate")

    @_as_peer("KGC")
    def bundle(self, task: str) -> tuple[str, str, bytes]:
        """SP or CSP: definition, appointment and the caller's own bundle."""
        reply = self.service.call("GET", f"/v1/tasks/{task}/bundle")
        return reply.text("definition"), reply.text("appointment"), from_base64(reply.text("bundle"))

    @_as_peer("KGC")
    def dealt(self, task: str, number: int) -> memoryview:
        """SP or CSP: the caller's file of a round. KGC makes it as it sends it, which may take a while."""
        allow(_DEALING_SECONDS)
        slow = replace(self.service, read_seconds=_DEALING_SECONDS)
        return before_hash(slow.call("GET", f"/v1/tasks/{task}/dealt/{number}").octets())

    @_as_peer("KGC")
    def acknowledge(self, task: str) -> bool:
        return self.done(task)

    @_as_peer("KGC")
    def end(self, task: str, document: str) -> None:
        self.service.send_json("POST", f"/v1/tasks/{task}/end", {"document": document})

    def done(self, task: str) -> bool:
        return self.service.call("POST", f"/v1/tasks/{task}/acknowledge").json().get("destroyed") is True

    def close(self) -> None:
        self.service.close()


@dataclass(frozen=True)
class CspClient:
    """CSP, for SP."""

    service: Service
    patience: float = 3600.0  # seconds that one answer may take
    folder: Path | None = None  # for answers that are too long for memory

    @_as_peer("CSP")
    def prepare(self, task: str) -> None:
        """Answered at once, or after a while in that CSP fetches what is dealt for the rounds."""
        place = f"/v1/tasks/{task}/prepare"
        reply = self.service.call("POST", place)
        if reply.status == 202:
            allow(_DEALING_SECONDS)
        attempts = in_time(replace(self.service.retries, deadline=self.patience)).start()
        while reply.status == 202:
            if not attempts.wait():
                raise ServiceUnavailable("CSP is still fetching what is dealt for the task: try again later")
            reply = self.service.call("POST", place)

    @_as_peer("CSP")
    def enrol(self, task: str, certificate: str) -> None:
        self.service.send_json("POST", f"/v1/tasks/{task}/participants", {"certificate": certificate})

    @_as_peer("CSP")
    def attested(self, task: str) -> str:
        return self.service.call("GET", f"/v1/tasks/{task}/attested").text("document")

    @_as_peer("CSP")
    def claims_extended(self, task: str) -> str:
        return self.service.call("GET", f"/v1/tasks/{task}/claims-extension").text("document")

    @_as_peer("CSP")
    def end(self, task: str, document: str) -> None:
        self.service.send_json("POST", f"/v1/tasks/{task}/end", {"document": document})

    @_as_peer("CSP")
    def answer(self, task: str, request: Long, longest: int = RESPONSE_LIMIT) -> Long:
        """One request, one reply, however long it takes and whatever happens to CSP meanwhile."""
        place = f"/v1/tasks/{task}/requests"
        digest = sha256_of(request).hex()
        service = replace(self.service, longest=longest, spool=self.folder)
        attempts = in_time(replace(service.retries, deadline=self.patience)).start()
        reply = self._ask(service, place, request)
        while reply.status == 202:
            if not attempts.wait():
                raise ServiceUnavailable(f"CSP has not answered within {self.patience:.0f} s; ask again later")
            try:
                reply = service.call("GET", f"{place}/{digest}")
            except NotReady:  # CSP was restarted and has forgotten the request
                reply = self._ask(service, place, request)
        found = reply.whole_octets()
        if reply.headers.get(REQUEST_HEADER.lower()) != digest:
            raise ServiceUnavailable("this is not CSP's answer to what was asked: try again later")
        return found

    def _ask(self, service: Service, place: str, request: Long) -> Reply:
        if goes_whole(request):
            return service.call("POST", place, whole(request), media_type=OCTETS)
        parcel = InPieces.parcel(service, place, request)
        return parcel.deliver(lambda: service.call("POST", parcel.place))


@dataclass(frozen=True)
class SpClient:
    """SP, for anyone, a requester with its token and key, or a participant, whose keys may come with each call."""

    service: Service

    def key(self) -> bytes:
        return self.service.call("GET", "/v1/key").hex("key")

    def about(self, task: str) -> Reply:
        return self.service.call("GET", f"/v1/tasks/{task}")

    def papers(self, task: str) -> tuple[str, str]:
        reply = self.about(task)
        return reply.text("definition"), reply.text("appointment")

    def status(self, task: str) -> dict[str, Any]:
        return self.about(task).table("status")

    def initial_weights(self, task: str) -> bytes:
        return self.service.call("GET", f"/v1/tasks/{task}/initial").octets()

    def close(self) -> None:
        self.service.close()

    # For whoever looks for a task.

    def listed(self) -> dict[str, Any]:
        """The tasks that SP lists, and the servers that it names."""
        return self.service.call("GET", "/v1/tasks").json()

    def recruit(self, task: str, key: bytes) -> str:
        return self.service.send_json("POST", f"/v1/tasks/{task}/places", {"key": key.hex()}).text("invitation")

    # For the requester.

    def create_task(self, definition: str, appointment: str, initial: Long) -> str:
        """The papers first, which may be refused; then the weights in pieces, unless SP has them."""
        papers = {"definition": definition, "appointment": appointment}

        def post(weights: str) -> str:
            return self.service.send_json("POST", "/v1/tasks", papers | {"weights": weights}).text("task")

        try:
            return post("")
        except NotReady:
            parcel = InPieces.parcel(self.service, "/v1/weights", initial)
            return parcel.deliver(lambda: post(parcel.head.digest))

    def deposit(self, task: str, name: str, amount: int) -> None:
        """Announce millionths that are paid in, once per name; they count when the platform has confirmed them."""
        self.service.send_json("PUT", f"/v1/tasks/{task}/deposits/{name}", {"amount": amount})

    def order(self, task: str, order: str) -> None:
        self.service.send_json("POST", f"/v1/tasks/{task}/orders", {"order": order})

    def ledger(self, task: str) -> dict[str, Any]:
        return self.service.call("GET", f"/v1/tasks/{task}/ledger").json()

    def attested(self, task: str) -> str:
        return self.service.call("GET", f"/v1/tasks/{task}/attested").text("document")

    def movements(self, task: str) -> list[dict[str, Any]]:
        movements: list[dict[str, Any]] = self.ledger(task)["movements"]
        return movements

    def deposits(self, task: str) -> list[dict[str, Any]]:
        deposits: list[dict[str, Any]] = self.ledger(task)["deposits"]
        return deposits

    def final(self, task: str, number: int) -> bytes:
        return self.average(task, number)

    def compliance(self, task: str) -> dict[str, Any]:
        return self.service.call("GET", f"/v1/tasks/{task}/compliance").json()

    def consents(self, task: str) -> list[dict[str, Any]]:
        found: dict[str, Any] = self.service.call("GET", f"/v1/tasks/{task}/consents").json()
        consents: list[dict[str, Any]] = found["consents"]
        return consents

    def reference(self, task: str, number: int, upload: bytes) -> None:
        place, digest = f"/v1/tasks/{task}/rounds/{number}/reference", upload_digest(upload)
        self.service.call("PUT", place, upload, media_type=OCTETS, digest=digest)

    # For whoever sees the platform's bank account.

    def confirm_deposit(self, task: str, name: str, amount: int, currency: str) -> None:
        came = {"amount": amount, "currency": currency}
        self.service.send_json("POST", f"/v1/tasks/{task}/deposits/{name}/confirmation", came)

    # For participants.

    def enrol(self, task: str, certificate: str, consent: str | None = None) -> str | None:
        """SP's signed receipt of the consent, where there is one."""
        body = {"certificate": certificate, "consent": consent}
        reply = self.service.send_json("POST", f"/v1/tasks/{task}/participants", body)
        reply.text("who")
        return None if consent is None else reply.text("receipt")

    def leave(self, task: str, keys: ParticipantKeys | None = None, *, withdraw: bool = False) -> dict[str, list[int]]:
        own = self._as(keys)
        reply = own.service.call(
            "DELETE", f"/v1/tasks/{task}/participants/{own.who}{'?withdraw=true' if withdraw else ''}"
        )
        return {name: reply.wholes(name) for name in ("deleted", "standing")}

    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        own = self._as(keys)
        send = own.upload if goes_whole(upload) else own.upload_in_pieces
        return send(task, number, upload)

    def uploaded(self, task: str, number: int, keys: ParticipantKeys | None = None) -> str | None:
        """The digest of this participant's upload that SP holds, if it holds one."""
        own = self._as(keys)
        reply = own.service.call("GET", own._place(task, number))
        return None if reply.json().get("digest", "") is None else reply.text("digest")

    def is_drawn(self, task: str, number: int, keys: ParticipantKeys | None = None) -> bool:
        """Whether this participant is in a round, of a task that draws people."""
        own = self._as(keys)
        return own.service.call("GET", own._place(task, number)).json().get("drawn") is True

    def upload(self, task: str, number: int, upload: bytes) -> str:
        """Signed by its name, as its pieces are."""
        digest, place = upload_digest(upload), self._place(task, number)
        return self.service.call("PUT", place, upload, media_type=OCTETS, digest=digest).text("receipt")

    def upload_in_pieces(self, task: str, number: int, upload: bytes) -> str:
        """An upload over a bad connection: goes on where it stopped, across calls; the signed receipt."""
        place, head = self._place(task, number), Head.of(upload)
        finished = {"digest": head.digest}
        return InPieces(self.service, place, upload, head).deliver(
            lambda: self.service.send_json("POST", f"{place}/commit", finished).text("receipt")
        )

    def average(self, task: str, number: int, keys: ParticipantKeys | None = None) -> bytes:
        return self._as(keys).service.call("GET", f"/v1/tasks/{task}/rounds/{number}/average").octets()

    def end(self, task: str, number: int, keys: ParticipantKeys | None = None) -> bytes:
        return self._as(keys).service.call("GET", f"/v1/tasks/{task}/rounds/{number}/end").octets()

    def reward(self, task: str, number: int, keys: ParticipantKeys | None = None) -> bytes:
        return self._as(keys).service.call("GET", f"/v1/tasks/{task}/rounds/{number}/reward").octets()

    def claim(self, task: str, claim: bytes, keys: ParticipantKeys | None = None) -> PaidClaim:
        """Have a claim paid. The same claim again, after a lost answer, is the same payment."""
        own = self._as(keys)
        place = f"/v1/tasks/{task}/claims"
        reply = own.service.call("POST", place, claim, media_type=OCTETS, repeatable=False)
        return PaidClaim(*(reply.amounts(name) for name in ("paid", "unused", "disputed")))

    def pay_to(self, task: str, sealed: bytes, keys: ParticipantKeys | None = None) -> bytes:
        own = self._as(keys)
        reply = own.service.call(
            "PUT", f"/v1/tasks/{task}/participants/{own.who}/destination", sealed, media_type=OCTETS
        )
        return reply.octets()

    def pay_words(self, task: str, keys: ParticipantKeys | None = None) -> dict[int, PayWord]:
        own = self._as(keys)
        found: Any = own.service.call("GET", f"/v1/tasks/{task}/participants/{own.who}/pay").json().get("rounds")
        try:
            return PayWord.by_round(found)
        except (FormatError, KeyError, TypeError, ValueError):
            raise ServiceUnavailable("the service's answer lacks rounds") from None

    def _as(self, keys: ParticipantKeys | None) -> "SpClient":
        if keys is None:
            return self
        return replace(self, service=replace(self.service, credential=Signer(keys.who, keys.signing)))

    @property
    def who(self) -> str:
        if not isinstance(self.service.credential, Signer):
            raise NotAuthenticated("this needs a participant's key")
        return self.service.credential.who

    def _place(self, task: str, number: int) -> str:
        return f"/v1/tasks/{task}/rounds/{number}/uploads/{self.who}"
