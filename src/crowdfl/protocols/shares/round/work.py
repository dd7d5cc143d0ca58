"""The work on the uploads of a round that needs nothing but them: read or expanded, added up, sketched.

Each upload is a row by itself, so that a server may have it done in parts (`crypto.compute.run_work`): what comes back is one
sum and the lanes, whoever did it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np

from crowdfl.crypto.compute import Read
from crowdfl.crypto.shares.ring import Words
from crowdfl.errors import BadSignature, UploadDamaged
from crowdfl.protocols.shares.chain import RoundPlace
from crowdfl.protocols.shares.circuits.lanes import LaneMaker
from crowdfl.protocols.shares.reference import REQUESTER_NAME
from crowdfl.protocols.shares.round.average import ShareSums
from crowdfl.protocols.shares.round.manifest import ManifestEntry
from crowdfl.protocols.shares.round.upload import expanded_samples, expanded_update, parse_upload
from crowdfl.protocols.shares.shape import SharesShape


@dataclass(frozen=True)
class OwnShare:
    """One server's share of an upload."""

    shares: bytes = field(repr=False)
    samples: int = field(default=0, repr=False)
    entry: ManifestEntry | None = None


class Source(Protocol):
    """Where a server's share of an upload comes from."""

    @property
    def who(self) -> str: ...
    def take(self, shape: SharesShape, place: RoundPlace, read: Read) -> OwnShare: ...


@dataclass(frozen=True)
class Stored:
    """SP's: in an upload that was looked at when it came, by its name in the store."""

    who: str
    name: str
    counted: ManifestEntry | None = None  # what it was then, once it was counted

    def take(self, shape: SharesShape, place: RoundPlace, read: Read) -> OwnShare:
        body = parse_upload(read(self.name), shape, place)
        entry = ManifestEntry.of(body)
        if body.who != self.who:
            raise BadSignature(f"{self.who} has sent an upload that is {body.who}'s, or says so")
        if self.counted not in (None, entry):
            raise UploadDamaged(f"the upload of {self.who} is not the one that was counted: its file was altered")
        return OwnShare(body.shares, int.from_bytes(body.samples, "little"), entry)


@dataclass(frozen=True)
class Sown:
    """CSP's: from the seed that was sealed to it."""

    who: str
    seed: bytes = field(repr=False)

    def take(self, shape: SharesShape, place: RoundPlace, read: Read) -> OwnShare:
        del read
        shares = expanded_update(self.seed, place, self.who, shape.share_bytes)
        return OwnShare(shares, expanded_samples(self.seed, place, self.who, shape.count_bytes))


@dataclass(frozen=True)
class Given:
    """SP's of the reference, which it holds."""

    shares: bytes = field(repr=False)
    who: str = REQUESTER_NAME

    def take(self, shape: SharesShape, place: RoundPlace, read: Read) -> OwnShare:
        del shape, place, read
        return OwnShare(self.shares)


@dataclass
class Findings:
    """About some uploads, in their order; the reference has lanes alone."""

    sums: ShareSums = field(repr=False)
    samples: list[int] = field(default_factory=list, repr=False)
    entries: dict[str, ManifestEntry] = field(default_factory=dict)
    lanes: Words = field(default_factory=lambda: np.empty((0, 0), dtype=np.uint64), repr=False)


@dataclass(frozen=True)
class ShareWork:
    """The shares of these uploads: added up, and with `coins` sketched."""

    shape: SharesShape
    place: RoundPlace
    sources: Sequence[Source]
    coins: bytes = b""

    @property
    def weight(self) -> int:
        return len(self) * self.shape.share_bytes

    def __len__(self) -> int:
        return len(self.sources)

    def part(self, rows: slice) -> Self:
        return replace(self, sources=self.sources[rows])

    def run(self, read: Read) -> Findings:
        found = Findings(ShareSums(self.shape))
        if self.coins:
            found.lanes = LaneMaker(self.shape, self.coins).lanes(self._shares(found, read), len(self))
        else:
            for _ in self._shares(found, read):
                pass
        return found

    def _shares(self, found: Findings, read: Read) -> Iterator[bytes]:
        """One after the other: one is in memory at a time."""
        for source in self.sources:
            own = source.take(self.shape, self.place, read)
            if source.who != REQUESTER_NAME:  # what others are compared with is never added up
                found.sums.add(own.shares, own.samples)
                found.samples.append(own.samples)
            if own.entry is not None:
                found.entries[source.who] = own.entry
            yield own.shares

    def merged(self, found: Iterable[Findings]) -> Findings:
        whole, done = Findings(ShareSums(self.shape)), 0
        if self.coins:
            whole.lanes = np.empty((len(self), self.shape.widths.lanes), dtype=np.uint64)
        for part in found:
            whole.sums.merge(part.sums)
            whole.samples += part.samples
            whole.entries |= part.entries
            whole.lanes[done : done + len(part.lanes)] = part.lanes
            done += len(part.lanes)
        return whole
