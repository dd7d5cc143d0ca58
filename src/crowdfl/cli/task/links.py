"""Invitations as links and QR codes, in files beside them: whoever sees one can join in its holder's place."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crowdfl.documents.links import link_of
from crowdfl.errors import PackageMissing
from crowdfl.storage.atomic import write_private


def write_links(invitations: Iterable[Path], page: str) -> list[Path]:
    """invitation-3.txt beside invitation-3.json, and so on."""
    return [_write(path.with_suffix(".txt"), f"{link_of(path, page)}\n".encode()) for path in invitations]


def write_codes(invitations: Iterable[Path], page: str) -> list[Path]:
    """The same as pictures, invitation-3.svg."""
    with _drawing():
        from crowdfl.web.qr import qr_svg
    return [_write(path.with_suffix(".svg"), qr_svg(link_of(path, page))) for path in invitations]


def code_in_letters(link: str) -> str:
    with _drawing():
        from crowdfl.web.qr import qr_terminal
    return qr_terminal(link)


def _write(path: Path, data: bytes) -> Path:
    write_private(path, data, overwrite=True)
    return path


@contextmanager
def _drawing() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as missing:
        raise PackageMissing(f"QR codes need {missing.name}: `pip install segno`") from None
