"""Who stands behind a run: SP in this process; KGC and CSP here too for a trial, or as services of other organisations."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from crowdfl.errors import SettingsError
from crowdfl.protocols.profile import Tools
from crowdfl.roles.ports import Blobs, ManualClock
from crowdfl.roles.requester import Requester
from crowdfl.roles.sp.core import SpOptions, SpPorts
from crowdfl.roles.sp.platform import Sp
from crowdfl.simulation.local_host import LocalHost, MemoryDisk
from crowdfl.storage.blobs import FileBlobs, MemoryBlobs
from crowdfl.storage.sql import SqlStore

LOCAL = "local"
REQUESTER = "requester"  # the owner's folder, below its home


class Servers(Protocol):
    """SP, and KGC as newcomers reach it through SP."""

    @property
    def sp(self) -> Sp: ...
    @property
    def kgc_key(self) -> bytes: ...
    @property
    def clock(self) -> ManualClock: ...  # SP's own: a round ends when its replies are in, not when time has passed
    def enrol(self, task: str, invitation: str, request: str) -> bytes: ...


def _options(tools: Tools) -> SpOptions:
    return SpOptions(tools, checker=tools.backend, min_claim_window=0.0, opens_rounds=False)


class _Disk(MemoryDisk):
    """In memory, but for what the model's owner needs after the run."""

    def __init__(self, home: Path | None) -> None:
        super().__init__()
        self._home = home

    def blobs(self, name: str) -> Blobs:  # type: ignore[override]
        return FileBlobs(self._home / name) if self._home and name == REQUESTER else super().blobs(name)


class LocalServers:
    """All three in one process, for a trial: it could read every update. `home` keeps the requester's keys."""

    is_local = True

    def __init__(self, home: Path | None) -> None:
        tools, self.clock = Tools.unwatched(), ManualClock(time.time())
        self._host = LocalHost(tools, disk=_Disk(home), clock=self.clock, options=_options(tools))

    @property
    def sp(self) -> Sp:
        return self._host.sp

    @property
    def kgc_key(self) -> bytes:
        return self._host.signing.public

    @property
    def requester(self) -> Requester:
        return self._host.requester

    def enrol(self, task: str, invitation: str, request: str) -> bytes:
        return self._host.kgc.enrol(task, invitation, request)


@dataclass(frozen=True)
class ServiceServers:
    """KGC and CSP as services. SP's settings file, as `crowdfl init` and the exchange of docs/organisations.md make it,
    says where they are and holds the tokens; `crowdfl sp serve` does not run: this process is SP."""

    is_local = False
    sp: Sp
    kgc_key: bytes
    clock: ManualClock
    enrol: Callable[[str, str, str], bytes]

    @classmethod
    def open(cls, path: Path) -> "ServiceServers":
        from crowdfl.services.client.peer_link import PeerLink
        from crowdfl.services.client.peers import CspClient, KgcClient
        from crowdfl.services.run import peer_access
        from crowdfl.settings import SpSettings
        from crowdfl.storage.settings_file import read_service

        found, clock = read_service(SpSettings, path), ManualClock(time.time())
        access = peer_access(found, found.kgc, "KGC")
        kgc, csp = PeerLink(access), PeerLink(peer_access(found, found.csp, "CSP"))
        blobs = MemoryBlobs(), MemoryBlobs()
        ports = SpPorts(
            SqlStore.in_memory(), *blobs, clock, KgcClient(kgc.service), CspClient(csp.service), found.kgc_key
        )
        anyone = KgcClient(access.link.open())  # an enrolment needs no token
        return cls(Sp(ports, _options(Tools.unwatched())), found.kgc_key, clock, anyone.enrol)


def open_servers(csp: str | Path, home: Path | None) -> LocalServers | ServiceServers:
    if csp == LOCAL:
        return LocalServers(home)
    if not Path(csp).is_file():
        raise SettingsError(
            f'csp={str(csp)!r}: expected "{LOCAL}", or the settings file of SP, which names CSP and KGC'
        )
    return ServiceServers.open(Path(csp))
