"""A requester's settings file, and the requester it opens. Apart from the services: a requester need not load them."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import SettingsError
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.clock import SystemClock
from crowdfl.services.links import Link, RequesterKgcLink, RequesterSpLink
from crowdfl.storage.blobs import FileBlobs

__all__ = ["RequesterFile", "open_requester", "read_settings"]


def read_settings(path: Path) -> dict[str, Any]:
    """A TOML file, or a named error."""
    try:
        return tomllib.loads(path.read_text())
    except (FileNotFoundError, IsADirectoryError):
        raise SettingsError(f"there is no settings file at {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise SettingsError(f"{path} is no TOML: {wrong}") from None


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
