"""SMUL: the paper's products, and the batched form that evaluates polynomials, against direct evaluation."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.coins import Coins
from crowdfl.errors import LengthMismatch, ProtocolError
from crowdfl.protocols.common.smul import (
    PaperSmulCsp,
    PaperSmulSp,
    PolynomialsCsp,
    PolynomialsReply,
    PolynomialsRequest,
    PolynomialsSp,
    products_in,
    substitute,
)
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.hardened.prirwd import distance_polynomials
from tests.protocols.driving import pair


@pytest.fixture(scope="module")
def servers():
    return pair(512)


def multiply(servers, x, y, mask_bits=120):
    sp, csp = PaperSmulSp(servers.sp, mask_bits=mask_bits), PaperSmulCsp(servers.csp, max_count=100)
    step = sp.run(servers.encrypt(x), servers.encrypt(y), Coins.fresh())
    return servers.read(run_exchange(step, ask_directly(csp.answer)))


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
    with pytest.raises(LengthMismatch):
        multiply(servers, [1, 2], [3])


def evaluate(servers, values, polynomials, coins=None):
    sp, csp = PolynomialsSp(servers.sp, 1, "test"), PolynomialsCsp(servers.csp)

    def answer(request):
        message = PolynomialsRequest.from_bytes(request, servers.csp.limits(100))
        return csp.answer(message, products_in(polynomials)).to_bytes()

    step = sp.run(servers.encrypt(values), polynomials, coins or Coins.fresh())
    return servers.read(run_exchange(step, ask_directly(answer)))


def direct(values, polynomial):
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
    return values, polynomials


@settings(max_examples=40)
@given(problem=_problems())
def test_polynomials_equal_direct_evaluation(servers, problem):
    """Up to four factors a term, repeated ones too, operands of either sign up to their exact widths."""
    values, polynomials = problem
    assert evaluate(servers, values, polynomials) == [direct(values, p) for p in polynomials]


def test_the_polynomials_of_the_rewards(servers):
    """G_i + eps_i + 1 and delta^3, as PriRwd asks for them."""
    y, uu, a, b, d = 300, 10**12, 5 * 10**9, -7 * 10**9, 10
    terms = {(0, 0, 2): 1, (0, 3, 4): -2, (1, 4, 4): 1, (0, 0, 4, 4): 1000, (): 1}
    expected = y * y * a - 2 * y * b * d + uu * d * d + 1000 * y * y * d * d + 1
    assert evaluate(servers, [y, uu, a, b, d], [terms, {(4, 4, 4): 1}]) == [expected, d**3]


@pytest.mark.parametrize("sign", [1, -1])
def test_polynomials_of_operands_at_their_bounds(servers, sign):
    """Every product of six operands of very different sizes."""
    values = [sign * (2**w - 1) for w in (1, 7, 30, 50, 3, 64)]
    products = [{(i, j): 1} for i in range(6) for j in range(i, 6)]
    assert evaluate(servers, values, products) == [direct(values, p) for p in products]


def test_an_operand_is_opened_once_however_many_products_it_enters(servers):
    """Twenty-one products of six operands: six openings."""
    before = servers.csp.costs.total("PDec")
    test_polynomials_of_operands_at_their_bounds(servers, 1)
    assert servers.csp.costs.total("PDec") - before == 6


def test_products_are_right_modulo_n_whatever_the_operands_are(servers):
    """Operands that a false reply has made nearly as large as N: nothing overflows, the result is that modulo N."""
    n, values = servers.public.n, [(1 << 509) + 12345, -(1 << 509) + 99, 7]
    polynomials = [{(0, 1): 1, (2,): 5}, {(0, 0, 2): 3}]
    assert evaluate(servers, values, polynomials) == [servers.public.signed(direct(values, p) % n) for p in polynomials]


OPERANDS = [0, 1, -1, 2**40, -(2**40), 2**509, -(2**509) + 1]


def test_what_csp_opens_is_the_operand_and_a_mask_modulo_n(servers):
    """The masks are the seed's residues modulo N, replayed here."""
    seed = bytes(range(32))
    evaluate(servers, OPERANDS, [{(j, j): 1} for j in range(len(OPERANDS))], Coins(seed))
    masks = to_ints(Coins(seed).residues(len(OPERANDS), servers.public.n))
    opened = servers.csp.view.of("SMUL x'")[-1]
    assert opened == [(x + m) % servers.public.n for x, m in zip(OPERANDS, masks, strict=True)]


@pytest.mark.parametrize("operand", [0, -1, 2**40, 2**509], ids=["0", "-1", "2^40", "2^509"])
def test_what_csp_opens_is_uniform_whatever_the_operand_is(servers, operand):
    """Ten thousand masks of one seed, in 20 cells of [0, N): a mask of fewer bits would leave most cells empty."""
    n, draws, cells = servers.public.n, 10_000, 20
    masks = to_ints(Coins(bytes([7] * 32)).residues(draws, n))
    counts = np.bincount([int((operand + m) % n * cells // n) for m in masks], minlength=cells)
    assert ((counts - draws / cells) ** 2 / (draws / cells)).sum() < 100  # 19 degrees of freedom, p below 1e-12
    evaluate(servers, [operand] * 64, [{(j, j): 1} for j in range(64)])
    opened = servers.csp.view.of("SMUL x'")[-1]
    assert len({int(value * 8 // n) for value in opened}) >= 4  # by chance once in 10^17


def test_the_products_asked_for_are_those_that_substitution_needs(servers):
    """All of them, and no other: each is used with a coefficient that is not zero."""
    polynomials = distance_polynomials(3, 1000)
    masks, n = to_ints(Coins.fresh().residues(11, servers.public.n)), servers.public.n
    needed = {m for p in polynomials for m, c in substitute(p, masks, n).items() if len(m) > 1 and c}
    assert products_in(polynomials) == tuple(sorted(needed))


@pytest.mark.parametrize(
    ("polynomials", "products"),
    [
        ([{(): 5, (0,): 3}], ()),
        ([{(0, 1): 1}], ((0, 1),)),
        ([{(0, 0): 1}, {(0, 0): 2, (0,): -1}], ((0, 0),)),
        ([{(0, 1, 2): 1}], ((0, 1), (0, 1, 2), (0, 2), (1, 2))),
        ([{(0, 0, 1): 1}], ((0, 0), (0, 0, 1), (0, 1))),
    ],
)
def test_products_in_polynomials(polynomials, products):
    """Every part of two factors and more, once, sorted: both servers derive the same."""
    assert products_in(polynomials) == products


def test_a_reply_of_another_length_is_refused(servers):
    """CSP cannot make SP take fewer products than it asked for."""
    sp = PolynomialsSp(servers.sp, 1, "test")
    step = sp.run(servers.encrypt([3, 4]), [{(0, 1): 1, (0, 0): 1}], Coins.fresh())
    short = PolynomialsReply(servers.encrypt([1])).to_bytes()
    with pytest.raises(ProtocolError, match="1 products where 2"):
        run_exchange(step, ask_directly(lambda request: short))
