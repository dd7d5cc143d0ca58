"""The console over HTTP: the page's files, and its API. `guard` says who may call it."""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.exceptions import HTTPException

from crowdfl.errors import CrowdFLError, ServiceUnavailable, SettingsError
from crowdfl.retry import Backoff
from crowdfl.services.http.bodies import Form, TaskId, json_body
from crowdfl.services.http.problems import problem_for
from crowdfl.services.http.wire import OCTETS
from crowdfl.text import printable
from crowdfl.web.requester_console.form import form
from crowdfl.web.requester_console.guard import API, Guard, RequesterSession
from crowdfl.web.requester_console.invitations import MOST_INVITATIONS
from crowdfl.web.requester_console.jobs import Job
from crowdfl.web.requester_console.model_evaluation import require_data
from crowdfl.web.requester_console.requester_actions import Desk
from crowdfl.web.static import PACKAGE, add_static, load_assets

_LIMIT = 256 * 1024
_PLACES = {"/requester": "requester", "/web/common": "common", "/web/vendor": "vendor"}
_LONGEST_WORDS = 4000
JobName = Annotated[str, InPath(pattern="^[0-9a-f]{16}$")]
_Text = Annotated[str, Field(max_length=2000)]


class Opening(Form):
    """The secret of the printed address."""

    secret: _Text


class TaskForm(Form):
    """What was typed or chosen, by section and setting."""

    values: dict[str, dict[str, str | bool]]


class Payment(Form):
    """An amount as it was typed, and the page's own name for it: a repeat is the same payment."""

    amount: _Text
    name: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,64}$")] | None = None


class NewInvitations(Form):
    """How many, and for how long they are good."""

    count: Annotated[int, Field(ge=1, le=MOST_INVITATIONS)]
    days: Annotated[float, Field(ge=0.001, le=3660, strict=False)]


class TaskOrder(Form):
    """What the task is told."""

    action: _Text


class DataNames(Form):
    """Data to test on: watch:0, csv:FOLDER, npz:FILE#7."""

    data: Annotated[list[_Text], Field(max_length=100)]


class ModelPlace(Form):
    """A file of this machine."""

    path: _Text


def create_requester_app(desk: Desk, session: RequesterSession) -> FastAPI:
    app = FastAPI(title="CrowdFL requester", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, session=session)
    for kind in (CrowdFLError, OSError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refusal)
    _add_session(app, session)
    _add_desk_routes(app, desk)
    _add_task_routes(app, desk)
    _add_work_routes(app, desk)
    _add_page(app)
    return app


def _add_page(app: FastAPI) -> None:
    assets = {place: load_assets(PACKAGE / folder) for place, folder in _PLACES.items()}
    page = assets["/requester"]["index.html"]

    @app.api_route("/", methods=["GET", "HEAD"])
    async def index() -> Response:
        """The page."""
        return Response(page.body, media_type=page.media_type)

    for place, found in assets.items():
        add_static(app, place, {name: asset for name, asset in found.items() if asset is not page}, dict)


def _add_session(app: FastAPI, session: RequesterSession) -> None:
    @app.post(f"{API}session")
    async def open_session(body: Annotated[Opening, Depends(json_body(Opening, _LIMIT))]) -> JSONResponse:
        """The secret for a session: once."""
        halves = session.open(body.secret)
        if halves is None:
            words = "this address was used before: end `crowdfl task console` with Ctrl-C and start it again"
            return JSONResponse({"error": "NoSession", "detail": words}, 401)
        answer = JSONResponse({"half": halves[1]})
        answer.set_cookie(session.cookie, halves[0], path=API, httponly=True, samesite="strict")
        return answer


def _add_desk_routes(app: FastAPI, desk: Desk) -> None:
    values = Annotated[TaskForm, Depends(json_body(TaskForm, _LIMIT))]

    @app.get(f"{API}overview")
    def overview() -> dict[str, Any]:
        """Who this is, and its tasks."""
        return desk.overview()

    @app.get(f"{API}form")
    def fields() -> dict[str, Any]:
        """Every setting of a task."""
        return form()

    @app.post(f"{API}explain")
    def explain(body: values) -> dict[str, Any]:
        """What these values lead to; nothing is sent anywhere."""
        return desk.explain(body.values)

    @app.post(f"{API}tasks", status_code=202)
    def create(body: values) -> dict[str, Any]:
        """Post a task."""
        return _job(desk.create(body.values))

    @app.get(f"{API}jobs/{{name}}")
    def job(name: JobName) -> dict[str, Any]:
        """How far an action has come."""
        return _job(desk.jobs.get(name))


