"""Writes phone_links.json beside this file: invitations as links that a phone opens, good ones and damaged ones.

As `generate.py`: everything follows from fixed labels and the package `cryptography`; nothing of CrowdFL is imported. The keys
are public: never use them.
"""

import hashlib
import json
import struct
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["documents", "main"]

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

TASK = "0123456789abcdef" * 4
KGC, SP = "https://kgc.example:7101", "https://sp.example:7102"
PAGE = f"{SP}/join/"
NUMBER = "00112233445566778899aabbccddeeff"


def stream(label: str, length: int) -> bytes:
    """Fixed bytes for a label: what stands in for randomness here."""
    return hashlib.shake_256(f"crowdfl link vectors 1: {label}".encode()).digest(length)


def signing(label: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(stream(label, 32))


REQUESTER, LINK = signing("requester"), signing("link")
KGC_KEY, SP_KEY = (signing(name).public_key().public_bytes_raw() for name in ("kgc", "sp"))


def message(kind: int, *fields: str | bytes, version: int = 2) -> bytes:
    """A message: magic, version, kind, each field behind its length."""
    bodies = [field.encode() if isinstance(field, str) else field for field in fields]
    return b"CFLM" + bytes([version, kind]) + b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def letters(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(payload: str) -> bytes:
    """As every document is signed: over DSSE's encoding of type and payload."""
    body = payload.encode()
    return REQUESTER.sign(b"DSSEv1 39 application/vnd.crowdfl.invitation+json %d %b" % (len(body), body))


def payload_of(**changes: Json) -> str:
    key = LINK.public_key().public_bytes_raw().hex()
    usual: dict[str, Json] = {
        "form": 1,
        "task": TASK,
        "number": NUMBER,
        "device": 1,
        "key": key,
        "expires": 2000000000.25,
    }
    return json.dumps(usual | changes)


def good(name: str, page: str, sp: str, payload: str) -> Json:
    """A link, what its invitation file holds, and what a phone must find in it."""
    signature, shown = sign(payload), "" if page == f"{sp}/join/" else sp
    key = LINK.private_bytes_raw()
    data = message(70, payload, signature, key, KGC, shown, KGC_KEY, SP_KEY)
    return {
        "name": name,
        "page": page,
        "link": f"{page}#{letters(data)}",
        "message": data.hex(),
        "invitation": f"{letters(key)} crowdfl invitation {letters(signature)} {payload}",
        "task": TASK,
        "device": json.loads(payload)["device"],
        "expires": json.loads(payload)["expires"],
        "kgc": KGC,
        "sp": sp,
        "kgc_key": KGC_KEY.hex(),
        "sp_key": SP_KEY.hex(),
    }


def listed(page: str, sp: str) -> Json:
    """The same of a task that SP lists: nobody's, and nothing secret."""
    data = message(72, TASK, KGC, "" if page == f"{sp}/join/" else sp, KGC_KEY, SP_KEY)
    keys = {"kgc_key": KGC_KEY.hex(), "sp_key": SP_KEY.hex()}
    return {
        "page": page,
        "link": f"{page}#{letters(data)}",
        "invitation": "",
        "task": TASK,
        "kgc": KGC,
        "sp": sp,
        **keys,
    }


def bad() -> list[Json]:
    """Fragments that must be refused, and why."""
    signature = sign(payload_of())
    fields = (payload_of(), signature, LINK.private_bytes_raw(), KGC, "", KGC_KEY, SP_KEY)

    def changed(place: int, value: str | bytes) -> str:
        return letters(message(70, *fields[:place], value, *fields[place + 1 :]))

    def other(**changes: Json) -> str:
        return changed(0, payload_of(**changes))

    whole = message(70, *fields)
    text = letters(whole)
    cases = [
        ("nothing", "", "Truncated"),
        ("a place of the page itself", "settings", "FormatError"),
        ("one letter", "A", "FormatError"),
        ("padding", text + "=", "FormatError"),
        ("another alphabet", text.replace("_", "/").replace("-", "+") + "+", "FormatError"),
        ("a space", text[:40] + " " + text[40:], "FormatError"),
        ("a last letter that nothing ends with", other(expires=20000000000.25)[:-1] + "9", "FormatError"),
        ("cut off", letters(whole[:-1]), "Truncated"),
        ("one byte more", letters(whole + b"\0"), "TrailingBytes"),
        ("another magic", letters(b"CFLX" + whole[4:]), "FormatError"),
        ("version 1", letters(message(70, *fields, version=1)), "UnsupportedVersion"),
        ("another kind", letters(message(19, *fields)), "FormatError"),
        ("too long", "A" * 4097, "LimitExceeded"),
        ("a short signature", changed(1, signature[:-1]), "FormatError"),
        ("a short key of its own", changed(2, LINK.private_bytes_raw()[:-1]), "FormatError"),
        ("a short key of KGC", changed(5, KGC_KEY[:-1]), "FormatError"),
        ("a long key of SP", changed(6, SP_KEY + b"\0"), "FormatError"),
        ("no task", other(task=""), "FormatError"),
        ("a task that leads elsewhere", other(task=f"../{TASK[3:]}"), "FormatError"),
        ("a task in capitals", other(task=TASK.upper()), "FormatError"),
        ("plain HTTP", changed(3, "http://kgc.example:7101"), "PlainHttpRefused"),
        ("plain HTTP to a name that looks like loopback", changed(4, "http://127.0.0.1.example"), "PlainHttpRefused"),
        ("a place with a password", changed(3, "https://user:word@kgc.example"), "FormatError"),
        ("a place with a query", changed(3, "https://kgc.example/?x"), "FormatError"),
        ("no KGC", changed(3, ""), "FormatError"),
        ("a script for KGC", changed(3, "javascript:alert(1)"), "FormatError"),
        ("a place with a line break", changed(3, f"{KGC}\n"), "FormatError"),
        ("a script for SP", changed(4, "data:text/html,x"), "FormatError"),
        ("a number that is no number", other(number='n\u00b0 "7"'), "DocumentError"),
        ("a device too many", other(device=6), "DocumentError"),
        ("no device", other(device=0), "DocumentError"),
        ("a key that is none", other(key="0123"), "DocumentError"),
        ("a time that is no number", other(expires="2000000000"), "DocumentError"),
        ("a time before all time", other(expires=-1), "DocumentError"),
        ("a field more", other(more=1), "DocumentError"),
        ("an invitation that is no JSON", changed(0, payload_of()[:-1]), "DocumentError"),
        ("an invitation that is a list", changed(0, "[]"), "DocumentError"),
        ("text that is not UTF-8", changed(0, b"\xff"), "FormatError"),
        ("a listed task without a name", letters(message(72, "", KGC, "", KGC_KEY, SP_KEY)), "FormatError"),
        (
            "a listed task and a short key of KGC",
            letters(message(72, TASK, KGC, "", KGC_KEY[:-1], SP_KEY)),
            "FormatError",
        ),
        ("a listed task and a key more", letters(message(72, TASK, KGC, "", KGC_KEY, SP_KEY, SP_KEY)), "TrailingBytes"),
        (
            "a listed task over plain HTTP",
            letters(message(72, TASK, "http://k.example", "", KGC_KEY, SP_KEY)),
            "PlainHttpRefused",
        ),
    ]
    return [{"name": name, "fragment": fragment, "error": error} for name, fragment, error in cases]


def document() -> Json:
    return {
        "about": "Invitations as links: the fragment is a message of kind 70 (of a listed task, 72) in base64url without "
        "padding. `invitation` is the document that a phone puts together from its first two fields, behind the private key of "
        "the third. docs/formats.md defines the form.",
        "requester": REQUESTER.public_key().public_bytes_raw().hex(),
        "good": [
            good("the page of SP", PAGE, SP, payload_of()),
            good("a page elsewhere", "https://pages.example/join/", SP, payload_of(expires=2000000000.123456)),
            good("plain HTTP on loopback", "http://127.0.0.1:7102/join/", "http://127.0.0.1:7102", payload_of()),
            good("a whole number of seconds", PAGE, SP, payload_of(expires=2000000000)),
            good("a payload of another form", PAGE, SP, payload_of().replace(", ", " ,  ")),
            good("a second device", PAGE, SP, payload_of(device=2)),
        ],
        "listed": [listed(PAGE, SP), listed("https://pages.example/join/", SP)],
        "bad": bad(),
    }


def documents() -> dict[str, str]:
    """The file's name and text."""
    return {"phone_links.json": json.dumps(document(), indent=1) + "\n"}


def main() -> None:
    """Write it."""
    for name, text in documents().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
