"""Where the processes of a host keep what outlives them: in memory, or in a folder."""

import copy
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Dialect, event, select

from crowdfl.roles.ports import Blobs
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.memory_blobs import MemoryBlobs
from crowdfl.storage.sql import SqlStore
from crowdfl.storage.tables import metadata

_INTERNED = 1024  # bytes: what is longer is held once, however many people have it
Contents = dict[str, Any]
"""By role, the rows of each table; by name, the blobs."""


class Disk(Protocol):
    """A store for each process, on the database of its role; blobs by name."""

    def store(self, role: str) -> SqlStore: ...
    def blobs(self, name: str) -> Blobs: ...


class MemoryDisk:
    """Nothing survives this process; a role that is built again finds what it had."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._stores: dict[str, SqlStore] = {}
        self._blobs: dict[str, MemoryBlobs] = {}
        self._now = now

    def store(self, role: str) -> SqlStore:
        if role not in self._stores:
            self._stores[role] = SqlStore.in_memory()
        return copy.copy(self._stores[role])  # on the same connection: each process watches its own commits

    def blobs(self, name: str) -> MemoryBlobs:
        if name not in self._blobs:
            self._blobs[name] = self._new_blobs(name)
        return self._blobs[name]

    def _new_blobs(self, name: str) -> MemoryBlobs:
        del name
        return MemoryBlobs() if self._now is None else MemoryBlobs(self._now)

    def contents(self) -> Contents:
        stores = {role: rows_of(store) for role, store in self._stores.items()}
        return stores | {name: blobs_of(blobs) for name, blobs in self._blobs.items()}


class _LeanBlobs(MemoryBlobs):
    """Blobs that everyone has the same, such as averages, are in memory once. An upload is its owner's alone, and goes."""

    def __init__(self, common: dict[bytes, bytes]) -> None:
        super().__init__()
        self._common = common

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        super().put_all({name: self._interned(name, data) for name, data in blobs.items()})

    def _interned(self, name: str, data: bytes) -> bytes:
        own = len(data) <= _INTERNED or name.endswith("/upload")
        return data if own else self._common.setdefault(data, data)


class LeanDisk(MemoryDisk):
    """For a crowd: what everyone has is held once."""

    def __init__(self) -> None:
        super().__init__()
        self._common: dict[bytes, bytes] = {}

    def _new_blobs(self, name: str) -> MemoryBlobs:
        return _LeanBlobs(self._common) if name.startswith("people/") else super()._new_blobs(name)


class FileDisk:
    """A folder: an SQLite database for each role, files for blobs. `durable=False` waits for no disk."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder, self._durable = folder, durable
        self._opened: list[SqlStore] = []

    def store(self, role: str) -> SqlStore:
        file = self.folder / role / "state.db"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(0o600)
            file.write_bytes(_blank().content)
        store = self.open_store(role, f"sqlite:///{file}")
        _share_statements(store)
        if not self._durable:
            event.listen(store.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        self._opened.append(store)
        return store

    def open_store(self, role: str, url: str) -> SqlStore:
        """Whoever watches a role's store opens another kind."""
        del role
        return SqlStore(url)

    def blobs(self, name: str) -> Blobs:
        return FileBlobs(self.folder / name, durable=self._durable)

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def contents(self) -> Contents:
        databases = {file.parent.name: file for file in sorted(self.folder.glob("*/state.db"))}
        with_store = {role: rows_of(self.store(role)) for role in databases}
        files = [path for path in sorted(self.folder.rglob("*")) if path.is_file() and "state.db" not in path.name]
        return with_store | {str(path.relative_to(self.folder)): path.read_bytes() for path in files}


def rows_of(store: SqlStore) -> dict[str, list[tuple[Any, ...]]]:
    """Of each table, in one order."""
    with store.engine.connect() as connection:
        found = {table.name: connection.execute(select(table)).all() for table in metadata.sorted_tables}
    return {name: sorted((tuple(row) for row in rows), key=repr) for name, rows in found.items()}


def blobs_of(blobs: Blobs) -> dict[str, bytes]:
    return {name: blobs.get(name) for name in sorted(blobs.listing())}


@dataclass(frozen=True)
class _Blank:
    """A database with its tables, and how one is spoken to: making them anew would take longer than a short run does."""

    content: bytes
    dialect: Dialect


@cache
def _blank() -> _Blank:
    """Read at once: of a process that is killed later nothing stays in the temporary folder."""
    with tempfile.TemporaryDirectory(prefix="crowdfl-blank-") as folder:
        file = Path(folder) / "state.db"
        with closing(SqlStore(f"sqlite:///{file}")) as store:
            store.create_tables()
            with store.engine.connect() as connection:
                dialect = connection.dialect
        return _Blank(file.read_bytes(), dialect)


_COMPILED: dict[Any, Any] = {}


def _share_statements(store: SqlStore) -> None:
    """One cache of compiled statements for all stores of a process; its keys name the dialect."""
    store.engine.dialect = _blank().dialect
    store.engine.update_execution_options(compiled_cache=_COMPILED)
