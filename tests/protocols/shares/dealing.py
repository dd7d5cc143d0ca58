"""Dealt material for tests, shares of given numbers, and both halves of a program in one process."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from crowdfl.crypto.coins import Coins
from crowdfl.crypto.shares.expansion import Stream
from crowdfl.protocols.party import View
from crowdfl.protocols.shares.circuits.program import CspRun, CspSide, Half, SpSide
from crowdfl.protocols.shares.circuits.reciprocal import CspDivider, SpDivider
from crowdfl.protocols.shares.dealing.correlations import Cards, CspCards, KgcCards, SpCards

_T = TypeVar("_T")


class Given(NamedTuple):
    """What KGC knows, SP's and CSP's shares of it, and the lengths of their files."""

    kgc: Any
    sp: Any
    csp: Any
    sp_bytes: int
    csp_bytes: int


def deal_with(script: Callable[[Cards], Any], seed: int = 1) -> Given:
    seeds = [Coins(seed.to_bytes(32, "big")).child(name).take(32) for name in ("sp", "csp")]
    kgc = KgcCards(*(Stream(own, b"test") for own in seeds))
    known = script(kgc)
    files = [b"".join(file) for file in kgc.files()]
    sp, csp = SpCards(Stream(seeds[0], b"test"), files[0]), CspCards(Stream(seeds[1], b"test"), files[1])
    given = Given(known, script(sp), script(csp), *map(len, files))
    sp.require_end()
    csp.require_end()
    return given


def split(values: Sequence[int], bits: int, seed: int = 1) -> tuple[list[int], list[int]]:
    """Uniform shares of numbers, SP's and CSP's."""
    coins = Coins(seed.to_bytes(32, "big")).child(f"shares of {len(values)} numbers of {bits} bits")
    first = [int(coins.bits(bits)) for _ in values]
    return first, [(value - share) % (1 << bits) for value, share in zip(values, first, strict=True)]


def joined(first: Sequence[int], second: Sequence[int], bits: int) -> list[int]:
    values = [(a + b) % (1 << bits) for a, b in zip(first, second, strict=True)]
    return [value - (1 << bits) if value >> (bits - 1) else value for value in values]


class Transcript:
    """What was sent, and what CSP saw."""

    def __init__(self) -> None:
        self.sp: list[bytes] = []
        self.csp: list[bytes] = []
        self.view = View()

    def seen(self, purpose: str) -> list[int]:
        return [value for values in self.view.of(purpose) for value in values]

    @property
    def exchanges(self) -> int:
        return len(self.sp) - 1  # the last one only ends the halves


Tamper = Callable[[int, bytes], bytes]


def _as_sent(step: int, message: bytes) -> bytes:
    del step
    return message


def run(
    sp: Callable[[SpDivider], Half[_T]],
    csp: Callable[[CspDivider], Half[_T]],
    seed: int = 1,
    sp_sends: Tamper = _as_sent,
    csp_sends: Tamper = _as_sent,
) -> tuple[_T, _T, Transcript]:
    """Both results. Messages may be altered on their way: that is what a deviating server does."""
    transcript = Transcript()

    def answering(side: CspSide) -> Half[_T]:
        result = yield from csp(CspDivider(side, transcript.view))
        side.heard()
        side.finish(b"")
        return result

    def asking(side: SpSide) -> Half[_T]:
        result = yield from sp(SpDivider(side, Coins(seed.to_bytes(32, "big"))))
        yield from side.swap(b"")
        return result

    half, other = asking(SpSide()), CspRun(answering)
    try:
        message = next(half)
        while True:
            sent = sp_sends(len(transcript.sp), message)
            transcript.sp.append(sent)
            reply = csp_sends(len(transcript.csp), other.answer(sent))
            transcript.csp.append(reply)
            message = half.send(reply)
    except StopIteration as end:
        assert other.result is not None
        return end.value, other.result, transcript
