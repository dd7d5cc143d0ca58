"""Seeds as streams of bytes."""

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto.shares.ring import Stream, expand

SEED = bytes(range(32))
KEPT = 1 << 22  # zeros that the stream keeps: longer pieces are put together


def hmac(key: bytes, data: bytes) -> bytes:
    """One call of HMAC-SHA-256."""
    mac = HMAC(key, SHA256())
    mac.update(data)
    return mac.finalize()


def by_hand(seed: bytes, context: bytes, blocks: int) -> bytes:
    """HKDF written out for one block of output, and AES of the successive counters."""
    key = hmac(hmac(bytes(32), seed), context + b"\x01")
    cipher = Cipher(AES(key), ECB()).encryptor()  # noqa: S305
    return b"".join(cipher.update(counter.to_bytes(16, "big")) for counter in range(blocks))


@pytest.mark.parametrize("context", [b"", b"weights", bytes(100)])
def test_a_stream_is_hkdf_and_the_counters_under_aes(context):
    """The counter is a big-endian number of 128 bits that begins at zero."""
    assert expand(SEED, context, 300 * 16) == by_hand(SEED, context, 300)


@given(st.lists(st.integers(0, 100), max_size=8))
def test_pieces_give_what_one_piece_gives(lengths):
    """Also where they do not end with a block of AES."""
    stream = Stream(SEED, b"pieces")
    assert b"".join(stream.take(length) for length in lengths) == expand(SEED, b"pieces", sum(lengths))


@pytest.mark.parametrize("extra", [-1, 0, 1, KEPT + 5])
def test_long_pieces_are_as_right_as_short_ones(extra):
    """Around the length of the zeros that are kept, and beyond twice that length."""
    long = expand(SEED, b"long", KEPT + extra)
    stream = Stream(SEED, b"long")
    assert long == b"".join(stream.take(min(1000, KEPT + extra - at)) for at in range(0, KEPT + extra, 1000))


def test_seeds_and_contexts_give_streams_of_their_own():
    """Three streams that have nothing to do with each other."""
    streams = {expand(SEED, b"a", 32), expand(SEED, b"b", 32), expand(bytes(32), b"a", 32)}
    assert len(streams) == 3


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_seed_of_another_length_is_refused(length):
    """Without a word about what it holds."""
    with pytest.raises(ValueError, match="a seed has 32 bytes"):
        Stream(bytes(length), b"")


def test_a_negative_length_is_refused():
    """It would be taken from the end."""
    with pytest.raises(ValueError, match="-1 bytes"):
        Stream(SEED, b"").take(-1)


def test_a_stream_does_not_show_its_seed():
    """Neither the seed nor the key."""
    assert repr(Stream(SEED, b"")) == "Stream(secret)"
