"""SMUL: the paper's products, and the batched form that evaluates polynomials, against direct evaluation."""

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.randomness import Coins
from crowdfl.errors import FormatError, LengthMismatch, ProtocolError
from crowdfl.protocols.smul import (
    PaperSmulCsp,
    PaperSmulSp,
    PolynomialsCsp,
    PolynomialsReply,
    PolynomialsRequest,
    PolynomialsSp,
)
from tests.protocols.driving import pair

SIGMA = 40


@pytest.fixture(scope="module")
def servers():
    """SP and CSP under 512 bits."""
    return pair(512)


def multiply(servers, x, y, mask_bits=120):
    """The paper's products."""
    sp, csp = PaperSmulSp(servers.sp, mask_bits=mask_bits), PaperSmulCsp(servers.csp, max_count=100)
    pending, request = sp.begin(servers.encrypt(x), servers.encrypt(y), Coins.fresh())
    return servers.read(sp.finish(pending, csp.answer(request)))


_forty = st.integers(-(2**40) + 1, 2**40 - 1)


@settings(max_examples=20)
@given(factors=st.lists(st.tuples(_forty, _forty), min_size=1, max_size=8))
def test_the_papers_products(servers, factors):
    """Signed factors of forty bits under masks of 120."""
    assert multiply(servers, [a for a, _ in factors], [b for _, b in factors]) == [a * b for a, b in factors]


def test_the_papers_products_at_the_bounds(servers):
    """Every combination of the largest, the smallest and nothing."""
    ends = [-(2**40) + 1, -1, 0, 1, 2**40 - 1]
    x, y = [a for a in ends for _ in ends], [b for _ in ends for b in ends]
    assert multiply(servers, x, y) == [a * b for a, b in zip(x, y, strict=True)]


def test_factors_go_together(servers):
    """Two by one is refused."""
    with pytest.raises(LengthMismatch):
        multiply(servers, [1, 2], [3])


def evaluate(servers, values, widths, polynomials, masks_in_task=100):
    """Polynomials in encrypted operands."""
    sp = PolynomialsSp(servers.sp, sigma=SIGMA, masks_in_task=masks_in_task)
    csp = PolynomialsCsp(servers.csp, max_count=100)
    pending, request = sp.begin(servers.encrypt(values), widths, polynomials, Coins.fresh())
    return servers.read(sp.finish(pending, csp.answer(request)))


def direct(values, polynomial):
    """The same in the clear."""
    return sum(c * prod(values[j] for j in monomial) for monomial, c in polynomial.items())


@st.composite
def _problems(draw):
    widths = draw(st.lists(st.integers(1, 50), min_size=1, max_size=6))
    values = [draw(st.integers(-(2**w) + 1, 2**w - 1) | st.sampled_from([2**w - 1, 1 - 2**w])) for w in widths]
    operand = st.integers(0, len(widths) - 1)
    monomial = st.lists(operand, min_size=0, max_size=4).map(lambda m: tuple(sorted(m)))
    nontrivial = st.lists(operand, min_size=1, max_size=4).map(lambda m: tuple(sorted(m)))
    coefficient = st.integers(-(10**6), 10**6)
    polynomials = []
    for _ in range(draw(st.integers(1, 3))):
        terms = draw(st.dictionaries(monomial, coefficient, max_size=4))
        terms[draw(nontrivial)] = draw(coefficient.filter(bool))
        polynomials.append(terms)
    return values, widths, polynomials


@settings(max_examples=40)
@given(problem=_problems())
def test_polynomials_equal_direct_evaluation(servers, problem):
    """Up to four factors a term, repeated ones too, operands of either sign up to their exact widths."""
    values, widths, polynomials = problem
    assert evaluate(servers, values, widths, polynomials) == [direct(values, p) for p in polynomials]


