"""Writes shares_messages.json beside this file: one round of a small task of the profile `shares`, message by message.

As `generate.py`: everything follows from fixed labels, plain integers and the packages `cryptography` and `blake3`; nothing
of CrowdFL is imported. HPKE (RFC 9180) is written out, so that its ephemeral keys can be fixed. The keys are public: never
use them.
"""

import hashlib
import hmac
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

__all__ = ["documents", "main"]

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Field: TypeAlias = "bytes | str | int | tuple[Field, ...]"

TASK = "0123456789abcdef" * 4
K, DECIMALS, MAX_SAMPLES, ROUNDS, PAYMENT = 40, 3, 10, 5, 9_000_000
CURRENCY = "EUR"
WIDE = 2**128
INITIAL = [-1000, 0, 2500, 7]  # in units of 10^-3
CHANGES = [[120, -40, 3, 0], [100, -41, -3, 1], [90, -39, 0, -2]]  # of one sample, in units
SAMPLES = [1, 10, 4]
EQUAL_K = 32  # of the same task where everyone counts once: an upload is not multiplied by samples


def stream(label: str, length: int) -> bytes:
    """Fixed bytes for a label: what stands in for randomness here."""
    return hashlib.shake_256(f"crowdfl message vectors 1: {label}".encode()).digest(length)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def bind(label: str, *parts: bytes) -> bytes:
    """A label, and parts each behind its length."""
    return label.encode() + b"".join(struct.pack(">I", len(part)) + part for part in parts)


def leaves(data: bytes) -> bytes:
    """Of pieces of 256 KiB, or twice, four times ... as many, so that there are at most 64."""
    size = 2**18
    while 64 * size < len(data):
        size *= 2
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    places = [b"crowdfl leaf 1" + struct.pack(">QQ", len(data), index) for index in range(len(pieces))]
    return b"".join(blake3(place + piece).digest() for place, piece in zip(places, pieces, strict=True))


REASONS = (
    "broken_seal",
    "out_of_bounds",
    "not_in_line",
    "too_few_left",
    "too_many_left_out",
    "reference_sealed",
    "reference_unusable",
    "altered_bits",
    "altered_shares",
    "csp_failed",
    "not_passed_on",
    "void_cohort",
    "damaged",
    "out_of_range",
    "withdrawn",
)
NO_REASONS = {
    "an empty reason": ("",),
    "a sentence": ("its seal does not open",),
    "an unknown code": ("broken_seals",),
    "a code in capitals": ("BROKEN_SEAL",),
    "an unknown code after a known one": ("broken_seal", "constructor"),
}


def message(kind: int, *fields: Field) -> bytes:
    """A message: magic, version 2, kind, each field behind its length."""
    bodies = [_field(value) for value in fields]
    return b"CFLM" + bytes([2, kind]) + b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def _field(value: Field) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, tuple):
        return b"".join(struct.pack(">I", len(body)) + body for body in map(_field, value))
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


def expand(seed: bytes, context: bytes, length: int) -> bytes:
    key = hmac.digest(hmac.digest(bytes(32), seed, "sha256"), context + b"\x01", "sha256")
    return Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(length))


