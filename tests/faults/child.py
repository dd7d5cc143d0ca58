"""The processes of a campaign: the roles as they are, small keys, plain HTTP on loopback, and a death if one is due.

Imported once by the server that forks them, so that a process costs milliseconds. Nothing of the roles is replaced but the
clock, which the supervisor can put forward, the port, which it keeps open while a server is down, as systemd would, the
waiting for the disk: a killed process loses nothing that it handed to the system; the bank, which is a file; and chance, which
decides whether uploads that come at about the same time share a commit: here they never do, or always, so that a step is the
same one in every run.
"""

import asyncio
import functools
import json
import os
import socket
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Pool, event

from crowdfl.errors import NotReady, ServiceUnavailable, StoreOutdated, StoreUnavailable
from crowdfl.learning.models.forms import to_safetensors
from crowdfl.learning.models.shape import Weights
from crowdfl.roles.csp import Csp
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.records import DepositState, PaymentState, StoredPayment, TaskState
from crowdfl.roles.requester import Requester, own_key
from crowdfl.roles.sp.core import LedgerPorts
from crowdfl.roles.sp.deposits import Deposits
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.services import run, server
from crowdfl.services.apps import sp_uploads as batches
from crowdfl.services.apps.sp_uploads import Batches
from crowdfl.services.background.sweeper import Sweeper
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Link
from crowdfl.settings import (
    CspSettings,
    KgcSettings,
    PeerSettings,
    S3Settings,
    ServiceSettings,
    SpSettings,
    TaskSettings,
)
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.sql import SqlStore
from tests.faults.durable import Kill, Steps
from tests.hosts import INITIAL_MODEL, small_definition, test_tools
from tests.http.pieces import InPieces

__all__ = ["BUDGET", "CLAIM_WINDOW", "PEOPLE", "SHARES", "Life", "live", "shared_update", "update"]

PEOPLE = 3
BUDGET = 36_000_000
CLAIM_WINDOW = 100_000.0
SHARES: dict[str, Any] = {"profile": "shares", "lanes": 256, "cohort": 2}  # of a campaign, unless it says otherwise
_Model = TypeVar("_Model", bound=ServiceSettings)
_PAUSE = 0.1
_UNPAID = (PaymentState.PENDING, PaymentState.RUNNING, PaymentState.UNKNOWN)
_FOR_COMPANY = 15.0


@dataclass(frozen=True)
class Life:
    """One process: which role, in which campaign, the how-manieth of its name, and where it dies."""

    role: str
    folder: Path
    number: int
    urls: Mapping[str, str]
    kills: tuple[Kill, ...] = ()
    listener: socket.socket | None = None
    in_pairs: bool = False  # SP takes uploads two by two

    @property
    def home(self) -> Path:
        """The role's own files; processes of one role share them."""
        return self.folder / self.role.partition("+")[0]


