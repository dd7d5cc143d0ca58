"""CSP over HTTP: everything here is for SP alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, Response

from crowdfl.roles.csp import Csp
from crowdfl.services.apps.csp_answers import Answers
from crowdfl.services.http.app_factory import OCTETS, Background, between_roles, make_app, ready_check
from crowdfl.services.http.auth import Tokens
from crowdfl.services.http.bodies import Form, Sha256, TaskId, binary_body, json_body, takes_bytes, takes_json
from crowdfl.services.http.metrics import Metrics

__all__ = ["Enrolment", "create_app"]

_REQUEST_LIMIT = 256 * 1024 * 1024
_POLL_SECONDS = "1"


class Enrolment(Form):
    """A certificate of KGC's."""

    certificate: str


def create_app(
    csp: Csp,
    tokens: Tokens,
    *,
    folder: Path,
    request_limit: int = _REQUEST_LIMIT,
    patience: float = 5.0,
    background: Sequence[Background] = (),
) -> FastAPI:
    """CSP's app; `patience` is how long a request is held before its caller is sent to poll."""
    metrics, answers = Metrics(), Answers(csp, patience)
    app = make_app("csp", tokens, metrics, ready_check(csp.store.task, folder), (*background, answers))
    asked = metrics.counter("crowdfl_csp_requests", "Requests of SP's by how they were answered", "how")
    for_sp = [Depends(tokens.require("sp")), Depends(between_roles)]

    @app.post("/v1/tasks/{task}/prepare", status_code=204, dependencies=for_sp)
    def prepare(task: TaskId) -> None:
        """Fetch the task's bundle from KGC."""
        csp.prepare(task)

    extra = takes_json(Enrolment)

    @app.post("/v1/tasks/{task}/participants", status_code=204, dependencies=for_sp, openapi_extra=extra)
    def enrol(task: TaskId, body: Annotated[Enrolment, Depends(json_body(Enrolment))]) -> None:
        """Take note of a certified participant."""
        csp.enrol(task, body.certificate)

    extra = takes_bytes()

    @app.post("/v1/tasks/{task}/requests", dependencies=for_sp, response_class=Response, openapi_extra=extra)
    def ask(task: TaskId, body: Annotated[bytes, Depends(binary_body(request_limit))]) -> Response:
        """Answer a request, or say where its answer will be."""
        how = "cached" if answers.known(task, body) else "answered"
        digest, reply = answers.ask(task, body)
        asked.labels(how).inc()
        return _outcome(task, digest, reply)

    @app.get("/v1/tasks/{task}/requests/{digest}", dependencies=for_sp, response_class=Response)
    def poll(task: TaskId, digest: Sha256) -> Response:
        """The answer to a request that was taken in before."""
        return _outcome(task, digest, answers.poll(task, digest))

    return app


def _outcome(task: str, digest: str, reply: bytes | None) -> Response:
    if reply is not None:
        return Response(reply, media_type=OCTETS)
    place = f"/v1/tasks/{task}/requests/{digest}"
    return Response(status_code=202, headers={"Location": place, "Retry-After": _POLL_SECONDS})
