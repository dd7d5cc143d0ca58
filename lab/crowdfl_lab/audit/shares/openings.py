"""What each server sees of two very different inputs, and what it sees when it alters its shares before every opening.

Everything that is opened is a sum in which the other server's part is covered by a dealt number that is uniform and serves
once. So what a server receives is uniform whatever the uploads are, and whatever it did to its own shares: the two-sample tests
of `statistics` must not tell inputs apart, byte by byte. If KGC deals zeros, they must. The bits of the verdict are not among
what is compared: they are shown on purpose, one for each participant and round.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np

from crowdfl.crypto.shares.ring import Stream
from crowdfl.errors import RoundEnded
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.circuits.scalars import added, pack, unpack
from crowdfl.protocols.shares.dealing import rounds as dealing
from crowdfl.protocols.shares.round.average import AverageReply
from crowdfl_lab.audit.finding import SHARES, Finding, Floats, Verdict
from crowdfl_lab.audit.headroom import LEVEL, compare
from crowdfl_lab.audit.shares.deviating_round import (
    AVERAGE,
    CHECK,
    COMPARE,
    FLIPS,
    LANES,
    OPERANDS,
    PEOPLE,
    PRODUCTS,
    SIZE,
    SUM,
    TABLE,
    Bend,
    Said,
    added_to,
    bend_server,
    conversation,
    paying,
    phone,
    played,
    server_sp,
    shape_of,
    switched,
)
from crowdfl_lab.parties import LocalParties

_OPENINGS = {
    LANES: "lanes",
    CHECK: "lengths",
    SUM: "sum of lanes",
    OPERANDS: "operands",
    COMPARE: "comparisons",
    FLIPS: "bits",
    TABLE: "place in the table",
    PRODUCTS: "products",
}
_STEPS = tuple(_OPENINGS)
_MEASURE = "p-value after correction; told apart below the level"
_MASKED_SUM = "masked sum"
_ZEROS = "shares, dealt zeros"


def tell_apart(rounds: int = 4) -> Iterator[Finding]:
    """Both servers, following the protocol; and what zeros in place of masks would show."""
    title = "{}'s views of two inputs, told apart"
    with switched(dealing, "_stream", lambda *_: _Zeros()):
        yield _told("CSP", _ZEROS, "two samples", title, _observe("CSP", 1, alter=False))
    views = _observe("SP", rounds, alter=False)  # what is opened, both see
    yield _told("SP", SHARES, "two samples", title, views)
    alike = [{name: series for name, series in view.items() if name != _MASKED_SUM} for view in views]
    yield _told("CSP", SHARES, "two samples", title, (alike[0], alike[1]))


def tell_apart_altered(rounds: int = len(_OPENINGS)) -> Iterator[Finding]:
    """The same for a server that alters its shares, in each round before another opening."""
    title = "{}'s views of two inputs, told apart by altering its shares before each opening"
    for server in ("SP", "CSP"):
        yield _told(server, SHARES, "altered shares", title, _observe(server, rounds, alter=True))


class _Zeros(Stream):
    """A stream of zeros: masks that hide nothing."""

    def __init__(self) -> None:
        """No seed."""

    def take(self, length: int) -> bytes:
        return bytes(length)


_Views = tuple[dict[str, Floats], dict[str, Floats]]


def _told(server: str, subject: str, name: str, title: str, views: _Views) -> Finding:
    found = compare(*views)
    told = found.corrected < LEVEL
    recovered = f"{'told apart' if told else 'not told apart'} by {found.name}"
    numbers = sum(len(series) for series in views[0].values())
    note = f"{numbers} bytes of each input, {found.tests} tests"
    place = name, "new", title.format(server), (server,)
    verdict = Verdict.BROKEN if told else Verdict.GUESS
    return Finding(*place, subject, recovered, found.corrected, LEVEL, _MEASURE, verdict, note)


def _observe(server: str, rounds: int, *, alter: bool) -> _Views:
    small, large = (_seen(server, rounds, alter=alter, large=large) for large in (False, True))
    return small, large


def _seen(server: str, rounds: int, *, alter: bool, large: bool) -> dict[str, Floats]:
    """By opening, the bytes of what the server has opened, in some rounds of tiny or of largest updates."""
    parties = paying()
    altered = {number: _STEPS[(number - 1) % len(_STEPS)] for number in range(1, rounds + 1)}
    if alter:
        bend_server(parties, server, _altering(parties, altered))
    for number in altered:
        with suppress(RoundEnded):
            played(parties, number, _inputs(parties, large=large))
    found = defaultdict(list)
    for said in conversation(parties):
        for name, values in _numbers(parties, server, said):
            found[name].append(values)
    return {name: np.concatenate(pieces) for name, pieces in found.items()}


def _inputs(parties: LocalParties, *, large: bool) -> dict[str, tuple[Floats, int]]:
    """Changes to the model that everyone holds: a thousandth of one weight, or the whole of the norm bound on a few."""
    change, samples = (np.full(SIZE, 3.0 / SIZE**0.5), 10) if large else (np.eye(SIZE)[0] * 0.001, 1)
    return {who: (phone(parties, who).weights() + change, samples) for who in PEOPLE}


def _numbers(parties: LocalParties, server: str, said: Said) -> Iterator[tuple[str, Floats]]:
    """What the server has opened: its own message and the other's, added up; of the average, what CSP sent."""
    if said.step == AVERAGE and server == "SP":
        reply = AverageReply.from_bytes(said.csp, Limits.plain(1 << 20))
        yield _MASKED_SUM, _bytes(reply.sums + reply.total)
    if said.step not in _OPENINGS or not said.sp:
        return
    place, name = 0, _OPENINGS[said.step]
    for bits, count in _layout(parties, said):
        end = place + (count * bits + 7) // 8
        pieces = said.sp[place:end], said.csp[place:end]
        yield f"{name} of {bits} bits", _opened(parties, bits, count, *pieces)
        place = end


