"""Messages: what goes out comes in, and anything else is refused by name."""

import dataclasses
import importlib
import pkgutil
import struct
from collections import Counter
from typing import get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl import protocols
from crowdfl.crypto.long_bytes import Joined, Long, LongPart
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.errors import (
    CiphertextError,
    CrowdFLError,
    FormatError,
    KeyMismatch,
    LimitExceeded,
    TrailingBytes,
    Truncated,
    UnsupportedVersion,
)
from crowdfl.protocols.claims import RewardEnvelope
from crowdfl.protocols.common.sdiv import SdivReply, SdivRequest
from crowdfl.protocols.hardened.manifest import ManifestRequest
from crowdfl.protocols.hardened.opening import OpenReply, OpenRequest, Publication
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.shares.round.average import SumOffer
from crowdfl.protocols.shares.round.manifest import StepRequest
from crowdfl.reasons import Reason
from tests.protocols.driving import SMALL, deal, pair

for module in pkgutil.iter_modules(protocols.__path__):
    importlib.import_module(f"{protocols.__name__}.{module.name}")


def descendants(cls):
    return [below for child in cls.__subclasses__() for below in (child, *descendants(child))]


KINDS = sorted((cls for cls in descendants(Message) if cls.kind), key=lambda cls: cls.kind)
every_kind = pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
HEADER = 6


@pytest.fixture(scope="module")
def servers():
    """SP and CSP under a very short key: messages stay small."""
    return pair(64)


def value_for(hint, servers, size):
    if hint is CipherVector:
        return servers.encrypt(list(range(size)))
    if hint is PartialVector:
        return servers.sp.partial_decrypt(servers.encrypt(list(range(size))))
    if hint in (int, bytes, str, Long):
        return {int: 300 * size, bytes: bytes(range(size)), Long: bytes(range(size)), str: "pé" * size}[hint]
    if hint == Reason | None:
        return [None, *Reason][size]
    if hint is Reason:
        return list(Reason)[size]
    return tuple(value_for(hint.__args__[0], servers, i) for i in range(size))


def example(cls, servers, size=2):
    """A message of this class with every field filled."""
    hints = get_type_hints(cls)
    return cls(*(value_for(hints[field.name], servers, size) for field in dataclasses.fields(cls)))


def limits_of(servers, count=3, entries=5):
    return Limits(servers.public, count, entries)


def test_there_are_messages_to_look_at():
    """The tests below have not lost their subject."""
    assert {SdivRequest, OpenRequest, RewardEnvelope} <= set(KINDS)
    assert len(KINDS) >= 24


def test_kinds_are_unique():
    """A receiver of several kinds tells them apart by one byte."""
    repeated = [kind for kind, times in Counter(cls.kind for cls in KINDS).items() if times > 1]
    assert repeated == []
    assert all(0 < cls.kind < 256 for cls in KINDS)


@every_kind
@pytest.mark.parametrize("size", [0, 1, 3])
def test_every_message_comes_back(cls, servers, size):
    """Empty, short and longer fields, numbers of zero, text beyond ASCII."""
    message = example(cls, servers, size)
    assert cls.from_bytes(message.to_bytes(), limits_of(servers)) == message


@every_kind
def test_the_form_is_magic_version_kind(cls, servers):
    data = example(cls, servers).to_bytes()
    assert data[:HEADER] == b"CFLM" + bytes([2, cls.kind])
    assert Message.kind_of(data) == cls.kind


@every_kind
def test_a_message_cut_anywhere_is_refused(cls, servers):
    data = example(cls, servers).to_bytes()
    for length in range(len(data)):
        with pytest.raises(Truncated):
            cls.from_bytes(data[:length], limits_of(servers))


@every_kind
def test_bytes_after_the_end_are_refused(cls, servers):
    with pytest.raises(TrailingBytes):
        cls.from_bytes(example(cls, servers).to_bytes() + b"\0", limits_of(servers))


@every_kind
def test_another_version_is_refused(cls, servers):
    """By name, before its contents are looked at."""
    data = bytearray(example(cls, servers).to_bytes())
    for version in (1, 3):
        data[4] = version
        with pytest.raises(UnsupportedVersion, match=f"form {version}"):
            cls.from_bytes(bytes(data), limits_of(servers))


@every_kind
def test_another_kind_or_magic_is_refused(cls, servers):
    for place in (0, 5):
        data = bytearray(example(cls, servers).to_bytes())
        data[place] ^= 0x80
        with pytest.raises(FormatError):
            cls.from_bytes(bytes(data), limits_of(servers))


def fields(*bodies):
    return b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def test_a_field_beyond_the_limit_is_refused_before_memory_is_taken(servers):
    data = b"CFLM" + bytes([2, OpenReply.kind]) + struct.pack(">I", 2**32 - 1)
    with pytest.raises(LimitExceeded):
        OpenReply.from_bytes(data, limits_of(servers))


