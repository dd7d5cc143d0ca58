"""The work on the uploads of a round that needs nothing but them: read or expanded, added up, sketched.

Each upload is a row by itself, so that a server may have it done in parts (`crypto.compute.run_work`): what comes back is one
sum and the lanes, whoever did it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from crowdfl.crypto.compute import Read, Work
from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.shares.ring import Words
from crowdfl.errors import BadSignature, UploadDamaged
from crowdfl.protocols.shares.chain import RoundPlace
from crowdfl.protocols.shares.circuits.lanes import LaneMaker
from crowdfl.protocols.shares.reference import REQUESTER_NAME
from crowdfl.protocols.shares.round.average import ShareSums
from crowdfl.protocols.shares.round.manifest import ManifestEntry
from crowdfl.protocols.shares.round.upload import UploadBody, expanded_samples, expanded_update, parse_upload
from crowdfl.protocols.shares.shape import SharesShape

_Share = tuple[Long, int, ManifestEntry | None]
"""One server's share of an upload and of its samples, and what SP's manifest says of it."""


@dataclass(frozen=True)
class Stored:
    """SP's: in an upload that was looked at when it came, by its name in the store."""

    who: str
    name: str
    counted: ManifestEntry | None = None  # what it was then, once it was counted
    body: UploadBody | None = None  # of the reference, which SP holds

    def take(self, shape: SharesShape, place: RoundPlace, read: Read) -> _Share:
        body = self.body or parse_upload(read(self.name), shape, place)
        entry = ManifestEntry.of(body)
        if body.who != self.who:
            raise BadSignature(f"{self.who} has sent an upload that is {body.who}'s, or says so")
        if self.counted not in (None, entry):
            raise UploadDamaged(f"the upload of {self.who} is not the one that was counted: its file was altered")
        return body.shares, int.from_bytes(body.samples, "little"), entry


@dataclass(frozen=True)
class Sown:
    """CSP's: from the seed that was sealed to it."""

    who: str
    seed: bytes = field(repr=False)

    def take(self, shape: SharesShape, place: RoundPlace, read: Read) -> _Share:
        del read
        shares = expanded_update(self.seed, place, self.who, shape.share_bytes)
        return shares, expanded_samples(self.seed, place, self.who, shape.count_bytes), None


@dataclass
class Findings:
    """About some uploads, in their order; the reference has lanes alone."""

    sums: ShareSums = field(repr=False)
    samples: list[int] = field(default_factory=list, repr=False)
    entries: dict[str, ManifestEntry] = field(default_factory=dict)
    lanes: Words = field(default_factory=lambda: np.empty((0, 0), dtype=np.uint64), repr=False)


@dataclass(frozen=True)
class ShareWork(Work[Stored | Sown, Findings]):
    """The shares of these uploads: added up, if `adds`, and with `coins` sketched."""

    shape: SharesShape
    place: RoundPlace
    coins: bytes = b""
    adds: bool = True
    onto: ShareSums | None = field(
        default=None, repr=False
    )  # what is added up goes on from there, where it is done here

    def weight(self) -> int:
        return len(self.rows) * self.shape.share_bytes

    def run(self, read: Read) -> Findings:
        found = Findings(self.onto or ShareSums(self.shape))
        if self.coins:
            found.lanes = LaneMaker(self.shape, self.coins).lanes(self._shares(found, read), len(self.rows))
        else:
            for _ in self._shares(found, read):
                pass
        return found

    def _shares(self, found: Findings, read: Read) -> Iterator[Long]:
        """One after the other: one is in memory at a time."""
        for source in self.rows:
            shares, samples, entry = source.take(self.shape, self.place, read)
            if source.who != REQUESTER_NAME:  # what others are compared with is never added up
                found.samples.append(samples)
                if self.adds:
                    found.sums.add(shares, samples)
            if entry is not None:
                found.entries[source.who] = entry
            yield shares

    def part(self, rows: slice) -> Self:
        return replace(self, rows=self.rows[rows], onto=None)

    def merged(self, found: Iterable[Findings]) -> Findings:
        whole = Findings(self.onto or ShareSums(self.shape))
        done = 0
        if self.coins:
            whole.lanes = np.empty((len(self.rows), self.shape.widths.lanes), dtype=np.uint64)
        for part in found:
            whole.sums.merge(part.sums)
            whole.samples += part.samples
            whole.entries |= part.entries
            whole.lanes[done : done + len(part.lanes)] = part.lanes
            done += len(part.lanes)
        return whole
