"""Push messages: RFC 8291's own example, what a browser opens, and the proof of who sends."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crowdfl.crypto.webpush import PushKey, browser_key, encrypt
from crowdfl.documents.envelope import from_base64url, to_base64url
from crowdfl.errors import InvalidKey


def key_of(text: str) -> PushKey:
    return PushKey(int.from_bytes(from_base64url(text), "big"))


BROWSER = key_of("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")
AUTH = from_base64url("BTBZMqHH6r4Tts7J_aSIgg")


def opened(body: bytes, browser: PushKey = BROWSER, auth: bytes = AUTH) -> bytes:
    """As a browser does it, written apart from what it checks."""
    salt, sender, sealed = body[:16], body[21:86], body[86:]
    assert body[16:21] == b"\x00\x00\x10\x00\x41"
    shared = HKDF(SHA256(), 32, auth, b"WebPush: info\0" + browser.public + sender).derive(browser.agree(sender))
    key, nonce = (
        HKDF(SHA256(), length, salt, f"Content-Encoding: {name}\0".encode()).derive(shared)
        for name, length in (("aes128gcm", 16), ("nonce", 12))
    )
    plain = AESGCM(key).decrypt(nonce, sealed, b"").rstrip(b"\0")
    assert plain.endswith(b"\x02")
    return plain[:-1]


def test_the_example_of_rfc_8291():
    message = b"When I grow up, I want to be a watermelon"
    sender, salt = key_of("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), from_base64url("DGv6ra1nlYgDCS1FRnbzlw")
    assert to_base64url(encrypt(message, BROWSER.public, AUTH, len(message), key=sender, salt=salt)) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_"
        "yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


def test_messages_differ_in_nothing_that_a_push_service_sees_but_by_chance():
    bodies = [encrypt(message, BROWSER.public, AUTH, 16) for message in (b"opened", b"closing", b"opened")]
    assert [opened(body) for body in bodies] == [b"opened", b"closing", b"opened"]
    assert len({len(body) for body in bodies}) == 1
    assert len(set(bodies)) == 3


def test_the_sender_proves_its_key_for_one_push_service():
    key = PushKey.fresh()
    header = key.authorization("https://push.example", "https://sp.example", 1000.9)
    token, _, shown = header.removeprefix("vapid t=").partition(", k=")
    assert from_base64url(shown) == key.public
    *signed, signature = token.split(".")
    assert [json.loads(from_base64url(part)) for part in signed] == [
        {"typ": "JWT", "alg": "ES256"},
        {"aud": "https://push.example", "exp": 1000, "sub": "https://sp.example"},
    ]
    raw = from_base64url(signature)
    numbers = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    browser_key(key.public).verify(numbers, ".".join(signed).encode(), ec.ECDSA(SHA256()))


@pytest.mark.parametrize("point", [b"", b"\x04" + bytes(64), b"\x00", PushKey.fresh().public[:-1]], ids=len)
def test_what_is_no_point_of_the_curve_is_refused(point):
    with pytest.raises(InvalidKey):
        browser_key(point)
