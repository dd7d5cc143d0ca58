"""A requester's settings file, the requester it opens, and invitations. It loads nothing of the services."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crowdfl.cli.settings_file import read_file
from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import SettingsError
from crowdfl.protocols.profile import Tools
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Link
from crowdfl.services.clock import SystemClock
from crowdfl.settings import RequesterSettings
from crowdfl.storage.atomic import read_secret, write_private
from crowdfl.storage.blobs import FileBlobs

__all__ = ["RequesterFile", "open_requester", "write_invitations"]

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_INVITATION = re.compile(r"invitation-([0-9]{1,18})\.json")


@dataclass(frozen=True)
class RequesterFile:
    """A requester's settings."""

    folder: Path
    kgc: Link
    sp: Link
    kgc_key: bytes
    kgc_token: str
    sp_token: str
    insecure_test_key: bool

    @property
    def blobs(self) -> FileBlobs:
        """What this requester keeps."""
        return FileBlobs(self.folder / "state")

    @property
    def key(self) -> SigningKey:
        """What this requester signs with."""
        return own_key(self.blobs)

    @classmethod
    def read(cls, path: Path) -> "RequesterFile":
        """From TOML."""
        found = read_file(RequesterSettings, path)
        return cls(
            folder=path.resolve().parent,
            kgc=Link(found.kgc, found.ca, found.plain_http),
            sp=Link(found.sp, found.ca, found.plain_http),
            kgc_key=found.kgc_key,
            kgc_token=read_secret(found.kgc_token, "token for KGC"),
            sp_token=read_secret(found.sp_token, "token for SP"),
            insecure_test_key=found.insecure_test_key,
        )


@contextmanager
def open_requester(own: RequesterFile) -> Iterator[Requester]:
    """A requester with its links, which are let go at the end."""
    kgc = KgcClient(own.kgc.as_requester(own.kgc_token, own.key))
    sp = SpClient(own.sp.as_requester(own.sp_token, own.key))
    tools = Tools.unwatched(insecure_test_key=own.insecure_test_key)
    try:
        yield Requester(own.blobs, SystemClock(), kgc, sp, tools)
    finally:
        kgc.close()
        sp.close()


def write_invitations(
    own: RequesterFile, requester: Requester, task: str, folder: Path, count: int, days: float
) -> list[Path]:
    """One file per invitation, each with all that its holder needs to find and check the task and its receipts."""
    requester.definition(task)  # an invitation to another's task would open nothing
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{folder} is a file; name a folder for the invitations")
    service = own.sp.open()
    try:
        sp_key = SpClient(service).key()
    finally:
        service.close()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    first = _first_free(folder)
    paths = []
    for number, invitation in enumerate(requester.invite(task, count, days * 86400), start=first):
        contents = {
            "task": task,
            "invitation": invitation,
            "kgc": own.kgc.url,
            "sp": own.sp.url,
            "kgc_key": own.kgc_key.hex(),
            "sp_key": sp_key.hex(),
            "ca": _certificates(own.kgc.ca) if own.kgc.ca else None,
            "insecure_test_key": own.insecure_test_key,
        }
        paths.append(folder / f"invitation-{number}.json")
        write_private(paths[-1], json.dumps(contents).encode())
    return paths


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
