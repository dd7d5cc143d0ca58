"""The guard before a hardened division: it changes nothing for honest numbers, and hides everything about swollen ones.

A CSP that has made a dividend or a divisor larger by K, in an earlier reply, opens c * (what it opens) modulo N with a c for
which c * K is small: without the guard that number is small too, with it the number is uniform.
"""

import gmpy2
import numpy as np
import pytest

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.coins import Coins
from crowdfl.protocols.common import sdiv
from crowdfl.protocols.common.sdiv import GuardReply, HardenedSdivSp, SdivWidths
from crowdfl.protocols.common.smul import PolynomialsSp
from tests.protocols.driving import Divider, converse, pair

KEY_BITS = 576
WIDTHS = SdivWidths(key_bits=KEY_BITS, ybits=16, qbits=20, sigma=40, precision=4)
DRAWS, CELLS = 64, 8
FAR = 100  # chi-square of 7 degrees of freedom and 64 draws: by chance less than once in 10^12
X, Y = 12345, 67


@pytest.fixture(scope="module")
def servers():
    """SP and CSP under the shortest key that has room for a guard."""
    return pair(KEY_BITS)


def opened(servers, x, y, csp=None):
    """What CSP opens of masked dividends and divisors."""
    csp, side = csp or Divider(servers.csp, WIDTHS, len(x), len(y)), HardenedSdivSp(servers.sp, WIDTHS, 1, "test")
    converse(side.run(servers.encrypt(x), servers.encrypt(y), Coins.fresh()), csp.answer)
    return servers.csp.view.of("SDIV x'")[-1], servers.csp.view.of("SDIV y'")[-1]