def _add_task_routes(app: FastAPI, desk: Desk) -> None:
    place = f"{API}tasks/{{task}}"

    @app.get(place)
    def task(task: TaskId) -> dict[str, Any]:
        """What was defined."""
        return desk.task(task)

    @app.post(f"{place}/post", status_code=202)
    def post(task: TaskId) -> dict[str, Any]:
        """Finish what was cut off."""
        return _job(desk.post(task))

    @app.get(f"{place}/status")
    def status(task: TaskId) -> dict[str, Any]:
        """Where it stands."""
        return desk.status(task)

    @app.get(f"{place}/disclosures")
    def disclosures(task: TaskId) -> dict[str, Any]:
        """What each party learns."""
        return desk.learnt(task)

    @app.post(f"{place}/deposits")
    def fund(task: TaskId, body: Annotated[Payment, Depends(json_body(Payment, _LIMIT))]) -> dict[str, Any]:
        """Announce a payment."""
        return desk.fund(task, body.amount, body.name)

    @app.get(f"{place}/invitations")
    def invitations(task: TaskId) -> dict[str, Any]:
        """Those that were made here."""
        return desk.invitations(task)

    @app.post(f"{place}/invitations")
    def invite(
        task: TaskId, body: Annotated[NewInvitations, Depends(json_body(NewInvitations, _LIMIT))]
    ) -> dict[str, Any]:
        """New ones."""
        return desk.invite(task, body.count, body.days)

    @app.post(f"{place}/orders", status_code=204)
    def order(task: TaskId, body: Annotated[TaskOrder, Depends(json_body(TaskOrder, _LIMIT))]) -> None:
        """Pause, resume, cancel or close."""
        desk.order(task, body.action)


def _add_work_routes(app: FastAPI, desk: Desk) -> None:
    place = f"{API}tasks/{{task}}"
    data = Annotated[DataNames, Depends(json_body(DataNames, _LIMIT))]

    @app.post(f"{place}/accuracy", status_code=202)
    def accuracy(task: TaskId, body: data) -> dict[str, Any]:
        """By round."""
        return _job(desk.accuracy(task, require_data(body.data)))

    @app.post(f"{place}/evaluation", status_code=202)
    def evaluate(task: TaskId, body: data) -> dict[str, Any]:
        """Of the newest model."""
        return _job(desk.evaluate(task, require_data(body.data)))

    @app.get(f"{place}/model.{{form}}")
    def model(task: TaskId, form: Annotated[str, InPath(pattern="^(safetensors|npz|json)$")]) -> Response:
        """The newest model, or what goes beside it."""
        return Response(desk.learned.model_file(task, form), media_type=OCTETS)

    @app.post(f"{place}/model")
    def save(task: TaskId, body: Annotated[ModelPlace, Depends(json_body(ModelPlace, _LIMIT))]) -> dict[str, Any]:
        """Into a file of this machine."""
        return desk.save(task, body.path)


def _job(job: Job) -> dict[str, Any]:
    told = {"job": job.name, "state": job.state, "done": job.done, "of": job.of, "words": job.words}
    return told | {"result": job.result, "error": None if job.error is None else _told(job.error)}


async def _refusal(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(_told(error), problem_for(error).status)


def _told(error: BaseException) -> dict[str, Any]:
    """An error for the one person who sees this page: in its own words, and by field where it knows them."""
    if isinstance(error, RequestValidationError):
        places = {".".join(map(str, one["loc"])): str(one["msg"]) for one in error.errors()[:20]}
        return {"error": "InvalidRequest", "detail": "the request is not of the expected form", "faults": places}
    if isinstance(error, HTTPException):
        return {"error": "NotFound", "detail": str(error.detail), "faults": {}}
    if not isinstance(error, CrowdFLError | OSError):
        return {"error": "Fault", "detail": "the console failed: the terminal that it runs in says more", "faults": {}}
    words = "\n".join(printable(line, _LONGEST_WORDS) for line in str(error)[:_LONGEST_WORDS].splitlines())
    faults = error.faults if isinstance(error, SettingsError) else {}
    return {"error": type(error).__name__, "detail": words, "faults": faults}


def bind_loopback(port: int) -> socket.socket:
    """Nobody but this machine can connect."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as wrong:
        why = str(wrong.strerror).partition(" (while")[0]
        raise ServiceUnavailable(f"cannot listen on 127.0.0.1 port {port}: {why}; choose another --port") from None


def requester_server(app: FastAPI) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    logging.getLogger("uvicorn.error").addFilter(_tells)
    return uvicorn.Server(config)


def _tells(record: logging.LogRecord) -> bool:
    """What Ctrl-C cuts off is no fault of the program: no traceback of it."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


@contextlib.contextmanager
def serving_requester(make: Callable[[RequesterSession], FastAPI], port: int = 0) -> Iterator[RequesterSession]:
    """The console by a thread of this process, for as long as this lasts."""
    with bind_loopback(port) as listener:
        session = RequesterSession(listener.getsockname()[1])
        server = requester_server(make(session))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="console")
        thread.start()
        try:
            looks = Backoff.steady(0.01).start()
            while not server.started:
                if not thread.is_alive():
                    raise ServiceUnavailable("the console did not start")
                looks.wait()
            yield session
        finally:
            server.should_exit = True
            thread.join()
