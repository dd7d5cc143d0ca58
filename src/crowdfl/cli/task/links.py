"""Invitations as links and codes that a phone opens."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from crowdfl.errors import PackageMissing
from crowdfl.services.client.opening import link_of


def write_links(invitations: Iterable[Path], page: str) -> list[Path]:
    """invitation-3.txt beside invitation-3.json, and so on."""
    return [_write(path.with_suffix(".txt"), f"{link_of(path, page)}\n".encode()) for path in invitations]


def write_codes(invitations: Iterable[Path], page: str) -> list[Path]:
    """The same as pictures, invitation-3.svg."""
    return [_write(path.with_suffix(".svg"), _qr().qr_svg(link_of(path, page))) for path in invitations]


def code_in_letters(link: str) -> str:
    return str(_qr().qr_terminal(link))


def _write(path: Path, data: bytes) -> Path:
    """Private; without waiting for the disk, since it can be made again from its invitation."""
    path.unlink(missing_ok=True)
    path.touch(0o600, exist_ok=False)
    path.write_bytes(data)
    return path


def _qr() -> Any:  # noqa: ANN401 -- a module that not every install can load
    try:
        return import_module("crowdfl.web.qr")
    except ModuleNotFoundError as missing:
        raise PackageMissing(f"QR codes need {missing.name}: `pip install segno`") from None