def test_a_list_of_too_many_entries_is_refused(servers):
    """Empty entries cost four bytes each; their number is limited all the same."""
    header = b"CFLM" + bytes([2, Publication.kind])
    five, six = (header + fields(b"seed", b"\x01", fields(*[b""] * count), b"") for count in (5, 6))
    assert len(Publication.from_bytes(five, limits_of(servers)).sealed) == 5
    with pytest.raises(LimitExceeded, match="5 entries"):
        Publication.from_bytes(six, limits_of(servers))


def test_a_vector_of_too_many_ciphertexts_is_refused(servers):
    data = SdivReply(servers.encrypt([0] * 4)).to_bytes()
    assert len(SdivReply.from_bytes(data, limits_of(servers, count=4)).quotients) == 4
    with pytest.raises(LimitExceeded):
        SdivReply.from_bytes(data, limits_of(servers, count=3))


@pytest.mark.parametrize("body", [b"\0", b"\0\x01", b"\x01" * 4097], ids=["zero byte", "padded", "too long"])
def test_numbers_have_one_form(servers, body):
    """No leading zeros, no absurd length: the same message has the same bytes."""
    data = b"CFLM" + bytes([2, RewardEnvelope.kind]) + fields(body, b"salt", b"sealed")
    with pytest.raises(FormatError):
        RewardEnvelope.from_bytes(data, limits_of(servers))


def test_text_must_be_utf8(servers):
    good = ManifestRequest(1, 36, ("who",), (bytes(32),), (bytes(64),)).to_bytes()
    with pytest.raises(FormatError, match="UTF-8"):
        ManifestRequest.from_bytes(good.replace(b"who", b"\xff\xfe\xfd"), limits_of(servers))


def test_vectors_inside_are_checked_number_by_number(servers):
    width = servers.public.ciphertext_bytes
    good = SdivReply(servers.encrypt([5])).to_bytes()
    for number in (0, int(servers.public.n), int(servers.public.n_squared)):
        with pytest.raises(CiphertextError):
            SdivReply.from_bytes(good[:-width] + number.to_bytes(width, "big"), limits_of(servers))
    with pytest.raises(KeyMismatch):
        SdivReply.from_bytes(SdivReply(pair(64).encrypt([5])).to_bytes(), limits_of(servers))


def test_no_ciphertexts_where_none_are_expected(servers):
    with pytest.raises(FormatError, match="no ciphertexts"):
        SdivReply.from_bytes(SdivReply(servers.encrypt([5])).to_bytes(), Limits.plain())


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_csp_answers_the_kinds_of_its_profile_alone(profile):
    """A kind it does not know, a truncated header, an empty request: named refusals."""
    csp = deal(profile=profile).csp
    for request in (b"", b"CFLM\x02", b"CFLM\x02\xfe", b"CFLM\x02" + bytes([SdivReply.kind])):
        with pytest.raises(FormatError):
            csp.answer(request)


@settings(max_examples=60)
@given(kind=st.sampled_from([cls.kind for cls in KINDS]), noise=st.binary(max_size=120))
def test_csp_survives_noise(rewarding_csp, kind, noise):
    """Whatever bytes arrive, it answers or raises a named error."""
    try:
        assert rewarding_csp.answer(b"CFLM" + bytes([2, kind]) + noise)
    except CrowdFLError:
        return


@pytest.fixture(scope="module")
def rewarding_csp():
    """A CSP that knows every request there is."""
    return deal(3, 1, total="hidden", **(SMALL | {"max_participants": 3})).csp


def test_a_long_field_stays_where_it_lies(monkeypatch):
    """A message inside another one too: nothing of it is copied before somebody looks."""
    from crowdfl.protocols import messages

    monkeypatch.setattr(messages, "LONG_BYTES", 8)
    inner = SumOffer(bytes(range(20)), b"t", b"m", (), b"")
    outer = StepRequest(1, 2, bytes(32), inner.to_long())
    data = outer.to_long()
    assert isinstance(data, Joined)
    assert data[:] == outer.to_bytes() == dataclasses.replace(outer, payload=inner.to_bytes()).to_bytes()
    read = StepRequest.from_bytes(data, Limits.plain(1000))
    assert isinstance(read.payload, LongPart)
    found = SumOffer.from_bytes(read.payload, Limits.plain(1000))
    assert isinstance(found.sums, LongPart)
    assert (found.sums[:], found.total) == (inner.sums, inner.total)
    with pytest.raises(Truncated):
        StepRequest.from_bytes(LongPart(data, 0, len(data) - 1), Limits.plain(1000))
