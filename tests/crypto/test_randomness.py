import gmpy2
import numpy as np
import pytest

from crowdfl.crypto.blocks import to_ints, width_of
from crowdfl.crypto.coins import Coins, log_uniform
from crowdfl.crypto.public_coins import public_permutation, public_stream
from crowdfl.crypto.randomness import random_below, random_bits, random_prime, random_unit


def test_random_numbers_reach_all_that_they_may_be_and_no_others():
    assert {int(random_below(6)) for _ in range(600)} == set(range(6))
    assert {int(random_bits(3)) for _ in range(600)} == set(range(8))
    assert {int(random_unit(15)) for _ in range(600)} == {1, 2, 4, 7, 8, 11, 13, 14}


@pytest.mark.parametrize("bits", [3, 8, 16, 61, 256])
def test_random_prime_is_prime_of_its_length_and_three_mod_four(bits):
    for _ in range(10):
        prime = random_prime(bits)
        assert gmpy2.is_prime(prime)
        assert prime.bit_length() == bits
        assert prime % 4 == 3


def test_public_stream_depends_on_seed_and_purpose():
    """Anyone gets the same coins; another seed or purpose gives others."""
    assert public_stream(b"seed", "a", 32) == public_stream(b"seed", "a", 32)
    assert len({public_stream(b"seed", "a", 32), public_stream(b"seeD", "a", 32), public_stream(b"seed", "b", 32)}) == 3


def test_public_stream_tells_where_the_purpose_ends():
    """Moving a byte from the purpose to the seed changes the coins."""
    assert public_stream(b"cd", "ab", 32) != public_stream(b"bcd", "a", 32)


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_public_permutation_is_one(count):
    order = public_permutation(b"task", "parameters", count)
    assert sorted(order.tolist()) == list(range(count))
    assert order.dtype.name == "int64"


def test_equal_keys_keep_their_order(monkeypatch):
    keys = [i * i % 3 for i in range(2000)]
    drawn = b"".join(key.to_bytes(8, "big") for key in keys)
    monkeypatch.setattr("crowdfl.crypto.public_coins.public_stream", lambda _seed, _purpose, length: drawn[:length])
    assert public_permutation(b"", "", 2000).tolist() == sorted(range(2000), key=keys.__getitem__)


def test_coins_replay_from_their_seed():
    """The same seed gives the same coins, however they are asked for; another seed gives others."""
    seed = bytes(range(32))
    whole = Coins(seed).take(64)
    pieces = Coins(seed)
    assert pieces.take(10) + pieces.take(54) == whole
    assert Coins(bytes(32)).take(64) != whole
    assert Coins.fresh().take(64) != Coins.fresh().take(64)


def test_children_are_independent_of_what_was_taken():
    """A label names the same coins before and after, other labels name others."""
    coins = Coins(bytes(32))
    before = coins.child("a").take(32)
    own = coins.take(32)
    assert coins.child("a").take(32) == before
    assert len({before, own, coins.child("b").take(32), Coins(bytes(range(32))).child("a").take(32)}) == 4


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_seed_of_another_length_is_refused(size):
    """32 bytes, no more and no less."""
    with pytest.raises(ValueError, match=str(size)):
        Coins(bytes(size))


def test_coins_do_not_show_themselves():
    assert repr(Coins(b"A" * 32)) == "Coins(secret)"


@pytest.mark.parametrize("bits", [0, 1, 3, 8, 9])
def test_coins_spread_over_all_numbers_of_so_many_bits(bits):
    coins = Coins(bytes(32))
    assert {int(coins.bits(bits)) for _ in range(40 * 2**bits)} == set(range(2**bits))


@pytest.mark.parametrize("bound", [1, 2, 5, 8, 9, 257])
def test_coins_below_a_bound_reach_all_of_it(bound):
    coins = Coins(bytes(32))
    assert {int(coins.below(bound)) for _ in range(40 * bound)} == set(range(bound))


@pytest.mark.parametrize("n", [1, 2, 5, 255, 256, 257, 300])
def test_coins_make_rows_of_residues(n):
    rows = Coins(bytes(32)).residues(40 * n, n)
    assert rows.shape == (40 * n, width_of(n))
    assert {int(x) for x in to_ints(rows)} == set(range(n))


def test_rejection_leaves_no_bias():
    """Residues modulo 3 come out equally often: reduction modulo 3 of two bits would not do that."""
    coins, draws = Coins(bytes(32)), 30_000
    for counts in (
        np.bincount([int(coins.below(3)) for _ in range(draws)]),
        np.bincount(np.asarray(coins.residues(draws, 3))[:, 0]),
    ):
        assert np.abs(counts - draws / 3).max() < 500  # six standard deviations


def test_log_uniform_is_proportional_to_one_over_m():
    """Within an octave the weight falls as 1/m, where plain bits would be flat."""
    coins, draws = Coins(bytes(32)), 40_000
    drawn = np.array([int(log_uniform(coins, 2, 6)) for _ in range(draws)])
    assert (drawn.min(), drawn.max()) == (4, 63)
    weights = 1 / np.arange(4, 64)
    expected = draws * weights / weights.sum()
    counts = np.bincount(drawn, minlength=64)[4:64]
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected.max())
    assert ((counts - expected) ** 2 / expected).sum() < 140  # chi-squared, 59 degrees of freedom