def test_the_polynomials_of_the_rewards(servers):
    """G_i + eps_i + 1 and delta^3, as PriRwd asks for them."""
    y, uu, a, b, d = 300, 10**12, 5 * 10**9, -7 * 10**9, 10
    terms = {(0, 0, 2): 1, (0, 3, 4): -2, (1, 4, 4): 1, (0, 0, 4, 4): 1000, (): 1}
    expected = y * y * a - 2 * y * b * d + uu * d * d + 1000 * y * y * d * d + 1
    assert evaluate(servers, [y, uu, a, b, d], [9, 40, 34, 34, 4], [terms, {(4, 4, 4): 1}]) == [expected, d**3]


@pytest.mark.parametrize("sign", [1, -1])
def test_polynomials_of_operands_at_their_bounds(servers, sign):
    """All operands at once at the ends of their widths: no field spills into its neighbour."""
    widths = [1, 7, 30, 50, 3, 64]
    values = [sign * (2**w - 1) for w in widths]
    products = [{(i, j): 1} for i in range(6) for j in range(i, 6)]
    assert evaluate(servers, values, widths, products) == [direct(values, p) for p in products]


def test_an_operand_is_opened_once_however_many_products_it_enters(servers):
    """Twenty-one products of six operands: one opening, because all six share a plaintext."""
    before = servers.csp.costs.total("PDec")
    test_polynomials_of_operands_at_their_bounds(servers, 1)
    assert servers.csp.costs.total("PDec") - before == 1


def test_masked_operands_are_never_negative_and_fill_their_fields(servers):
    """What CSP opens lies in [0, 2^(w + slack + 1)) for an operand of either sign."""
    for value in (-(2**20) + 1, 2**20 - 1):
        evaluate(servers, [value], [20], [{(0, 0): 1}])
        (opened,) = servers.csp.view.of("SMUL x'")[-1]
        assert 0 <= opened < 2 ** (20 + 1 + SIGMA + 7 + 1)


def test_an_operand_wider_than_a_plaintext_is_refused(servers):
    """By name, before anything is sent."""
    with pytest.raises(ProtocolError, match="does not fit"):
        evaluate(servers, [1], [500], [{(0, 0): 1}])


def test_a_reply_of_another_length_is_refused(servers):
    """CSP cannot make SP take fewer products than it asked for."""
    sp = PolynomialsSp(servers.sp, sigma=SIGMA, masks_in_task=1)
    pending, _ = sp.begin(servers.encrypt([3, 4]), [4, 4], [{(0, 1): 1, (0, 0): 1}], Coins.fresh())
    with pytest.raises(ProtocolError, match="1 products where 2"):
        sp.finish(pending, PolynomialsReply(servers.encrypt([1])).to_bytes())


@pytest.mark.parametrize("product", [b"", b"\0\0\0\0", b"\0\0\0", b"\0\0\0\0\0\0\0\x09", b"\0\0\0\0" * 9])
def test_products_of_operands_that_were_not_sent_are_refused(servers, product):
    """Too few factors, too many, half a number, an operand out of range."""
    sp, csp = PolynomialsSp(servers.sp, sigma=SIGMA, masks_in_task=1), PolynomialsCsp(servers.csp, max_count=10)
    _, request = sp.begin(servers.encrypt([3, 4]), [4, 4], [{(0, 1): 1}], Coins.fresh())
    honest = PolynomialsRequest.from_bytes(request, servers.csp.limits(10))
    with pytest.raises(FormatError, match="operands"):
        csp.answer(PolynomialsRequest(honest.packed, honest.packed_1, honest.widths, (product,)).to_bytes())


@pytest.mark.parametrize("widths", [(), (400, 400, 400), (600,)])
def test_widths_that_do_not_match_the_plaintexts_are_refused(servers, widths):
    """CSP unpacks only what the widths describe."""
    sp, csp = PolynomialsSp(servers.sp, sigma=SIGMA, masks_in_task=1), PolynomialsCsp(servers.csp, max_count=10)
    _, request = sp.begin(servers.encrypt([3, 4]), [4, 4], [{(0, 1): 1}], Coins.fresh())
    honest = PolynomialsRequest.from_bytes(request, servers.csp.limits(10))
    with pytest.raises(ProtocolError):
        csp.answer(PolynomialsRequest(honest.packed, honest.packed_1, widths, honest.products).to_bytes())
