"""Writes phone_documents.json beside this file: documents that a phone in a browser must read as Python does.

As `generate.py`: everything follows from fixed labels, the standard library and Ed25519 of the package `cryptography`.
Nothing of CrowdFL is imported. The keys are public: never use them.
"""

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

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
    "mask_bits": None,
    "distance_floor": None,
    "lanes": 1024,
    "pay": None,
    "each": None,
    "bonus": None,
    "weighting": "samples",
    "check": "bounds",
    "max_norm": 5.0,
    "window": 3600.0,
    "late": 0.0,
    "min_participants": 5,
    "epsilon": None,
    "delta": None,
    "noise": None,
    "sigma": None,
    "reference": False,
    "per_round": None,
    "cohort": 4096,
    "rounds": 3,
    "budget": "36.00",
    "currency": "EUR",
    "key_bits": 2048,
    "server_step": "none",
    "server_rate": 1.0,
    "server_momentum": 0.9,
    "server_squares": 0.99,
    "server_floor": 0.001,
}
FIXED: Body = {"pay": "fixed", "each": "2.00", "bonus": "1.00", "budget": "24.00"}
NOISE: Body = {"weighting": "equal", "decimals": 3, "epsilon": 8.0, "noise": "any", "sigma": 5546}
TRAINING: Body = {"learner": "network", "layers": [32], "labels": ["sitting", "walking"], "rate": 0.005, "epochs": 20}


def stream(label: str, length: int) -> bytes:
    """Fixed bytes for a label: what stands in for randomness here."""
    return hashlib.shake_256(f"crowdfl phone vectors 1: {label}".encode()).digest(length)