class FileClock:
    """The machine's time and what the supervisor has added to it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"

    def now(self) -> float:
        return time.time() + float(self._file.read_text())


def elsewhere(folder: Path) -> dict[str, Any]:
    """Where a campaign keeps what is not in its folder: databases by role, and a bucket with its credentials."""
    file = folder / "elsewhere.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def database_url(folder: Path, role: str) -> str:
    return str(elsewhere(folder).get("databases", {}).get(role, f"sqlite:///{folder}/{role}/state.db"))


def bucket_of(folder: Path, role: str) -> S3Settings | None:
    known = elsewhere(folder).get("s3") if role in ("sp", "csp") else None
    return None if known is None else S3Settings(**known, prefix=role)


def _do_not_wait(connection: Any, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


def live(life: Life) -> None:
    logs = life.folder / "logs"
    errors = os.open(logs / f"{life.role}.{life.number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(errors, 2)
    os.fsync = lambda _descriptor: None  # type: ignore[assignment]
    event.listen(Pool, "connect", _do_not_wait)
    os.environ.update(elsewhere(life.folder).get("environment", {}))
    run.SystemClock = functools.partial(FileClock, life.folder)  # type: ignore[assignment, misc]
    # When it comes is a matter of time; `tests/campaigns/test_ends.py` dies at each of its steps.
    Sweeper.tick = lambda _self: False  # type: ignore[method-assign]
    server.socket = SimpleNamespace(**vars(socket) | {"create_server": lambda *_where, **_how: life.listener})  # type: ignore[assignment]
    steps = [logs / f"{life.role}.{number}.steps" for number in range(life.number + 1)]
    before = [name for earlier in steps[:-1] for name in earlier.read_text().splitlines()]
    Steps(steps[-1], life.kills, before).install()
    role = life.role.partition("+")[0]
    roles = {"kgc": _kgc, "sp": _sp, "csp": _csp, "requester": _requester, "operator": _operator}
    roles.get(role, _person)(life)


def _settings(life: Life, model: type[_Model], **more: Any) -> _Model:
    role = life.home.name
    bucket = bucket_of(life.folder, role)
    if bucket is not None:
        more |= {"s3": bucket, "passphrase_file": life.folder / "passphrase"}
    return model(
        database=database_url(life.folder, role),
        data=life.home,
        host="127.0.0.1",
        port=0,
        plain_http=True,
        insecure_test_key=True,
        kgc_key=bytes.fromhex((life.folder / "kgc.pub").read_text()),
        **more,
    )


def _peer(life: Life, service: str) -> PeerSettings:
    return PeerSettings(url=life.urls[service], token=life.home / f"{service}.token")


def _kgc(life: Life) -> None:
    server.serve_kgc(_settings(life, KgcSettings))


def _sp(life: Life) -> None:
    if life.in_pairs:
        Batches.run = _pairwise(Batches.run)  # type: ignore[method-assign, assignment]
    else:
        batches._MOST = 1
    peers = {"kgc": _peer(life, "kgc"), "csp": _peer(life, "csp")}
    run.PayoutCommand = functools.partial(Bank, life.folder)  # type: ignore[assignment, misc]
    server.serve_sp(_sp_settings(life, **peers))


def _sp_settings(life: Life, **more: Any) -> SpSettings:
    own = {"tick": 0.03, "min_claim_window": 0.0, "on_paid": ("pay",)}
    return _settings(life, SpSettings, **own, max_clock_jump=1e9, **more)  # the supervisor puts the clock forward


@dataclass(frozen=True)
class Bank:
    """Where payments go: a line each, written by SP's own process, so that what it had not written it never will."""

    folder: Path
    _command: tuple[str, ...] = ()
    _seconds: float = 0.0
    _described: Any = None

    def __call__(self, payment: StoredPayment) -> None:
        with open(self.folder / "bank", "ab") as file:
            file.write(f"{payment.key} {payment.who} {payment.amount}\n".encode())

    def knows(self, payment: StoredPayment) -> bool:
        """Whether it was asked for this one."""
        path = self.folder / "bank"
        return path.exists() and payment.key in path.read_text()


def _pairwise(take: Any) -> Any:
    """Who comes alone waits for company; after a crash there may be none any more."""
    alone: dict[Any, asyncio.Future[None]] = {}

    async def run_with_another(self: Any, key: Any, item: Any) -> Any:
        if key in alone:
            alone.pop(key).set_result(None)
            await asyncio.sleep(0)  # the one that waited goes first, and is joined before a thread takes it
        else:
            alone[key] = company = asyncio.get_running_loop().create_future()
            await asyncio.wait([company], timeout=_FOR_COMPANY)
            if alone.get(key) is company:
                del alone[key]
        return await take(self, key, item)

    return run_with_another


def _csp(life: Life) -> None:
    """With every request written down before it is answered: what CSP was shown, over all its lives."""
    shown, answer = life.folder / "shown", Csp.answer

    def recorded(csp: Csp, task: str, request: bytes) -> bytes:
        with open(shown, "ab") as file:  # one write each: lines of two processes do not mix
            file.write(request.hex().encode() + b"\n")
        return answer(csp, task, request)

    Csp.answer = recorded  # type: ignore[method-assign]
    server.serve_csp(_settings(life, CspSettings, kgc=_peer(life, "kgc")))


