"""The window of the table that the benchmarks make randomizers with."""

import pytest
from gmpy2 import mpz

from crowdfl.crypto.paillier.kernels import FixedBase
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl_lab.bench.workload import best_window


def key_of(bits: int) -> PublicKey:
    """Numbers of a key's size; nobody will decrypt under it."""
    return PublicKey(mpz(2) ** bits - 1, mpz(2), insecure_test_key=True)


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
