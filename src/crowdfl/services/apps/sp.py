"""SP over HTTP.

How long a claim may be follows from its task, and who sends it is known before any of it is read.
"""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Request, Response
from fastapi import Path as InPath
from pydantic import Field

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import from_base64url
from crowdfl.documents.signed import ConsentReceipt, digest_of
from crowdfl.errors import Forbidden, TaskUnreadable
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.records import StoredDeposit, StoredPayment
from crowdfl.roles.sp.people import consent_rows
from crowdfl.roles.sp.platform import Sp
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.roles.sp.turnout import compliance
from crowdfl.services.apps.held import add_held_metrics
from crowdfl.services.apps.sp_recruiting import Listing, add_recruiting_routes
from crowdfl.services.apps.sp_uploads import UnfinishedUploads, add_upload_routes
from crowdfl.services.apps.sp_weights import add_weight_routes
from crowdfl.services.client.breaker import Breaker, PeerPatience
from crowdfl.services.http.app_factory import Background, ServiceMetrics, add_peer_gauge, make_app
from crowdfl.services.http.auth import TokenEntry, Tokens, opened_by
from crowdfl.services.http.bodies import (
    SMALL_LIMIT,
    Body,
    EnrolmentForm,
    Form,
    Item,
    Number,
    SignedOrder,
    TaskId,
    Who,
    download,
    json_body,
    known_task,
    read_bytes,
    spooled,
    takes_bytes,
    takes_json,
)
from crowdfl.services.http.signatures import ByOwner, ByParticipant, ByRequester, Signed, signed_json_body
from crowdfl.services.http.wire import OCTETS, REQUESTER_HEADER

_AT_ONCE = 16  # claims that are looked at, of the forty threads: CSP is asked about each


def add_claim_route(app: FastAPI, sp: Sp, folder: Path, guard: ByParticipant, patience: PeerPatience) -> None:
    few = partial(to_thread.run_sync, limiter=CapacityLimiter(_AT_ONCE))

    @opened_by(guard)
    async def claimant(request: Request, task: TaskId) -> Signed:
        await to_thread.run_sync(sp.core.definition, task)  # or UnknownTask
        return await guard(request, task)

    def pay(task: str, body: Body) -> dict[str, Any]:
        with patience():
            outcome = sp.claims.pay(task, body.read())
        return {"paid": outcome.paid, "unused": outcome.unused, "disputed": outcome.disputed}

    @app.post("/v1/tasks/{task}/claims", openapi_extra=takes_bytes())
    async def claim(request: Request, task: TaskId, caller: Annotated[Signed, Depends(claimant)]) -> dict[str, Any]:
        """Book a claim: what is paid, of rewards and for unused uploads, and what is disputed, by round. Safe to repeat."""
        limit = await to_thread.run_sync(sp.claims.limit, task)
        async with spooled(request, limit, folder) as body:
            caller.require_body(body.digest)
            return await few(partial(pay, task, body))


_LARGE_AT_ONCE = 2  # bodies with a model in memory; the others wait on disk
_LARGEST_AMOUNT = 10**15
DepositName = Annotated[str, InPath(pattern="^[A-Za-z0-9._-]{1,64}$")]


class Takeover(Form):
    """A task's papers, and the name that its first weights have arrived by; empty: they have not, as far as its requester
    knows."""

    definition: str
    appointment: str
    weights: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]


class Subscription(Form):
    """Where a browser takes reminders: as `PushSubscription.toJSON` says it, keys in base64url."""

    endpoint: str
    p256dh: str
    auth: str


class Deposit(Form):
    """An amount in millionths."""

    amount: Annotated[int, Field(ge=0, le=_LARGEST_AMOUNT)]


class Received(Deposit):
    """What came in at the bank."""

    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")]


