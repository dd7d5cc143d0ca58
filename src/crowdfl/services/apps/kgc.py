"""KGC over HTTP."""

import hashlib
import threading
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client import Counter

from crowdfl.documents.signed import Definition
from crowdfl.roles.dealt import dealt_sizes
from crowdfl.roles.kgc import Kgc
from crowdfl.roles.kgc_retention import KgcRetention
from crowdfl.services.apps.ends import add_end_route
from crowdfl.services.apps.held import add_held_metrics
from crowdfl.services.client.breaker import place_in
from crowdfl.services.http import logs
from crowdfl.services.http.app_factory import Background, ServiceMetrics, between_roles, make_app
from crowdfl.services.http.auth import CertifiedToken, Pins, TokenEntry, Tokens, opened_by
from crowdfl.services.http.bodies import (
    JSON_LIMIT,
    SMALL_LIMIT,
    Form,
    Invited,
    Number,
    SignedOrder,
    TaskId,
    binary_body,
    json_body,
    known_task,
    parse,
    takes_json,
)
from crowdfl.services.http.signatures import ByOwner, ByRequester, Proof, signed_json_body
from crowdfl.services.http.wire import OCTETS, REQUESTER_HEADER, with_hash

_MOST_WAITING = 4


class NewTask(Form):
    """A signed definition."""

    definition: str


class Joining(Form):
    """An invitation, and the request to certify its holder's keys, signed with its key."""

    invitation: str
    request: str


def create_app(
    kgc: Kgc,
    tokens: Tokens,
    *,
    folder: Path,
    pins: Pins | None = None,
    retention: KgcRetention | None = None,
    background: Sequence[Background] = (),
) -> FastAPI:
    """KGC's app; `pins` are the keys that SP and CSP must prove, None where connections prove nothing.

    Without `retention` nobody can end a task here.
    """
    metrics = ServiceMetrics()
    app = make_app("kgc", tokens, metrics, kgc.store.task, folder, background, pins)
    if retention is not None:
        for_sp = [Depends(CertifiedToken(tokens.require("sp"), pins)), Depends(between_roles)]
        add_end_route(app, retention, for_sp)
        add_held_metrics(metrics, retention)
    dealt = metrics.counter("crowdfl_bundles_dealt", "Bundles handed to a server", "role")
    honoured = metrics.counter("crowdfl_participants_certified", "Invitations honoured, repeats included")
    # Keys take seconds to minutes: those who wait must not take up every thread there is.
    making = partial(place_in, threading.BoundedSemaphore(_MOST_WAITING), "keys are being made for other tasks")
    requester = ByRequester(tokens.require("requester"), lambda moment, most: abs(kgc.clock.now() - moment) <= most)
    owner = ByOwner(requester, lambda task: kgc.store.task(task).opened.requester)
    server = CertifiedToken(tokens.require("sp", "csp"), pins)

    @app.get("/v1/key")
    def key() -> dict[str, str]:
        """The key that appointments and certificates are checked with."""
        return {"key": kgc.signing.public.hex()}

    # The answer holds the requester's keys: whoever else has seen the definition gets none.
    @app.post("/v1/tasks", status_code=201, openapi_extra=takes_json(NewTask))
    def create(
        proof: Annotated[Proof, Depends(requester)], raw: Annotated[bytes, Depends(binary_body(JSON_LIMIT))]
    ) -> dict[str, str]:
        """Make a task's keys; the same definition again gets the same answer."""
        definition = parse(NewTask, raw).definition
        proof(Definition.open(definition).requester).require_body(hashlib.sha256(raw).hexdigest())
        with making():
            made = kgc.create_task(definition)
        _tell_dealing(made.task, Definition.open(definition))
        return {"task": made.task, "appointment": made.appointment, "bundle": b64encode(made.bundle).decode()}

    _add_dealing_routes(app, kgc, server, owner, dealt)

    # No token: the invitation is the right to join.
    known = [Depends(known_task(kgc.store.task))]
    joining = json_body(Joining, SMALL_LIMIT)

    @app.post("/v1/tasks/{task}/participants", dependencies=known, openapi_extra=takes_json(Joining))
    def enrol(task: TaskId, body: Annotated[Joining, Depends(joining)]) -> dict[str, str]:
        """Certify the keys of an invitation's holder; only the owner of the reading key can open the answer."""
        sealed = kgc.enrol(task, body.invitation, body.request)
        honoured.inc()
        return {"sealed": b64encode(sealed).decode()}

    @app.get("/v1/tasks/{task}/invitations", dependencies=[Depends(owner)])
    def invitations(task: TaskId) -> dict[str, list[dict[str, str | int]]]:
        """The task's invitations that were used: number, device, and the name in the task of who used it."""
        return {"used": [vars(one) for one in kgc.store.used_invitations(task)]}

    @app.get("/v1/tasks/{task}/invitations/{name}", dependencies=[Depends(owner)])
    def certified(task: TaskId, name: Invited) -> dict[str, str]:
        """The newest certificate under an invitation's number, or the one that a name in the task belongs to."""
        return {"certificate": kgc.certified(task, name)}

    @app.post("/v1/tasks/{task}/close", status_code=204, openapi_extra=takes_json(SignedOrder))
    def close(task: TaskId, body: Annotated[SignedOrder, Depends(signed_json_body(SignedOrder, owner))]) -> None:
        """No further participant is certified."""
        kgc.close_enrolment(task, body.order)

    return app


