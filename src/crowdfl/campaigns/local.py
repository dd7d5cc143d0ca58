"""`crowdfl.local_servers`: KGC, SP and CSP as processes of this machine, over TLS, for as long as a program wants them."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from crowdfl.campaigns.servers import Servers
from crowdfl.campaigns.task import Task, with_people
from crowdfl.crypto.randomness import random_below
from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError, PackageMissing, ServiceUnavailable, SettingsError
from crowdfl.learning.models.shape import Weights
from crowdfl.notebook import Cell, in_notebook
from crowdfl.retry import Backoff
from crowdfl.settings import to_millionths

_ROLES = ("kgc", "sp", "csp")
_HOST = "127.0.0.1"
_PORTS = range(20_000, 30_000)  # which the system gives to nobody who asks for any
_TRIES = 3  # with other ports, where somebody took one in between
_PATIENCE = 300.0  # seconds until a server listens; a busy machine takes long to load one
_LOOK = Backoff.steady(0.05)
_END = 15.0  # seconds until a server that was told to end is killed
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "kgc": {"connections_per_address": 0},
    "sp": {"connections_per_address": 0, "min_claim_window": "0 s", "tick": "0.2 s"},
    "csp": {},
    "requester": {},
}


@dataclass
class _Process:
    """One server; its input is open as long as this program lives, and it ends with that."""

    role: str
    settings: Path
    log: Path
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", "crowdfl.services.local_role", self.role, str(self.settings)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 -- this very program
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the program, which then ends it
            )

    @property
    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def words(self) -> str:
        """The last line of its log: a server's last word says why."""
        last = self.log.read_text(errors="replace").strip().splitlines()[-1:] or ["its log is empty"]
        return f"{self.role} has ended: {last[0][:500]}"

    def tell_to_end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()


class OwnServers(Servers):
    """KGC, SP and CSP on this machine; made by `crowdfl.local_servers`.

    Attributes:
        folder: Where everything is, with a log of each server.
    """

    poll_seconds = 0.3
    _usual: Mapping[str, Any] = {}
    _said: Mapping[str, Any] = {
        "purpose": "A trial on servers of this machine",
        "terms": "All roles are played on this machine.",
    }
    _claim_window = 600.0

    def __init__(
        self, folder: str | os.PathLike[str] | None, *, progress: bool | None, insecure_test_key: bool
    ) -> None:
        super().__init__("")
        self._keep, self._progress, self._insecure = folder, progress, insecure_test_key
        self.folder = Path("") if folder is None else Path(folder).absolute()
        self._processes: list[_Process] = []
        self._ended = threading.Event()
        self._invited: dict[str, list[Any]] = {}  # by task, `OwnInvitation`s

    @property
    def is_running(self) -> bool:
        """Whether the servers are there."""
        return bool(self._processes)

    def start(self) -> Self:
        """Start the servers, and return once they listen; `with` does it. What is started ends with this program."""
        if self._processes:
            return self
        _require_services()
        self._ended = threading.Event()
        atexit.register(self.stop)
        show = _Shown(self._progress)
        try:
            for left in reversed(range(_TRIES)):
                try:
                    self._start(show)
                    break
                except ServiceUnavailable as failure:
                    self._end_processes()
                    if not left or self._keep is not None or "cannot listen" not in str(failure):
                        raise
                    shutil.rmtree(self.folder)  # with other ports
        except BaseException:
            self.stop()
            raise
        show(f"KGC, SP and CSP listen on {_HOST}; logs are in {self.folder}")
        return self

    def _start(self, show: "_Shown") -> None:
        if self._keep is None:
            self.folder = Path(tempfile.mkdtemp(prefix="crowdfl-"))
        if not (self.folder / "requester/settings.toml").exists():
            show("making the servers' keys and certificates")
            self._make_folders()
        self._path = self.folder / "requester/settings.toml"
        for role in _ROLES:
            process = _Process(role, self.folder / role / "settings.toml", self.folder / f"{role}.log")
            self._processes.append(process)
            process.start()
        for number, process in enumerate(self._processes):
            show(f"starting the servers: {number} of {len(_ROLES)} listen")
            self._wait_for(process)

    def _make_folders(self) -> None:
        from crowdfl.services.folders.new_role import NewRole, make_all
        from crowdfl.settings import RequesterSettings
        from crowdfl.storage.settings_file import SERVICES, put_settings

        test = self._insecure
        roles = [
            NewRole(role, _HOST, port, insecure_test_key=test) for role, port in zip(_ROLES, _free(3), strict=True)
        ]
        make_all(self.folder, [*roles, NewRole("requester", insecure_test_key=test)])
        for role, values in _SETTINGS.items():
            model = RequesterSettings if role == "requester" else SERVICES[role]
            put_settings(self.folder / role / "settings.toml", model, values)

    def _wait_for(self, process: _Process) -> None:
        from crowdfl.services.client.transport import Link
        from crowdfl.services.folders.role_folder import RoleFolder

        own = RoleFolder(process.settings)
        url, end = own.part().url or "", time.monotonic() + _PATIENCE
        with closing(Link(url, own.authority.certificate).open(retries=Backoff(deadline=0.0))) as service:
            looks = _LOOK.start()
            while True:
                if process.has_ended:
                    raise ServiceUnavailable(process.words())
                try:
                    service.call("GET", "/readyz")
                except CrowdFLError as away:
                    if time.monotonic() > end:
                        raise ServiceUnavailable(f"{process.role} did not listen within {_PATIENCE:.0f} s") from away
                    looks.wait()
                else:
                    return

    def stop(self) -> None:
        """End the servers; safe to repeat. A folder that was not named is removed, with all that was in it."""
        atexit.unregister(self.stop)
        self._ended.set()  # whoever takes part stops waiting
        self.close()
        self._end_processes()
        if self._keep is None and self.folder != Path(""):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _end_processes(self) -> None:
        for process in self._processes:
            process.tell_to_end()
        for process in self._processes:
            process.end()
        self._processes = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _made(self, task: Task) -> Task:
        """It is posted when people are invited: its first round then waits for all of them."""
        if not self._processes:
            raise SettingsError("the servers are not running: create tasks inside `with`, or `start()` them first")
        return task

    def post(self, definition: Definition, start: Weights, people: int) -> Definition:
        posted = super().post(with_people(definition, people), start, people)
        settings = posted.settings
        if whole := posted.plan.whole_cost(settings):
            self.fund(posted.task, whole, settings.currency, "all-rounds")
        return posted

    def fund(self, task: str, millionths: int, currency: str, name: str | None) -> str:
        """Announced, and confirmed as SP's operator does once the money is there."""
        from crowdfl.roles.sp.deposits import Deposits
        from crowdfl.services.run import open_books
        from crowdfl.settings import SpSettings
        from crowdfl.storage.settings_file import read_service

        deposit = super().fund(task, millionths, currency, name)
        with open_books(read_service(SpSettings, self.folder / "sp/settings.toml"), task) as books:
            Deposits(books).confirm(task, deposit, millionths, currency)
        return deposit

    def invite(
        self,
        task: Task,
        count: int,
        folder: str | Path | None,
        days: float,
        *,
        initial: Any,  # noqa: ANN401
        personalize: Sequence[str],
    ) -> list[str]:
        from crowdfl.services.client.opening import OwnInvitation

        paths = super().invite(task, count, folder, days, initial=initial, personalize=personalize)
        made = [OwnInvitation.of(path, initial, personalize, self._ended) for path in paths]
        self._invited.setdefault(task.id, []).extend(made)
        return list(made)

    def require_going(self, task: Task) -> None:
        """Raise what somebody's function has raised, once; and that a server is gone."""
        for process in self._processes:
            if process.has_ended:
                raise ServiceUnavailable(f"{process.words()}; its log is {process.log}")
        for one in self._people(task):
            if (error := one.take_error()) is not None:
                raise error

    def are_through(self, task: Task, status: Mapping[str, Any]) -> bool:
        people = self._people(task)
        if not all(one.is_done for one in people):
            return False
        paid = to_millionths(task.settings.budget or 0) > 0
        settles = paid and len(people) >= status["enrolled"] and all(one.has_claimed for one in people)
        return not settles or status["state"] == "settled"

    def _people(self, task: Task) -> list[Any]:
        return [one for invitation in self._invited.get(task.id, ()) for one in invitation.people]

    def __repr__(self) -> str:
        return (
            f"<OwnServers: {'running, ' if self._processes else 'not running'}{self.folder if self._processes else ''}>"
        )


