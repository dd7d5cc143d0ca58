"""What SP holds of its tasks on disk and in its database, and how it is erased.

Not needed after a task's end: the key share, what was dealt for rounds, what a round left to the next, mask seeds, uploads,
CSP's replies, parts of uploads. What a round made for its
readers (averages and rewards, sealed to them) and the initial weights are results: they stay until the operator purges them.
Names, books and payments always stay.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from crowdfl.errors import NotReady
from crowdfl.roles.dealt import DealtFiles, is_dealt_file
from crowdfl.roles.ends import Held
from crowdfl.roles.holdings import key_shares, last_written
from crowdfl.roles.ports import Blobs, SpStore
from crowdfl.roles.sp.aggregators import left_name
from crowdfl.roles.sp.csp_link import forget_replies

RESULTS = "results"
_KINDS = {"uploads": "uploads", "replies": "replies"}  # by the folder of a round


class Parts(Protocol):
    """Uploads that have not arrived whole, as the service keeps them."""

    def places(self) -> list[tuple[str, int]]: ...  # whose, as `key` says, and of which round
    def key(self, task: str, who: str) -> str: ...
    def remove(self, key: str, number: int) -> None: ...
    def sweep(self) -> int: ...  # what nobody has continued for long


@dataclass
class SpHoldings:
    """`forget` drops what the process has in memory; a command beside the service has nothing."""

    store: SpStore
    blobs: Blobs
    bundles: Blobs
    parts: Parts
    forget: Callable[[str], None] = lambda _task: None

    def held(self) -> Held:
        found = key_shares(self.bundles)
        for name in self.blobs.listing():
            found[name.partition("/")[0]][_kind(name)] += 1
        for task, count in self.store.seed_counts().items():
            found[task]["seeds"] = count
        for task, _key, _number in self._parts():
            found[task]["parts"] += 1
        return dict(found)

    def written(self) -> dict[str, float]:
        return last_written(self.bundles.listing(), self.blobs.listing())

    def erase(self, task: str) -> None:
        """All but results."""
        self.drop(task)
        self.bundles.delete(f"{task}.sp")
        DealtFiles(self.bundles, "sp").erase(task)
        for round_ in self.store.rounds(task):
            forget_replies(self.store, self.blobs, task, round_.number)
            self.blobs.clear(f"{task}/rounds/{round_.number}/uploads")
            self.blobs.delete(left_name(task, round_.number))
        self.store.erase_seeds(task)
        for owner, key, number in self._parts():
            if owner == task:
                self.parts.remove(key, number)

    def purge(self, task: str) -> None:
        """Results too."""
        self.erase(task)
        self.blobs.clear(task)

    def forget_unknown(self, task: str) -> None:
        self.bundles.delete(f"{task}.sp")
        DealtFiles(self.bundles, "sp").erase(task)
        self.blobs.clear(task)

    def drop(self, task: str) -> None:
        self.forget(task)

    def remove_unfinished(self, before: float) -> None:
        """Of rounds that are over too: parts, for no such upload will ever be taken, and what was dealt for them."""
        self.bundles.remove_unfinished(before)
        self.blobs.remove_unfinished(before)
        self.parts.sweep()
        for task, key, number in self._parts():
            if self._is_over(task, number):
                self.parts.remove(key, number)
        for name in filter(is_dealt_file, self.bundles.listing()):
            task, _, number_text = name.partition(".dealt.")
            if self._is_over(task, int(number_text)):
                self.bundles.delete(name)

    def _parts(self) -> Iterator[tuple[str, str, int]]:
        """Task, key and round of each; those of nobody who is enrolled wait for `Parts.sweep`."""
        places = self.parts.places()
        if not places:
            return
        tasks = [stored.task for stored in self.store.tasks()]
        owners = {self.parts.key(task, who): task for task in tasks for who in self.store.signing_keys(task, 0)}
        yield from ((owners[key], key, number) for key, number in places if key in owners)

    def _is_over(self, task: str, number: int) -> bool:
        try:
            return self.store.round(task, number).is_over
        except NotReady:
            return False


def secrets_of(counts: Counter[str]) -> Counter[str]:
    """What must not stay after a task's end."""
    return Counter({kind: count for kind, count in counts.items() if count and kind != RESULTS})


def _kind(name: str) -> str:
    """Of `TASK/rounds/NUMBER/FOLDER/...`; everything else of a task is a result, but for what a round left to the next."""
    parts = name.split("/")
    if parts[3:] == ["left"]:
        return "left-overs"
    return _KINDS.get(parts[3], RESULTS) if len(parts) > 4 else RESULTS
