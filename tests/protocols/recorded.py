"""Real rounds, recorded: every request that SP sends for one, and what CSP had recorded before each."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import pytest

from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.protocols.hardened import opening, prifedavg, prirwd, steps
from crowdfl.protocols.hardened.manifest import ManifestRequest
from crowdfl.protocols.hardened.record import RecordRequest
from crowdfl.protocols.messages import Message
from tests.protocols.driving import Keeping, SmallParties, Wire, deal

PAYMENT = 1_000_000
TINY = {  # every bound as small as can be: the shortest key under which a round can be paid
    "key_bits": 720,
    "mask_bits": 20,
    "decimals": 1,
    "clip": 1.0,
    "max_participants": 4,
    "max_samples": 2,
    "lanes": None,
    "rounds": 3,
    "budget": "1",
}
REQUESTS = {cls.kind: cls for cls in steps.ANSWERS if cls is not RecordRequest}


@contextmanager
def short_messages() -> Iterator[None]:
    """Steps of several messages, though the models are small."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (opening, prifedavg):
            patch.setattr(module, "CHUNK", 2)
        patch.setattr(prirwd, "_LANES_A_MESSAGE", 1)
        yield


class Recorded(Wire):
    """A round of three participants, opened to both audiences; after the last request too, what CSP has recorded."""

    def __init__(self, sides: SmallParties) -> None:
        super().__init__(sides.csp)
        self.sides = sides

    def play(self, number: int = 1) -> None:
        """Reward, average for the participants, average for the requester."""
        round_ = self.sides.open(number, ask=self.ask)
        for i, who in enumerate(self.sides.people):
            round_.collect({who: self.sides.upload([0.1 * i] * self.sides.spec.parameters, 1 + i % 2, who, number)})
        round_.reward(PAYMENT)
        round_.average()
        round_.average(final=True)
        self.before.append(self.csp.records.copy())

    def __call__(self, request: bytes) -> bytes:
        """What is asked again, such as a sum for the second audience, is in here once; a record, which has no turn, is not."""
        is_known = request in self.requests or Message.kind_of(request) == RecordRequest.kind
        return self.csp.answer(request) if is_known else super().__call__(request)

    def csp_at(self, place: int) -> Keeping:
        """CSP as it was before the request at this place: it has kept no replies."""
        self.csp.party.view.entries.clear()
        return Keeping(self.csp.side, self.before[place].copy())

    def message(self, place: int) -> Any:
        request = self.requests[place]
        return REQUESTS[Message.kind_of(request)].from_bytes(request, self.sides.csp.party.limits(1000))

    def step(self, place: int) -> str:
        """Requests of the same step have the same name."""
        message = self.message(place)
        return f"{type(message).__name__} {getattr(message, 'purpose', '')} {getattr(message, 'audience', '')}"

    def place_of(self, cls: type[Message], purpose: str | None = None) -> int:
        messages = enumerate(self.message(place) for place in range(len(self.requests)))
        return next(i for i, m in messages if isinstance(m, cls) and purpose in (None, getattr(m, "purpose", None)))

    def altered(self, place: int) -> bytes:
        """The same numbers under fresh masks: another request for the same place."""
        message, party = self.message(place), self.sides.sp.party
        if isinstance(message, ManifestRequest):
            return self.manifest(message.round_number, digest=bytes(32))
        changes: dict[str, Any] = {}
        for part in fields(message):
            value = getattr(message, part.name)
            if isinstance(value, CipherVector) and hasattr(message, f"{part.name}_1"):
                changes[part.name] = party.rerandomise(value)
                changes[f"{part.name}_1"] = party.partial_decrypt(changes[part.name])
        return replace(message, **changes).to_bytes()

    def manifest(self, number: int, **changes: Any) -> bytes:
        """Of the same people, who have all signed for this round."""
        return self.sides.manifest(number, PAYMENT, **{"people": ("p0", "p1", "p2")} | changes)

    def with_plain(self, place: int, **plaintexts: list[int]) -> bytes:
        """A request whose masked numbers are these."""
        party, changes = self.sides.sp.party, dict[str, Any]()
        for name, numbers in plaintexts.items():
            changes[name] = party.encrypt(numbers)
            changes[f"{name}_1"] = party.partial_decrypt(changes[name])
        return replace(self.message(place), **changes).to_bytes()


def record(total: str, number: int = 1) -> Recorded:
    """A recorded round of a task that pays."""
    recorded = Recorded(deal(3, 40, total=total, **TINY))
    recorded.sides.enrol("p3")  # enrolled, and not in this round
    recorded.play(number)
    return recorded
