"""SP and KGC opened over empty folders, as the command line opens them; called without a network."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import httpx
from fastapi import FastAPI

from crowdfl.services.run import open_kgc, open_sp
from crowdfl.settings import KgcSettings, PeerSettings, SpSettings
from crowdfl.storage.atomic import write_private
from crowdfl.web.console_app import add_pages
from tests.http.world import InProcess

__all__ = ["Loop", "browsing", "kgc_settings", "opened_kgc", "opened_sp", "sp_settings"]

LOCAL = {"host": "127.0.0.1", "port": 0, "plain_http": True}


def sp_settings(folder: Path, kgc: str = "http://127.0.0.1:9", **more: Any) -> SpSettings:
    token = folder / "peer.token"
    write_private(token, b"crowdfl_of_nobody", overwrite=True)
    peers = {"kgc": PeerSettings(url=kgc, token=token), "csp": PeerSettings(url="http://127.0.0.1:9", token=token)}
    return SpSettings(data=folder / "sp", kgc_key=bytes(32), **LOCAL, **peers, **more)


def kgc_settings(folder: Path, **more: Any) -> KgcSettings:
    return KgcSettings(data=folder / "kgc", **LOCAL, **more)


@contextlib.contextmanager
def opened_sp(settings: SpSettings) -> Iterator[FastAPI]:
    app = open_sp(settings)
    add_pages(app, settings)
    with _closing(app):
        yield app


@contextlib.contextmanager
def opened_kgc(settings: KgcSettings) -> Iterator[FastAPI]:
    app = open_kgc(settings)
    with _closing(app):
        yield app


class Loop:
    """An event loop for one call, in a thread: that of a test may have one already, a browser's."""

    @staticmethod
    def call(work: Callable[..., Awaitable[Any]], *given: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(anyio.run, work, *given).result()


def browsing(app: FastAPI) -> httpx.Client:
    """A client that follows no redirect, and sees a failure as its status."""
    return httpx.Client(transport=InProcess(lambda: app, Loop()), base_url="https://sp.example")  # type: ignore[arg-type]


@contextlib.contextmanager
def _closing(app: FastAPI) -> Iterator[None]:
    try:
        yield
    finally:
        app.state.background[0].stop()  # store and links, which were opened with the app
