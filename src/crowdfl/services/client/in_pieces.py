"""Long bodies to a service: in several requests, so that a lost connection costs one of them, and goes on where it stopped."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from crowdfl.crypto.long_bytes import Joined, Long
from crowdfl.errors import Conflict, NotReady, ServiceUnavailable, Truncated
from crowdfl.protocols.uploads import Head, Parcel
from crowdfl.services.client.transport import Service
from crowdfl.services.http.wire import OCTETS

WHOLE = 4 * 2**20  # a longer body goes in several requests
_RESTARTS = 5
_Found = TypeVar("_Found")


def goes_whole(body: Long) -> bool:
    return len(body) <= WHOLE


@dataclass(frozen=True)
class InPieces:
    """One body on its way to a place of a service, `head` first."""

    service: Service
    place: str
    data: Long = field(repr=False)
    head: Head = field(repr=False)
    more: str = ""  # of the query

    @classmethod
    def parcel(cls, service: Service, place: str, body: Long) -> "InPieces":
        """Of bytes that bring no head of their own, to the place that is named after theirs."""
        parcel = Parcel.of(body)
        head = Head.of(parcel.head())
        return cls(service, f"{place}/{head.digest}", Joined([head.data, body]), head, f"&total={len(body)}")

    def deliver(self, finish: Callable[[], _Found]) -> _Found:
        """Send what has not arrived, then `finish`; again, if that finds it missing or damaged."""
        for _ in range(_RESTARTS):
            self.send_rest()
            try:
                return finish()
            except (NotReady, Truncated) as lost:
                if self.offset() == len(self.data):
                    if isinstance(lost, NotReady):
                        raise  # all bytes are there: it is something else that is not ready
                    self._send(0, 0)  # damaged there: start again
        raise ServiceUnavailable(f"{self.service.http.base_url} keeps losing what is sent; try again later")

    def send_rest(self) -> None:
        ends = {part.start: part.stop for part in self.head.parts()}
        offset = self.offset()
        while offset != len(self.data):
            offset = offset if offset in ends else 0
            last = max(end for end in ends.values() if end <= max(ends[offset], offset + WHOLE))
            try:
                offset = self._send(offset, last)
            except Conflict:  # the piece was in, only its answer was lost
                offset = self.offset()

    def offset(self) -> int:
        target = f"{self.place}/offset?digest={self.head.digest}"
        return self.service.call("GET", target).whole("offset")

    def _send(self, offset: int, last: int) -> int:
        target, piece = f"{self.place}?offset={offset}{self.more}", bytes(self.data[offset:last])
        return self.service.call("PATCH", target, piece, media_type=OCTETS, digest=self.head.digest).whole("offset")
