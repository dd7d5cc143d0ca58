"""SP's console at /console: its page for the operator, and the routes that the page calls.

Every route but the page's own files and the login needs a session (`SessionGuard`). What changes something is one transaction
of the actions that the commands use too, and is logged with the name of the operator's token.
"""

import dataclasses
from functools import partial
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi import Path as InPath
from pydantic import Field
from starlette.responses import JSONResponse, StreamingResponse

from crowdfl.errors import CrowdFLError, SettingsError
from crowdfl.roles.sp.claims import resolve_dispute
from crowdfl.roles.sp.operator import OperatorActions, require_reason, retry_round
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.services.http import logs
from crowdfl.services.http.bodies import SMALL_LIMIT, Form, Number, TaskId, Who, json_body
from crowdfl.services.run import SpParts
from crowdfl.settings import SpSettings, to_millionths
from crowdfl.storage.sql import SqlStore
from crowdfl.web.events import EventHistory, Snapshots, Streams, UploadWatch
from crowdfl.web.overview import ROUNDS, Overview
from crowdfl.web.pages import add_phone_page, add_static, page_assets
from crowdfl.web.shell import PATH, SEALED, Session, SessionGuard, Sessions, SessionStore, console_routes

_LEAST_TYPED = 6  # characters of a task's id that confirm what cannot be undone
DepositName = Annotated[str, InPath(pattern="^[A-Za-z0-9._-]{1,64}$")]
Rounds = Annotated[int, Query(ge=1, le=1000)]


class LoginForm(Form):
    """An operator token."""

    token: Annotated[str, Field(min_length=1, max_length=1000, repr=False)]


class ReceivedForm(Form):
    """How much came in, such as 36.00, and in which currency, such as EUR."""

    amount: Annotated[str, Field(min_length=1, max_length=60)]
    currency: Annotated[str, Field(min_length=1, max_length=60)]


class ConfirmedForm(Form):
    """The first characters of the task's id: what cannot be undone is confirmed by hand."""

    begins: Annotated[str, Field(max_length=64)]

    def require(self, task: str) -> None:
        if len(self.begins) < _LEAST_TYPED or not task.startswith(self.begins):
            raise SettingsError(f"type the first {_LEAST_TYPED} characters of the task's id to confirm")


class CancelForm(ConfirmedForm):
    """Why."""

    reason: Annotated[str, Field(max_length=1000)]


class PurgeForm(ConfirmedForm):
    """Whether averages and rewards go too."""

    results: bool


class RetryForm(ConfirmedForm):
    """Whether the round is given up instead."""

    void: bool


Payment = Annotated[str, InPath(pattern="^([0-9a-f]{20}|[0-9a-f]{32})$")]


class ResolveForm(Form):
    """Of a payment, paid: the money was handed over, and how, where nobody said where to; again: it was not. Of a dispute, pay
    or refuse."""

    how: Annotated[str, Field(max_length=20)]
    note: Annotated[str, Field(max_length=200)] = ""


@dataclasses.dataclass(frozen=True)
class Console:
    """What the routes share."""

    parts: SpParts
    actions: OperatorActions
    overview: Overview
    streams: Streams
    guard: SessionGuard


def add_pages(app: FastAPI, settings: SpSettings) -> None:
    """The pages that SP serves, to an app of `open_sp`; the command line does this, since services know nothing of pages."""
    add_phone_page(app, settings)
    add_console(app, app.state.parts)


def add_console(app: FastAPI, parts: SpParts) -> Console:
    sp = parts.sp
    history = EventHistory(sp.clock.now)
    _watch(app, parts, history)
    actions = OperatorActions(parts.retention, sp.clock, sp.core.sure_books, sp.steps.abort)
    overview = Overview(parts, actions, history)
    streams = Streams(Snapshots(overview.sections))
    sessions = Sessions(parts.tokens, cast(SessionStore, sp.store))
    console = Console(parts, actions, overview, streams, SessionGuard(sessions))
    routes = console_routes(PATH)
    _add_session(routes, console)
    _add_views(routes, console)
    _add_actions(routes, console)
    app.include_router(routes)
    add_static(app, PATH, page_assets("console", PATH)[PATH])  # last: it takes every name that is left
    return console


def _watch(app: FastAPI, parts: SpParts, history: EventHistory) -> None:
    """What the store and the role tell their log, the console hears too."""
    store, options = parts.sp.store, parts.sp.options
    if isinstance(store, SqlStore):
        store.listeners.append(history.hear)
    log = options.events

    def hear(event: str, /, **fields: object) -> None:
        log(event, **fields)
        history.hear(event, **fields)

    options.events = hear
    app.add_middleware(UploadWatch, history=history)


def _add_session(routes: APIRouter, console: Console) -> None:
    guard, log = console.guard, logs.get("sp")
    token = Annotated[LoginForm, Depends(json_body(LoginForm, SMALL_LIMIT))]

    @routes.post("/session", status_code=204, dependencies=[Depends(guard.require_own_page)])
    def log_in(request: Request, body: token, response: Response) -> None:
        """An operator token opens a session."""
        try:
            session = guard.log_in(request, body.token, response)
        except CrowdFLError as refusal:
            log.warning("console login refused", error=type(refusal).__name__)
            raise
        log.info("console login", operator=session.token.name)

    @routes.get("/session")
    def session(found: Annotated[Session, Depends(guard)]) -> dict[str, Any]:
        """Whose it is, and the seconds that it can last."""
        lasts = {"idle": guard.sessions.idle, "left": guard.sessions.left(found)}
        return {"name": found.token.name, "host": console.parts.settings.host, **lasts}

    @routes.delete("/session", status_code=204, dependencies=[Depends(guard.require_own_page)])
    def log_out(request: Request, response: Response) -> None:
        """Safe to repeat."""
        guard.log_out(request, response)


