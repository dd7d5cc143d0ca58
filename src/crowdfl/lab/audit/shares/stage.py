"""Rounds of `shares` to attack: the real parties in one process, every message kept, and servers that deviate.

A server deviates by bending what it says. The numbers of an exchange are opened as sums, so that a server which adds something
to its own message and to the one it hears has shifted what was opened, for both alike: that is all it can do to a sum.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import numpy as np

from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.lab.audit.finding import SHARES, Floats
from crowdfl.lab.audit.scene import deal
from crowdfl.lab.observe import RoundRecorder
from crowdfl.lab.parties import LocalParties, PlayedRound
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares import dealing
from crowdfl.protocols.shares.csp import SharesCsp
from crowdfl.protocols.shares.csp_round import CspAnswer, CspRound
from crowdfl.protocols.shares.lanes import OpenLanes, coins, opened
from crowdfl.protocols.shares.manifest import ManifestReply, RoundManifest
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.protocols.shares.sp import SharesSp
from crowdfl.protocols.shares.transcript import SpConversation, StepRequest
from crowdfl.settings import to_millionths

SIZE = 8  # parameters
PEOPLE = {"p0": 6, "p1": 9, "p2": 2, "p3": 4, "p4": 7}  # and their samples
MOST_SAMPLES = 10
BUDGET = "9.00"
PAYMENT = to_millionths(BUDGET)
# Steps of a round in the order of their requests; those from SUM on are `gate`'s.
LANES, CHECK, COMMIT, BITS, SUM, OPERANDS, COMPARE, FLIPS, TABLE, PRODUCTS, MASKS, AVERAGE = range(2, 14)

_BOUNDS: dict[str, Any] = {
    "profile": SHARES,
    "decimals": 3,
    "clip": 2.0,
    "max_norm": 3.0,
    "max_samples": MOST_SAMPLES,
    "max_participants": len(PEOPLE),
    "lanes": 128,
    "rounds": 64,
}
Bend = Callable[[int, bytes], bytes]
"""What a server makes of a message of a step: done to its own and to the other's."""


def stage(parameters: int = SIZE, **changes: Any) -> LocalParties:  # noqa: ANN401 -- settings
    """A task, and everything that its parties say."""
    parties = deal(parameters, RoundRecorder(keep_messages=True, keep_views=True), **_BOUNDS | changes)
    server_sp(parties).supply(lambda number: _dealt(parties, number)["sp"])
    server_csp(parties).supply(lambda number: _dealt(parties, number)["csp"])
    return parties


def paying(parameters: int = SIZE, **changes: Any) -> LocalParties:  # noqa: ANN401 -- settings
    return stage(parameters, budget=BUDGET, **changes)


def _dealt(parties: LocalParties, number: int) -> Mapping[str, bytes]:
    """KGC's files, made once for both servers."""
    return _files(parties.dealer.spec, source_of(parties), number)


@lru_cache(maxsize=2)
def _files(spec: TaskSpec, source: bytes, number: int) -> Mapping[str, bytes]:
    return dealing.files(SharesShape(spec), source, number)


def source_of(parties: LocalParties) -> bytes:
    """What KGC keeps until both servers have all their files."""
    return parties.dealer._dealing.source


def server_sp(parties: LocalParties) -> SharesSp:
    return cast(SharesSp, parties.sp)


def server_csp(parties: LocalParties) -> SharesCsp:
    return cast(SharesCsp, parties.csp)


def shape_of(parties: LocalParties) -> SharesShape:
    return server_sp(parties)._shape


