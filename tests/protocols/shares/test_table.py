"""Looking up a shared number in a dealt table."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto.shares.ring import Stream
from crowdfl.protocols.shares import table
from crowdfl.protocols.shares.circuits.program import CspRun, CspSide, Half, SpSide
from crowdfl.protocols.shares.dealing.correlations import CspCards, KgcCards, SpCards

_BITS = 40
_SIZE = 16


def _values() -> list[int]:
    return [number**3 + 1 for number in range(_SIZE)]


def _never() -> list[int]:
    raise AssertionError("a server evaluated what KGC alone may know")


def _dealt(seed: int = 1) -> tuple[table.DealtTable, table.DealtTable]:
    seeds = bytes([seed]) * 32, bytes([seed + 100]) * 32
    kgc = KgcCards(Stream(seeds[0], b"t"), Stream(seeds[1], b"t"))
    table.deal(kgc, _SIZE, _BITS, _values)
    files = kgc.files()
    sp, csp = SpCards(Stream(seeds[0], b"t"), files[0]), CspCards(Stream(seeds[1], b"t"), files[1])
    return table.deal(sp, _SIZE, _BITS, _never), table.deal(csp, _SIZE, _BITS, _never)


def _looked_up(share_sp: int, share_csp: int, seed: int = 1) -> int:
    sp, csp = _dealt(seed)

    def answering(side: CspSide) -> Half[Any]:
        mine = table.look_up(side, csp, share_csp)
        return (yield from mine)

    run = CspRun(answering)
    half = table.look_up(SpSide(), sp, share_sp)
    message = next(half)
    reply = run.answer(message)
    with pytest.raises(StopIteration) as end:
        half.send(reply)
    theirs = (csp.shift + share_csp + int.from_bytes(message, "little")) % _SIZE
    other = int.from_bytes(csp.entries.share[theirs].tobytes(), "little")
    return (end.value.value + other) % (1 << _BITS)


@given(st.integers(0, _SIZE - 1), st.integers(0, _SIZE - 1), st.integers(1, 99))
def test_shares_of_the_entry_add_up_to_the_functions_value(number: int, split: int, seed: int) -> None:
    assert _looked_up((number - split) % _SIZE, split, seed) == _values()[number]


def test_what_is_opened_is_uniform_whatever_the_number() -> None:
    opened = Counter((_dealt(seed)[0].shift + _dealt(seed)[1].shift + 3) % _SIZE for seed in range(1, 100))
    assert len(opened) == _SIZE


def test_a_false_share_gives_the_entry_of_another_number() -> None:
    assert _looked_up(5, 2 + 4) == _values()[11]


def test_a_table_has_a_power_of_two_of_entries() -> None:
    kgc = KgcCards(Stream(bytes(32), b"t"), Stream(bytes(32), b"t"))
    with pytest.raises(ValueError, match="power of two"):
        table.deal(kgc, 12, _BITS, _values)
