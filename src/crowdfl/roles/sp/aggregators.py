"""SP's sides of the protocols: one per task to check with, one per round under way that counts uploads as they come.

Counting is the running product of the protocols: however many uploads a round has, memory holds two vectors and one group
of uploads, which go in together. What a process has counted is lost with it, and counted again by the next from the uploads,
which are durable.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial

from crowdfl.crypto.compute import Backend
from crowdfl.protocols.profile import SpProtocol, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.documents import Definition
from crowdfl.roles.ports import Blobs, SpStore

__all__ = ["RoundAggregators", "upload_name"]

_MOST_COUNTED = 8  # rounds counted in memory at once; one more costs another its head start
_GROUP = 15  # uploads multiplied in at once: sixteen factors with the sum so far
_GROUP_BYTES = 32 * 2**20  # of a group, held twice while it is multiplied in; a longer upload goes in alone


def upload_name(task: str, number: int, digest: str) -> str:
    """The blob of an upload."""
    return f"{task}/rounds/{number}/uploads/{digest}"


@dataclass
class RoundAggregators:
    """The sides that one SP process holds."""

    store: SpStore
    blobs: Blobs
    bundles: Blobs
    tools: Tools
    checker: Backend
    _definitions: dict[str, Definition] = field(default_factory=dict, repr=False)
    _checking: dict[str, SpProtocol] = field(default_factory=dict, repr=False)
    _counting: "OrderedDict[tuple[str, int], tuple[SpProtocol, set[str]]]" = field(
        default_factory=OrderedDict, repr=False
    )

    def definition(self, task: str) -> Definition:
        """What the task is; it never changes, so that it is read once."""
        if task not in self._definitions:
            self._definitions[task] = Definition.open(self.store.task(task).definition)
        return self._definitions[task]

    def checking(self, task: str) -> SpProtocol:
        """To check uploads with; nothing is ever put into it, so that threads may share it."""
        if task not in self._checking:
            self._checking[task] = self._new(task, 1, replace(self.tools, backend=self.checker))
        return self._checking[task]

    def claiming(self, task: str, claim: bytes) -> SpProtocol:
        """To check one claim with: it knows the claimant and nobody else."""
        who = self.checking(task).claimant(claim)
        side = self._new(task, 1)
        side.enrol(self.store.participant(task, who).identity)
        return side

    def count(self, task: str, number: int, most: int | None = None) -> int:
        """Count uploads that came since the last time, `most` of them at a time; how many there were."""
        side, counted = self._counting_side(task, number)
        fresh = [upload for upload in self.store.uploads(task, number) if upload.who not in counted][:most]
        size = max(1, min(_GROUP, _GROUP_BYTES // side.upload_bytes()))
        for start in range(0, len(fresh), size):
            group = fresh[start : start + size]
            side.add_all({one.who: self.blobs.get(upload_name(task, number, one.digest)) for one in group})
            counted.update(one.who for one in group)
        return len(fresh)

    def counted(self, task: str, number: int) -> SpProtocol:
        """A closed round's side: every upload in, and the mask seeds as they were made durable."""
        self.count(task, number)
        side, _ = self._counting_side(task, number)
        side.keep_seeds(self.store.seeds(task, number), partial(self.store.put_seed, task, number))
        return side

    def forget(self, task: str, number: int) -> None:
        """The round is over."""
        self._counting.pop((task, number), None)

    def _counting_side(self, task: str, number: int) -> tuple[SpProtocol, set[str]]:
        if (task, number) not in self._counting:
            side = self._new(task, number)
            side.read_again(partial(self._upload_of, task, number))
            self._counting[task, number] = side, set()
        self._counting.move_to_end((task, number))
        while len(self._counting) > _MOST_COUNTED:
            self._counting.popitem(last=False)
        return self._counting[task, number]

    def _upload_of(self, task: str, number: int, who: str) -> bytes:
        entry = self.store.upload(task, number, who)
        return self.blobs.get(upload_name(task, number, entry.digest)) if entry is not None else b""

    def _new(self, task: str, number: int, tools: Tools | None = None) -> SpProtocol:
        definition = self.definition(task)
        profile = profile_named(definition.settings.profile)
        side = profile.sp(definition.about, self.bundles.get(f"{task}.sp"), tools or self.tools)
        side.open_round(number)
        return side