def _requester(life: Life) -> None:
    """Create, fund, invite, wait for the end, fetch the model."""
    blobs, tokens = FileBlobs(life.home / "blobs"), (_token(life, "kgc"), _token(life, "sp"))
    kgc = KgcClient(Link(life.urls["kgc"], plain_http=True).as_requester(tokens[0], own_key(blobs)))
    sp = SpClient(Link(life.urls["sp"], plain_http=True).as_requester(tokens[1], own_key(blobs)))
    kgc_key = bytes.fromhex((life.folder / "kgc.pub").read_text())
    requester = Requester(blobs, FileClock(life.folder), kgc, sp, kgc_key, test_tools())
    settings = json.loads((life.folder / "settings.json").read_text())
    if not blobs.has("invited"):  # else it was made, and may have ended meanwhile
        made = requester.create(small_definition(TaskSettings.of(**settings), claim_window=CLAIM_WINDOW), INITIAL_MODEL)
        requester.fund(made, 2 * BUDGET, "all")
        invitations = requester.invite(made, PEOPLE, 1e6)
        blobs.put("invited", json.dumps({"task": made, "invitations": invitations}).encode())
    task = json.loads(blobs.get("invited"))["task"]
    while sp.status(task)["state"] == "running":
        time.sleep(2 * _PAUSE)
    blobs.put("model", to_safetensors(requester.definition(task).shape, requester.model(task)))


def _operator(life: Life) -> None:
    """Confirm what the requester has announced; later, ask the bank about every payment of which nobody knows."""
    url, bank = database_url(life.folder, "sp"), Bank(life.folder)
    while url.startswith("sqlite") and not (life.folder / "sp/state.db").exists():
        time.sleep(_PAUSE)
    books = LedgerPorts(SqlStore(url), FileClock(life.folder))
    while len(states := _tasks(books)) == 0 or states != [TaskState.SETTLED] or books.store.payments(states=_UNPAID):
        for deposit in books.store.deposits() if states else ():
            if deposit.state is DepositState.PENDING:
                Deposits(books).confirm(deposit.task, deposit.name, deposit.amount, "EUR")
        for payment in books.store.payments(states=[PaymentState.UNKNOWN]) if states else ():
            resolve_payment(books, payment.task, payment.key, "paid" if bank.knows(payment) else "again", "by hand")
        time.sleep(_PAUSE)


def _tasks(books: LedgerPorts) -> list[str]:
    """Their states; none before SP has made its tables."""
    try:
        return [task.state for task in books.store.tasks()]
    except (StoreOutdated, StoreUnavailable):
        return []


def _person(life: Life) -> None:
    """Wait for an invitation, take part to the end, be paid."""
    number = int(life.role[-1])
    invited = FileBlobs(life.folder / "requester/blobs")
    while not invited.has("invited"):
        time.sleep(_PAUSE)
    papers = json.loads(invited.get("invited"))
    kgc, sp = (Link(life.urls[name], plain_http=True) for name in ("kgc", "sp"))
    key = bytes.fromhex((life.folder / "kgc.pub").read_text())
    link = (InPieces if number == 0 else SpClient)(sp.open())
    blobs, kgc_link = FileBlobs(life.home), KgcClient(kgc.open())
    person = Participant(papers["task"], blobs, kgc_link, link, key, test_tools(), least_participants=1)
    person.join(papers["invitations"][number])
    is_shared = json.loads((life.folder / "settings.json").read_text()).get("profile") == SHARES["profile"]
    train, seen = functools.partial(shared_update if is_shared else update, number), None
    while not person.blobs.has("claim-answered"):
        try:
            now = link.status(person.task)
            if now == seen or not person.step(train):
                if now["state"] != "running":
                    person.claim()
                seen = now
                time.sleep(_PAUSE)
        except (NotReady, ServiceUnavailable):  # not the end yet, or a server that is being started again
            time.sleep(_PAUSE)


def update(number: int, _model: Weights, _training: Mapping[str, Any], round_number: int) -> tuple[Weights, int]:
    """What a person sends in a round, always the same: weights of two arrays, and a count of samples."""
    weights = np.random.default_rng([number, round_number]).uniform(-1.5, 1.5, 8)
    return [weights[:6].reshape(2, 3), weights[6:]], 3 + 2 * number


def shared_update(number: int, model: Weights, _training: Mapping[str, Any], round_number: int) -> tuple[Weights, int]:
    """The same for a profile that shares changes: one coordinate, another in each round, holds nearly all of each.

    So that everybody is paid by samples alone, whatever the coins of the sketches are.
    """
    change = np.random.default_rng([number, round_number]).integers(-9, 10, 8) / 1000
    change[round_number] = (500 + 100 * number) / 1000
    flat = np.concatenate([array.reshape(-1) for array in model]) + change
    return [flat[:6].reshape(2, 3), flat[6:]], 3 + 2 * number


def _token(life: Life, service: str) -> str:
    return (life.home / f"{service}.token").read_text()