def create_app(
    sp: Sp,
    tokens: Tokens,
    *,
    folder: Path,
    signing: SigningKey,
    retention: SpRetention | None = None,
    push_key: str = "",
    pay_kinds: Sequence[str] = (),
    listing: Listing | None = None,
    background: Sequence[Background] = (),
    peers: Sequence[Breaker] = (),
) -> FastAPI:
    """SP's app; `signing` signs receipts; `retention` counts what is held; `push_key` is what browsers subscribe with.

    Without a `listing` no task is listed.
    """
    metrics = ServiceMetrics()
    app = make_app("sp", tokens, metrics, sp.store.task, folder, background)
    metrics.number("crowdfl_tasks_backing_off", "Tasks whose last step failed", sp.options.failures.count)
    metrics.number("crowdfl_oldest_step_seconds", "For how long a step has been due and not done", sp.oldest_step)
    metrics.number(
        "crowdfl_tasks_unreadable", "Tasks that this version cannot read", lambda: len(sp.store.unreadable())
    )
    metrics.gauge("crowdfl_rounds", "Rounds by state", "state", lambda: _rounds(sp))
    metrics.gauge("crowdfl_deposits", "Deposits by state", "state", lambda: _states(sp.store.deposits()))
    metrics.gauge("crowdfl_payments", "Payments by state", "state", lambda: _states(sp.store.payments()))

    add_peer_gauge(metrics, peers)
    doubt = "Whether the clock is in doubt: rounds stand still until it is confirmed"
    metrics.gauge("crowdfl_clock_doubtful", doubt, "clock", lambda: {"system": int(not sp.core.clock_is_sure())})
    dropped = "Uploads whose file was missing or altered, since this process began"
    metrics.gauge("crowdfl_uploads_dropped", dropped, "why", lambda: {"damaged": sp.steps.dropped})
    if retention is not None:
        add_held_metrics(metrics, retention)

    @app.get("/v1/key")
    def key() -> dict[str, Any]:
        """The key that receipts are checked with, who pays out and how, and the key that reminders come from."""
        payer = {"payer": sp.options.payer.hex(), "pay_kinds": list(pay_kinds)}
        return {"key": signing.public.hex(), **payer, "push": push_key}

    by_participant = ByParticipant(sp)
    # Before the others: routes are tried in order, and most requests are uploads.
    incoming = add_upload_routes(app, sp, metrics, folder, signing, by_participant)
    by_owner = ByOwner(
        ByRequester(tokens.require("requester"), sp.core.is_about_now), lambda task: sp.core.definition(task).requester
    )
    patience = PeerPatience()
    _add_requester_routes(app, sp, tokens, by_owner, folder, patience)
    _add_bank_routes(app, sp, tokens)
    _add_participant_routes(app, sp, by_participant, by_owner)
    _add_people_routes(app, sp, by_participant, signing, incoming)
    if listing is not None:
        add_recruiting_routes(app, sp, listing, signing.public)
    add_claim_route(app, sp, folder, by_participant, patience)
    return app


def _add_requester_routes(
    app: FastAPI, sp: Sp, tokens: Tokens, by_owner: ByOwner, folder: Path, patience: PeerPatience
) -> None:
    requester = Annotated[TokenEntry, Depends(tokens.require("requester"))]
    owner = [Depends(by_owner)]
    large = CapacityLimiter(_LARGE_AT_ONCE)

    weights = add_weight_routes(app, tokens, sp.options.quotas, folder)

    def take_over(caller: TokenEntry, given: Takeover) -> dict[str, str]:
        if given.weights and not sp.tasks.has_weights(given.definition):  # which takes a while, and no other server
            with weights.taken(caller.name, given.weights) as initial:
                sp.tasks.take_weights(given.definition, given.appointment, initial)
        with patience():
            return {"task": sp.tasks.create(given.definition, given.appointment, None)}

    @app.post("/v1/tasks", status_code=201, openapi_extra=takes_json(Takeover))
    async def create(caller: requester, body: Annotated[Takeover, Depends(json_body(Takeover))]) -> dict[str, str]:
        """Take a task over; safe to repeat."""
        return await to_thread.run_sync(take_over, caller, body, limiter=large if body.weights else None)

    @app.put("/v1/tasks/{task}/deposits/{name}", status_code=204, openapi_extra=takes_json(Deposit))
    def deposit(
        task: TaskId, name: DepositName, body: Annotated[Deposit, Depends(signed_json_body(Deposit, by_owner))]
    ) -> None:
        """Announce what is paid in, once per name. It counts when the platform has confirmed it."""
        sp.deposits.announce(task, name, body.amount)

    @app.post("/v1/tasks/{task}/orders", status_code=204, openapi_extra=takes_json(SignedOrder))
    def order(task: TaskId, body: Annotated[SignedOrder, Depends(signed_json_body(SignedOrder, by_owner))]) -> None:
        """Pause, resume or cancel."""
        sp.tasks.order(task, body.order)

    @app.put("/v1/tasks/{task}/rounds/{number}/reference", status_code=204, openapi_extra=takes_bytes())
    async def reference(
        request: Request, task: TaskId, number: Number, caller: Annotated[Signed, Depends(by_owner)]
    ) -> None:
        """What a round's uploads are compared with, of a task with a reference: signed by its name. The first one stands."""
        limit = await to_thread.run_sync(sp.uploads.limit, task)

        def take(body: Body) -> None:
            upload = body.read()
            caller.require_body(upload_digest(upload))
            sp.uploads.reference(task, number, upload)

        async with spooled(request, limit, folder, over=lambda _chunk: None) as body:
            await to_thread.run_sync(take, body, limiter=large)

    @app.get("/v1/tasks/{task}/ledger", dependencies=owner)
    def ledger(task: TaskId) -> dict[str, Any]:
        """The task's books, payments as one once they have ended: who earned what is not the requester's to know."""
        books = sp.tasks.statement(task)
        movements = [asdict(movement) for movement in books.movements]
        return {"movements": movements, "balances": books.balances(), "deposits": sp.tasks.deposits(task)}

    @app.get("/v1/tasks/{task}/attested", dependencies=owner)
    def attested(task: TaskId) -> dict[str, str]:
        """CSP's signed word how much it has attested in all; not before claims have ended."""
        with patience():
            return {"document": sp.attested(task)}

    @app.get("/v1/tasks/{task}/compliance", dependencies=owner)
    def people(task: TaskId) -> dict[str, Any]:
        """Who, by the name in the task, has sent in which rounds, and what became of each round."""
        return compliance(sp.store, sp.blobs, task)

    @app.get("/v1/tasks/{task}/consents", dependencies=owner)
    def consents(task: TaskId) -> dict[str, Any]:
        """Who, by the name in the task, agreed to which version of its consent text, when, with the signed proof."""
        return {"consents": consent_rows(sp.store, task)}


