import secrets

import pytest
from gmpy2 import mpz

from crowdfl.crypto import blocks
from crowdfl.crypto.compute import Progress
from crowdfl.crypto.kernels import FixedBase
from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.randomizers import FreshRandomizers, PrintedRandomizers, best_window
from crowdfl.errors import Cancelled

SOURCES = [FreshRandomizers, PrintedRandomizers]


def key_of(bits: int) -> PublicKey:
    """Numbers of a key's size; nobody will decrypt under it."""
    return PublicKey(mpz(2) ** bits - 1, mpz(2), insecure_test_key=True)


@pytest.mark.parametrize("source", SOURCES)
def test_randomizers_vanish_under_lambda(keys, source):
    """Each is an N-th power, below N^2."""
    block = source(keys.public).take(20)
    assert block.shape == (20, keys.public.ciphertext_bytes)
    for r in blocks.to_ints(block):
        assert pow(int(r), int(keys.private.lambda_), int(keys.public.n_squared)) == 1


@pytest.mark.parametrize("source", SOURCES)
def test_no_randomizer_is_given_twice(keys, source):
    """Within one call and between calls."""
    randomizers = source(keys.public)
    taken = blocks.to_ints(randomizers.take(100)) + blocks.to_ints(randomizers.take(100))
    assert len(set(taken)) == 200


@pytest.mark.parametrize("source", SOURCES)
def test_none_may_be_taken(keys, source):
    """An empty vector needs no randomizers."""
    assert source(keys.public).take(0).shape == (0, keys.public.ciphertext_bytes)


@pytest.mark.parametrize("window", range(1, 13))
def test_fresh_randomizers_are_powers_of_h_s(keys, window):
    """h_s to the exponent that the bytes drawn spell, for every window."""
    exponents = [1, 2**64 - 1, 0x0123456789ABCDEF]
    drawn = b"".join(e.to_bytes(8, "big") for e in exponents)
    randomizers = FreshRandomizers(keys.public, window, entropy=lambda size: drawn[:size])
    taken = blocks.to_ints(randomizers.take(3))
    assert taken == [pow(int(keys.public.h_s), e, int(keys.public.n_squared)) for e in exponents]


def test_fresh_exponents_have_half_the_bits_of_n(keys):
    """As much randomness is drawn as the assumption asks for."""
    asked = []

    def draw(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    FreshRandomizers(keys.public, entropy=draw).take(5)
    assert asked == [5 * 128 // 2 // 8]


def test_the_operating_system_gives_the_exponents_by_default(keys):
    """Nothing weaker is used unless it is passed in."""
    assert FreshRandomizers(keys.public).entropy is secrets.token_bytes


def test_sources_for_one_key_share_a_table(keys):
    """One per key and window in a process, however many encrypt."""
    assert FreshRandomizers(keys.public, 3).fixed is FreshRandomizers(keys.public, 3).fixed
    assert FreshRandomizers(keys.public, 3).fixed is not FreshRandomizers(keys.public, 4).fixed


@pytest.mark.parametrize("source", SOURCES)
def test_taking_can_be_watched_and_cancelled(keys, source):
    """Making many randomizers is long work."""
    seen = []
    source(keys.public).take(9, progress=Progress(lambda done, total: seen.append((done, total))))
    assert seen[-1] == (9, 9)
    cancelled = Progress()
    cancelled.cancel()
    with pytest.raises(Cancelled):
        source(keys.public).take(9, progress=cancelled)


@pytest.mark.parametrize("count", [1, 100, 10**4, 10**7])
def test_best_window_is_the_cheapest_that_fits(count):
    """No other window that fits in 64 MiB takes fewer multiplications."""
    public = key_of(2048)

    def cost(window: int) -> tuple[bool, int]:
        table = FixedBase(public.h_s, public.n_squared, public.exponent_bits, window)
        return table.table_bytes > 64 * 2**20, table.digits * (2**window + count)

    assert cost(best_window(public, count)) == min(cost(window) for window in range(2, 15))


def test_best_window_grows_with_the_number_wanted():
    """A larger table pays only when it is used often."""
    windows = [best_window(key_of(2048), count) for count in (1, 100, 10**4, 10**7)]
    assert windows == sorted(windows)
    assert windows[0] < windows[-1]


@pytest.mark.parametrize("bits", [32, 2048, 8192, 16384])
def test_every_key_has_a_best_window(bits):
    """From the shortest test key to the longest key that is allowed."""
    assert best_window(key_of(bits), 1000) >= 1
