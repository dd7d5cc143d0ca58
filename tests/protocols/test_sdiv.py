"""SDIV, both of them: exact floors for the paper's, a proven bracket for the hardened one."""

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.coins import Coins
from crowdfl.errors import LengthMismatch, NothingToAverage, ProtocolError, WidthBudgetExceeded
from crowdfl.protocols.common.sdiv import GuardReply, HardenedSdivSp, PaperSdivCsp, PaperSdivSp, SdivReply, SdivWidths
from crowdfl.protocols.common.smul import PolynomialsReply
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.messages import Message
from tests.protocols.driving import Divider, converse, pair

KEY_BITS = 576
WIDTHS = SdivWidths(key_bits=KEY_BITS, ybits=16, qbits=20, sigma=40, precision=4)


@pytest.fixture(scope="module")
def servers():
    """SP and CSP under the shortest key that has room for a guard."""
    return pair(KEY_BITS)


def divide(servers, x, y, widths=WIDTHS):
    """Hardened quotients of x by y; None where CSP finds a divisor that no honest SP sends."""
    csp = Divider(servers.csp, widths, len(x), len(y))
    step = HardenedSdivSp(servers.sp, widths, 1, "test").run(servers.encrypt(x), servers.encrypt(y), Coins.fresh())
    quotients = converse(step, csp.answer)
    return servers.read(quotients) if csp.fits else None


def check(servers, x, y, widths=WIDTHS):
    """floor(x/y) <= R < x/y + 1 + 2^-precision, in integers."""
    divisors = y * len(x) if len(y) == 1 else y
    for a, b, r in zip(x, divisors, divide(servers, x, y, widths), strict=True):
        assert a // b <= r
        assert (r - 1) * b * 2**widths.precision < a * 2**widths.precision + b


LARGEST_Y, LARGEST_Q = 2**WIDTHS.ybits - 1, 2**WIDTHS.qbits
EDGES = [
    (0, 1),
    (0, LARGEST_Y),
    (1, 1),
    (1, LARGEST_Y),
    (LARGEST_Q - 1, 1),
    (LARGEST_Q * LARGEST_Y - 1, LARGEST_Y),
    (LARGEST_Q * LARGEST_Y - LARGEST_Y, LARGEST_Y),
    (LARGEST_Q * 3 - 1, 3),
    (LARGEST_Y - 1, LARGEST_Y),
    (LARGEST_Y, LARGEST_Y),
    (LARGEST_Y + 1, LARGEST_Y),
]


@pytest.mark.second
@pytest.mark.parametrize(("x", "y"), EDGES)
def test_hardened_quotients_at_the_exact_bounds(servers, x, y):
    """Many draws of the masks at each corner of what the widths allow."""
    check(servers, [x] * 30, [y] * 30)


@settings(max_examples=25)
@given(data=st.data())
def test_hardened_quotients_of_anything_within_bounds(servers, data):
    """Random divisors of every length, dividends up to the largest quotient."""
    y = data.draw(st.lists(st.integers(1, 16).flatmap(lambda b: st.integers(1, 2**b - 1)), min_size=1, max_size=12))
    x = [data.draw(st.integers(0, LARGEST_Q * b - 1)) for b in y]
    check(servers, x, y)


def test_one_divisor_serves_many_dividends(servers):
    """And is masked once: CSP opens a single y'."""
    before = len(servers.csp.view.of("SDIV y'"))
    check(servers, [0, 1, 12345, 999 * LARGEST_Q - 1], [999])
    (opened,) = servers.csp.view.of("SDIV y'")[before:]
    assert len(opened) == 1


def test_the_quotient_is_sometimes_one_too_high_and_never_otherwise(servers):
    """3 / 2 is 1 or 2: both occur, nothing else does."""
    assert set(divide(servers, [3] * 60, [2] * 60)) == {1, 2}


def test_hardened_quotients_as_wide_as_a_key_allows(servers):
    """One bit more is refused; at the last that fits, the masked dividend never wraps around N."""
    widest = SdivWidths(key_bits=KEY_BITS, ybits=20, qbits=34, sigma=40, precision=2)
    with pytest.raises(WidthBudgetExceeded):
        SdivWidths(key_bits=KEY_BITS, ybits=20, qbits=35, sigma=40, precision=2)
    y = 2**20 - 1
    check(servers, [2**34 * y - 1] * 20, [y] * 20, widest)
    check(servers, [0, 2**34 - 1], [1, 1], widest)


def test_widths_that_leave_no_room_are_refused_with_the_numbers():
    """The message names the divisor, the quotient and the key."""
    with pytest.raises(WidthBudgetExceeded, match=r"100 bits.*200 bits.*512"):
        SdivWidths(key_bits=512, ybits=100, qbits=200, sigma=40, precision=2)


