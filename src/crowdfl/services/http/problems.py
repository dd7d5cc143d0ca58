"""Errors as RFC 9457 problems, from one table.

The table gives a status to a branch of the tree in errors.py; every class below it has a type of its own, made from its name,
so that a client raises the very error that the server did.
"""

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from crowdfl import errors
from crowdfl.errors import (
    CrowdFLError,
    NotAuthenticated,
    ServiceUnavailable,
    StorageFull,
    StoreError,
    TooSlow,
    WrongProtocol,
)
from crowdfl.services.http.wire import PROBLEM_TYPE, PROTOCOL, slug_of
from crowdfl.text import printable

MEDIA_TYPE = "application/problem+json"

_BY_STATUS: dict[int, tuple[type[CrowdFLError], ...]] = {
    400: (errors.DocumentError, errors.FormatError, errors.SealBroken),
    401: (errors.NotAuthenticated,),
    402: (errors.NotEnoughMoney,),
    403: (errors.BadSignature, errors.Forbidden, errors.InvitationRefused),
    404: (
        errors.NotReady,
        errors.UnknownDeposit,
        errors.UnknownParticipant,
        errors.UnknownPayment,
        errors.UnknownTask,
    ),
    408: (errors.TooSlow,),
    409: (errors.CampaignError, errors.Conflict, errors.ProtocolError),
    410: (errors.TaskEnded, errors.TooLate),
    413: (errors.LimitExceeded,),
    422: (
        errors.CiphertextError,
        errors.ClaimRefused,
        errors.EncodingError,
        errors.InsecureKeyRefused,
        errors.InvalidKey,
        errors.KeyMismatch,
        errors.LengthMismatch,
        errors.NotAnInteger,
        errors.PlaintextOutOfRange,
        errors.SettingsError,
        errors.WidthError,
    ),
    426: (errors.WrongProtocol,),
    500: (errors.CrowdFLError,),
    503: (errors.Cancelled, errors.ServiceUnavailable, errors.StoreUnavailable, errors.TaskUnreadable),
    507: (errors.StorageFull,),
}
_STATUS: dict[type, int] = {kind: status for status, kinds in _BY_STATUS.items() for kind in kinds}
_HEADERS: dict[type[BaseException], dict[str, str]] = {
    NotAuthenticated: {"WWW-Authenticate": 'Bearer realm="crowdfl", CrowdFL realm="crowdfl"'},
    ServiceUnavailable: {"Retry-After": "5"},
    TooSlow: {"Connection": "close"},
    WrongProtocol: {"Upgrade": f"crowdfl/{PROTOCOL}"},
}
_LONGEST_TEXT = 1000  # characters of a message that are sent: it may quote the caller's own input
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_ROOM = "this service's disk is full; try again later, or tell its operator"
_TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE)
_BUSY = "this service has as many files open as it may; try again later"
_NO_STORE = "this service cannot use its database now; try again later, or tell its operator"
_PLACE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")  # of a peer or a database: for the operator's eyes, in the log


@dataclass(frozen=True)
class Problem:
    """What a caller is told about an error."""

    status: int
    slug: str
    title: str
    detail: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def body(self, request_id: str | None = None) -> dict[str, Any]:
        body: dict[str, Any] = {"type": PROBLEM_TYPE + self.slug, "title": self.title, "status": self.status}
        body |= {"detail": self.detail} if self.detail else {}
        body |= {"request": request_id} if request_id else {}
        return body | dict(self.more)


def is_full(error: BaseException) -> bool:
    """Whether a disk has no room, or no more for this user."""
    return isinstance(error, OSError) and error.errno in _FULL


def problem_for(error: BaseException) -> Problem:
    """The problem of any error; an unexpected one, or a fault of our own, is told without its message."""
    if is_full(error):
        error = StorageFull(_NO_ROOM)
    if isinstance(error, OSError) and error.errno in _TOO_MANY_OPEN:
        error = ServiceUnavailable(_BUSY)
    if isinstance(error, CrowdFLError):
        return _named(error)
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        title = str(error.detail)
        return Problem(error.status_code, slug_of(title), title, headers=error.headers or {})
    if isinstance(error, ClientDisconnect):
        return Problem(400, "cut-off", "The request was cut off.")
    return Problem(500, "internal", "The service failed; its log says more under this request's id.")


def respond(error: BaseException, request_id: str | None) -> JSONResponse:
    problem = problem_for(error)
    body = problem.body(request_id)
    headers = dict(problem.headers)
    return JSONResponse(body, status_code=problem.status, headers=headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer expected errors with problems; the middleware does so for the rest."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        request.scope["crowdfl.problem"] = error
        return respond(error, request.scope.get("crowdfl.request_id"))

    for kind in (CrowdFLError, OSError, RequestValidationError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, answer)


def _named(error: CrowdFLError) -> Problem:
    kind = type(error)
    status = next(_STATUS[ancestor] for ancestor in kind.__mro__ if ancestor in _STATUS)
    headers = next((_HEADERS[ancestor] for ancestor in kind.__mro__ if ancestor in _HEADERS), {})
    text = _NO_STORE if isinstance(error, StoreError) else _PLACE.sub("(address)", str(error))
    detail = (
        None if status == 500 else printable(text, _LONGEST_TEXT)
    )  # a fault of this service's own may name its files
    more = {"reason": error.reason} if isinstance(error, errors.UploadRejected) and error.reason else {}
    title = (kind.__doc__ or kind.__name__).splitlines()[0]
    return Problem(status, slug_of(kind.__name__), title, detail, headers, more)


def _invalid(error: RequestValidationError) -> Problem:
    # The input itself is not repeated: it may hold what nobody should see twice.
    places = [(".".join(map(str, e.get("loc", ()))), str(e.get("msg", ""))) for e in error.errors()[:20]]
    found = [{"at": printable(at, _LONGEST_TEXT), "what": printable(what, _LONGEST_TEXT)} for at, what in places]
    return Problem(422, "invalid-request", "The request is not of the documented form.", more={"errors": found})
