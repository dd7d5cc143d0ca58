"""The binary form of vectors: what is written, and what is refused before it costs anything."""

import struct
import tracemalloc

import pytest

from crowdfl.crypto import blocks
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector, Unchecked
from crowdfl.errors import CiphertextOutOfRange, FormatError, LimitExceeded, NotAUnit, Truncated

HEADER_BYTES = 52
CIPHERTEXTS, PARTIALS = 1, 2


def header(public, *, magic=b"CFLV", version=1, kind=CIPHERTEXTS, reserved=0, name=None, width=None, count=0) -> bytes:
    name = public.fingerprint if name is None else name
    width = public.ciphertext_bytes if width is None else width
    return struct.pack(">4sBBH32sIQ", magic, version, kind, reserved, name, width, count)


def parse(data, public, max_count=10, kind=CIPHERTEXTS):
    return Unchecked.parse(data, public, max_count=max_count, kind=kind)


def test_the_form_is_a_header_and_the_numbers(keys):
    vector = keys.encrypt([1, -2, 3])
    numbers = b"".join(int(vector[i].value).to_bytes(32, "big") for i in range(3))
    assert vector.to_bytes() == header(keys.public, count=3) + numbers
    partial = vector.partial_decrypt(keys.shares[0])
    assert partial.to_bytes()[:HEADER_BYTES] == header(keys.public, kind=PARTIALS, count=3)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_vector_survives_its_form(keys, count):
    vector = keys.encrypt(range(count))
    assert parse(vector.to_bytes(), keys.public).validate() == vector
    assert CipherVector.from_bytes(vector.to_bytes(), keys.public, max_count=count) == vector


def test_partial_decryptions_survive_their_form(keys):
    partial = keys.encrypt([1, 2]).partial_decrypt(keys.shares[0])
    again = PartialVector.from_bytes(partial.to_bytes(), keys.public, max_count=2)
    assert type(again) is PartialVector
    assert again == partial


def test_every_cut_is_noticed(keys):
    """At whatever byte the form ends too early."""
    data = keys.encrypt([1, 2]).to_bytes()
    for end in range(len(data)):
        with pytest.raises(Truncated):
            parse(data[:end], keys.public)


def test_the_limit_itself_is_allowed(keys):
    """As many as the receiver takes, and not one more."""
    data = keys.encrypt([1, 2]).to_bytes()
    assert len(parse(data, keys.public, max_count=2)) == 2
    with pytest.raises(LimitExceeded, match="2 ciphertexts announced, at most 1"):
        parse(data, keys.public, max_count=1)


@pytest.mark.parametrize("max_count", [10, 2**62])
def test_an_announcement_takes_no_memory(keys, max_count):
    """A header that promises 2^40 numbers costs the receiver next to nothing, even one who would take them."""
    data = header(keys.public, count=2**40)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            parse(data, keys.public, max_count)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_parsing_does_not_copy(keys):
    """The numbers of a large upload stay where they are."""
    data = header(keys.public, count=10**5) + bytes(32 * 10**5)
    tracemalloc.start()
    try:
        parse(data, keys.public, 10**5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("position", [0, 1, 1500, 2999])
@pytest.mark.parametrize(
    ("kind", "error"), [("zero", CiphertextOutOfRange), ("wide", CiphertextOutOfRange), ("n", NotAUnit)]
)
def test_validation_names_the_first_bad_number(keys, backend, position, kind, error):
    """Wherever it is, in whichever piece; later ones are counted."""
    n = keys.public.n
    bad = {"zero": 0, "wide": keys.public.n_squared, "n": n}[kind]
    numbers = [5] * 3000
    numbers[position] = bad
    numbers[2999] = bad
    unchecked = Unchecked(keys.public, blocks.from_ints(numbers, 32))
    with pytest.raises(error, match=f"{1 if position == 2999 else 2} of 3000 .* position {position}:"):
        unchecked.validate(backend=backend)


def test_validation_tells_range_from_factor(keys):
    """The error is that of the first bad number, not of the worst."""
    n = keys.public.n
    for numbers, error in (([1, n, 0], NotAUnit), ([1, 0, n], CiphertextOutOfRange)):
        with pytest.raises(error, match=r"2 of 3 .* position 1:"):
            Unchecked(keys.public, blocks.from_ints(numbers, 32)).validate()


def test_nothing_computes_on_unchecked_numbers(keys):
    """They have no arithmetic until they are validated."""
    unchecked = parse(keys.encrypt([1]).to_bytes(), keys.public)
    for name in ("add", "scale", "negate", "partial_decrypt", "__add__", "__getitem__"):
        assert not hasattr(unchecked, name)
