"""`crowdfl task console`: the requester's page on this machine, until Ctrl-C."""

import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from html import escape
from pathlib import Path

import typer

from crowdfl.retry import Backoff
from crowdfl.roles.requester import Requester
from crowdfl.services.client.opening import RequesterFile, open_requester, write_invitations
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.storage.atomic import write_private
from crowdfl.web.requester_console.app import create_requester_app, serving_requester
from crowdfl.web.requester_console.requester_actions import RequesterActions

_LAST_SECONDS = 0.5
_PATIENCE = Backoff(deadline=5.0)  # a page that asks again by itself need not wait longer


def serve_console(settings: Path, port: int, *, open_page: bool) -> None:
    """Print the address once, and serve until SIGINT or SIGTERM."""
    own = RequesterFile.read(settings)
    with open_requester(own) as requester:
        actions = requester_actions(own, impatient(requester))
        with serving_requester(lambda session: create_requester_app(actions, session), port) as session:
            address = session.address
            typer.echo(f"The requester's page, for one browser on this machine:\n{address}\nCtrl-C ends it.")
            with opened_in_browser(address, own.folder) if open_page else nullcontext():
                _wait_for_signal()
    typer.echo("the console has ended")
    _leave()


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


def impatient(requester: Requester) -> Requester:
    """The same, who says sooner that SP or KGC cannot be reached; an answer may take as long as ever."""
    sp, kgc = requester.sp, requester.kgc
    if isinstance(sp, SpClient):
        sp = replace(sp, service=replace(sp.service, retries=_PATIENCE))
    if isinstance(kgc, KgcClient):
        kgc = replace(kgc, service=replace(kgc.service, retries=_PATIENCE))
    return replace(requester, sp=sp, kgc=kgc)


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
