"""Where a client keeps its keys: in a folder of its own, or in Flower's context, which lasts as long as the run."""

import re
import time
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from flwr.app import ConfigRecord, Context

from crowdfl.errors import Conflict, FormatError, NotReady
from crowdfl.roles.ports import Blobs
from crowdfl.storage.blobs import FileBlobs, require_blob_name

_TASK = re.compile(r"[0-9a-f]{32}")
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
