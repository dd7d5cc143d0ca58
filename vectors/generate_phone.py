"""Writes phone_documents.json beside this file: documents that a phone in a browser must read as Python does.

As `generate.py`: everything follows from fixed labels, the standard library and Ed25519 of the package `cryptography`.
Nothing of CrowdFL is imported. Documents are signed over what `json.dumps` makes of them, so that the file says how Python
writes numbers and characters. The keys are public: never use them.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["documents", "main"]

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Body: TypeAlias = dict[str, Any]

SETTINGS: Body = {
    "profile": "shares",
    "total": "shown",
    "decimals": 6,
    "clip": 2.0,
    "max_participants": 12,
    "max_samples": 1000,
    "sigma": None,
    "epsilon": None,
    "lanes": 1024,
    "rule": None,
    "check": "bounds",
    "max_norm": 5.0,
    "strategy": "discard",
    "window": 3600.0,
    "grace": 600.0,
    "min_participants": 5,
    "rounds": 3,
    "budget": "36.00",
    "key_bits": 2048,
}
TRAINING: Body = {"learner": "network", "hidden": [32], "labels": ["sitting", "walking"], "rate": 0.005, "epochs": 20}


def stream(label: str, length: int) -> bytes:
    """Fixed bytes for a label: what stands in for randomness here."""
    return hashlib.shake_256(f"crowdfl phone vectors 1: {label}".encode()).digest(length)


def signing(label: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(stream(f"{label} signing", 32))


def public(label: str) -> str:
    return signing(label).public_key().public_bytes_raw().hex()


def canonical(kind: str, body: Body) -> bytes:
    return f"crowdfl {kind} 1 ".encode() + json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def signed(kind: str, body: Body, signer: str) -> Body:
    return {"kind": kind, "body": body, "signature": signing(signer).sign(canonical(kind, body)).hex()}


def written(document: Body) -> str:
    return json.dumps(document, sort_keys=True)


def name_of(label: str) -> str:
    key = signing(label).public_key().public_bytes_raw()
    return hashlib.sha256(b"crowdfl participant 1" + key).hexdigest()[:20]


# Definitions.


def definition(**changes: Json) -> Body:
    body: Body = {
        "purpose": "Tell sitting from walking",
        "terms": "Data stay on the phone.",
        "readers": "the requester",
        "arrays": [["weight", [2, 3]], ["bias", [3]], ["scale", []]],
        "initial": hashlib.sha256(b"initial").hexdigest(),
        "settings": SETTINGS,
        "claim_window": 604800.0,
        "requester": public("requester"),
        "training": TRAINING,
    }
    return body | changes


def task_of(body: Body) -> str:
    return hashlib.sha256(canonical("definition", body)).hexdigest()[:32]


def good(name: str, body: Body, write: Callable[[Body], str] = written, known: Body | None = None) -> Body:
    """A definition, how it is written, and the task that it is; `known` where readers give it another form first."""
    text = write(signed("definition", body, "requester"))
    return {
        "name": name,
        "text": text,
        "signed": canonical("definition", body).decode(),
        "task": task_of(known or body),
    }


FLOATS = [0.0, -0.0, 0.1, 1.0, 1.5, -2.5, 100.0, 0.0001, 0.00001, 1e-7, 123456.789, 1e15, 1e16, 1e21, 1e22, 1.5e300]
FLOATS += [5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1 / 3, 2.0**53, 123456789012345680.0, 9007199254740993.0, 1e100]
INTEGERS = [0, -1, 7, 2**31, 2**53, 2**53 + 1, 2**64, -(10**30)]
CHARACTERS = "plain, \u00e9\u4e2d\u0627, \u007f\u0080\u00a0\u2028\ufeff\uffff, \U0001f600\U0010ffff, "
CHARACTERS += '"quoted\\" / \b\f\n\r\t\u0000\u001f'
NAMES = [
    "z",
    "\U0001f600",
    "\uffee",
    "\ud83d",
    "\u00e9",
    "a",
    "A",
    "",
    "10",
    "9",
    "__proto__",
    "constructor",
    "\U00010000",
]


def spaced(document: Body) -> str:
    """The same values in another form: spaces, line ends, characters as they are, keys in another order."""
    return json.dumps(dict(reversed(document.items())), indent=1, ensure_ascii=False)


def rewritten(document: Body) -> str:
    """Numbers in other forms, which Python reads as the same values."""
    text = written(document)
    for one, other in (
        ("0.005", "5e-3"),
        ("604800.0", "6.0480E+5"),
        ("[32]", "[ 32\t]"),
        ('"epochs": 20', '"epochs":20'),
    ):
        assert one in text  # noqa: S101 -- else the case would say nothing
        text = text.replace(one, other)
    return text


def doubled(document: Body) -> str:
    """A name that stands twice: the last one counts."""
    return written(document).replace('{"body": {', '{"body": {"purpose": "another", ', 1)


def definitions() -> list[Json]:
    numbers: Body = {
        "floats": FLOATS,
        "integers": INTEGERS,
        "nested": [[], {}, [[1, 1.0, [True, None]]], {"b": {"a": []}}],
    }
    whole = definition(claim_window=604800)
    return [
        good("as usual", definition()),
        good("numbers of every form", definition(training=TRAINING | numbers)),
        good(
            "characters of every kind",
            definition(purpose=CHARACTERS, terms="\ud83d alone", training={"labels": [CHARACTERS]}),
        ),
        good("names in the order of code points", definition(training=dict.fromkeys(NAMES, 1))),
        good("with spaces", definition(purpose="\u00e9 \U0001f600"), spaced),
        good("numbers written otherwise", definition(), rewritten),
        good("a name twice", definition(), doubled),
        good("a whole number of seconds", whole, known=definition()),
        good("a field more", definition(more="is not looked at"), known=definition()),
        good("no budget", definition(settings=SETTINGS | {"budget": None, "max_norm": None})),
        good(
            "whole numbers where fractions may be",
            definition(settings=SETTINGS | {"clip": 2, "max_norm": 5, "budget": 7}),
        ),
    ]


def bad_definitions() -> list[Json]:
    """What `open` refuses, and by which name."""
    fine = signed("definition", definition(), "requester")
    cases: list[tuple[str, str, str]] = [
        ("nothing", "", "DocumentError"),
        ("no JSON", "{", "DocumentError"),
        ("a list", "[]", "DocumentError"),
        ("a number", "7", "DocumentError"),
        ("words after it", written(fine) + " more", "DocumentError"),
        ("a raw control character", written(fine).replace("Tell", "Te\nll"), "DocumentError"),
        (
            "nested too deeply",
            written(fine).replace('"rate": 0.005', '"rate": ' + "[" * 5000 + "]" * 5000),
            "DocumentError",
        ),
        ("another kind", written(signed("order", definition(), "requester")), "DocumentError"),
        ("no signature", written({"kind": "definition", "body": definition()}), "DocumentError"),
        ("a signature that is no text", written(fine | {"signature": 7}), "DocumentError"),
        ("a signature of odd digits", written(fine | {"signature": "abc"}), "DocumentError"),
        ("a short signature", written(fine | {"signature": "ab" * 63}), "BadSignature"),
        ("another signature", written(fine | {"signature": "00" * 64}), "BadSignature"),
        ("signed by another", written(signed("definition", definition(), "somebody")), "BadSignature"),
        ("another purpose", written(fine).replace("Tell", "Sell"), "BadSignature"),
        ("a number in another form", written(fine).replace("604800.0", "604800"), "BadSignature"),
        ("a body that is no table", written(fine | {"body": []}), "DocumentError"),
    ]
    wrong: list[tuple[str, Json]] = [
        ("purpose", 7),
        ("terms", None),
        ("readers", ["all"]),
        ("initial", 0),
        ("settings", []),
        ("training", "none"),
        ("claim_window", -1.0),
        ("claim_window", 2e12),
        ("claim_window", "604800"),
        ("claim_window", True),
        ("requester", "xyz"),
        ("arrays", [["w", [0]]]),
        ("arrays", [["w", [2.0]]]),
        ("arrays", [["w", [2]], ["w", [3]]]),
        ("arrays", [["w"]]),
        ("arrays", {"w": [2]}),
    ]
    for name, value in wrong:
        text = written(signed("definition", definition(**{name: value}), "requester"))
        cases.append((f"{name} {json.dumps(value)}", text, "DocumentError"))
    return [{"name": name, "text": text, "error": error} for name, text, error in cases]


# What KGC and SP sign.


def others() -> Body:
    task, who = "0123456789abcdef" * 2, name_of("participant")
    keys = {"signing": public("participant"), "reading": stream("reading", 32).hex()}
    certificate: Body = {"task": task, "who": who, **keys}
    receipt: Body = {
        "task": task,
        "round": 2,
        "who": who,
        "digest": hashlib.sha256(b"upload").hexdigest(),
        "late": False,
    }
    appointment: Body = {"task": task, "fingerprint": hashlib.sha256(b"keys").hexdigest()}
    return {
        "task": task,
        "who": who,
        "upload": b"upload".hex(),
        "appointment": cases("appointment", appointment, "kgc", [("fingerprint", 7), ("task", None)]),
        "certificate": cases(
            "certificate",
            certificate,
            "kgc",
            [("who", name_of("somebody")), ("signing", public("somebody")), ("reading", "x")],
        ),
        "receipt": cases(
            "receipt",
            receipt,
            "sp",
            [("task", "f" * 32), ("round", 1), ("round", "2"), ("who", name_of("somebody")), ("digest", "00" * 32)],
        ),
    }


def cases(kind: str, body: Body, signer: str, changes: Iterable[tuple[str, Json]]) -> Body:
    """A document, and what must be refused in its place."""
    fine = signed(kind, body, signer)
    bad = [
        (f"{name} {json.dumps(value)}", written(signed(kind, body | {name: value}, signer)), "DocumentError")
        for name, value in changes
    ]
    bad += [
        ("signed by another", written(signed(kind, body, "somebody")), "BadSignature"),
        ("another task", written(fine).replace("0123", "3210", 1), "BadSignature"),
        ("another kind", written(signed(f"{kind} 1", body, signer)), "DocumentError"),
    ]
    return {"text": written(fine), "bad": [{"name": name, "text": text, "error": error} for name, text, error in bad]}


MONEY = [
    "36.00",
    "0",
    "0.000001",
    "1e2",
    "1E-6",
    "+7",
    "-0.00",
    "1000000000",
    "000.50",
    "5.",
    ".5",
    "36.0000000",
    "12.3456780",
]
NOT_MONEY = [
    "",
    ".",
    "-1",
    "0.0000001",
    "1000000000.000001",
    "1e21",
    "NaN",
    "Infinity",
    "12 3",
    "0x10",
    "1e-41",
    "9" * 61,
]


def money() -> Body:
    return {"amounts": [[text, str(_millionths(text))] for text in MONEY], "refused": NOT_MONEY}


def _millionths(text: str) -> int:
    """By hand: digits without the point, and where it was."""
    digits, _, power = text.lower().partition("e")
    whole, _, part = digits.lstrip("+-").partition(".")
    shift = int(power or 0) + 6 - len(part)
    return int(whole + part + "0" * shift) if shift >= 0 else int((whole + part)[:shift] or 0)


def problems() -> list[Json]:
    """A service's refusals, and which error they are: whether the same may succeed later is said by name or status."""
    own = "urn:crowdfl:problem:"
    cases: list[tuple[int, Json, str, bool]] = [
        (410, {"type": f"{own}too-late", "detail": "the upload missed its round"}, "TooLate", False),
        (404, {"type": f"{own}not-ready", "title": "NotReady"}, "NotReady", False),
        (422, {"type": f"{own}masks-do-not-fit", "detail": "x"}, "MasksDoNotFit", False),
        (503, {"type": f"{own}store-unavailable", "detail": "x"}, "StoreUnavailable", True),
        (507, {"type": f"{own}storage-full"}, "StorageFull", True),
        (503, {"type": f"{own}clock-in-doubt"}, "ClockInDoubt", True),
        (503, {"type": f"{own}task-ended"}, "TaskEnded", True),
        (422, {"type": f"{own}invalid-request", "detail": "x", "errors": []}, "FormatError", False),
        (409, {"type": f"{own}not-known-here", "detail": "x"}, "ServiceError", False),
        (500, {"type": f"{own}internal"}, "ServiceUnavailable", True),
        (429, {"type": f"{own}not-known-here"}, "ServiceUnavailable", True),
        (404, {"type": "about:blank"}, "ServiceUnavailable", True),
        (404, {"type": "error-from", "detail": "printable"}, "ServiceUnavailable", True),
        (502, None, "ServiceUnavailable", True),
        (403, ["forbidden"], "ServiceUnavailable", True),
        (403, {"type": f"{own}forbidden", "detail": 7}, "Forbidden", False),
        (400, {"type": f"{own}document-error", "detail": "two\nlines \u202e \u0007 \u00a0 é"}, "DocumentError", False),
    ]
    texts = {"two\nlines \u202e \u0007 \u00a0 é": "two lines ? ?   é"}
    return [
        {"status": status, "problem": body, "error": error, "passes": passes}
        | ({"text": texts[str(body["detail"])]} if isinstance(body, dict) and body.get("detail") in texts else {})
        for status, body, error, passes in cases
    ]


def document() -> Json:
    names = ("requester", "kgc", "sp", "participant", "somebody")
    return {
        "about": "Documents as a participant reads them. `signed` is what the signature of a definition is over, `task` its "
        "id. Keys are private Ed25519 keys; KGC signs appointments and certificates, SP receipts. docs/formats.md defines all.",
        "keys": {name: signing(name).private_bytes_raw().hex() for name in names},
        "definitions": definitions(),
        "bad": bad_definitions(),
        "others": others(),
        "money": money(),
        "problems": problems(),
    }


def documents() -> dict[str, str]:
    """The file's name and text."""
    return {"phone_documents.json": json.dumps(document(), indent=1) + "\n"}


def main() -> None:
    """Write it."""
    for name, text in documents().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