def _add_bank_routes(app: FastAPI, sp: Sp, tokens: Tokens) -> None:
    """For the operator's own bank software; no requester's token opens these."""
    bank = [Depends(tokens.require("bank"))]
    received = Annotated[Received, Depends(json_body(Received, SMALL_LIMIT))]
    place = "/v1/tasks/{task}/deposits/{name}"

    @app.post(f"{place}/confirmation", status_code=204, dependencies=bank, openapi_extra=takes_json(Received))
    def confirm(task: TaskId, name: DepositName, body: received) -> None:
        """So much came in under this name; another amount than was announced, or currency, is refused. Safe to repeat."""
        sp.deposits.confirm(task, name, body.amount, body.currency)

    @app.post(f"{place}/rejection", status_code=204, dependencies=bank)
    def reject(task: TaskId, name: DepositName) -> None:
        """Nothing came in under this name. Safe to repeat."""
        sp.deposits.reject(task, name)


def _add_participant_routes(app: FastAPI, sp: Sp, by_participant: ByParticipant, by_owner: ByOwner) -> None:
    signer = Annotated[Signed, Depends(by_participant)]

    @opened_by(by_participant, by_owner)
    async def reader(request: Request, task: TaskId) -> str | None:
        """A participant, or None for the task's requester."""
        if REQUESTER_HEADER in request.headers:
            await to_thread.run_sync(by_owner, request, task)
            return None
        return (await by_participant(request, task)).who

    @app.get("/v1/tasks/{task}")
    def about(task: TaskId) -> dict[str, Any]:
        """What the task is and where it stands, for everyone; the books are the requester's."""
        definition, appointment = sp.core.papers(task)
        return {"definition": definition, "appointment": appointment, "status": sp.tasks.status(task)}

    @app.get("/v1/tasks/{task}/initial", response_class=Response)
    def initial(task: TaskId) -> Response:
        """The weights that everyone starts from."""
        sp.store.task(task)
        return download(sp.blobs.open(f"{task}/initial"))

    def own(who: Who, caller: signer) -> str:
        if caller.who != who:
            raise Forbidden("a participant can say this for itself only")
        return who

    itself = Annotated[str, Depends(own)]
    subscription = signed_json_body(Subscription, by_participant)

    @app.put("/v1/tasks/{task}/participants/{who}/push", status_code=204, openapi_extra=takes_json(Subscription))
    def subscribe(task: TaskId, who: itself, body: Annotated[Subscription, Depends(subscription)]) -> None:
        """Remind the participant of rounds, by its browser's push service; in place of an earlier one."""
        key, auth = from_base64url(body.p256dh), from_base64url(body.auth)
        sp.reminders.subscribe(task, who, body.endpoint, key, auth)

    @app.delete("/v1/tasks/{task}/participants/{who}/push", status_code=204)
    def unsubscribe(task: TaskId, who: itself) -> None:
        """Remind it no more."""
        sp.reminders.unsubscribe(task, who)

    @app.put("/v1/tasks/{task}/participants/{who}/destination", response_class=Response, openapi_extra=takes_bytes())
    async def pay_to(request: Request, task: TaskId, who: itself, caller: signer) -> Response:
        """Where the participant is to be paid, sealed to the payer; the next claim names it. Another takes its place. With a
        signed note behind it the answer is CSP's signed word that it keeps that for what is never claimed."""
        sealed = await read_bytes(request, SMALL_LIMIT)
        caller.require_body(hashlib.sha256(sealed).hexdigest())
        return Response(await to_thread.run_sync(sp.claims.pay_to, task, who, sealed), media_type=OCTETS)

    @app.get("/v1/tasks/{task}/participants/{who}/pay")
    def pay(task: TaskId, who: itself) -> dict[str, Any]:
        """Where the participant's money stands, round by round: of what it has claimed."""
        return {"rounds": [one.row(number) for number, one in sorted(sp.claims.pay_words(task, who).items())]}

    @app.get("/v1/tasks/{task}/rounds/{number}/average", response_class=Response)
    def average(task: TaskId, number: Number, who: Annotated[str | None, Depends(reader)]) -> Response:
        """A round's average, sealed to those who may read it."""
        sp.store.task(task)
        return download(sp.open_publication(task, number, who))

    @app.get("/v1/tasks/{task}/rounds/{number}/end", response_class=Response)
    def end(task: TaskId, number: Number, caller: signer) -> Response:
        """CSP's signed word about a round that was given up."""
        return Response(sp.end(task, number, caller.who), media_type=OCTETS)

    @app.get("/v1/tasks/{task}/rounds/{number}/reward", response_class=Response)
    def reward(task: TaskId, number: Item, caller: signer) -> Response:
        """The caller's reward of a round, sealed to it; of round 0, CSP's word who gets a bonus."""
        return Response(sp.envelope(task, number, caller.who), media_type=OCTETS)


