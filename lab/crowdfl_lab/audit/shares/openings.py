"""What each server sees of two very different inputs, and what it sees when it alters its shares before every opening.

Everything that is opened is a sum in which the other server's part is covered by a dealt number that is uniform and serves
once. So what a server receives is uniform whatever the uploads are, and whatever it did to its own shares: the two-sample tests
of `headroom` must not tell inputs apart, byte by byte. If KGC deals zeros, they must. The bits of the verdict are not among
what is compared: they are shown on purpose, one for each participant and round.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from crowdfl.crypto.long_bytes import whole
from crowdfl.crypto.shares.expansion import Stream
from crowdfl.errors import RewardOutOfRange, RoundEnded
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.circuits.scalars import added, pack, unpack
from crowdfl.protocols.shares.dealing import rounds as dealing
from crowdfl.protocols.shares.round.average import SumReply
from crowdfl_lab.audit.finding import SHARES, Finding, Floats
from crowdfl_lab.audit.headroom import Views, two_samples
from crowdfl_lab.audit.shares.deviating_round import (
    AVERAGE,
    CHECK,
    FACTORS,
    LANES,
    OPERANDS,
    PEOPLE,
    PRODUCTS,
    SIZE,
    SUM,
    DeviatingRound,
    Said,
    Tamper,
    added_to,
    switched,
)

_OPENINGS = {
    LANES: "lanes",
    CHECK: "lengths",
    SUM: "sum of lanes",
    OPERANDS: "operands",
    FACTORS: "cubes and reciprocals",
    PRODUCTS: "products",
}
_STEPS = tuple(_OPENINGS)
_MASKED_SUM = "masked sum"


def tell_apart(rounds: int = 4) -> Iterator[Finding]:
    """Both servers, following the protocol; and what zeros in place of masks would show."""
    with switched(dealing, "dealt_stream", lambda *_: _Zeros()):
        yield _told("CSP", "shares, dealt zeros", _observe("CSP", 1, alter=False))
    views = _observe("SP", rounds, alter=False)  # what is opened, both see
    yield _told("SP", SHARES, views)
    small, large = ({name: series for name, series in view.items() if name != _MASKED_SUM} for view in views)
    yield _told("CSP", SHARES, (small, large))


def tell_apart_altered(rounds: int = len(_OPENINGS)) -> Iterator[Finding]:
    """The same for a server that alters its shares, in each round before another opening."""
    for server in ("SP", "CSP"):
        how = " by altering its shares before each opening"
        yield _told(server, SHARES, _observe(server, rounds, alter=True), "altered shares", how)


class _Zeros(Stream):
    """A stream of zeros: masks that hide nothing."""

    def __init__(self) -> None:
        """No seed."""

    def take(self, length: int) -> bytes:
        return bytes(length)

    def aside(self, length: int) -> Callable[[int, int], bytes]:
        del length
        return lambda _start, size: bytes(size)


def _told(server: str, subject: str, views: Views, name: str = "two samples", how: str = "") -> Finding:
    place = name, "new", f"{server}'s views of two inputs, told apart{how}", (server,)
    return two_samples(place, subject, views, f"{sum(map(len, views[0].values()))} bytes of each input")


def _observe(server: str, rounds: int, *, alter: bool) -> Views:
    small, large = (_seen(server, rounds, alter=alter, large=large) for large in (False, True))
    return small, large


def _seen(server: str, rounds: int, *, alter: bool, large: bool) -> dict[str, Floats]:
    """By opening, the bytes of what the server has opened, in some rounds of changes to the model that everyone holds: a
    thousandth of one weight, or the whole of the norm bound on a few."""
    round_ = DeviatingRound.paying()
    if alter:
        round_.tamper(server, _altering(round_))
    change, samples = (np.full(SIZE, 3.0 / SIZE**0.5), 10) if large else (np.eye(SIZE)[0] * 0.001, 1)
    for number in range(1, rounds + 1):
        with suppress(RoundEnded, RewardOutOfRange):
            round_.play_all(number, {who: (round_.phone(who).weights() + change, samples) for who in PEOPLE})
    found = defaultdict(list)
    for said in round_.conversation:
        for name, values in _numbers(round_, server, said):
            found[name].append(values)
    return {name: np.concatenate(pieces) for name, pieces in found.items()}


def _numbers(round_: DeviatingRound, server: str, said: Said) -> Iterator[tuple[str, Floats]]:
    """What the server has opened: its own message and the other's, added up; of the average, what CSP sent."""
    if said.step == AVERAGE and server == "SP":
        reply = SumReply.from_bytes(said.csp, Limits.plain(1 << 20))
        yield _MASKED_SUM, _bytes(whole(reply.sums) + reply.total)
    if said.step not in _OPENINGS or not said.sp:
        return
    place, name = 0, _OPENINGS[said.step]
    for bits, count in _layout(round_, said):
        end = place + (count * bits + 7) // 8
        yield f"{name} of {bits} bits", _opened(bits, count, said.sp[place:end], said.csp[place:end])
        place = end


def _layout(round_: DeviatingRound, said: Said) -> Iterator[tuple[int, int]]:
    """The widths of the numbers of an exchange, and how many of each; a width of 1 means bits that are XORed."""
    shape, length = round_.shape, len(said.sp)
    scalar, people = shape.widths.R, len(PEOPLE)
    if said.step == LANES:
        yield shape.ring.bits, (length - people * (128 + scalar) // 8) // shape.ring.bytes
        yield from ((128, people), (scalar, people))
    elif said.step == CHECK:
        yield from ((scalar, people), (1, people))
    else:
        bits = _bits(round_)[said.step]
        yield bits, 8 * length // bits


def _bits(round_: DeviatingRound) -> dict[int, int]:
    """Of the first number of each opening."""
    widths, rule = round_.shape.widths, round_.shape.rule_widths
    of_rule = {OPERANDS: rule.distance_bits, FACTORS: rule.weight_bits, PRODUCTS: rule.product_bits}
    return {LANES: round_.shape.ring.bits, CHECK: widths.R, SUM: widths.R} | of_rule


def _opened(bits: int, count: int, first: bytes, second: bytes) -> Floats:
    if bits == 1:
        both = np.frombuffer(first, dtype=np.uint8) ^ np.frombuffer(second, dtype=np.uint8)
        return np.unpackbits(both, bitorder="little")[:count] / 2.0
    return _bytes(pack(added(unpack(first, bits), unpack(second, bits), bits), bits))


def _bytes(message: bytes) -> Floats:
    return np.frombuffer(message, dtype=np.uint8) / 256.0


def _altering(round_: DeviatingRound) -> Tamper:
    """Adds something large to the first number of one opening of each round; each round another."""
    bits = _bits(round_)

    def tamper(step: int, message: bytes) -> bytes:
        if step != _STEPS[(round_.sp.round_number - 1) % len(_STEPS)]:
            return message
        return added_to(message, 0, bits[step], (1 << (bits[step] - 3)) + 12345)

    return tamper
