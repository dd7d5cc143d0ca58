"""The requester's console over HTTP: the page's files, and its API. `shell.OneBrowser` says who may call it."""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from crowdfl.errors import CrowdFLError, SettingsError
from crowdfl.services.http.bodies import Form, TaskId, json_body
from crowdfl.services.http.problems import MEDIA_TYPE, problem_for
from crowdfl.services.http.wire import OCTETS
from crowdfl.services.server import bind, in_thread
from crowdfl.text import printable
from crowdfl.web.pages import add_static, page_assets, page_headers
from crowdfl.web.requester_console.form import form
from crowdfl.web.requester_console.model_evaluation import require_data
from crowdfl.web.requester_console.requester_actions import MOST_INVITATIONS, Job, RequesterActions
from crowdfl.web.shell import SEALED, OneBrowser, console_routes

API = "/api"
_LIMIT = 256 * 1024
_LONGEST_WORDS = 4000
_FAULT = "the console failed: the terminal that it runs in says more"
_TASK = "/tasks/{task}"
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
    """How many, for how long they are good, and in the place of which invitation or person, if one is replaced."""

    count: Annotated[int, Field(ge=1, le=MOST_INVITATIONS)]
    days: Annotated[float, Field(ge=0.001, le=3660, strict=False)]
    replaces: Annotated[str, Field(pattern="^([0-9a-f]{20,32})?$")] = ""


class TaskOrder(Form):
    """What the task is told."""

    action: _Text


class DataNames(Form):
    """Data to test on: watch:0, csv:FOLDER, npz:FILE#7."""

    data: Annotated[list[_Text], Field(max_length=100)]


class ModelPlace(Form):
    """A file of this machine."""

    path: _Text