def _add_people_routes(
    app: FastAPI, sp: Sp, by_participant: ByParticipant, signing: SigningKey, incoming: UnfinishedUploads
) -> None:
    # No token: the certificate is the right to join.
    known = [Depends(known_task(sp.core.definition))]
    enrolment = json_body(EnrolmentForm, SMALL_LIMIT)

    @app.post("/v1/tasks/{task}/participants", dependencies=known, openapi_extra=takes_json(EnrolmentForm))
    def enrol(task: TaskId, body: Annotated[EnrolmentForm, Depends(enrolment)]) -> dict[str, str | None]:
        """A certified participant joins; the receipt is of its consent, where the task asks for one."""
        who = sp.people.enrol(task, body.certificate, body.consent)
        one = sp.store.participant(task, who)
        if one.consent is None or one.consented_at is None:
            return {"who": who, "receipt": None}
        return {
            "who": who,
            "receipt": ConsentReceipt(task, who, digest_of(one.consent), one.consented_at).sign(signing),
        }

    @app.delete("/v1/tasks/{task}/participants/{who}")
    def leave(
        task: TaskId, who: Who, caller: Annotated[Signed, Depends(by_participant)], *, withdraw: bool = False
    ) -> dict[str, list[int]]:
        """The participant leaves, or withdraws: in which rounds its upload was deleted, and in which it stands for good."""
        if caller.who != who:
            raise Forbidden("a participant can leave for itself only")
        if not withdraw:
            sp.people.leave(task, who)
            return {"deleted": [], "standing": []}
        answer = sp.people.withdraw(task, who)
        incoming.forget(task, who)
        return answer


def _states(stored: Sequence[StoredDeposit | StoredPayment]) -> Counter[str]:
    return Counter(str(one.state) for one in stored)


def _rounds(sp: Sp) -> Counter[str]:
    found = Counter[str]()
    for stored in sp.store.tasks():
        with contextlib.suppress(TaskUnreadable):
            found.update(str(round_.state) for round_ in sp.store.rounds(stored.task))
    return found
