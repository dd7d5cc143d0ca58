"""Messages between roles from a hostile peer: every kind's decoder, and what the parties make of what they decoded."""

import dataclasses
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.sealing import AudienceKey, ReaderKey, seal_to
from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.protocols.claims import Claim
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.profile import Identity
from tests.fuzz.trial import attempt, mutated, refused, scaled
from tests.protocols.driving import deal, pair
from tests.protocols.test_messages import KINDS, example, limits_of

every_kind = pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
SIGNING = SigningKey.fresh()
CLAIMANT = Identity("claimant", SIGNING.public, ReaderKey.fresh().public)


@pytest.fixture(scope="module")
def servers():
    return pair(64)


@pytest.fixture(scope="module")
def sides():
    sides = deal(2, 1, max_participants=3, key_bits=1344, lanes=None)
    for side in (sides.sp, sides.csp):
        side.enrol(CLAIMANT)
    return sides


@every_kind
@settings(max_examples=scaled(20))
@given(data=st.data())
def test_mutated_messages(cls, servers, data):
    form = data.draw(mutated(example(cls, servers).to_bytes()))
    message = attempt(cls.from_bytes, form, limits_of(servers))
    assert refused(message) or message.to_bytes() == form


FIELDS = st.lists(st.binary(max_size=40) | st.sampled_from([b"", b"\xff" * 4096, b"\x01" + bytes(4095)]), max_size=8)


@every_kind
@settings(max_examples=scaled(10))
@given(fields=FIELDS)
def test_any_fields_behind_a_good_header(cls, servers, fields):
    body = b"".join(struct.pack(">I", len(field)) + field for field in fields)
    form = b"CFLM" + bytes([2, cls.kind]) + body
    message = attempt(cls.from_bytes, form, limits_of(servers))
    assert refused(message) or message.to_bytes() == form


NUMBERS = st.integers(0, 2**64) | st.sampled_from([2**32767, 2**32768 - 1, 2**14300])
claims_of = st.builds(
    Claim,
    task=st.text(max_size=4),
    participant=st.sampled_from(["claimant", "p1", ""]) | st.text(max_size=4),
    rounds=st.lists(NUMBERS, max_size=3).map(tuple),
    amounts=st.lists(NUMBERS, max_size=3).map(tuple),
    masks=st.lists(NUMBERS, max_size=3).map(tuple),
    salts=st.lists(st.binary(max_size=33), max_size=3).map(tuple),
    shown=st.lists(st.binary(max_size=33), max_size=3).map(tuple),
    unused=st.lists(NUMBERS, max_size=3).map(tuple),
    destination=st.sampled_from([b"", bytes(32)]) | st.binary(max_size=33),
    counter=st.sampled_from([0, 1]) | NUMBERS,
    signature=st.binary(max_size=64),
)


@settings(max_examples=scaled(100))
@given(claim=claims_of, signed=st.booleans(), right_task=st.booleans())
def test_claims_of_anything(sides, claim, signed, right_task):
    """Numbers of any length, signed or not: neither server pays, neither fails."""
    claim = dataclasses.replace(claim, task="the task" if not right_task else sides.sp._shape.task.name)
    if signed:
        claim = dataclasses.replace(claim, signature=b"")
        claim = dataclasses.replace(claim, signature=SIGNING.sign(claim.statement))
    attempt(sides.sp.check_claim, claim.to_bytes())
    outcome = attempt(sides.csp.answer, claim.to_bytes())
    assert refused(outcome) or claim.rounds == ()  # nothing was earned here


def test_repro_a_claim_of_a_number_too_long_to_print(sides):
    """Python refuses to write such a number in decimal, with an error that is not ours."""
    claim = Claim(sides.sp._shape.task.name, "claimant", (1,), (2**32767,), (0,), (b"",), (b"",), (), b"", 0, bytes(64))
    assert refused(attempt(sides.sp.check_claim, claim.to_bytes()))
    assert refused(attempt(sides.csp.answer, claim.to_bytes()))


@settings(max_examples=scaled(100))
@given(data=st.data())
def test_what_a_phone_reads(sides, data):
    phone = sides.requester
    honest = example(next(cls for cls in KINDS if cls.__name__ == "Publication"), pair(64)).to_bytes()
    assert refused(attempt(phone.read, data.draw(mutated(honest) | st.binary(max_size=80)), 1))


@given(data=st.binary(max_size=200), context=st.binary(max_size=20))
def test_seals_and_signatures(data, context):
    assert refused(attempt(AudienceKey(bytes(32)).open, data, context))
    assert refused(attempt(ReaderKey(bytes(range(32))).open, data, context))
    assert refused(attempt(verify, data[:32], context, data[32:]))


@given(key=st.binary(max_size=40))
def test_sealing_to_any_key(key):
    """A key of another length or of low order is refused; a seal to any other is for its owner."""
    sealed = attempt(seal_to, key, b"text", b"")
    assert refused(sealed) or len(key) == 32


@given(data=st.binary(max_size=80))
def test_mask_seeds(data):
    seed = attempt(MaskSeed.from_bytes, data)
    assert refused(seed) or seed.to_bytes() == data
