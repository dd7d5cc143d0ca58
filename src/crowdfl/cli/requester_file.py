"""A requester's settings file, the requester it opens, and invitations. It loads nothing of the services."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crowdfl.cli.settings_file import read_settings
from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import SettingsError
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.clients import SpClient
from crowdfl.services.clock import SystemClock
from crowdfl.services.links import Link, RequesterKgcLink, RequesterSpLink
from crowdfl.storage.atomic import write_private
from crowdfl.storage.blobs import FileBlobs

__all__ = ["RequesterFile", "open_requester", "write_invitations"]


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
        found, here = read_settings(path), path.resolve().parent
        try:
            ca = here / found["ca"] if "ca" in found else None
            plain = found.get("plain_http", False)
            return cls(
                folder=here,
                kgc=Link(found["kgc"], ca, plain),
                sp=Link(found["sp"], ca, plain),
                kgc_key=bytes.fromhex(found["kgc_key"]),
                kgc_token=(here / found["kgc_token"]).read_text().strip(),
                sp_token=(here / found["sp_token"]).read_text().strip(),
                insecure_test_key=found.get("insecure_test_key", False),
            )
        except (KeyError, TypeError, ValueError, OSError) as wrong:
            raise SettingsError(f"{path}: a setting is missing or wrong: {wrong}") from None


@contextmanager
def open_requester(own: RequesterFile) -> Iterator[Requester]:
    """A requester with its links, which are let go at the end."""
    kgc, sp = RequesterKgcLink(own.kgc, own.kgc_token, own.key), RequesterSpLink(own.sp, own.sp_token, own.key)
    try:
        yield Requester(own.blobs, SystemClock(), kgc, sp, own.insecure_test_key)
    finally:
        kgc.close()
        sp.close()


def write_invitations(
    own: RequesterFile, requester: Requester, task: str, folder: Path, count: int, days: float
) -> list[Path]:
    """One file per invitation, each with all that its holder needs to find and check the task and its receipts."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    taken = [int(path.stem.rpartition("-")[2]) for path in folder.glob("invitation-[0-9]*.json")]
    first = max(taken, default=-1) + 1  # a second call must not overwrite invitations that nobody used yet
    service = own.sp.open()
    try:
        sp_key = SpClient(service).key()
    finally:
        service.close()
    paths = []
    for number, invitation in enumerate(requester.invite(task, count, days * 86400), start=first):
        contents = {
            "task": task,
            "invitation": invitation,
            "kgc": own.kgc.url,
            "sp": own.sp.url,
            "kgc_key": own.kgc_key.hex(),
            "sp_key": sp_key.hex(),
            "ca": own.kgc.ca.read_text() if own.kgc.ca else None,
            "insecure_test_key": own.insecure_test_key,
        }
        paths.append(folder / f"invitation-{number}.json")
        write_private(paths[-1], json.dumps(contents).encode())
    return paths