def _add_views(routes: APIRouter, console: Console) -> None:
    operator, overview = [Depends(console.guard)], console.overview

    @routes.get("/events")
    async def events(request: Request, found: Annotated[Session, Depends(console.guard)]) -> StreamingResponse:
        """Server-sent events: the overview, then what changes in it."""
        answer = console.streams.answer(request.scope, partial(console.guard.sessions.is_alive, found))
        answer.headers.update(SEALED)
        return answer

    @routes.get("/tasks/{task}", dependencies=operator)
    def about(task: TaskId, rounds: Rounds = ROUNDS) -> dict[str, Any]:
        """All about one task."""
        return overview.task(task, rounds)

    @routes.get("/tasks/{task}/rounds/{number}/uploads", dependencies=operator)
    def uploads(task: TaskId, number: Number) -> list[dict[str, Any]]:
        """The last uploads of a round."""
        console.actions.store.task(task)
        return overview.uploads(task, number)

    @routes.get("/tasks/{task}/disputes/{who}/{number}", dependencies=operator)
    def proofs(task: TaskId, who: Who, number: Number) -> JSONResponse:
        """What a participant has signed of a disputed round, and what the books said: a file."""
        name = f"dispute-{task[:8]}-{who}-{number}.json"
        return JSONResponse(
            overview.proofs(task, who, number), headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )

    @routes.get("/tasks/{task}/held", dependencies=operator)
    def held(task: TaskId) -> dict[str, int]:
        """What is held of a task, by kind: every file is looked at, so that the page asks only before it purges."""
        console.actions.store.task(task)
        return console.actions.held(task)


def _add_actions(routes: APIRouter, console: Console) -> None:
    operator = Annotated[Session, Depends(console.guard)]
    sp, store, deposit = console.parts.sp, console.actions.store, "/tasks/{task}/deposits/{name}"
    received = Annotated[ReceivedForm, Depends(json_body(ReceivedForm, SMALL_LIMIT))]
    cancelling = Annotated[CancelForm, Depends(json_body(CancelForm, SMALL_LIMIT))]
    purging = Annotated[PurgeForm, Depends(json_body(PurgeForm, SMALL_LIMIT))]
    retrying = Annotated[RetryForm, Depends(json_body(RetryForm, SMALL_LIMIT))]
    resolving = Annotated[ResolveForm, Depends(json_body(ResolveForm, SMALL_LIMIT))]

    @routes.post(f"{deposit}/confirmation", status_code=204)
    def confirm(by: operator, task: TaskId, name: DepositName, body: received) -> None:
        """So much came in; another amount than was announced, or currency, is refused. Safe to repeat."""
        sp.deposits.confirm(task, name, to_millionths(body.amount), body.currency)
        _note(by, "confirmed a deposit", task=task, name=name)

    @routes.post(f"{deposit}/rejection", status_code=204)
    def reject(by: operator, task: TaskId, name: DepositName) -> None:
        """Nothing came in. Safe to repeat."""
        sp.deposits.reject(task, name)
        _note(by, "rejected a deposit", task=task, name=name)

    @routes.post("/tasks/{task}/payments/{payment}/resolution", status_code=204)
    def resolve(by: operator, task: TaskId, payment: Payment, body: resolving) -> None:
        """What became of a payment that is unknown, or that was made by hand: by its key, or whose it is."""
        resolve_payment(sp.core.sure_books, task, payment, body.how, body.note)
        _note(by, "resolved a payment", task=task, payment=payment, how=body.how)

    @routes.post("/tasks/{task}/disputes/{who}/{number}/resolution", status_code=204)
    def decide(by: operator, task: TaskId, who: Who, number: Number, body: resolving) -> None:
        """Whether a disputed unused upload is paid. Final; safe to repeat."""
        resolve_dispute(sp.core.sure_books, task, who, number, body.how)
        _note(by, "decided a dispute", task=task, who=who, number=number, how=body.how)

    @routes.post("/tasks/{task}/cancellation", status_code=204)
    def cancel(by: operator, task: TaskId, body: cancelling) -> None:
        """No further round. Final."""
        body.require(task)
        store.task(task)
        console.actions.cancel(task, require_reason(body.reason))
        _note(by, "cancelled a task", task=task)

    @routes.post("/tasks/{task}/rounds/{number}/retry", status_code=204)
    def retry(by: operator, task: TaskId, number: Number, body: retrying) -> None:
        """A round that is stuck: CSP is asked again, or the round is given up."""
        body.require(task)
        store.task(task)
        retry_round(sp.core.sure_books, task, number, console.parts.settings.lease, void=body.void)
        _note(by, "gave a round up" if body.void else "asked again for a round", task=task, number=number)

    @routes.post("/tasks/{task}/purge", status_code=204)
    def purge(by: operator, task: TaskId, body: purging) -> None:
        """Erase what is held of a task that has ended. Safe to repeat."""
        body.require(task)
        console.actions.purge(store.task(task), results=body.results)
        console.overview.forget()
        _note(by, "purged a task", task=task, results=body.results)


def _note(by: Session, did: str, **what: object) -> None:
    logs.get("sp").info("console action", operator=by.token.name, did=did, **what)
