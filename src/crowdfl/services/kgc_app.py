"""KGC over HTTP."""

import threading
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import Field

from crowdfl.roles.kgc import Kgc
from crowdfl.services.auth import TokenEntry, Tokens
from crowdfl.services.bodies import Form, TaskId, json_body, takes_json
from crowdfl.services.frame import Background, between_roles, make_app, ready_check
from crowdfl.services.metrics import Metrics

__all__ = ["Joining", "NewTask", "Order", "create_app"]

_KEY = Field(pattern="^[0-9a-f]{64}$")


class NewTask(Form):
    """A signed definition."""

    definition: str


class Joining(Form):
    """An invitation and the public keys of its holder, in hex."""

    invitation: str
    signing: Annotated[str, _KEY]
    reading: Annotated[str, _KEY]


class Order(Form):
    """A signed order."""

    order: str


def create_app(kgc: Kgc, tokens: Tokens, *, folder: Path, background: Sequence[Background] = ()) -> FastAPI:
    """KGC's app; `folder` is where its files lie."""
    metrics = Metrics()
    app = make_app("kgc", tokens, metrics, ready_check(kgc.store.task, folder), background)
    dealt = metrics.counter("crowdfl_bundles_dealt", "Bundles handed to a server", "role")
    certified = metrics.counter("crowdfl_participants_certified", "Invitations honoured, repeats included")
    dealing = threading.Lock()  # two dealings of one task at once would mix their keys
    requester = Depends(tokens.require("requester"))
    server = tokens.require("sp", "csp")

    @app.get("/v1/key")
    def key() -> dict[str, str]:
        """The key that appointments and certificates are checked with."""
        return {"key": kgc.signing.public.hex()}

    @app.post("/v1/tasks", status_code=201, dependencies=[requester], openapi_extra=takes_json(NewTask))
    def create(body: Annotated[NewTask, Depends(json_body(NewTask))]) -> dict[str, str]:
        """Make a task's keys; the same definition again gets the same answer."""
        with dealing:
            made = kgc.create_task(body.definition)
        return {"task": made.task, "appointment": made.appointment, "bundle": b64encode(made.bundle).decode()}

    @app.get("/v1/tasks/{task}/bundle", dependencies=[Depends(between_roles)])
    def bundle(task: TaskId, caller: Annotated[TokenEntry, Depends(server)]) -> dict[str, str]:
        """The caller's own bundle: the token says whose."""
        definition, appointment, secret = kgc.bundle(task, caller.role)
        dealt.labels(caller.role).inc()
        return {"definition": definition, "appointment": appointment, "bundle": b64encode(secret).decode()}

    @app.post("/v1/tasks/{task}/acknowledge", status_code=204)
    def acknowledge(
        task: TaskId, caller: Annotated[TokenEntry, Depends(tokens.require("sp", "csp", "requester"))]
    ) -> None:
        """The caller keeps its bundle durably: KGC's copy is destroyed."""
        kgc.acknowledge(task, caller.role)

    # No token: the invitation is the right to join.
    @app.post("/v1/tasks/{task}/participants", openapi_extra=takes_json(Joining))
    def enrol(task: TaskId, body: Annotated[Joining, Depends(json_body(Joining))]) -> dict[str, str]:
        """Certify the keys of an invitation's holder."""
        made = kgc.enrol(task, body.invitation, bytes.fromhex(body.signing), bytes.fromhex(body.reading))
        certified.inc()
        return {"certificate": made.certificate, "sealed": b64encode(made.sealed).decode()}

    @app.post("/v1/tasks/{task}/close", status_code=204, dependencies=[requester], openapi_extra=takes_json(Order))
    def close(task: TaskId, body: Annotated[Order, Depends(json_body(Order))]) -> None:
        """No further participant is certified."""
        kgc.close_enrolment(task, body.order)

    return app
