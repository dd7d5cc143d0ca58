"""Where a reader of averages that follow from each other stands, kept across its processes: one blob, of the last it read.

In a task with a server step the digest of its state after every round stays too, so that people can compare.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from crowdfl.errors import RolledBack
from crowdfl.protocols.capabilities import FollowsModel
from crowdfl.protocols.profile import Average, ReaderProtocol
from crowdfl.roles.ports import Blobs, replace_blob

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
        """Of round 0 where a simulation goes on with the memory of a server step."""
        name = self._name(self.last())
        return self.blobs.get(name) if self.blobs.has(name) else None

    def resume(self, reader: ReaderProtocol, initial: Callable[[], npt.NDArray[np.float64]]) -> None:
        """A fresh reader goes on from what is kept."""
        if isinstance(reader, FollowsModel):
            reader.resume(self.get(), initial())

    def start_from(self, chain: bytes) -> None:
        """Where the reader stands before the first round, if not at the task's initial weights alone."""
        self.blobs.put(self._name(0), chain)

    def read(self, reader: ReaderProtocol, number: int, publication: bytes) -> Average:
        """The next average, and where the reader stands after it."""
        average = reader.read(publication, number)
        if average.record:
            self.keep_record(number, average.record)
        self._keep(number, reader)
        if average.state is not None:
            replace_blob(self.blobs, self._state(number), average.state.encode())
        return average

    def keep_record(self, number: int, record: bytes) -> None:
        """For good, also if all is read again: with a second one it proves that CSP has opened two sums."""
        self.require_only(number, record)
        if not self.has_record(number):
            self.blobs.put(self._record(number), record)

    def keep_end(self, number: int, end: bytes) -> None:
        """For good: CSP's signed word that nothing of a round is opened."""
        if self.has_record(number):
            self._refuse_second(number, end)
        self.blobs.put(f"{self.folder}/{number}/end", end)

    def has_record(self, number: int) -> bool:
        return self.blobs.has(self._record(number))

    def record(self, number: int) -> bytes:
        return self.blobs.get(self._record(number))

    def has_word(self, number: int) -> bool:
        """Whether CSP's signed word about a round is here: its record, or its end."""
        return self.has_record(number) or self.has_end(number)

    def has_end(self, number: int) -> bool:
        return self.blobs.has(f"{self.folder}/{number}/end")

    def require_only(self, number: int, record: bytes) -> None:
        """Wherever a record of a round is shown, it is the one that is kept. Of two, both are: they are evidence."""
        if self.has_word(number) and not (self.has_record(number) and self.record(number) == record):
            self._refuse_second(number, record)

    def _refuse_second(self, number: int, word: bytes) -> NoReturn:
        second = f"{self.folder}/{number}/second-record"
        if not self.blobs.has(second):
            self.blobs.put(second, word)
        raise RolledBack(
            f"CSP has signed two records of round {number}, and this device has both: a server was set back, or cheats. "
            "Take no further part in this task"
        )

    def require_forward(self, status: Mapping[str, Any]) -> None:
        """A task under way must not show a round as unfinished that CSP's signed record is here of."""
        unfinished = [entry["number"] for entry in status["rounds"] if entry["state"] != "rewarded"]
        back = [number for number in unfinished if self.has_record(number)]
        if back and status["state"] in ("running", "paused"):
            raise RolledBack(
                f"the platform runs round {back[0]} again, whose record CSP has signed: a server was set back, or cheats. "
                "Take no further part in this task"
            )

    def states(self) -> dict[int, str]:
        """By round, the digest of the state after it; none without a server step."""
        names = {number: self._state(number) for number in range(1, self.rounds + 1)}
        return {number: self.blobs.get(name).decode() for number, name in names.items() if self.blobs.has(name)}

    def catch_up(
        self, reader: ReaderProtocol, number: int, status: Callable[[], Mapping[str, Any]], fetch: Fetch
    ) -> Iterator[tuple[int, Average]]:
        """The averages that a round's follows from and that were not read yet, in order; `status` says which there are."""
        last = self.last()
        behind = isinstance(reader, FollowsModel) and last < number - 1
        for entry in status()["rounds"] if behind else ():
            if last < entry["number"] < number and entry["state"] == "rewarded":
                yield entry["number"], self.read(reader, entry["number"], fetch(entry["number"]))

    def _keep(self, number: int, reader: ReaderProtocol) -> None:
        """After a read. A crash in between leaves two, of which the later counts."""
        chain = reader.chain() if isinstance(reader, FollowsModel) else None
        if chain is not None:
            replace_blob(self.blobs, self._name(number), chain)
            for before in range(1, number):
                self.blobs.delete(self._name(before))

    def forget(self) -> None:
        """Read from the initial weights again."""
        for number in range(self.rounds, 0, -1):
            self.blobs.delete(self._name(number))
            self.blobs.delete(self._state(number))

    def _name(self, number: int) -> str:
        return f"{self.folder}/{number}/chain"

    def _record(self, number: int) -> str:
        return f"{self.folder}/{number}/record"

    def _state(self, number: int) -> str:
        return f"{self.folder}/{number}/state"
