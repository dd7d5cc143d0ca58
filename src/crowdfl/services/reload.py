"""What a running service reads again on SIGHUP: its certificate, whom it trusts, its peers' tokens and keys.

Everything is read and checked before anything of it is used, so that a damaged file changes nothing. Connections stay.
"""

import asyncio
import signal
import ssl
import threading
from collections.abc import Callable
from typing import Any

from structlog.types import FilteringBoundLogger

from crowdfl.errors import CrowdFLError
from crowdfl.services.http.app_factory import Background
from crowdfl.settings import ServiceSettings

Prepare = Callable[[Any], Callable[[], None]]
"""Reads again what the service's own settings name; what it returns puts that to use."""


class ServerTls:
    """The context that a server listens with; each new connection takes the newest one."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = self._current = context
        context.sni_callback = self._choose  # called at every handshake, with or without a name

    def replace(self, context: ssl.SSLContext) -> None:
        self._current = context

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current


class Reloads(Background):
    """All that one service reads again."""

    def __init__(self, log: FilteringBoundLogger, settings: ServiceSettings) -> None:
        self.read_settings: Callable[[], ServiceSettings] = lambda: settings
        self._log = log
        self._prepares: list[Prepare] = []
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, prepare: Prepare) -> None:
        self._prepares.append(prepare)

    def start(self) -> None:
        if threading.current_thread() is threading.main_thread():  # elsewhere no signal arrives
            self._loop = asyncio.get_running_loop()
            self._loop.add_signal_handler(signal.SIGHUP, self._in_thread)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # one that comes late must not end what is ending well

    def reload(self) -> None:
        """Raise the named error of what is wrong, and then use nothing of it."""
        with self._lock:
            settings = self.read_settings()
            for use in [prepare(settings) for prepare in self._prepares]:
                use()

    def _in_thread(self) -> None:
        threading.Thread(target=self._reload_and_tell, name="reload", daemon=True).start()

    def _reload_and_tell(self) -> None:
        try:
            self.reload()
        except (CrowdFLError, OSError) as wrong:
            self._log.error("not reloaded", error=type(wrong).__name__, why=str(wrong))
        else:
            self._log.info("reloaded")
