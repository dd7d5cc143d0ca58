"""A requester's settings file, the requester it opens, and invitations. It loads nothing of the services."""

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from crowdfl.errors import KeyMismatch, SettingsError
from crowdfl.protocols.profile import Tools
from crowdfl.retry import Backoff
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Link, Service
from crowdfl.services.clock import SystemClock
from crowdfl.settings import RequesterSettings
from crowdfl.storage.atomic import read_secret, write_private
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.settings_file import read_file

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_INVITATION = re.compile(r"invitation-([0-9]{1,18})\.json")


@dataclass(frozen=True)
class RequesterFile:
    """A requester's settings, the folder they lie in, and the tokens they name."""

    folder: Path
    settings: RequesterSettings
    kgc_token: str = field(repr=False)
    sp_token: str = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "RequesterFile":
        found = read_file(RequesterSettings, path)
        tokens = read_secret(found.kgc_token, "token for KGC"), read_secret(found.sp_token, "token for SP")
        return cls(path.resolve().parent, found, *tokens)

    def link(self, url: str) -> Link:
        return Link(url, self.settings.ca, self.settings.plain_http)


@contextmanager
def open_requester(own: RequesterFile, patience: Backoff | None = None) -> Iterator[Requester]:
    """`patience`: how long to try if a service cannot be reached, where that is not as usual."""
    blobs, found = FileBlobs(own.folder / "state"), own.settings
    kgc = KgcClient(_patient(own.link(found.kgc).as_requester(own.kgc_token, own_key(blobs)), patience))
    sp = SpClient(_patient(own.link(found.sp).as_requester(own.sp_token, own_key(blobs)), patience))
    with closing(kgc), closing(sp):
        tools = Tools.unwatched(insecure_test_key=found.insecure_test_key)
        yield Requester(blobs, SystemClock(), kgc, sp, found.kgc_key, tools)


def write_invitations(
    own: RequesterFile,
    requester: Requester,
    task: str,
    folder: Path,
    count: int,
    days: float,
    patience: Backoff | None = None,
) -> list[Path]:
    """One file per invitation, each with all that its holder needs to find and check the task and its receipts.

    `patience`: how long to try if SP cannot be reached, where that is not as usual.
    """
    requester.definition(task)  # an invitation to another's task would open nothing
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{folder} is a file; name a folder for the invitations")
    found = own.settings
    with closing(SpClient(_patient(own.link(found.sp).open(), patience))) as sp:
        sp_key = sp.key()
    if found.sp_key not in (None, sp_key):
        raise KeyMismatch(
            f"{found.sp} shows another signing key than `sp_key` in the settings: ask SP's operator, trust neither"
        )
    contents = {
        "task": task,
        "kgc": found.kgc,
        "sp": found.sp,
        "kgc_key": found.kgc_key.hex(),
        "sp_key": sp_key.hex(),
        "ca": _certificates(found.ca) if found.ca else None,
        "insecure_test_key": found.insecure_test_key,
    }
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    first, paths = _first_free(folder), []
    for number, invitation in enumerate(requester.invite(task, count, days * 86400), start=first):
        paths.append(folder / f"invitation-{number}.json")
        write_private(paths[-1], json.dumps({**contents, "invitation": invitation}).encode())
    return paths


def _patient(service: Service, patience: Backoff | None) -> Service:
    return service if patience is None else replace(service, retries=patience)


def _certificates(path: Path) -> str:
    """Those of a file, without what is written about them, in whatever language."""
    found = _PEM.findall(path.read_bytes())
    if not found:
        raise SettingsError(f"{path} holds no certificate in PEM")
    return "\n".join(block.decode() for block in found) + "\n"


def _first_free(folder: Path) -> int:
    """Above every number that is taken: a second call must not overwrite invitations that nobody used yet."""
    names = [_INVITATION.fullmatch(path.name) for path in folder.iterdir()]
    return max((int(name[1]) for name in names if name), default=-1) + 1