def signing(label: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(stream(f"{label} signing", 32))


def public(label: str) -> str:
    return signing(label).public_key().public_bytes_raw().hex()


def payer() -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(stream("payer", 32))


def encoded(kind: str, payload: str) -> bytes:
    """What a signature is over: DSSE's encoding of type and payload."""
    name, body = f"application/vnd.crowdfl.{kind}+json".encode(), payload.encode()
    return b" ".join([b"DSSEv1", str(len(name)).encode(), name, str(len(body)).encode(), body])


def envelope(kind: str, payload: str, signature: bytes) -> str:
    return f"crowdfl {kind} {urlsafe_b64encode(signature).decode().rstrip('=')} {payload}"


def signed(kind: str, payload: Body | str, signer: str) -> str:
    """A document; a payload that is given as text is signed as it is."""
    text = payload if isinstance(payload, str) else json.dumps({"form": 1, **payload})
    return envelope(kind, text, signing(signer).sign(encoded(kind, text)))


def name_of(label: str) -> str:
    key = signing(label).public_key().public_bytes_raw()
    return hashlib.sha256(b"crowdfl participant 1" + key).hexdigest()[:20]


# Definitions.


WHO: Body = {"name": "Ada", "institution": "", "contact": "ada@example.org", "approval": "", "logo": ""}
PLAN: Body = {
    "enrol_until": "2026-12-01T18:00:00+01:00",
    "start_at": None,
    "start_with": 5,
    "every": "day at 18:00 Europe/Berlin",
    "closes": "deadline",
    "goal": None,
    "unused_pay": None,
    "room": 2592000.0,
}


CONSENT: Body = {"version": "2026-11", "text": "We measure how you move.\nYou may stop at any time."}
GERMAN: Body = {
    "purpose": "Sitzen von Gehen unterscheiden",
    "terms": "",
    "readers": "",
    "consent": "Wir messen, wie Sie sich bewegen.",
    "words": {"walking": "Gehen"},
}


def definition(**changes: Json) -> Body:
    body: Body = {
        "form": 1,
        "purpose": "Tell sitting from walking",
        "terms": "Data stay on the phone.",
        "readers": "the requester",
        "arrays": [["weight", [2, 3]], ["bias", [3]], ["scale", []]],
        "initial": hashlib.sha256(b"initial").hexdigest(),
        "settings": SETTINGS,
        "plan": PLAN,
        "who": WHO,
        "language": "en",
        "consent": {"version": "", "text": ""},
        "texts": {},
        "rounds_until": 1798761600,
        "claims_until": 1799366400,
        "requester": public("requester"),
        "payer": payer().public_key().public_bytes_raw().hex(),
        "recruiter": "",
        "training": TRAINING,
    }
    return body | changes


CHARACTERS = "plain, \u00e9\u4e2d\u0627, \u007f\u0080\u00a0\u2028\ufeff\uffff, \U0001f600\U0010ffff, "
CHARACTERS += '"quoted\\" / \b\f\n\r\t\u0000\u001f'
ODD_NAMES = {"z": 1, "\U0001f600": 1, "": 1, "10": 1, "__proto__": 1, "constructor": 1}


def good(name: str, payload: str) -> Body:
    """A definition, what its signature is over, and the task that it is: a hash of that."""
    whole = encoded("definition", payload)
    return {
        "name": name,
        "text": signed("definition", payload, "requester"),
        "signed": whole.hex(),
        "task": hashlib.sha256(whole).hexdigest(),
    }


def definitions() -> list[Json]:
    """The same values in any form: whoever reads them signs nothing again."""
    usual = json.dumps(definition())
    numbers = {"floats": [0.0, -0.0, 1e-7, 1e22, 1.7976931348623157e308, 5e-324], "integers": [0, -1, 2**53 - 1]}
    return [
        good("as usual", usual),
        good("without spaces, in order", json.dumps(definition(), separators=(",", ":"), sort_keys=True)),
        good("on many lines", json.dumps(definition(), indent=2) + "\r\n"),
        good("numbers of every form", json.dumps(definition(training=TRAINING | numbers))),
        good("numbers written otherwise", usual.replace("0.005", "5e-3").replace("2592000.0", "2.5920E+6")),
        good("a whole number of seconds", json.dumps(definition(plan=PLAN | {"room": 2592000}))),
        good("characters as they are", json.dumps(definition(purpose=CHARACTERS), ensure_ascii=False)),
        good("characters escaped", json.dumps(definition(purpose=CHARACTERS, training=ODD_NAMES))),
        good("everyone counts once", json.dumps(definition(settings=SETTINGS | {"weighting": "equal"}))),
        good("noise", json.dumps(definition(settings=SETTINGS | NOISE))),
        good("in several languages, with a consent", json.dumps(definition(consent=CONSENT, texts={"de": GERMAN}))),
        good("no budget", json.dumps(definition(settings=SETTINGS | {"budget": None, "max_norm": None}))),
        good("fixed pay", json.dumps(definition(settings=SETTINGS | FIXED))),
        good(
            "whole numbers where fractions may be",
            json.dumps(definition(settings=SETTINGS | {"clip": 2, "max_norm": 5, "budget": 7})),
        ),
    ]


def bad_definitions() -> list[Json]:
    """What `open` refuses, and by which name."""
    payload = json.dumps(definition())
    fine = signed("definition", payload, "requester")
    end = fine.index("{") - 1  # of the signature
    cases: list[tuple[str, str, str]] = [
        ("nothing", "", "DocumentError"),
        ("no header", payload, "DocumentError"),
        ("no payload", fine[: end + 1], "DocumentError"),
        ("a line end before its payload", fine[:end] + "\n" + fine[end + 1 :], "DocumentError"),
        ("another header", fine.replace("crowdfl", "Crowdfl", 1), "DocumentError"),
        ("a space before it", " " + fine, "DocumentError"),
        ("another kind", signed("order", payload, "requester"), "DocumentError"),
        ("no signature", f"crowdfl definition {payload}", "DocumentError"),
        ("a signature with padding", fine[:end] + "==" + fine[end:], "DocumentError"),
        ("a short signature", fine[: end - 1] + fine[end:], "DocumentError"),
        ("a signature with a last letter that none has", fine[: end - 1] + "_" + fine[end:], "FormatError"),
        ("another signature", envelope("definition", payload, bytes(64)), "BadSignature"),
        ("signed by another", signed("definition", payload, "somebody"), "BadSignature"),
        ("signed as another kind", "crowdfl definition" + signed("order", payload, "requester")[13:], "BadSignature"),
        ("another purpose", fine.replace("Tell", "Sell"), "BadSignature"),
        ("a number in another form", fine.replace("2592000.0", "2592000"), "BadSignature"),
        ("a space more", fine.replace(", ", ",  ", 1), "BadSignature"),
        ("a space after it", fine + " ", "BadSignature"),
    ]
    payloads = [
        ("no JSON", payload[:-1]),
        ("words after it", payload + "more"),
        ("a list", "[]"),
        ("a number", "7"),
        ("a byte order mark", "\ufeff" + payload),
        ("a raw control character", payload.replace("Tell", "Te\nll")),
        ("a number that is none", payload.replace("0.005", "NaN")),
        ("a field more", json.dumps(definition(more="is refused"))),
        ("a field less", json.dumps({name: value for name, value in definition().items() if name != "terms"})),
    ]
    payloads += [("no form", json.dumps({name: value for name, value in definition().items() if name != "form"}))]
    wrong: list[tuple[str, Json]] = [
        ("form", 0),
        ("form", 1.5),
        ("form", "1"),
        ("form", True),
        ("form", None),
        ("purpose", 7),
        ("terms", None),
        ("readers", ["all"]),
        ("initial", 0),
        ("settings", []),
        ("training", "none"),
        ("plan", []),
        ("consent", "yes"),
        ("texts", ["de"]),
        ("language", None),
        ("rounds_until", 0),
        ("rounds_until", 1798761600.5),
        ("rounds_until", 1799366401),
        ("claims_until", 253402300800),
        ("claims_until", "1799366400"),
        ("claims_until", True),
        ("requester", "xyz"),
        ("arrays", [["w", [0]]]),
        ("arrays", [["w", [2.5]]]),
        ("arrays", [["w", [2]], ["w", [3]]]),
        ("arrays", [["w"]]),
        ("arrays", {"w": [2]}),
    ]
    payloads += [(f"{name} {json.dumps(value)}", json.dumps(definition(**{name: value}))) for name, value in wrong]
    cases += [(name, signed("definition", text, "requester"), "DocumentError") for name, text in payloads]
    later = json.dumps({"form": 2, "nothing": "that anybody knows", "requester": public("requester")})
    cases += [("a later form", signed("definition", later, "requester"), "FormTooNew")]
    return [{"name": name, "text": text, "error": error} for name, text, error in cases]


# What KGC and SP sign.


def others() -> Body:
    task, who = "0123456789abcdef" * 4, name_of("participant")
    certificate: Body = {"task": task, "who": who, "invitation": "an invitation", "request": "a request"}
    receipt: Body = {
        "task": task,
        "round": 2,
        "who": who,
        "digest": hashlib.sha256(b"upload").hexdigest(),
        "late": False,
        "unused": False,
    }
    appointment: Body = {"task": task, "fingerprint": hashlib.sha256(b"keys").hexdigest(), "csp": public("csp")}
    return {
        "task": task,
        "who": who,
        "upload": b"upload".hex(),
        "appointment": cases("appointment", appointment, "kgc", [("fingerprint", 7), ("task", None)]),
        "certificate": cases(
            "certificate",
            certificate,
            "kgc",
            [("task", 1), ("who", None), ("invitation", 7), ("request", ["a request"])],
        ),
        "receipt": cases(
            "receipt",
            receipt,
            "sp",
            [("task", "f" * 64), ("round", 1), ("round", "2"), ("who", name_of("somebody")), ("digest", "00" * 32)],
        ),
        "ends": {"rounds_until": 1798761600, "claims_until": 1799366400},
        "claims-extension": cases(
            "claims-extension",
            {"task": task, "until": 1799971200},
            "csp",
            [
                ("task", "f" * 64),
                ("until", 1799366400),
                ("until", 1799971201),
                ("until", 1799971200.5),
                ("until", "1799971200"),
                ("until", True),
            ],
        ),
    }


def cases(kind: str, body: Body, signer: str, changes: Iterable[tuple[str, Json]]) -> Body:
    """A document, and what must be refused in its place."""
    fine = signed(kind, body, signer)
    bad = [
        (f"{name} {json.dumps(value)}", signed(kind, body | {name: value}, signer), "DocumentError")
        for name, value in changes
    ]
    bad += [
        ("a field more", signed(kind, body | {"more": 1}, signer), "DocumentError"),
        ("a later form", signed(kind, {**body, "form": 2}, signer), "FormTooNew"),
        ("signed by another", signed(kind, body, "somebody"), "BadSignature"),
        ("another task", fine.replace("0123", "3210", 1), "BadSignature"),
        ("another kind", signed(f"{kind}-", body, signer), "DocumentError"),
    ]
    return {"text": fine, "bad": [{"name": name, "text": text, "error": error} for name, text, error in bad]}


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


# Changes of the settings and the plan, and what one person may earn in all: from and to.
ESTIMATES: list[tuple[Body, Body, tuple[int, int] | None]] = [
    ({}, {}, (9_000_000, 21_600_000)),
    ({"budget": "1.00"}, {"goal": 7}, (250_000, 428_571)),
    ({"per_round": 8}, {"start_with": 12}, (9_000_000, 13_500_000)),
    ({"per_round": 8}, {"start_with": None, "goal": 6}, (9_000_000, 18_000_000)),
    (FIXED, {}, (0, 7_000_000)),
    (FIXED | {"per_round": 8, "budget": "16", "bonus": None}, {}, (0, 6_000_000)),
    ({"pay": "samples", "rounds": 1, "budget": 12}, {}, (1_000_000, 2_400_000)),
    ({"budget": "0.000001"}, {}, (0, 0)),
    ({"budget": "0"}, {}, None),
    ({"budget": None}, {}, None),
    ({"pay": "none"}, {}, None),
]
DESTINATIONS = [
    ("email", " ann@example.org ", "ann@example.org"),
    ("email", "ann.o'hara+x@post.example.co.uk", "ann.o'hara+x@post.example.co.uk"),
    ("iban", "de89 3704 0044 0532 0130 00", "DE89370400440532013000"),
    ("iban", "GB82 WEST 1234 5698 7654 32", "GB82WEST12345698765432"),
    ("text", "  Ann,\u00a0room 3\t(\u4e2d) ", "Ann, room 3 (\u4e2d)"),
]
NO_DESTINATIONS = [
    ("email", "ann"),
    ("email", "ann@example"),
    ("email", "ann@exa mple.org"),
    ("email", "ann@example.org, bob@example.org"),
    ("iban", "DE89 3704 0044 0532 0130 01"),
    ("iban", "DE89"),
    ("iban", "https://example.org"),
    ("text", " \t"),
    ("text", "two\u0000parts"),
    ("text", "right\u202eleft"),
    ("text", "x" * 201),
    ("cash", "at the door"),
]


def pay() -> Body:
    estimates = [{"settings": SETTINGS | one, "plan": PLAN | other, "is": found} for one, other, found in ESTIMATES]
    task, who, to = hashlib.sha256(b"task").hexdigest(), name_of("participant"), "Ann, room 3 (\u4e2d)"
    keys = {"signing": public("participant"), "payer": payer().public_key().public_bytes_raw().hex()}
    body = {"task": task, "who": who, **keys, "counter": "2", "way": "text", "to": to}
    payload = json.dumps({"form": 1, **body}, ensure_ascii=False, separators=(",", ":"))
    return {
        "estimates": estimates,
        "destinations": DESTINATIONS,
        "refused": NO_DESTINATIONS,
        "payer": payer().private_bytes_raw().hex(),
        "destination": body,
        "signed": signed("destination", payload, "participant"),
        "context": f"crowdfl destination 2 {task} {who} 2",
    }


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
    names = ("requester", "kgc", "sp", "csp", "participant", "somebody")
    return {
        "about": "Documents as a participant reads them. `signed` is what the signature of a definition is over, in hex, and "
        "`task` its id. Keys are private Ed25519 keys; KGC signs appointments, which name CSP's key, and certificates, SP "
        "receipts, CSP that claims end later (`ends` are the dates of its task). docs/formats.md defines all.",
        "keys": {name: signing(name).private_bytes_raw().hex() for name in names},
        "definitions": definitions(),
        "bad": bad_definitions(),
        "others": others(),
        "money": money(),
        "pay": pay(),
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
