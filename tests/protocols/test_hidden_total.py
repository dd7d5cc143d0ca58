"""A hidden total: how long CSP's powers take says nothing about what it opened, and the average is what it was."""

import numpy as np
import pytest

from crowdfl.crypto.blocks import from_ints, to_ints
from crowdfl.errors import ProtocolError
from crowdfl.protocols.hardened import prifedavg
from crowdfl.protocols.hardened.opening import CHUNK
from crowdfl.protocols.hardened.prifedavg import ScaleReply, ScaleRequest
from crowdfl.protocols.messages import Message
from tests.protocols.driving import Wire, converse, deal

KEY_BITS = 640
LENGTH = KEY_BITS + 128  # bits of every exponent


@pytest.fixture(scope="module")
def sides():
    """A task whose total nobody sees."""
    return deal(3, 2, total="hidden", key_bits=KEY_BITS, rounds=50)


@pytest.fixture
def raised(monkeypatch):
    """The exponents that anybody raises to."""
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
    n = int(sides.dealer.task.public.n)
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
    n = int(sides.dealer.task.public.n)
    budget = sides.sp._shape.budget
    opened = [0, 1, n // 2, n - 1]
    for value, scaled in zip(opened, scale(sides, 1, opened), strict=True):
        noise = sides.dealer.task.public.signed((scaled - 3 * value) % n)
        slots = budget.slots
        assert abs(noise) < sum(1 << (slot * budget.slot_bits + budget.dither_bits) for slot in range(slots))


def test_the_average_is_what_it_was(sides):
    """To within a unit of 10^-L, at several totals."""
    for number, samples in enumerate(([1, 1, 1], [1, 2, 3], [50, 1, 7]), start=1):
        sides.sp.open_round(number)
        models = [[0.5, -0.25], [1.5, 2.0], [-3.0, 0.125]]
        for i, (model, count) in enumerate(zip(models, samples, strict=True)):
            sides.sp.add(f"p{i}", sides.upload(model, count, f"p{i}"))
        wire = Wire(sides.csp)
        converse(sides.sp.publish(final=False), wire)
        average = sides.people["p0"].read(sides.sp.publication(), number)
        assert average.total is None
        assert average.weights == pytest.approx(np.average(models, axis=0, weights=samples), abs=1.1e-6)
        assert [Message.kind_of(reply) for reply in wire.replies].count(ScaleReply.kind) == 1


@pytest.mark.parametrize("count", [0, 2])
def test_one_factor_goes_with_a_chunk(sides, count):
    """None, or two, are refused before anything is opened."""
    party = sides.sp.party
    masked = party.encrypt([1])
    factors = party.encrypt([3] * 2).part(0, count)
    message = ScaleRequest(1, 0, masked, party.partial_decrypt(masked), factors)
    seen = len(sides.csp.party.view.entries)
    with pytest.raises(ProtocolError, match="honest SP"):
        sides.csp._hidden.check(ScaleRequest.from_bytes(message.to_bytes(), party.limits(CHUNK)))
    assert len(sides.csp.party.view.entries) == seen