def _layout(parties: LocalParties, said: Said) -> Iterator[tuple[int, int]]:
    """The widths of the numbers of an exchange, and how many of each; a width of 1 means bits that are XORed."""
    shape, length = shape_of(parties), len(said.sp)
    rule, scalar, people = shape.rule_widths, shape.widths.R, len(PEOPLE)
    if said.step == LANES:
        yield shape.ring.bits, (length - people * (128 + scalar) // 8) // shape.ring.bytes
        yield from ((128, people), (scalar, people))
    elif said.step == CHECK:
        yield from ((scalar, people), (1, people))
    elif said.step == COMPARE:
        accepted = _accepted(length, rule.compare_bits, rule.gate_bits)
        yield rule.compare_bits, accepted
        yield rule.gate_bits, (length - accepted * rule.compare_bits // 8) * 8 // rule.gate_bits
    elif said.step == FLIPS:
        yield 1, 8 * length
    else:
        bits = {SUM: scalar, OPERANDS: rule.gate_bits, TABLE: 32, PRODUCTS: rule.payout.product_bits}[said.step]
        yield bits, 8 * length // bits


def _accepted(length: int, direction: int, others: int) -> int:
    """How many are in, from the length of what is compared: one number and one or two others for each."""
    sizes = (count * (direction + others * extra) // 8 for count in range(1, len(PEOPLE) + 1) for extra in (1, 2))
    places = [place for place, size in enumerate(sizes) if size == length]
    return places[0] // 2 + 1


def _opened(parties: LocalParties, bits: int, count: int, first: bytes, second: bytes) -> Floats:
    if bits == 1:
        both = np.frombuffer(first, dtype=np.uint8) ^ np.frombuffer(second, dtype=np.uint8)
        return np.unpackbits(both, bitorder="little")[:count] / 2.0
    numbers = added(unpack(first, bits), unpack(second, bits), bits)
    if bits == 32:
        size = shape_of(parties).rule_widths.payout.table_size
        return np.array([number % size / size for number in numbers])
    return _bytes(pack(numbers, bits))


def _bytes(message: bytes) -> Floats:
    return np.frombuffer(message, dtype=np.uint8) / 256.0


def _altering(parties: LocalParties, altered: Mapping[int, int]) -> Bend:
    """Adds something large to the first number of one opening of each round, or flips its first bit."""
    shape = shape_of(parties)
    bits = {LANES: shape.ring.bits, CHECK: shape.widths.R, SUM: shape.widths.R, TABLE: 8}
    bits |= {OPERANDS: shape.rule_widths.gate_bits, COMPARE: shape.rule_widths.compare_bits}
    bits |= {PRODUCTS: shape.rule_widths.payout.product_bits}

    def bend(step: int, message: bytes) -> bytes:
        if step != altered[server_sp(parties).round_number]:
            return message
        if step == FLIPS:
            return bytes([message[0] ^ 1]) + message[1:]
        return added_to(message, 0, bits[step], 3 if step == TABLE else (1 << (bits[step] - 3)) + 12345)

    return bend