def test_what_csp_opens_is_a_multiple_of_nothing(servers):
    """y' = rho*y - s: divisible by y no more often than chance."""
    y = 251
    divide(servers, [0] * 80, [y] * 80)
    opened = servers.csp.view.of("SDIV y'")[-1]
    assert sum(value % y == 0 for value in opened) <= 8
    assert all(0 < value < servers.public.n // 2 for value in opened)


def test_what_csp_computes_is_blurred_beyond_the_quotient(servers):
    """The fraction of V / y' that CSP sees is not that of x / y: over draws it spreads over the whole unit."""
    divide(servers, [1] * 100, [2] * 100)
    pairs = zip(servers.csp.view.of("SDIV x'")[-1], servers.csp.view.of("SDIV y'")[-1], strict=True)
    fractions = [float(gmpy2.mpq(v, y * 2**WIDTHS.g) % 1) for v, y in pairs]
    counts = np.histogram(fractions, bins=4, range=(0, 1))[0]
    assert counts.min() >= 3


def test_the_advantage_is_stated_per_division():
    """log2(y1/y2) over the range of rho, and sigma."""
    assert WIDTHS.advantage(7, 7) == 2.0**-40
    assert WIDTHS.advantage(1, 2**10) == pytest.approx(10 / (WIDTHS.hi - WIDTHS.lo))


KAPPA, SIGMA, DECIMALS = 36, 60, 6


def paper_divide(servers, x, y):
    sp = PaperSdivSp(servers.sp, kappa=KAPPA, sigma=SIGMA, decimals=DECIMALS)
    csp = PaperSdivCsp(servers.csp, decimals=DECIMALS, max_count=100)
    step = sp.run(servers.encrypt(x), servers.encrypt(y), Coins.fresh())
    return servers.read(run_exchange(step, ask_directly(csp.answer)))


TOP = 2**KAPPA - 1
PAPER_EDGES = [(0, 1), (0, TOP), (TOP, 1), (TOP, TOP), (1, TOP), (TOP - 1, TOP), (1, 3), (2, 3), (10, 5)]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_papers_quotient_is_the_exact_floor_at_the_bounds(servers, sign):
    """Signed dividends: the floor goes down, not towards zero."""
    x, y = [sign * a for a, _ in PAPER_EDGES] * 5, [b for _, b in PAPER_EDGES] * 5
    assert paper_divide(servers, x, y) == [a * 10**DECIMALS // b for a, b in zip(x, y, strict=True)]


@settings(max_examples=25)
@given(operands=st.lists(st.tuples(st.integers(-TOP, TOP), st.integers(1, TOP)), min_size=1, max_size=10))
def test_the_papers_quotient_is_the_exact_floor(servers, operands):
    """Anything with both operands below 2^kappa."""
    x, y = [a for a, _ in operands], [b for _, b in operands]
    assert paper_divide(servers, x, y) == [a * 10**DECIMALS // b for a, b in operands]


def test_the_papers_masks_are_composite_and_in_range(servers):
    """r of Alg. 1, above 10^L * 2^(2*kappa)."""
    sp = PaperSdivSp(servers.sp, kappa=KAPPA, sigma=SIGMA, decimals=DECIMALS)
    for _ in range(20):
        r = sp._even(Coins.fresh())
        assert 10**DECIMALS * 2 ** (2 * KAPPA) < r < 2 ** (KEY_BITS - KAPPA - SIGMA - 2)
        assert not gmpy2.is_prime(r)


def test_a_kappa_too_large_for_the_key_is_refused_with_the_numbers(servers):
    with pytest.raises(WidthBudgetExceeded, match=r"kappa = 200.*needs a key of \d+ bits; this one has 576"):
        PaperSdivSp(servers.sp, kappa=200, sigma=SIGMA, decimals=DECIMALS)


def test_a_divisor_of_zero_is_named(servers):
    """The paper's masks leave zero zero; nobody contributed a sample."""
    with pytest.raises(NothingToAverage):
        paper_divide(servers, [1], [0])


def test_a_hardened_divisor_of_zero_does_not_fit(servers):
    """y' = rho*0 - s is negative: honest divisors never are. CSP says so by a flag alone, after the whole computation."""
    before = servers.csp.costs.counts.copy()
    assert divide(servers, [1], [1]) is not None
    honest, before = servers.csp.costs.counts - before, servers.csp.costs.counts.copy()
    assert divide(servers, [1], [0]) is None
    assert servers.csp.costs.counts - before == honest


def test_dividends_and_divisors_go_together(servers):
    with pytest.raises(LengthMismatch):
        divide(servers, [1, 2, 3], [1, 2])
    with pytest.raises(LengthMismatch):
        paper_divide(servers, [1, 2], [1])


@pytest.mark.parametrize("short", [GuardReply, PolynomialsReply, SdivReply])
def test_a_reply_of_another_length_is_refused(servers, short):
    """CSP cannot make SP take fewer numbers than it asked for, at any of the three steps."""
    csp = Divider(servers.csp, WIDTHS, 2, 2)

    def answer(request):
        reply = csp.answer(request)
        return short(servers.encrypt([1])).to_bytes() if Message.kind_of(reply) == short.kind else reply

    step = HardenedSdivSp(servers.sp, WIDTHS, 1, "test").run(
        servers.encrypt([1, 2]), servers.encrypt([1, 2]), Coins.fresh()
    )
    with pytest.raises(ProtocolError, match=r"1 (guards for 4|products where 4|quotients for 2)"):
        converse(step, answer)
