"""What a node keeps: its state, and its invitation, a file from the owner of the task that Flower's servers never saw."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

from flwr.app import ConfigRecord, Context
from pydantic import TypeAdapter, ValidationError

from crowdfl.errors import Conflict, FormatError, InvitationRefused, NotReady, SettingsError
from crowdfl.roles.ports import Blobs
from crowdfl.storage.blobs import FileBlobs, require_blob_name

if TYPE_CHECKING:
    from crowdfl.services.client.peers import KgcClient


@dataclass(frozen=True)
class NodeInvitation:
    """To one task, for one node. Whoever holds the file can join once."""

    task: str
    invitation: str = field(repr=False)
    kgc: str  # where it is
    kgc_key: str  # in hex
    ca: str | None = None  # certificates in PEM to trust; None: the system's authorities

    @classmethod
    def read(cls, place: object) -> "NodeInvitation | None":
        """From the file that a node's configuration names, if it names one."""
        if place is None:
            return None
        try:
            return TypeAdapter(cls).validate_json(Path(str(place)).read_bytes())
        except OSError as wrong:
            raise SettingsError(f"there is no invitation at {place}: {wrong.strerror}") from None
        except ValidationError:
            raise SettingsError(f"{place} is not an invitation, as `crowdfl.flower.prepare` writes it") from None

    def text(self) -> str:
        return json.dumps(asdict(self))

    def require(self, task: str) -> None:
        if self.task != task:
            raise InvitationRefused(
                f"this node is invited to task {self.task}, and the server runs {task}: ask the task's owner which is right"
            )


@contextmanager
def kgc_of(invitation: NodeInvitation) -> "Iterator[KgcClient]":
    """KGC's service, as anyone may call it."""
    from crowdfl.services.client.peers import KgcClient
    from crowdfl.services.client.transport import Link

    with TemporaryDirectory() as scratch:
        ca = Path(scratch) / "ca.pem" if invitation.ca else None
        if ca is not None:
            ca.write_text(invitation.ca or "")
        with closing(KgcClient(Link(invitation.kgc, ca).open())) as kgc:
            yield kgc


_TASK = re.compile(r"[0-9a-f]{64}")
_STATE = "crowdfl."  # and the task, in the context's state
HOME, INVITATION = "crowdfl-home", "crowdfl-invitation"  # in a node's configuration


def open_blobs(context: Context, task: str) -> Blobs:
    """In the folder that the node's operator names, one for each task; else in the context."""
    if not _TASK.fullmatch(task):  # the server chose it, and it becomes a folder's name
        raise FormatError("the server names a task by something that is not a task's id")
    home = context.node_config.get(HOME)
    return ContextBlobs(context, task) if home is None else FileBlobs(Path(str(home)) / task)


_JOINED = "crowdfl.joined"  # in the context's state: the tasks of this run whose keys lie in the node's folder


def note_joined(context: Context, task: str) -> None:
    """That folder has other runs' tasks too."""
    found = context.state.get(_JOINED)
    known = dict(found) if isinstance(found, ConfigRecord) else {}
    if HOME in context.node_config and task not in known:
        context.state[_JOINED] = ConfigRecord({**known, task: True})


def joined(context: Context) -> dict[str, str]:
    """The tasks of this run that this node has joined, and the one that it is invited to, with their definitions; "" of one
    that it has not joined yet."""
    noted = context.state.get(_JOINED)
    invited = NodeInvitation.read(context.node_config.get(INVITATION))
    tasks = set(noted) if isinstance(noted, ConfigRecord) else set()
    tasks |= {name.removeprefix(_STATE) for name in context.state if _TASK.fullmatch(name.removeprefix(_STATE))}
    found = {} if invited is None else {invited.task: ""}
    for task in tasks | found.keys():
        blobs = open_blobs(context, task)
        if blobs.has("definition"):
            found[task] = blobs.get("definition").decode()
    return found


class ContextBlobs:
    """Blobs in the state that Flower keeps for this node and run. It leaves the node in no message."""

    def __init__(self, context: Context, task: str) -> None:
        self._state = context.state
        self._name = f"{_STATE}{task}"

    def _record(self) -> ConfigRecord:
        found = self._state.get(self._name)
        return found if isinstance(found, ConfigRecord) else ConfigRecord()

    def get(self, name: str) -> bytes:
        found = self._record().get(require_blob_name(name))
        if not isinstance(found, bytes):
            raise NotReady(f"{name} does not exist (yet)")
        return found

    def open(self, name: str) -> BinaryIO:
        return BytesIO(self.get(name))

    def has(self, name: str) -> bool:
        return require_blob_name(name) in self._record()

    def put(self, name: str, data: bytes) -> None:
        self.put_all({name: data})

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        """A record is immutable once it was sent, so that a changed one takes its place."""
        kept = dict(self._record())
        for name, data in blobs.items():
            if kept.setdefault(require_blob_name(name), data) != data:
                raise Conflict(f"{name} exists already, with other contents")
        self._state[self._name] = ConfigRecord(kept)

    def put_file(self, name: str, file: Path) -> None:
        self.put(name, file.read_bytes())

    def delete(self, name: str) -> None:
        kept = dict(self._record())
        if kept.pop(require_blob_name(name), None) is not None:
            self._state[self._name] = ConfigRecord(kept)

    def clear(self, folder: str) -> None:
        kept = {name: data for name, data in self._record().items() if not name.startswith(f"{folder}/")}
        self._state[self._name] = ConfigRecord(kept)

    def listing(self, inside: str = "") -> dict[str, float]:
        return {name: time.time() for name in self._record() if not inside or name.startswith(f"{inside}/")}

    def remove_unfinished(self, before: float) -> int:
        del before
        return 0
