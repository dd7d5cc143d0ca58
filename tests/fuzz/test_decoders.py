"""Whatever bytes arrive, a decoder gives a value that holds what it promises, or an error of ours."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto import blocks
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector, Unchecked
from tests.fuzz.trial import attempt, mutated, refused, scaled

LIMIT = 5
HEADER_FIELDS = [(0, 4), (4, 1), (5, 1), (6, 2), (8, 32), (40, 4), (44, 8)]  # offset and length of each

DECODERS = {
    "parse": lambda data, public: Unchecked.parse(data, public, max_count=LIMIT),
    "ciphertexts": lambda data, public: CipherVector.from_bytes(data, public, max_count=LIMIT),
    "partial decryptions": lambda data, public: PartialVector.from_bytes(data, public, max_count=LIMIT),
}
BYTE_OF_KIND = {"parse": 1, "ciphertexts": 1, "partial decryptions": 2}
decoders = pytest.mark.parametrize("name", DECODERS)


def check(name: str, data: bytes, public) -> bool:
    """Decode; True when a value came out, which then must be what the bytes say."""
    value = attempt(DECODERS[name], data, public)
    if refused(value):
        return False
    assert len(value) <= LIMIT
    assert struct.pack(">4sBBH", b"CFLV", 1, BYTE_OF_KIND[name], 0) + public.fingerprint == data[:40]
    assert value.block.tobytes() == data[52:]
    if not isinstance(value, Unchecked):
        for number in blocks.to_ints(value.block):
            public.ciphertext(number)
    return True


def honest(keys, name: str) -> bytes:
    vector = keys.encrypt([1, -2, 3])
    return (vector.partial_decrypt(keys.shares[0]) if name == "partial decryptions" else vector).to_bytes()


@decoders
@given(data=st.binary(max_size=300))
def test_random_bytes(keys, name, data):
    """Never a value: nobody guesses a fingerprint."""
    assert not check(name, data, keys.public)


@decoders
@given(count=st.integers(0, 2**64 - 1) | st.integers(0, LIMIT + 1), body=st.binary(max_size=32 * (LIMIT + 1)))
def test_random_numbers_behind_a_good_header(keys, name, count, body):
    head = struct.pack(">4sBBH32sIQ", b"CFLV", 1, BYTE_OF_KIND[name], 0, keys.public.fingerprint, 32, count)
    check(name, head + body, keys.public)


@decoders
@given(data=st.data())
def test_numbers_at_the_edges_behind_a_good_header(keys, name, data):
    """Whole rows, so that the numbers themselves are looked at: values come out exactly when all are ciphertexts."""
    n = int(keys.public.n)
    edges = [0, 1, n - 1, n, n + 1, n * n - 1, n * n, 2**256 - 1]
    rows = data.draw(st.lists(st.sampled_from(edges) | st.integers(0, 2**256 - 1), max_size=LIMIT))
    head = struct.pack(">4sBBH32sIQ", b"CFLV", 1, BYTE_OF_KIND[name], 0, keys.public.fingerprint, 32, len(rows))
    came_out = check(name, head + b"".join(row.to_bytes(32, "big") for row in rows), keys.public)
    good = all(0 < row < n * n and row % n != 0 for row in rows)  # a random row hits a prime factor of N never
    assert came_out == (good or name == "parse")


@decoders
@given(data=st.data())
def test_mutated_forms(keys, name, data):
    check(name, data.draw(mutated(honest(keys, name))), keys.public)


@decoders
@pytest.mark.parametrize("field", HEADER_FIELDS, ids=str)
@settings(max_examples=scaled(10))
@given(data=st.data())
def test_any_other_header_field_is_refused(keys, name, field, data):
    start, length = field
    form = bytearray(honest(keys, name))
    other = data.draw(st.binary(min_size=length, max_size=length).filter(lambda b: b != form[start : start + length]))
    form[start : start + length] = other
    assert not check(name, bytes(form), keys.public)


@decoders
def test_good_forms_pass(keys, name):
    """The decoders under test do accept something."""
    assert check(name, honest(keys, name), keys.public)