def updates(seed: int = 7, parameters: int = SIZE) -> dict[str, tuple[Floats, int]]:
    """Models that go the same way, so that everyone is within the bounds and paid."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=parameters) * 0.4
    return {who: (np.round(common + rng.normal(size=parameters) * 0.1, 3), samples) for who, samples in PEOPLE.items()}


def integers(parties: LocalParties, update: tuple[Floats, int]) -> Floats:
    """What an honest phone shares in the first round, which starts from zeros."""
    return np.asarray(np.rint(update[0] * shape_of(parties).widths.unit) * update[1], dtype=np.float64)


def played(parties: LocalParties, number: int, trained: Mapping[str, tuple[Floats, int]]) -> PlayedRound:
    """A round that everyone reads."""
    payment = shape_of(parties).payment or None
    return parties.play(number, parties.encrypt(trained, number), payment=payment, readers=None)


@dataclass(frozen=True)
class Said:
    """An exchange between the servers, as it went over the wire."""

    step: int
    sp: bytes = field(repr=False)
    csp: bytes = field(repr=False)


def conversation(parties: LocalParties) -> list[Said]:
    """Everything that the servers have said to each other, of all rounds."""
    limits = shape_of(parties).limits(shape_of(parties).longest_payload)
    said, asked = [], StepRequest(0, 0, b"", b"")
    for sender, receiver, message in cast(RoundRecorder, parties.observer).messages:
        if (sender, receiver) == ("SP", "CSP"):
            asked = StepRequest.from_bytes(message, limits)
        elif (sender, receiver) == ("CSP", "SP"):
            said.append(Said(asked.step, asked.payload, message))
    return said


def bend_sp(parties: LocalParties, bend: Bend) -> None:
    """From the exchange after the manifest on."""
    sp = server_sp(parties)
    begun = sp._begun

    def bent() -> Generator[bytes, Reply, Any]:
        now = yield from begun()
        now.talk = _BentTalk(now.talk, bend)
        return now

    sp._begun = bent  # type: ignore[method-assign]


class _BentTalk(SpConversation):
    def __init__(self, talk: SpConversation, bend: Bend) -> None:
        self._party, self._place, self._said, self._bend = talk._party, talk._place, talk._said, bend

    def ask(self, payload: bytes) -> Generator[bytes, Reply, bytes]:
        step = self._said.step + 1
        reply = yield from super().ask(self._bend(step, payload))
        return self._bend(step, reply)


def bend_csp(parties: LocalParties, bend: Bend) -> None:
    csp = server_csp(parties)
    program = csp._program

    def bent(number: int, manifest: bytes) -> CspRound:
        return cast(CspRound, _BentRound(program(number, manifest), bend))

    csp._program = bent  # type: ignore[method-assign]


class _BentRound:
    """CSP's half of a round, of which both messages of each exchange are bent."""

    def __init__(self, run: CspRound, bend: Bend) -> None:
        self._run, self._bend, self._step = run, bend, 1

    def begin(self) -> CspAnswer:
        return self._run.begin()

    def answer(self, payload: bytes) -> CspAnswer:
        self._step += 1
        answer = self._run.answer(self._bend(self._step, payload))
        answer.payload = self._bend(self._step, answer.payload)
        return answer


def added_to(message: bytes, place: int, bits: int, number: int) -> bytes:
    """A message in which something was added, modulo 2^bits, to the number that begins at this byte."""
    end = place + bits // 8
    value = (int.from_bytes(message[place:end], "little") + number) % (1 << bits)
    return message[:place] + value.to_bytes(bits // 8, "little") + message[end:]


@contextmanager
def switched(owner: object, name: str, value: Any) -> Iterator[None]:  # noqa: ANN401 -- any mechanism
    """A mechanism replaced on purpose, for as long as a demonstration takes."""
    built = getattr(owner, name) if not isinstance(owner, type) else owner.__dict__[name]
    setattr(owner, name, value)
    _files.cache_clear()
    try:
        yield
    finally:
        setattr(owner, name, built)
        _files.cache_clear()


def coins_of(parties: LocalParties) -> bytes:
    """What the sketch of the round under way is drawn from: both servers know it."""
    first = [said for said in conversation(parties) if said.step == 1][-1]
    limits = shape_of(parties).limits()
    digest = RoundManifest.from_bytes(first.sp, limits).digest
    return coins(digest, ManifestReply.from_bytes(first.csp, limits).nonce)


def sketch_of(parties: LocalParties) -> Sketch:
    widths = shape_of(parties).widths
    return Sketch(coins_of(parties), widths.parameters, widths.rows, widths.buckets)


def lanes_opened(parties: LocalParties, slots: list[int]) -> OpenLanes:
    """What both servers saw of the lanes of the last round, by slots."""
    widths, ring = shape_of(parties).widths, shape_of(parties).ring
    said = [said for said in conversation(parties) if said.step == LANES][-1]
    length = len(slots) * widths.lanes * ring.bytes
    own, other = (ring.decode(message[:length]).reshape(len(slots), -1) for message in (said.sp, said.csp))
    return opened(widths, slots, own, other)