def create_requester_app(actions: RequesterActions, session: OneBrowser) -> FastAPI:
    app = FastAPI(title="CrowdFL requester", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1"])  # no name that somebody points here
    for kind in (CrowdFLError, OSError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refusal)
    opening, routes = console_routes(API), console_routes(API)
    routes.dependencies.append(Depends(session))
    _add_session(opening, session)
    _add_task_list(routes, actions)
    _add_task(routes, actions)
    _add_evaluation(routes, actions)
    app.include_router(opening)
    app.include_router(routes)
    headers = page_headers(frames=True)
    # Its own last: it takes every name that is left. The phone's page is there for a preview.
    places = {**page_assets("requester", ""), **page_assets("phone", "/phone"), **page_assets("report", "/web/report")}
    for place, assets in reversed(places.items()):
        add_static(app, place, assets, lambda: headers)
    return app


def _add_session(routes: APIRouter, session: OneBrowser) -> None:
    opening = Annotated[Opening, Depends(json_body(Opening, _LIMIT))]

    @routes.post("/session", dependencies=[Depends(session.require_own_page)])
    async def open_session(body: opening, response: Response) -> dict[str, str]:
        """The secret for a session: once."""
        return {"half": session.open(body.secret, response, API)}


def _add_task_list(routes: APIRouter, actions: RequesterActions) -> None:
    values = Annotated[TaskForm, Depends(json_body(TaskForm, _LIMIT))]
    routes.get("/overview")(actions.overview)
    routes.get("/form")(form)

    @routes.post("/explain")
    def explain(body: values) -> dict[str, Any]:
        return actions.explain(body.values)

    @routes.post("/tasks", status_code=202)
    def create(body: values) -> dict[str, Any]:
        return _job(actions.create(body.values))

    @routes.get("/jobs/{name}")
    def job(name: JobName) -> dict[str, Any]:
        """How far an action has come."""
        return _job(actions.jobs.get(name))


def _add_task(routes: APIRouter, actions: RequesterActions) -> None:
    payment = Annotated[Payment, Depends(json_body(Payment, _LIMIT))]
    new_invitations = Annotated[NewInvitations, Depends(json_body(NewInvitations, _LIMIT))]
    task_order = Annotated[TaskOrder, Depends(json_body(TaskOrder, _LIMIT))]
    reads = {
        "": actions.task,
        "/status": actions.status,
        "/known": actions.known,
        "/invitations": actions.people,
        "/consents": actions.requester.consents,
    }
    for path, read in reads.items():
        routes.get(_TASK + path, dependencies=[Depends(_require_task_id)])(read)

    @routes.post(f"{_TASK}/post", status_code=202)
    def post(task: TaskId) -> dict[str, Any]:
        return _job(actions.post(task))

    @routes.post(f"{_TASK}/deposits")
    def fund(task: TaskId, body: payment) -> dict[str, Any]:
        return actions.fund(task, body.amount, body.name)

    @routes.post(f"{_TASK}/invitations")
    def invite(task: TaskId, body: new_invitations) -> dict[str, Any]:
        return actions.invite(task, body.count, body.days, body.replaces)

    @routes.get(f"{_TASK}/report.{{language}}.html")
    def report(task: TaskId, language: Annotated[str, InPath(pattern="^[a-z]{2}$")]) -> Response:
        """One page, to read, print and hand in."""
        return Response(actions.report(task, language), media_type="text/html; charset=utf-8", headers=SEALED)

    @routes.get(f"{_TASK}/codes/{{first}}")
    def codes(task: TaskId, first: Annotated[int, InPath(ge=0)]) -> dict[str, str]:
        return actions.codes(task, first)

    @routes.post(f"{_TASK}/orders", status_code=204)
    def order(task: TaskId, body: task_order) -> None:
        actions.order(task, body.action)


def _require_task_id(task: TaskId) -> None:
    """A dependency of routes that name a task by any text."""


def _add_evaluation(routes: APIRouter, actions: RequesterActions) -> None:
    data = Annotated[DataNames, Depends(json_body(DataNames, _LIMIT))]
    file = Annotated[ModelPlace, Depends(json_body(ModelPlace, _LIMIT))]

    @routes.post(f"{_TASK}/accuracy", status_code=202)
    def accuracy(task: TaskId, body: data) -> dict[str, Any]:
        """By round."""
        return _job(actions.accuracy(task, require_data(body.data)))

    @routes.post(f"{_TASK}/evaluation", status_code=202)
    def evaluate(task: TaskId, body: data) -> dict[str, Any]:
        """Of the newest model."""
        return _job(actions.evaluate(task, require_data(body.data)))

    @routes.get(f"{_TASK}/model.{{form}}")
    def model(task: TaskId, form: Annotated[str, InPath(pattern="^(safetensors|npz|json)$")]) -> Response:
        """The newest model, or what goes beside it."""
        return Response(actions.evaluation.model_file(task, form), media_type=OCTETS, headers=SEALED)

    @routes.post(f"{_TASK}/model")
    def save(task: TaskId, body: file) -> dict[str, Any]:
        """Into a file of this machine."""
        return actions.save(task, body.path)


def _job(job: Job) -> dict[str, Any]:
    shown = {"job": job.name, "state": job.state, "done": job.done, "of": job.of, "words": job.words}
    return shown | {"result": job.result, "error": None if job.error is None else _problem(job.error)}


async def _refusal(_request: Request, error: Exception) -> JSONResponse:
    body = _problem(error)
    return JSONResponse(body, body["status"], headers=SEALED, media_type=MEDIA_TYPE)


def _problem(error: BaseException) -> dict[str, Any]:
    """As services say it, but to the one person who sees this page: in its own words, and by field where it knows them."""
    problem = problem_for(error)
    if isinstance(error, CrowdFLError | OSError):
        words = "\n".join(printable(line, _LONGEST_WORDS) for line in str(error)[:_LONGEST_WORDS].splitlines())
        problem = dataclasses.replace(problem, detail=words)
    elif not isinstance(error, HTTPException | RequestValidationError):
        problem = dataclasses.replace(problem, title=_FAULT)
    return problem.body() | ({"faults": error.faults} if isinstance(error, SettingsError) else {})


@contextlib.contextmanager
def serving_requester(make: Callable[[OneBrowser], FastAPI], port: int = 0) -> Iterator[OneBrowser]:
    """The console by a thread of this process, for as long as this lasts; nobody but this machine can connect."""
    listener = bind("127.0.0.1", port, "choose another --port")
    session = OneBrowser(listener.getsockname()[1])
    config = uvicorn.Config(
        make(session),
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_told)
    with in_thread(uvicorn.Server(config), listener):
        yield session


def _is_told(record: logging.LogRecord) -> bool:
    """What Ctrl-C cuts off is no fault of the program: no traceback of it."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