def distance(values, factor, n):
    """Chi-square between factor * values modulo N and uniform."""
    cells = [int(factor * value % n * CELLS // n) for value in values]
    expected = len(values) / CELLS
    return ((np.bincount(cells, minlength=CELLS) - expected) ** 2 / expected).sum()


def swellings(n, bits):
    """By name: K, and the c that makes c * K small. Without the guard, c * (what CSP opens) would be small too."""
    power, fraction, prime = (
        1 << 42,
        3**27,
        61**7,
    )  # k, of 40 bits, is often a multiple of a short c: the guard then passes
    return {
        "a power of two of N": (n // power, power),
        "a fraction of N": (n // fraction, fraction),
        "a number that looks random": (gmpy2.invert(prime, n), prime),
        "bits too many": (1 << (bits + 100), 1),
    }


NAMES = list(swellings(gmpy2.mpz(2**576 - 1), 0))


@pytest.mark.parametrize("name", NAMES)
def test_a_swollen_divisor_shows_csp_uniform_numbers(servers, name):
    """Both what it divides and what it divides by."""
    n = servers.public.n
    k, c = swellings(n, WIDTHS.ybits)[name]
    v, y = opened(servers, [X] * DRAWS, [servers.public.signed((Y + k) % n)] * DRAWS)
    assert max(distance(values, factor, n) for values in (v, y) for factor in (1, c)) < FAR


@pytest.mark.parametrize("name", NAMES)
def test_a_swollen_dividend_shows_csp_uniform_numbers(servers, name):
    """What it divides, which is multiplied by 2^g before CSP opens it; the divisor is an honest one."""
    n = servers.public.n
    k, c = swellings(n, WIDTHS.ybits)[name]
    k = 1 << (WIDTHS.ybits + WIDTHS.qbits + 60) if c == 1 else k * gmpy2.invert(gmpy2.mpz(1) << WIDTHS.g, n) % n
    v, y = opened(servers, [servers.public.signed((X + k) % n)] * DRAWS, [Y] * DRAWS)
    assert max(distance(v, factor, n) for factor in (1, c)) < FAR
    assert all(0 < value < n // 2 for value in y)


def test_a_third_of_n_passes_as_often_as_k_is_a_multiple_of_three(servers):
    """And then CSP sees a divisor of honest size, and rho modulo 3: the page on security says so."""
    n = servers.public.n
    _, y = opened(servers, [X] * DRAWS, [servers.public.signed((Y + n // 3) % n)] * DRAWS)
    passed = sum(3 * value % n < n >> 64 for value in y)
    assert passed <= 51  # of 64, each by one chance in three: more than this happens less than once in 10^12


class Denying(Divider):
    """A CSP that answers the guard as if the numbers were honest: it takes its K, times some k, off before it answers."""

    def __init__(self, servers, count, k):
        super().__init__(servers.csp, WIDTHS, count, count)
        self.encrypt, self.k, self.n = servers.encrypt, k, servers.public.n

    def guard(self, message):
        super().guard(message)
        tops = sdiv.guard_tops(WIDTHS, self.dividends, self.divisors)
        values = self.party.view.of("SDIV guard")[-1]
        return GuardReply(self.encrypt([(v - self.k) % self.n >> t for v, t in zip(values, tops, strict=True)]))


@pytest.mark.second
@pytest.mark.parametrize("guess", [0, 1 << 39, (1 << 40) - 1, 3 << 38])
def test_a_csp_that_denies_what_it_added_must_guess_k(servers, guess):
    """With the wrong k the guard sees the difference, which is too large as well."""
    swelling = 1 << (WIDTHS.ybits + 100)
    csp = Denying(servers, DRAWS, guess * swelling)
    v, y = opened(servers, [X] * DRAWS, [Y + swelling] * DRAWS, csp)
    assert distance(y, 1, servers.public.n) < FAR
    assert distance(v, 1, servers.public.n) < FAR


def test_a_csp_that_answers_the_guard_with_nothing_sees_nothing(servers):
    """Tops of 0 for everything: W is then some -(m >> t), and both numbers are spoilt."""
    csp = Divider(servers.csp, WIDTHS, DRAWS, DRAWS)
    csp.guard = lambda message: GuardReply(servers.encrypt([0] * len(message.masked)))
    v, y = opened(servers, [X] * DRAWS, [Y] * DRAWS, csp)
    assert distance(y, 1, servers.public.n) < FAR
    assert distance(v, 1, servers.public.n) < FAR


@pytest.fixture
def watched(monkeypatch):
    """Every [[W]] and every [[W (W - 1)]] that SP computes."""
    seen = {"W": [], "poison": []}

    class Watched(PolynomialsSp):
        def run(self, operands, polynomials, coins):
            seen["W"].append(operands)
            seen["poison"].append((yield from super().run(operands, polynomials, coins)))
            return seen["poison"][-1]

    monkeypatch.setattr(sdiv, "PolynomialsSp", Watched)
    return seen


LARGEST = 2 ** (WIDTHS.ybits + WIDTHS.qbits) - 1


@pytest.mark.parametrize(
    ("x", "y"), [(0, 1), (1, 1), (LARGEST - 2**WIDTHS.qbits, 2**WIDTHS.ybits - 1), (2**WIDTHS.qbits - 1, 1)]
)
def test_honest_numbers_are_never_spoilt(servers, watched, x, y):
    """W is 0 or 1, so that W (W - 1) is 0, at the ends of what the widths allow."""
    opened(servers, [x] * DRAWS, [y] * DRAWS)
    assert set(servers.read(watched["W"][0])) <= {0, 1}
    assert set(servers.read(watched["poison"][0])) == {0}


def test_both_values_of_an_honest_w_occur(servers, watched):
    """The largest numbers carry into the top about one time in three; a carry that SP forgot would spoil those."""
    opened(servers, [LARGEST - 2**WIDTHS.qbits] * DRAWS, [2**WIDTHS.ybits - 1] * DRAWS)
    tops = servers.read(watched["W"][0])
    assert set(tops[:DRAWS]) == set(tops[DRAWS:]) == {0, 1}


def test_a_swollen_number_is_spoilt(servers, watched):
    """Its W is neither 0 nor 1, and its neighbours' are as they were."""
    opened(servers, [X, X << 100, X], [Y, Y, Y << 100])
    w, poison = servers.read(watched["W"][0]), servers.read(watched["poison"][0])
    assert [value in (0, 1) for value in w] == [True, False, True, True, True, False]
    assert [value == 0 for value in poison] == [True, False, True, True, True, False]


def test_what_the_guard_opens_is_uniform_whatever_the_number_is(servers):
    """k*z + m with m uniform modulo N: nothing, a large honest number, a swollen one."""
    for x in (0, LARGEST, 1 << (KEY_BITS - 3)):
        opened(servers, [x] * DRAWS, [1])
        assert distance(servers.csp.view.of("SDIV guard")[-1][:DRAWS], 1, servers.public.n) < FAR


def test_the_guards_masks_are_those_of_the_seed(servers):
    """Replayed: exactly k*z + m modulo N is opened, with k of forty bits."""
    coins = Coins(bytes(range(32)))
    csp = Divider(servers.csp, WIDTHS, 2, 1)
    x, y = [X, LARGEST], [Y]
    side = HardenedSdivSp(servers.sp, WIDTHS, 1, "test")
    converse(side.run(servers.encrypt(x), servers.encrypt(y), coins), csp.answer)
    again = Coins(bytes(range(32))).child("guard")
    k = [(1 << 39) | again.bits(39) for _ in range(3)]
    masks = to_ints(again.residues(3, servers.public.n))
    expected = [(a * z + m) % servers.public.n for a, z, m in zip(k, x + y, masks, strict=True)]
    assert servers.csp.view.of("SDIV guard")[-1] == expected
    assert all(value.bit_length() == 40 for value in k)
