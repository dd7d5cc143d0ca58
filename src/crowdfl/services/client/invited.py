"""A participant from the invitation that somebody was given: its file, its home folder, and its links to KGC and SP."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from crowdfl.documents.signed import Certificate
from crowdfl.errors import BadSignature, SettingsError
from crowdfl.protocols.profile import Tools
from crowdfl.retry import Backoff
from crowdfl.roles.participant.participant import LEAST_PARTICIPANTS, Participant
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Link, Service
from crowdfl.settings import ParticipantSettings
from crowdfl.storage.atomic import write_private
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.pools import RandomizerPool

_LEAST_FILE = "least-participants"
_CALLS = Backoff(
    first=1.0, longest=5.0, deadline=30.0
)  # each miss is told; then an agent waits longer, others are told why
_Kind = TypeVar("_Kind", bound=Participant)


def read_invitation(path: Path) -> ParticipantSettings:
    """An invitation file, as `crowdfl task invite` writes it."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, IsADirectoryError):
        raise SettingsError(f"there is no invitation at {path}") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as wrong:
        raise SettingsError(f"{path} is not an invitation: {type(wrong).__name__} {wrong}") from None
    if not isinstance(found, dict):
        raise SettingsError(f"{path} is not an invitation: expected a JSON object, as `crowdfl task invite` writes it")
    return ParticipantSettings.parse(found, path)


@contextmanager
def invited(
    invitation: ParticipantSettings, home: Path, kind: type[_Kind], *, joined: bool = False, least: int | None = None
) -> Iterator[_Kind]:
    """The participant that an invitation and a home folder make. Its links are closed at the end."""
    if joined and not (home / "keys").is_file():  # before anything is made there: the home may be mistyped
        raise SettingsError(f"nobody has joined with the home folder {home}: name the folder you joined with by --home")
    _require_own(home, invitation)
    with tempfile.TemporaryDirectory() as scratch:
        ca = Path(scratch) / "ca.pem" if invitation.ca else None
        if ca is not None:
            ca.write_text(invitation.ca or "")

        def tell(why: Exception, seconds: float) -> None:
            person.on_wait(why, seconds)

        def told(url: str) -> Service:
            return replace(Link(url, ca).open(retries=_CALLS), on_wait=tell)

        with closing(told(invitation.kgc)) as kgc, closing(SpClient(told(invitation.sp))) as sp:
            blobs = FileBlobs(home)
            person = kind(
                invitation.task,
                blobs,
                KgcClient(kgc),
                sp,
                invitation.kgc_key,
                Tools.unwatched(insecure_test_key=invitation.insecure_test_key),
                sp_key=invitation.sp_key,
                open_stock=lambda public: RandomizerPool.open(home / "randomizers.pool", public),
                least_participants=kept_least(home / _LEAST_FILE, least),
            )
            yield person


def _require_own(home: Path, invitation: ParticipantSettings) -> None:
    """Keys are of one task: with another task's, a platform would refuse, and not say which folder it was."""
    certificate = home / "certificate"
    if not certificate.is_file():
        return
    try:
        task = Certificate.open(certificate.read_bytes().decode(), invitation.kgc_key).task
    except BadSignature:
        task = ""  # of another KGC
    if task != invitation.task:
        raise SettingsError(f"the folder {home} is the home of another task: name another folder for this one")


def kept_least(path: Path, chosen: int | None) -> int:
    """The least number of participants that was chosen now, which is kept, or before; else the usual one."""
    if chosen is not None:
        if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen < 1:
            raise SettingsError(f"`least_participants` is {chosen!r}; expected a whole number, at least 1")
        write_private(path, str(chosen).encode(), overwrite=True)
        return chosen
    if not path.exists():
        return LEAST_PARTICIPANTS
    kept = path.read_bytes()[:20]
    if not kept.isdigit() or int(kept) < 1:
        raise SettingsError(f"{path} does not hold a number of participants: choose one with --least-participants")
    return int(kept)