def elements(values: list[int], bits: int = K) -> bytes:
    return b"".join((value % 2**bits).to_bytes(bits // 8, "little") for value in values)


def numbers(data: bytes, bits: int = K) -> list[int]:
    return [int.from_bytes(data[i : i + bits // 8], "little") for i in range(0, len(data), bits // 8)]


def added(*parts: bytes, bits: int) -> bytes:
    """Element by element."""
    return elements([sum(column) for column in zip(*(numbers(part, bits) for part in parts), strict=True)], bits)


def modular(value: int, length: int) -> bytes:
    return (value % 2 ** (8 * length)).to_bytes(length, "little")


def signing(label: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(stream(f"{label} signing", 32))


def reading(label: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(stream(f"{label} reading", 32))


def public(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


# HPKE, base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305.

_KEM, _SUITE = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x03"


def _extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + secret, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labelled = struct.pack(">H", length) + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, labelled + b"\x01", "sha256")[:length]


def seal_to(reader: bytes, plaintext: bytes, context: bytes, label: str) -> bytes:
    """The encapsulated key, then the ciphertext: `info` is the context, there is no other associated data."""
    ephemeral = X25519PrivateKey.from_private_bytes(stream(f"{label} ephemeral", 32))
    shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(reader))
    prk = _extract(_KEM, b"", b"eae_prk", shared)
    secret = _expand(_KEM, prk, b"shared_secret", public(ephemeral) + reader, 32)
    hashes = _extract(_SUITE, b"", b"psk_id_hash", b"") + _extract(_SUITE, b"", b"info_hash", context)
    schedule = _extract(_SUITE, secret, b"secret", b"")
    key = _expand(_SUITE, schedule, b"key", b"\0" + hashes, 32)
    nonce = _expand(_SUITE, schedule, b"base_nonce", b"\0" + hashes, 12)
    return public(ephemeral) + ChaCha20Poly1305(key).encrypt(nonce, plaintext, b"")


BASE = sha256(b"crowdfl base 1" + TASK.encode())
CSP_SIGNING, CSP_SEALING = signing("csp"), reading("csp")
AUDIENCES = {name: reading(name) for name in ("participants", "requester")}


def place(label: str, *parts: bytes) -> bytes:
    """Bound to the task, round 1 and the model that it starts from."""
    return bind(label, TASK.encode(), struct.pack(">I", 1), BASE, *parts)


@dataclass(frozen=True)
class Person:
    """One participant of the round; where everyone counts once, no number of samples is in its upload."""

    index: int
    is_counted: bool = True

    @property
    def ring(self) -> int:
        return K if self.is_counted else EQUAL_K

    @property
    def count_bytes(self) -> int:
        return 16 if self.is_counted else 0

    @property
    def who(self) -> str:
        return sha256(b"crowdfl participant 1" + public(self.signing)).hex()[:20]

    @property
    def signing(self) -> Ed25519PrivateKey:
        return signing(f"person {self.index}")

    @property
    def reading(self) -> X25519PrivateKey:
        return reading(f"person {self.index}")

    @property
    def seed(self) -> bytes:
        return stream(f"seed {self.index}", 32)

    @property
    def salt(self) -> bytes:
        return stream(f"salt {self.index}", 32)

    @property
    def update(self) -> list[int]:
        return [(SAMPLES[self.index] if self.is_counted else 1) * change for change in CHANGES[self.index]]

    @property
    def csp_update(self) -> bytes:
        return expand(self.seed, place("crowdfl share 1 update", self.who.encode()), len(INITIAL) * self.ring // 8)

    @property
    def csp_samples(self) -> int:
        context = place("crowdfl share 1 samples", self.who.encode())
        return int.from_bytes(expand(self.seed, context, self.count_bytes), "little")

    @property
    def sp_update(self) -> bytes:
        theirs = numbers(self.csp_update, self.ring)
        return elements([v - c for v, c in zip(self.update, theirs, strict=True)], self.ring)

    @property
    def sp_samples(self) -> bytes:
        return modular(SAMPLES[self.index] - self.csp_samples, self.count_bytes)

    @property
    def digest(self) -> bytes:
        shares = self.sp_update
        return sha256(
            bind("crowdfl shares 1", self.salt, self.sp_samples, struct.pack(">Q", len(shares)), leaves(shares))
        )

    @property
    def sealed(self) -> bytes:
        context = place("crowdfl share seed 1", self.who.encode(), self.digest)
        return seal_to(public(CSP_SEALING), self.seed, context, f"upload {self.index}")

    @property
    def statement(self) -> bytes:
        return place("crowdfl upload 1", self.who.encode(), self.digest, self.sealed)

    def body(self, **changes: Field) -> bytes:
        fields: dict[str, Field] = {
            "task": TASK,
            "number": struct.pack(">I", 1),
            "base": BASE,
            "who": self.who,
            "digest": self.digest,
            "sealed": self.sealed,
            "signature": self.signing.sign(self.statement),
            "salt": self.salt,
            "samples": self.sp_samples,
            "leaves": leaves(self.sp_update),
            "shares": self.sp_update,
        }
        return message(53, *(fields | changes).values())

    def case(self) -> Json:
        return {
            "who": self.who,
            "signing": self.signing.private_bytes_raw().hex(),
            "reading": self.reading.private_bytes_raw().hex(),
            "change": [str(value) for value in CHANGES[self.index]],
            "samples": SAMPLES[self.index],
            "seed": self.seed.hex(),
            "salt": self.salt.hex(),
            "csp update": self.csp_update.hex(),
            "csp samples": self.csp_samples.to_bytes(self.count_bytes, "little").hex(),
            "digest": self.digest.hex(),
            "statement": self.statement.hex(),
            "body": self.body().hex(),
        }


PEOPLE = sorted((Person(index) for index in range(3)), key=lambda person: person.who)
COUNTED_ONCE = [Person(person.index, is_counted=False) for person in PEOPLE]


def manifest() -> bytes:
    columns = (
        tuple(person.who for person in PEOPLE),
        tuple(person.digest for person in PEOPLE),
        tuple(person.sealed for person in PEOPLE),
        tuple(person.signing.sign(person.statement) for person in PEOPLE),
    )
    return message(54, TASK, 1, BASE, PAYMENT, 1, 1, *columns, ())  # without a reference


@dataclass(frozen=True)
class Part:
    """A server's part of the sum: masked by the expansion of t, which is sealed to both audiences."""

    server: str
    people: list[Person]

    @property
    def t(self) -> bytes:
        return stream(f"t {self._label}", 32)

    @property
    def masked(self) -> tuple[bytes, bytes]:
        ring, length = self.people[0].ring, self.people[0].count_bytes
        mask = expand(self.t, place("crowdfl mask 1 sums"), len(INITIAL) * ring // 8)
        total = int.from_bytes(expand(self.t, place("crowdfl mask 1 total"), length), "little")
        return added(mask, *self._shares, bits=ring), modular(sum(self._counts) + total, length)

    @property
    def seals(self) -> tuple[bytes, ...]:
        return tuple(
            seal_to(public(key), self.t, self._context(name), f"mask {self._label} {name}")
            for name, key in AUDIENCES.items()
        )

    @property
    def _label(self) -> str:
        return self.server if self.people[0].is_counted else f"{self.server} counted once"

    @property
    def _shares(self) -> list[bytes]:
        return [person.sp_update if self.server == "SP" else person.csp_update for person in self.people]

    @property
    def _counts(self) -> list[int]:
        if self.server == "CSP":
            return [person.csp_samples for person in self.people]
        return [int.from_bytes(person.sp_samples, "little") for person in self.people]

    def _context(self, audience: str) -> bytes:
        return place("crowdfl mask seed 2", self.server.encode(), audience.encode())


def average(people: list[Person]) -> dict[str, Json]:
    """What SP offers, what CSP answers, what SP publishes, what a reader gets."""
    sp, csp = Part("SP", people), Part("CSP", people)
    (x, x_total), (y, y_total) = sp.masked, csp.masked
    sums = added(x, y, bits=people[0].ring)
    total = modular(int.from_bytes(x_total, "little") + int.from_bytes(y_total, "little"), people[0].count_bytes)
    seals, masks = sp.seals + csp.seals, (sha256(sp.t), sha256(csp.t))
    opened = sha256(bind("crowdfl opened 1", sums, total))
    names = tuple(person.who for person in people)
    fields = (TASK, 1, BASE, names, (), (), opened, masks, tuple(map(sha256, seals)))
    statement = b"crowdfl record 2" + message(57, *fields, b"")
    signed = message(57, *fields, CSP_SIGNING.sign(statement))
    whole = [sum(person.update[j] for person in people) for j in range(len(INITIAL))]
    divisor = sum(SAMPLES) if people[0].is_counted else len(people)
    base = sha256(b"crowdfl next base 2" + BASE + sha256(statement))
    model = [start + _nearest(value, divisor) for start, value in zip(INITIAL, whole, strict=True)]
    secret = sha256(b"crowdfl secret 2" + bytes(32) + sp.t + csp.t)
    chain = struct.pack(">I", 1) + base + secret + b"".join(value.to_bytes(8, "little", signed=True) for value in model)
    return {
        "t SP": sp.t.hex(),
        "t CSP": csp.t.hex(),
        "offer": message(65, x, x_total, sha256(sp.t), tuple(map(sha256, sp.seals)), b"").hex(),
        "reply": message(58, y, y_total, csp.seals, signed, ()).hex(),
        "record": signed.hex(),
        "publication": message(59, sums, total, seals, signed).hex(),
        "sums": [str(value) for value in whole],
        "total": divisor if people[0].is_counted else None,
        "model": [str(value) for value in model],
        "base": base.hex(),
        "chain": chain.hex(),
    }


def _nearest(value: int, total: int) -> int:
    """value / total, halves to the even neighbour."""
    low, rest = divmod(value, total)
    return low + (2 * rest > total or (2 * rest == total and low % 2 == 1))


def reward() -> Json:
    """The first participant's: its samples and the total, as SP's mask and CSP's sealed half; and the claim for its part."""
    person, salt, total = PEOPLE[0], stream("reward salt", 32), sum(SAMPLES)
    amount = PAYMENT * SAMPLES[person.index] // total
    mask = int.from_bytes(stream("reward mask", 32), "big")
    v = ((SAMPLES[person.index] + WIDE * total + mask) % WIDE**2).to_bytes(32, "big")
    digits = mask.to_bytes((mask.bit_length() + 7) // 8, "big")
    commitment = sha256(b"crowdfl commitment 1" + struct.pack(">H", len(salt)) + salt + digits)
    context = f"crowdfl task {TASK} round 1".encode()
    statement = bind("crowdfl reward statement 1", context, person.who.encode(), commitment, v)
    sealing = bind("crowdfl reward 2", context) + person.who.encode()
    sealed = seal_to(public(person.reading), v + CSP_SIGNING.sign(statement), sealing, "reward")
    return {
        "who": person.who,
        "amount": amount,
        "commitment": commitment.hex(),
        "statement": statement.hex(),
        "context": sealing.hex(),
        "envelope": message(18, mask, salt, sealed).hex(),
        "claim": claim(person, amount, mask, salt, v + CSP_SIGNING.sign(statement)).hex(),
    }


def equal_reward(signed: bytes) -> Json:
    """The first participant's where pay is "equal": the record says it all, and nothing is masked."""
    person, amount = PEOPLE[0], PAYMENT // len(PEOPLE)
    envelope = message(18, 0, b"", signed)
    return {
        "who": person.who,
        "amount": amount,
        "envelope": envelope.hex(),
        "claim": claim(person, amount, 0, b"", b"").hex(),
        "beside": claim_beside(person, amount),
    }


def claim(person: Person, amount: int, mask: int, salt: bytes, shown: bytes, beside: Field = ((), b"", 0)) -> bytes:
    fields = (TASK, person.who, (1,), (amount,), (mask,), (salt,), (shown,), *beside)
    return message(19, *fields, person.signing.sign(b"crowdfl claim 4" + message(19, *fields, b"")))


def attestation(claimed: bytes, who: str, total: int, where: bytes, counter: int) -> dict[str, Json]:
    """CSP's word on a claim of one round, and its word to the payer."""
    said = (TASK, who, 1 + counter, total, CURRENCY, where, counter)
    statement = message(89, *said, CSP_SIGNING.sign(b"crowdfl pay statement 1" + message(89, *said, b"")))
    signature = CSP_SIGNING.sign(b"crowdfl attestation 3" + sha256(claimed) + sha256(statement))
    return {"statement": statement.hex(), "attestation": message(20, sha256(claimed), statement, signature).hex()}


def claim_beside(person: Person, amount: int) -> Json:
    """A claim that names two unused rounds and a destination, the third one; and a claim of these alone."""
    where, empty = sha256(stream("sealed destination", 512)), ((),) * 5
    whole = claim(person, amount, 0, b"", b"", ((2, 4), where, 3))
    rest = (TASK, person.who, *empty, (2, 4), where, 3)
    return {
        "unused": [2, 4],
        "destination": where.hex(),
        "counter": 3,
        "claim": whole.hex(),
        "claim without rewards": message(
            19, *rest, person.signing.sign(b"crowdfl claim 4" + message(19, *rest, b""))
        ).hex(),
        **attestation(whole, person.who, amount, where, 3),
    }


def records() -> list[Json]:
    """CSP's signed record, with each reason why an upload is left out, and with what is no reason."""
    rest = (bytes(32), (bytes(32), bytes(32)), ())

    def case(name: str, *reasons: str) -> dict[str, Json]:
        left = tuple(f"{place:020x}" for place in range(len(reasons)))
        fields = (TASK, 1, BASE, (PEOPLE[0].who,), left, reasons, *rest)
        signed = message(57, *fields, CSP_SIGNING.sign(b"crowdfl record 2" + message(57, *fields, b"")))
        return {"name": name, "record": signed.hex()}

    return [
        case("nobody left out") | {"reasons": []},
        *(case(code, code) | {"reasons": [code]} for code in REASONS),
        case("three left out", *REASONS[:3]) | {"reasons": list(REASONS[:3])},
        *(case(name, *codes) | {"error": "FormatError"} for name, codes in NO_REASONS.items()),
    ]


def verdicts() -> list[Json]:
    """CSP's signed word on a cohort: void, or not, and for what."""

    def case(name: str, void: str, *reasons: str) -> dict[str, Json]:
        left = tuple(f"{place:020x}" for place in range(len(reasons)))
        fields = (TASK, 1, BASE, bytes(32), (), left, reasons, void)
        signed = message(56, *fields, CSP_SIGNING.sign(b"crowdfl verdict 1" + message(56, *fields, b"")))
        return {"name": name, "verdict": signed.hex()}

    return [
        case("not void", "", REASONS[0]) | {"void": None, "reasons": [REASONS[0]]},
        *(case(code, code) | {"void": code, "reasons": []} for code in REASONS),
        *(case(name, "", *codes) | {"error": "FormatError"} for name, codes in NO_REASONS.items()),
        case("void for a sentence", "SP showed other bits") | {"error": "FormatError"},
    ]


def bad() -> list[Json]:
    """Bodies that a receiver of the first participant's upload must refuse, and why."""
    person = PEOPLE[0]
    whole = person.body()
    cases = [
        ("nothing", b"", "Truncated"),
        ("one byte short", whole[:-1], "Truncated"),
        ("one byte more", whole + b"\0", "TrailingBytes"),
        ("another magic", b"CFLX" + whole[4:], "FormatError"),
        ("version 1", whole[:4] + b"\1" + whole[5:], "UnsupportedVersion"),
        ("another kind", whole[:5] + bytes([54]) + whole[6:], "FormatError"),
        ("a share less", person.body(shares=person.sp_update[5:]), "LengthMismatch"),
        ("a count of 15 bytes", person.body(samples=person.sp_samples[1:]), "LengthMismatch"),
        ("a short seal", person.body(sealed=person.sealed[1:]), "LengthMismatch"),
        ("another task", person.body(task="f" * 64), "DocumentError"),
        ("another round", person.body(number=struct.pack(">I", 2)), "RoundNotOpen"),
        ("another base", person.body(base=sha256(BASE)), "WrongBase"),
        ("another name", person.body(who=PEOPLE[1].who), "BadSignature"),
        ("other shares", person.body(shares=PEOPLE[1].sp_update), "BadSignature"),
        ("another hash", person.body(digest=PEOPLE[1].digest), "BadSignature"),
        ("another seal", person.body(sealed=PEOPLE[1].sealed), "BadSignature"),
        ("another salt", person.body(salt=PEOPLE[1].salt), "BadSignature"),
        ("a short salt", person.body(salt=person.salt[1:]), "LengthMismatch"),
        ("another signature", person.body(signature=bytes(64)), "BadSignature"),
    ]
    return [{"name": name, "body": data.hex(), "error": error} for name, data, error in cases]


def document() -> Json:
    sent, nonce = manifest(), stream("nonce", 32)
    digest = sha256(b"crowdfl manifest 1" + sent)
    keys: dict[str, Json] = {
        "csp signing": CSP_SIGNING.private_bytes_raw().hex(),
        "csp sealing": CSP_SEALING.private_bytes_raw().hex(),
        **{name: key.private_bytes_raw().hex() for name, key in AUDIENCES.items()},
    }
    return {
        "about": "Profile shares: round 1 of a small task. Keys are private keys (Ed25519, X25519); messages "
        "are bytes as they travel; decimal strings are numbers in units of 10^-decimals. docs/formats.md defines all.",
        "task": TASK,
        "settings": {
            "profile": "shares",
            "decimals": DECIMALS,
            "clip": 2.0,
            "max_norm": 3.0,
            "max_samples": MAX_SAMPLES,
            "max_participants": 9,
            "lanes": 128,
            "rounds": ROUNDS,
            "budget": "9.00",
            "pay": "samples",
        },
        "ring": K,
        "payment": PAYMENT,
        "keys": keys,
        "initial": [str(value) for value in INITIAL],
        "base": BASE.hex(),
        "leaves": [
            {"label": "leaves", "bytes": length, "leaves": leaves(stream("leaves", length)).hex()}
            for length in (1, 2**18, 2**18 + 1, 2**20 + 5, 2**24 + 1)
        ],
        "uploads": [person.case() for person in PEOPLE],
        "counted once": {
            "settings": {"pay": "equal", "weighting": "equal"},
            "ring": EQUAL_K,
            "uploads": [person.case() for person in COUNTED_ONCE],
            "average": average(COUNTED_ONCE),
        },
        "manifest": {
            "message": sent.hex(),
            "digest": digest.hex(),
            "nonce": nonce.hex(),
            "coins": sha256(b"crowdfl coins 1" + digest + nonce).hex(),
        },
        "average": (opened := average(PEOPLE)),
        "reward": reward(),
        "equal reward": equal_reward(bytes.fromhex(opened["record"])),
        "records": records(),
        "verdicts": verdicts(),
        "bad": bad(),
    }


def documents() -> dict[str, str]:
    """The file's name and text."""
    return {"shares_messages.json": json.dumps(document(), indent=1) + "\n"}


def main() -> None:
    """Write it."""
    for name, text in documents().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
