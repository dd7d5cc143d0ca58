"""The three services as they are deployed: their own folders, tokens and certificates, TLS on loopback."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from crowdfl.errors import NotReady
from crowdfl.protocols.exchange import Observer
from crowdfl.retry import Backoff
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Bearer, Link, Service, SystemClock
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Tokens
from crowdfl.services.run import open_csp, open_kgc, open_sp
from crowdfl.services.server import running
from crowdfl.settings import CspSettings, KgcSettings, PeerSettings, SpSettings
from crowdfl.storage.atomic import write_private
from crowdfl.storage.blobs import MemoryBlobs
from crowdfl.storage.signing import signing_key
from crowdfl.web.console_app import add_pages
from tests.hosts import test_tools

_Found = TypeVar("_Found")


@dataclass
class Loopback:
    """Three services, and whoever calls them."""

    urls: dict[str, str]
    ca: Path
    kgc_key: bytes
    tokens: dict[str, str]
    closing: contextlib.ExitStack
    tools = test_tools()

    def requester(self) -> Requester:
        """One with tokens and a key of its own."""
        blobs = MemoryBlobs()
        kgc, sp = (
            self._kept(self._link(name).as_requester(self.tokens[f"{name} for requester"], own_key(blobs)))
            for name in ("kgc", "sp")
        )
        return Requester(blobs, SystemClock(), KgcClient(kgc), SpClient(sp), self.kgc_key, self.tools)

    def impatient(self, requester: Requester) -> Requester:
        """The same, who takes the first answer."""
        sp = requester.sp
        assert isinstance(sp, SpClient)
        return replace(requester, sp=replace(sp, service=replace(sp.service, retries=Backoff(deadline=0.0))))

    def join(self, requester: Requester, task: str, whole: int = 2**18) -> Participant:
        """Somebody whose uploads of more than `whole` bytes go in pieces."""
        kgc, sp = KgcClient(self._kept(self._link("kgc").open())), SpClient(self._kept(self._link("sp").open()), whole)
        blobs, own = MemoryBlobs(), {"sp_key": sp.key(), "least_participants": 1}
        person = Participant(task, blobs, kgc, sp, self.kgc_key, self.tools, **own)
        person.join(*requester.invite(task, 1, 60.0))
        return person

    def confirm(self, task: str, name: str, amount: int) -> None:
        """As the operator's bank does."""
        bank = self._kept(self._link("sp").open(Bearer(self.tokens["sp for bank"])))
        SpClient(bank).confirm_deposit(task, name, amount)

    def metrics(self, name: str) -> str:
        """As Prometheus reads them."""
        operator = self._kept(self._link(name).open(Bearer(self.tokens[f"{name} for operator"])))
        return operator.call("GET", "/metrics").body.decode()

    def _link(self, name: str) -> Link:
        return Link(self.urls[name], self.ca)

    def _kept(self, service: Service) -> Service:
        self.closing.callback(service.close)
        return service


@contextlib.contextmanager
def serving(folder: Path, observer: Observer | None = None) -> Iterator[Loopback]:
    """KGC, CSP and SP, each with its folder, certificate and tokens; `observer` watches both servers."""
    ca = tls.make_ca(folder)
    tokens: dict[str, str] = {}

    made = {name: tls.make_server_certificate(folder, ca, name) for name in ("kgc", "sp", "csp")}
    pins = {name: (tls.key_pin(tls.require_usable(files)),) for name, files in made.items()}

    def prepare(name: str, *roles: str) -> dict[str, Any]:
        (folder / name).mkdir(mode=0o700, exist_ok=True)
        for role in roles:
            tokens[f"{name} for {role}"] = Tokens(folder / name / "tokens.json").add(role, role)
        where = {"data": folder / name, "host": "127.0.0.1", "port": 0}
        return where | {**vars(made[name]), "ca": ca.certificate, "insecure_test_key": True}

    def peer(url: str, given: str, role: str) -> PeerSettings:
        path = folder / role / f"{given}.token"
        write_private(path, tokens[f"{given} for {role}"].encode())
        return PeerSettings(url=url, token=path)

    with contextlib.ExitStack() as stack:
        (folder / "sp").mkdir(mode=0o700)
        sp_key, known = signing_key(folder / "sp" / "signing.key").public, {"sp": pins["sp"], "csp": pins["csp"]}
        own = prepare("kgc", "requester", "sp", "csp", "operator")
        kgc_settings = KgcSettings(**own, pins=known, sp_key=sp_key)
        kgc = stack.enter_context(running(open_kgc(kgc_settings), kgc_settings))
        key = signing_key(folder / "kgc" / "signing.key").public
        own = prepare("csp", "sp", "operator") | {"kgc": peer(kgc, "kgc", "csp"), "kgc_key": key}
        csp_settings = CspSettings(**own, pins={"sp": pins["sp"]}, sp_key=sp_key)
        csp = stack.enter_context(running(open_csp(csp_settings, observer), csp_settings))
        own = prepare("sp", "requester", "bank", "operator") | {
            "kgc": peer(kgc, "kgc", "sp"),
            "csp": peer(csp, "csp", "sp"),
        }
        sp_settings = SpSettings(**own, kgc_key=key, tick_seconds=0.05, min_claim_window=0.0)
        sp_app = open_sp(sp_settings, observer)
        add_pages(sp_app, sp_settings)  # as the command line does
        sp = stack.enter_context(running(sp_app, sp_settings))
        with contextlib.ExitStack() as closing:
            yield Loopback({"kgc": kgc, "csp": csp, "sp": sp}, ca.certificate, key, tokens, closing)


def wait_for(read: Callable[[], _Found]) -> _Found:
    """What is not there yet."""
    until = time.monotonic() + 40
    while time.monotonic() < until:
        try:
            return read()
        except NotReady:
            time.sleep(0.05)
    raise AssertionError("it never came")


def wait_for_round(sp: SpClient, task: str, *states: str) -> None:
    """Until its last round is in one of these states."""

    def look() -> None:
        rounds = sp.status(task)["rounds"]
        if not rounds or rounds[-1]["state"] not in states:
            raise NotReady("not yet")

    wait_for(look)
