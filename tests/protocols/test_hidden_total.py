"""A hidden total: how long CSP's powers take says nothing about what it opened."""

import gmpy2
import numpy as np
import pytest

from crowdfl.crypto.blocks import from_ints, to_ints
from crowdfl.crypto.paillier.pctd import Ciphertext
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.errors import LengthMismatch, ProtocolError
from crowdfl.protocols.hardened import prifedavg
from crowdfl.protocols.hardened.prifedavg import ScaleRequest
from tests.protocols.driving import deal

KEY_BITS = 640
LENGTH = KEY_BITS + 128  # bits of every exponent


@pytest.fixture(scope="module")
def sides():
    return deal(3, 2, total="hidden", key_bits=KEY_BITS, rounds=50)


@pytest.fixture
def raised(monkeypatch):
    seen, original = [], prifedavg.power_of_one

    def recorded(party, factor, exponents):
        seen.append((party.name, exponents))
        return original(party, factor, exponents)

    monkeypatch.setattr(prifedavg, "power_of_one", recorded)
    return seen


def scale(sides, number, opened):
    """CSP's half of the scaling of numbers that it opens as these, by a factor of 3; its reply, decrypted."""
    party, hidden = sides.sp.party, sides.csp._hidden
    masked = party.encrypt(from_ints(opened, party.public.plaintext_bytes))
    message = ScaleRequest(number, 0, masked, party.partial_decrypt(masked), party.encrypt([3]))
    hidden.check(message)
    reply = hidden.answer(message).scaled
    return to_ints(sides.csp.party.finish(reply, party.partial_decrypt(reply)))


def test_exponents_have_one_length_whatever_was_opened(sides, raised):
    """The smallest and the largest number that there is, and each many times: the same number of bits, not only bytes."""
    n = int(sides.task.public.n)
    opened = [0, 1, 2, n // 2, n - 2, n - 1] * 20
    scale(sides, 1, opened)
    ((name, exponents),) = raised
    numbers = to_ints(exponents)
    assert name == "CSP"
    assert {number.bit_length() for number in numbers} == {LENGTH}
    assert exponents.shape[1] == LENGTH // 8
    assert [number % n for number in numbers] == opened


def test_exponents_have_other_digits_each_time(sides, raised):
    """Their digits are the blind's: of the same opened number no two exponents agree in many bits, and no bit is fixed."""
    for _ in range(2):
        scale(sides, 1, [5] * 40)
    numbers = [int(number) for _, block in raised for number in to_ints(block)]
    assert len(set(numbers)) == len(numbers)
    ones = np.sum([[number >> bit & 1 for bit in range(LENGTH - 2)] for number in numbers], axis=0)
    assert (ones > 0).all()  # eighty draws: by chance once in 10^21
    assert (ones < len(numbers)).all()


def test_what_is_scaled_is_right_whatever_the_blind_is(sides):
    """3 * (X + R) modulo N, and a dither of less than half a slot on top."""
    n = int(sides.task.public.n)
    budget = sides.sp._shape.budget
    opened = [0, 1, n // 2, n - 1]
    for value, scaled in zip(opened, scale(sides, 1, opened), strict=True):
        noise = sides.task.public.signed((scaled - 3 * value) % n)
        slots = budget.slots
        assert abs(noise) < sum(1 << (slot * budget.slot_bits + budget.dither_bits) for slot in range(slots))


@pytest.mark.parametrize("count", [0, 2])
def test_one_factor_goes_with_a_chunk(sides, count):
    """None, or two, are refused before anything is opened."""
    party = sides.sp.party
    masked = party.encrypt([1])
    factors = party.encrypt([3] * 2).part(0, count)
    message = ScaleRequest(1, 0, masked, party.partial_decrypt(masked), factors)
    sides.csp.answer(sides.manifest(1))
    seen = len(sides.csp.party.view.entries)
    with pytest.raises(LengthMismatch, match=f"{count} factor where 1"):
        sides.csp.answer(message.to_bytes())
    assert len(sides.csp.party.view.entries) == seen


def test_repro_no_reply_of_csp_shows_a_parity(sides):
    """[[Q]] with Jacobi symbol -1 would make the symbol of [[Q]]^(X + R) the last bit of X + R."""
    party, public = sides.sp.party, sides.sp.party.public
    odd = next(r for r in range(2, 1000) if gmpy2.jacobi(r, public.n) == -1)
    blind = Ciphertext(gmpy2.powmod(odd, public.n, public.n_squared), public)
    factor, masked = CipherVector.of([public.encrypt(1) + blind], public), party.encrypt([3])
    sides.csp.answer(sides.manifest(1))
    with pytest.raises(ProtocolError, match="honest SP"):
        sides.csp.answer(ScaleRequest(1, 0, masked, party.partial_decrypt(masked), factor).to_bytes())
