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
HOME = "crowdfl-home"  # in a node's configuration


def open_blobs(context: Context, task: str) -> Blobs:
    """In the folder that the node's operator names, one for each task; else in the context."""
    if not _TASK.fullmatch(task):  # the server chose it, and it becomes a folder's name
        raise FormatError("the server names a task by something that is not a task's id")
    home = context.node_config.get(HOME)
    return ContextBlobs(context, task) if home is None else FileBlobs(Path(str(home)) / task)


class ContextBlobs:
    """Blobs in the state that Flower keeps for this node and run. It leaves the node in no message."""

    def __init__(self, context: Context, task: str) -> None:
        self._state, self._name = context.state, f"crowdfl.{task}"

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

    def delete(self, name: str) -> None:
        kept = dict(self._record())
        if kept.pop(require_blob_name(name), None) is not None:
            self._state[self._name] = ConfigRecord(kept)

    def clear(self, folder: str) -> None:
        kept = {name: data for name, data in self._record().items() if not name.startswith(f"{folder}/")}
        self._state[self._name] = ConfigRecord(kept)

    def listing(self) -> dict[str, float]:
        return dict.fromkeys(self._record(), time.time())

    def remove_unfinished(self, before: float) -> int:
        del before
        return 0
