"""`crowdfl task console`: the requester's page on this machine, until Ctrl-C."""

import os
import signal
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from html import escape
from pathlib import Path

import typer

from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError
from crowdfl.learning.training import LocalTrainer
from crowdfl.retry import Backoff
from crowdfl.roles.following import Following
from crowdfl.roles.participant.participant import Train
from crowdfl.roles.requester import Requester
from crowdfl.services.client.opening import RequesterFile, open_requester, write_invitations
from crowdfl.storage.atomic import write_private
from crowdfl.web.requester_console.app import create_requester_app, serving_requester
from crowdfl.web.requester_console.requester_actions import RequesterActions

_LAST_SECONDS, _LOOK_SECONDS = 0.5, 1.0
_PATIENCE = Backoff(
    deadline=5.0
)  # a page that asks again by itself need not wait longer; an answer may take as long as ever


def serve_console(settings: Path, port: int, *, open_page: bool, reference: str | None = None) -> None:
    """Print the address once, and serve until SIGINT or SIGTERM."""
    own = RequesterFile.read(settings)

    def trainer(definition: Definition) -> Train:
        return LocalTrainer(reference or "", definition.training).train

    with open_requester(own, _PATIENCE) as requester, referring(requester, trainer) if reference else nullcontext():
        actions = requester_actions(own, requester)
        with serving_requester(lambda session: create_requester_app(actions, session), port) as session:
            address = session.address
            typer.echo(f"The requester's page, for one browser on this machine:\n{address}\nCtrl-C ends it.")
            with opened_in_browser(address, own.folder) if open_page else nullcontext():
                _wait_for_signal()
    typer.echo("the console has ended")
    _leave()


@contextmanager
def referring(requester: Requester, trainer: Callable[[Definition], Train]) -> Iterator[None]:
    """Meanwhile, train a reference for each round of the requester's that waits for one."""
    stop = threading.Event()
    made = dict[str, Train]()
    said = set[str]()

    def tell(what: str) -> None:
        if what not in said:  # a platform that is away stays away for a while
            typer.echo(what, err=True)
        said.add(what)

    def look(task: str) -> None:
        definition = requester.definition(task)
        if definition.settings.reference and (status := requester.sp.status(task))["state"] == "running":
            made[task] = made.get(task) or trainer(definition)
            Following(requester, time.sleep, reference=made[task]).refer(task, status)

    def work() -> None:
        while not stop.wait(_LOOK_SECONDS):
            for task in requester.tasks():
                try:
                    look(task)
                except CrowdFLError as wrong:
                    tell(f"no reference for task {task}: {wrong}")

    thread = threading.Thread(target=work, name="reference", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_LAST_SECONDS)


def _leave() -> None:
    """Now, as after a crash: a call that a platform does not answer holds its thread, which Python would wait for."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(_LAST_SECONDS)
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _wait_for_signal() -> None:
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda _number, _frame: stop.set())
    try:
        stop.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def requester_actions(own: RequesterFile, requester: Requester) -> RequesterActions:
    def invite(task: str, folder: Path, count: int, days: float, replaces: str) -> list[Path]:
        return write_invitations(own, requester, task, folder, count, days, _PATIENCE, replaces=replaces)

    return RequesterActions(requester, own.settings, own.folder, invite)


@contextmanager
def opened_in_browser(address: str, folder: Path) -> Iterator[None]:
    """In the browser, by a file of this user alone: other users could read the address on a browser's command line."""
    path = folder / f".console-{address.partition('#')[0].rpartition(':')[2].strip('/')}.html"
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={escape(address)}">'
    write_private(path, page.encode(), overwrite=True)
    try:
        webbrowser.open(path.resolve().as_uri())
        yield
    finally:
        path.unlink(missing_ok=True)
