"""Invitations as the page shows them: a link, and the same as a QR code."""

from base64 import b64encode
from pathlib import Path
from typing import Any

from crowdfl.documents.links import link_of
from crowdfl.web.qr import qr_svg

MOST_INVITATIONS = 100


def invitation_files(folder: Path) -> list[Path]:
    """The last ones that were written there, in order."""
    paths = sorted(folder.glob("invitation-*.json"), key=_number) if folder.is_dir() else []
    return paths[-MOST_INVITATIONS:]


def shown_invitation(path: Path, page: str | None) -> dict[str, Any]:
    """One file; with a page for phones, its link and a picture of it."""
    link = None if page is None else link_of(path, page)
    picture = None if link is None else f"data:image/svg+xml;base64,{b64encode(qr_svg(link)).decode()}"
    return {"number": _number(path), "file": str(path), "link": link, "picture": picture}


def _number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else -1
