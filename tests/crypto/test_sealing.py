import pytest

from crowdfl.crypto.commitment import commit
from crowdfl.crypto.sealing import AudienceKey, ReaderKey, seal_to
from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import BadSignature, InvalidKey, SealBroken


def flipped(data: bytes, place: int) -> bytes:
    """`data` with one bit changed."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_an_audience_opens_what_was_sealed_to_it():
    """The key and the context together open; an empty message is a message."""
    key = AudienceKey.fresh()
    assert key.open(key.seal(b"model", b"round 1"), b"round 1") == b"model"
    assert key.open(key.seal(b"", b""), b"") == b""


def test_sealing_twice_gives_two_messages():
    """No nonce repeats: the same plaintext looks different every time."""
    key = AudienceKey.fresh()
    assert key.seal(b"model", b"c") != key.seal(b"model", b"c")


def test_an_audience_message_altered_anywhere_is_refused():
    """Every byte, the salt included, is under the seal."""
    key = AudienceKey.fresh()
    sealed = key.seal(b"model", b"c")
    for place in range(len(sealed)):
        with pytest.raises(SealBroken):
            key.open(flipped(sealed, place), b"c")


@pytest.mark.parametrize("cut", [0, 1, 31, 32, 40])
def test_a_truncated_audience_message_is_refused(cut):
    key = AudienceKey.fresh()
    with pytest.raises(SealBroken):
        key.open(key.seal(b"model", b"c")[:cut], b"c")


def test_another_audience_or_another_place_opens_nothing():
    """A message served out of place stays shut."""
    key = AudienceKey.fresh()
    sealed = key.seal(b"model", b"round 1")
    with pytest.raises(SealBroken):
        AudienceKey.fresh().open(sealed, b"round 1")
    with pytest.raises(SealBroken):
        key.open(sealed, b"round 2")


def test_an_audience_key_has_32_bytes():
    with pytest.raises(InvalidKey, match="32"):
        AudienceKey(b"short")


def test_one_reader_opens_what_was_sealed_to_it():
    reader = ReaderKey.fresh()
    assert reader.open(seal_to(reader.public, b"reward", b"ada"), b"ada") == b"reward"


def test_another_reader_another_place_or_a_change_opens_nothing():
    """The sealed reward is for one reader, in one place, unaltered."""
    reader = ReaderKey.fresh()
    sealed = seal_to(reader.public, b"reward", b"ada")
    with pytest.raises(SealBroken):
        ReaderKey.fresh().open(sealed, b"ada")
    with pytest.raises(SealBroken):
        reader.open(sealed, b"bob")
    for place in range(len(sealed)):
        with pytest.raises(SealBroken):
            reader.open(flipped(sealed, place), b"ada")


@pytest.mark.parametrize("junk", [b"", b"x", bytes(32), bytes(100)])
def test_junk_is_no_sealed_message(junk):
    """Whatever arrives, the error is the named one."""
    with pytest.raises(SealBroken):
        ReaderKey.fresh().open(junk, b"ada")


def test_signatures_bind_message_and_signer():
    key = SigningKey.fresh()
    signature = key.sign(b"amount 5")
    verify(key.public, b"amount 5", signature)
    for public, message, shown in [
        (key.public, b"amount 6", signature),
        (SigningKey.fresh().public, b"amount 5", signature),
        (key.public, b"amount 5", flipped(signature, 0)),
        (key.public, b"amount 5", b""),
        (b"short", b"amount 5", signature),
    ]:
        with pytest.raises(BadSignature):
            verify(public, message, shown)


def test_a_commitment_binds_value_and_salt():
    assert commit(5, b"salt") == commit(5, b"salt")
    assert (
        len(
            {commit(5, b"salt"), commit(6, b"salt"), commit(5, b"tlas"), commit(0, b"salt\x05"), commit(0x7405, b"sal")}
        )
        == 5
    )


def test_no_private_key_is_shown():
    for key in (AudienceKey.fresh(), ReaderKey.fresh(), SigningKey.fresh()):
        secret = key.key if isinstance(key, AudienceKey) else key.private
        assert repr(secret) not in repr(key)
        assert secret.hex() not in repr(key)


@pytest.mark.parametrize("reader", [bytes(32), b"\x01" + bytes(31), b"short", b""])
def test_a_key_that_agrees_on_nothing_is_refused(reader):
    """Low order or of another length: a named error, not a crash."""
    with pytest.raises(InvalidKey):
        seal_to(reader, b"reward", b"ada")
