"""Where a reader of a chained profile stands, kept across its processes: one blob, of the last round that it read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crowdfl.protocols.profile import Average, ReaderProtocol
from crowdfl.roles.ports import Blobs

Fetch = Callable[[int], bytes]
"""A round's publication, from SP."""


@dataclass(frozen=True)
class KeptChain:
    """`folder` is where the reader keeps its rounds, of which there are so many."""

    blobs: Blobs
    folder: str
    rounds: int

    def last(self) -> int:
        """The number of the last round that was read; 0 if there is none."""
        return next((number for number in range(self.rounds, 0, -1) if self.blobs.has(self._name(number))), 0)

    def get(self) -> bytes | None:
        last = self.last()
        return self.blobs.get(self._name(last)) if last else None

    def read(self, reader: ReaderProtocol, number: int, publication: bytes) -> Average:
        """The next average, and where the reader stands after it."""
        average = reader.read(publication, number)
        self._keep(number, reader)
        return average

    def catch_up(self, reader: ReaderProtocol, number: int, status: Mapping[str, Any], fetch: Fetch) -> None:
        """The averages before this round that were not read yet, in order; `status` is SP's word which there are."""
        last = self.last()
        for entry in status["rounds"]:
            if last < entry["number"] < number and entry["state"] == "rewarded":
                self.read(reader, entry["number"], fetch(entry["number"]))

    def _keep(self, number: int, reader: ReaderProtocol) -> None:
        """After a read; nothing of a profile that is not chained. A crash in between leaves two, of which the later counts."""
        chain = reader.chain()
        if chain is not None:
            self.blobs.delete(self._name(number))
            self.blobs.put(self._name(number), chain)
            self._delete(range(1, number))

    def forget(self) -> None:
        """Read from the initial weights again."""
        self._delete(range(self.rounds, 0, -1))

    def _delete(self, numbers: range) -> None:
        for number in numbers:
            if self.blobs.has(self._name(number)):
                self.blobs.delete(self._name(number))

    def _name(self, number: int) -> str:
        return f"{self.folder}/{number}/chain"