def local_servers(
    folder: str | os.PathLike[str] | None = None,
    *,
    progress: bool | None = None,
    insecure_test_key: bool = False,
) -> OwnServers:
    """KGC, SP and CSP as processes on this machine, over TLS, with a requester's settings: for a campaign before the real one.

        with crowdfl.local_servers() as servers:
            task = servers.create(initial=model, rounds=5, pay="equal", budget="36.00")
            for person, link in zip(data, task.invite(len(data))):
                crowdfl.join(link).start(train, evaluate, person)
            task.wait()
            print(task.model, task.report())

    They end with the block, with Ctrl-C, an error, or this program, however that ends. In a notebook, `servers =
    crowdfl.local_servers().start()` keeps them from cell to cell, until `servers.stop()`. You are the operator too: a task's
    payments are confirmed at once, and no money moves.

    Args:
        folder: Where everything is kept: tasks go on when the servers are started there again. Without it, it is a folder that
            is removed in the end.
        progress: True shows it, False does not; None, the default, shows it on a terminal and in a notebook.
        insecure_test_key: Allow `key_bits` below 2048, for tests.
    """
    return OwnServers(folder, progress=progress, insecure_test_key=insecure_test_key)


class _Shown:
    """What happens while the servers start."""

    def __init__(self, progress: bool | None) -> None:
        asked = progress is not False
        self._cell = Cell() if asked and in_notebook() else None
        self._lines = asked and self._cell is None and (progress is True or sys.stderr.isatty())

    def __call__(self, words: str) -> None:
        if self._cell is not None:
            self._cell.show(words)
        elif self._lines:
            sys.stderr.write(f"{words}\n")
            sys.stderr.flush()


def _free(count: int) -> list[int]:
    """Ports that nothing listens on now."""
    found: set[int] = set()
    while len(found) < count:
        port = _PORTS[int(random_below(len(_PORTS)))]
        with suppress(OSError), socket.create_server((_HOST, port)):
            found.add(port)
    return list(found)


def _require_services() -> None:
    try:
        import crowdfl.services.server  # noqa: F401
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("crowdfl"):
            raise
        raise PackageMissing(f"servers need {missing.name}: `pip install 'crowdfl[services]'`") from None
