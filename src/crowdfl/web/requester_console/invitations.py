"""Invitations as the page shows them: a link, and the same as a QR code."""

import json
from pathlib import Path
from typing import Any

import segno

from crowdfl.errors import FormatError
from crowdfl.roles.invitation_link import invitation_link
from crowdfl.settings import ParticipantSettings, RequesterSettings

MOST_INVITATIONS = 100


def invitation_files(folder: Path) -> list[Path]:
    """The last ones that were written there, in order."""
    paths = sorted(folder.glob("invitation-*.json"), key=_number) if folder.is_dir() else []
    return paths[-MOST_INVITATIONS:]


def phone_page(settings: RequesterSettings) -> str:
    """Where a phone opens an invitation."""
    return settings.phone or f"{settings.sp.rstrip('/')}/join/"


def shown_invitation(path: Path, page: str | None) -> dict[str, Any]:
    """One file; with a page for phones, its link and a picture of it: an SVG in a data URI."""
    link = None if page is None else invitation_link(page, _read(path))
    picture = None if link is None else segno.make(link, error="m").svg_data_uri(scale=4, border=4, light="#ffffff")
    return {"number": _number(path), "file": str(path), "link": link, "picture": picture}


def _read(path: Path) -> ParticipantSettings:
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        raise FormatError(f"{path} is not an invitation: it must be JSON, as `crowdfl task invite` writes it") from None
    return ParticipantSettings.parse(found, path)


def _number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else -1
