"""A requester or a participant, opened from its own files: settings and tokens, or an invitation and a home folder.

It loads nothing that a server is made of.
"""

import json
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from crowdfl.documents.envelope import Envelope
from crowdfl.documents.forms import FILES, completed_file, numbered
from crowdfl.documents.invitations import Certificate, Ticket
from crowdfl.documents.links import invitation_link
from crowdfl.documents.signed import digest_of
from crowdfl.errors import KeyMismatch, SettingsError
from crowdfl.protocols.profile import Tools
from crowdfl.retry import Backoff
from crowdfl.roles.participant.participant import (
    CHARGED,
    INVITATION,
    LEAST,
    Participant,
    least_words,
)
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Link, Service, SystemClock
from crowdfl.settings import LEAST_PARTICIPANTS, ParticipantSettings, RequesterSettings
from crowdfl.storage.atomic import alone_in, read_secret, sync_directory, write_private
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.known_names import KnownNames
from crowdfl.storage.pools import RandomizerPool
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
        keys = found.payer_key or b"", found.sp_key or b""
        yield Requester(blobs, SystemClock(), kgc, sp, found.kgc_key, tools, *keys)


def write_invitations(
    own: RequesterFile,
    requester: Requester,
    task: str,
    folder: Path,
    count: int,
    days: float,
    patience: Backoff | None = None,
    *,
    replaces: str = "",
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
    for number, invitation in enumerate(requester.invite(task, count, days * 86400, replaces), start=first):
        paths.append(folder / f"invitation-{number}.json")
        write_private(
            paths[-1], json.dumps(_numbered({**contents, "invitation": invitation})).encode(), sync_folder=False
        )
    sync_directory(folder)  # once for all
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


@dataclass
class OwnPerson:
    """Somebody who takes part by an invitation of this program's own servers, and how that ended."""

    is_done: bool = False
    has_claimed: bool = False
    error: BaseException | None = None

    def take_error(self) -> BaseException | None:
        """What it has raised, once."""
        found, self.error = self.error, None
        return found


class OwnInvitation(str):
    """The path of an invitation to a task on servers that this program has started for itself, and what it knows of the task.

    Attributes:
        initial: What the task starts from, in its form.
        personalize: The layers that stay with each person.
        ended: Set when the servers end: nobody waits for them any more.
        people: Who has taken part with it.
    """

    initial: Any
    personalize: Sequence[str]
    ended: threading.Event
    people: list[OwnPerson]

    @classmethod
    def of(cls, path: str, initial: Any, personalize: Sequence[str], ended: threading.Event) -> Self:  # noqa: ANN401
        made = cls(path)
        made.initial = initial
        made.personalize = personalize
        made.ended = ended
        made.people = []
        return made


_CALLS = Backoff(first=1.0, longest=5.0, deadline=30.0)  # each miss is told; afterwards an agent waits longer
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
    return ParticipantSettings.parse(completed_file(ParticipantSettings, found, path), path)


def listed_tasks(address: str, ca: Path | None = None) -> dict[str, Any]:
    """The tasks that a platform lists, and the servers that it names."""
    with closing(SpClient(Link(address, ca).open(retries=_CALLS))) as sp:
        return sp.listed()


def write_listed(
    listed: Mapping[str, Any], task: str, address: str, path: Path, ca: Path | None, *, insecure_test_key: bool
) -> None:
    """What an invitation file holds, of a listed task: a place is asked for by whoever joins with it."""
    if not any(one.get("task") == task for one in listed["tasks"]):
        raise SettingsError(
            f"{address} lists no task {task}: `crowdfl participant tasks {address}` shows those it lists"
        )
    servers = listed["servers"]
    contents = {
        "task": task,
        "invitation": "",
        "kgc": servers["kgc"],
        "sp": address,
        "kgc_key": servers["kgc_key"],
        "sp_key": servers["sp_key"],
        "ca": _certificates(ca) if ca else None,
        "insecure_test_key": insecure_test_key,
    }
    ParticipantSettings.parse(contents, path)
    write_private(path, json.dumps(_numbered(contents)).encode())


def _numbered(contents: Mapping[str, Any]) -> dict[str, Any]:
    return numbered(FILES[ParticipantSettings], contents)


def replaced_number(old: str) -> str:
    """What names the device that is replaced: of an invitation file, its number; else as it was typed."""
    if not old.endswith(".json"):
        return old
    invitation = read_invitation(Path(old)).invitation
    if not invitation:
        raise SettingsError(
            f"{old} is of a task that SP lists, and has no number: name the person as `task people` shows it"
        )
    return Ticket.parse(invitation).opened.number


def link_of(path: Path, page: str) -> str:
    """The link to a page with what an invitation file holds."""
    return invitation_link(page, read_invitation(path))


def home_of(invitation: Path) -> Path:
    """Where an invitation's participant lives, unless told otherwise: each invitation is one person."""
    return invitation.with_suffix(".home")


@contextmanager
def invited(
    invitation: ParticipantSettings,
    home: Path,
    kind: type[_Kind],
    *,
    joined: bool = False,
    reads: bool = False,
    least: int | None = None,
    all_the_same: bool = False,
    agree: str | None = None,
    language: str = "",
) -> Iterator[_Kind]:
    """The participant that an invitation and a home folder make. Its links are closed at the end.

    `joined`: refuse a home that nobody has joined with. `reads`: nothing is written there, so that another program may use it.
    """
    if joined and not (home / "keys").is_file():  # before anything is made there: the home may be mistyped
        raise SettingsError(f"nobody has joined with the home folder {home}: name the folder you joined with by --home")
    blobs = FileBlobs(home)
    _require_own(blobs, invitation)
    # Two programs with one home would train twice, and could send different updates.
    with tempfile.TemporaryDirectory() as scratch, nullcontext() if reads else alone_in(home, "home folder"):
        ca = Path(scratch) / "ca.pem" if invitation.ca else None
        if ca is not None:
            ca.write_text(invitation.ca or "")

        def tell(why: Exception, seconds: float) -> None:
            person.on_wait(why, seconds)

        def told(url: str) -> Service:
            return replace(Link(url, ca).open(retries=_CALLS), on_wait=tell)

        with closing(told(invitation.kgc)) as kgc, closing(SpClient(told(invitation.sp))) as sp:
            person = kind(
                invitation.task,
                blobs if reads else KnownNames(blobs),
                KgcClient(kgc),
                sp,
                invitation.kgc_key,
                Tools.unwatched(insecure_test_key=invitation.insecure_test_key),
                sp_key=invitation.sp_key,
                open_stock=lambda public: RandomizerPool.open(home / "randomizers.pool", public),
                least_participants=_least(blobs, least),
                all_the_same=all_the_same,
                charged_elsewhere=_charged(home, invitation.task),
                language=language,
                agree=agree,
            )
            yield person


def _require_own(blobs: FileBlobs, invitation: ParticipantSettings) -> None:
    """Keys are of one task and one person: used for another, a platform would refuse, or take two people for one."""
    home, other = blobs.folder, "name another folder for this one, or none: it is then made beside the invitation"
    if not blobs.has("certificate"):
        return
    if Certificate.read(Envelope.parse(blobs.get("certificate").decode(), Certificate.kind)).task != invitation.task:
        raise SettingsError(f"the folder {home} is the home of another task: {other}")
    if blobs.get(INVITATION).decode() != digest_of(invitation.invitation):
        raise SettingsError(f"the folder {home} is the home of another invitation, and so of another person: {other}")


def _charged(home: Path, task: str) -> float:
    """Epsilon of the other tasks whose homes lie beside this one. Homes of the same task are other people's."""
    kept = []
    for path in home.resolve().parent.glob(f"*/{CHARGED}"):
        try:
            found = json.loads(path.read_text())
            kept.append((str(found["task"]), float(found["epsilon"])))
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            raise SettingsError(
                f"{path} does not hold what a task was charged: {type(wrong).__name__} {wrong}"
            ) from None
    return sum(epsilon for other, epsilon in kept if other != task)


def _least(blobs: FileBlobs, chosen: int | None) -> int:
    """The least number of participants that was chosen now, or when joining; else the usual one."""
    if chosen is not None:
        if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen < 1:
            raise SettingsError(f"`least_participants` is {chosen!r}; expected a whole number, at least 1")
        return chosen
    if not blobs.has(LEAST):
        return LEAST_PARTICIPANTS
    kept = blobs.get(LEAST)[:20]
    if not kept.isdigit() or int(kept) < 1:
        file = blobs.folder / LEAST
        raise SettingsError(f"{file} does not hold a number of participants: choose one with {least_words('N')}")
    return int(kept)
