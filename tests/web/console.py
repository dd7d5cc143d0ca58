"""SP with its console: in one process for the rules of its routes, and served to a browser."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal

from crowdfl.roles.sp.ends import SpEnds
from crowdfl.roles.sp.holdings import SpHoldings
from crowdfl.services.apps.sp_uploads import UnfinishedUploads
from crowdfl.services.client.breaker import Breaker
from crowdfl.services.http.tls import make_ca, make_server_certificate
from crowdfl.services.run import SpParts
from crowdfl.services.server import running
from crowdfl.settings import PeerSettings, SpSettings
from crowdfl.web.console_app import Console, add_console
from crowdfl.web.session import HEADER
from crowdfl.web.static import PACKAGE, add_static, load_assets, page_headers
from tests.http.observed import ObservedWorld

__all__ = ["ConsoleWorld", "Operator"]


class ConsoleWorld(ObservedWorld):
    """As SP is run, with the console; its peers are watched by breakers that nobody calls."""

    console: Console

    def __init__(self, folder: Path, portal: BlockingPortal) -> None:
        super().__init__(folder, portal)
        self.breakers = [Breaker("KGC"), Breaker("CSP")]
        data, nobody = folder / "sp", PeerSettings(url="http://127.0.0.1:9", token=folder / "peer.token")
        self.settings = SpSettings(
            data=data, host="127.0.0.1", port=0, plain_http=True, kgc=nobody, csp=nobody, kgc_key=bytes(32)
        )
        sp = self.sp
        parts = UnfinishedUploads(data / "incoming")
        holdings = SpHoldings(sp.store, sp.blobs, sp.ports.bundles, parts, forget=sp.aggregators.drop)
        ends = SpEnds(holdings, self.clock, self.receipts, {})
        given = SpParts(sp, ends, self.tokens["sp"][0], self.breakers, data, self.settings)
        self.console = add_console(self.apps["sp"], given)
        for place in ("common", "vendor"):
            add_static(self.apps["sp"], f"/web/{place}", load_assets(PACKAGE / place), page_headers)

    def operator(self, *, logged_in: bool = True) -> "Operator":
        """Somebody at a browser."""
        operator = Operator(self.http("sp"))
        if logged_in:
            assert operator.log_in(self.token("sp", "operator").token).status_code == 204
        return operator

    @contextlib.contextmanager
    def served(self, *, tls: bool = False) -> Iterator[str]:
        """Over plain HTTP on loopback, or TLS; nothing moves but what the test moves."""
        settings = self.settings
        if tls:
            made = make_server_certificate(self.folder, make_ca(self.folder), "sp")
            settings = settings.changed(plain_http=False, **vars(made))
        with running(self.apps["sp"], settings) as url:
            yield url


@dataclass
class Operator:
    """A browser with the console's page, without the page."""

    http: httpx.Client
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        url = self.http.base_url
        origin = f"{url.scheme}://{url.netloc.decode()}"
        self.headers = {"Origin": origin, HEADER: "operator", "Sec-Fetch-Site": "same-origin"}

    def log_in(self, token: str) -> httpx.Response:
        """The form."""
        return self.post("session", {"token": token})

    def get(self, path: str, **how: Any) -> httpx.Response:
        """As the page reads."""
        return self.http.get(f"/console/{path}", headers=self.headers, **how)

    def post(self, path: str, body: object = None, **headers: str) -> httpx.Response:
        """As the page changes something."""
        return self.http.post(f"/console/{path}", json=body, headers=self.headers | headers)

    def log_out(self) -> httpx.Response:
        """The button."""
        return self.http.delete("/console/session", headers=self.headers)

    @contextlib.contextmanager
    def watch(self) -> Iterator["Heard"]:
        """The stream of events."""
        headers = self.headers | {"Accept": "text/event-stream"}
        with self.http.stream("GET", "/console/events", headers=headers, timeout=60) as answer:
            yield Heard(answer)


class Heard:
    """What a stream has said."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer, self._lines = answer, answer.iter_lines()

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next event; StopIteration when the stream has ended."""
        event = ""
        for line in self._lines:
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return event, json.loads(line.removeprefix("data: "))
        raise StopIteration

    def until(self, section: str) -> dict[str, Any]:
        """The next change of this section."""
        while True:
            event, found = self.next()
            if event == "change" and section in found:
                changed: dict[str, Any] = found[section]["changed"]
                return changed

    def rest(self) -> list[str]:
        """The events until the stream ends."""
        found = []
        with contextlib.suppress(StopIteration):
            while True:
                found.append(self.next()[0])
        return found