def _add_dealing_routes(app: FastAPI, kgc: Kgc, server: CertifiedToken, owner: ByOwner, dealt: Counter) -> None:
    """What SP and CSP fetch of a new task, until they say that they have it."""

    @opened_by(server, owner)
    def receiver(request: Request, task: TaskId) -> str:
        """The role that receives a bundle: a server by its token and key, the requester as the task's owner."""
        return owner(request, task).who if REQUESTER_HEADER in request.headers else server(request).role

    @app.get("/v1/tasks/{task}/bundle", dependencies=[Depends(between_roles)])
    def bundle(task: TaskId, caller: Annotated[TokenEntry, Depends(server)]) -> dict[str, str]:
        """The caller's own bundle: the token says whose, and the connection proves it."""
        definition, appointment, secret = kgc.bundle(task, caller.role)
        dealt.labels(caller.role).inc()
        logs.get("kgc").info("bundle dealt", task=task, role=caller.role)
        return {"definition": definition, "appointment": appointment, "bundle": b64encode(secret).decode()}

    @app.get("/v1/tasks/{task}/dealt/{number}", dependencies=[Depends(between_roles)], response_class=Response)
    def dealt_file(task: TaskId, number: Number, caller: Annotated[TokenEntry, Depends(server)]) -> Response:
        """One of the caller's own files, as long as it has not acknowledged: sent as it is made, its hash behind it."""
        pieces = kgc.dealt(task, caller.role, number)
        logs.get("kgc").info("round dealt", task=task, number=number, role=caller.role)
        return StreamingResponse(with_hash(pieces), media_type=OCTETS)

    @app.post("/v1/tasks/{task}/acknowledge")
    def acknowledge(task: TaskId, role: Annotated[str, Depends(receiver)]) -> dict[str, bool]:
        """The caller keeps its bundle durably: KGC's copy is destroyed. Whether both servers' and the source are."""
        first = kgc.holds_bundle(task, role)
        destroyed = kgc.acknowledge(task, role)
        if first:  # servers ask again until all copies are gone
            logs.get("kgc").info("bundle destroyed", task=task, role=role)
        return {"destroyed": destroyed}


def _tell_dealing(task: str, definition: Definition) -> None:
    """What the servers will fetch: an operator sees what a task costs when it is made."""
    sizes = dealt_sizes(definition)
    rounds = definition.settings.rounds
    for role, size in sizes.items():
        logs.get("kgc").info("dealing", task=task, role=role, rounds=rounds, bytes_a_round=size, bytes=size * rounds)
