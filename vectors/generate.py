"""Writes the test vectors beside this file. Run it from anywhere: `python vectors/generate.py`.

Everything follows from the fixed labels below, from plain integer arithmetic and, for signatures and AES, from `cryptography`.
Nothing of CrowdFL is imported, so the vectors are a second opinion and not an echo. The keys are public: never use them.
"""

import hashlib
import hmac
import json
import math
import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import gmpy2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

__all__ = ["documents", "main"]

Json: TypeAlias = "str | int | bool | list[Json] | dict[str, Json] | None"


def stream(label: str, length: int) -> bytes:
    """Fixed bytes for a label: what stands in for randomness here."""
    return hashlib.shake_256(f"crowdfl test vectors 1: {label}".encode()).digest(length)


def number(label: str, bound: int) -> int:
    """A fixed number in [0, bound)."""
    return int.from_bytes(stream(label, bound.bit_length() // 8 + 16), "big") % bound


def prime(label: str, bits: int) -> int:
    """The first prime that is 3 mod 4 from a fixed place on, in the upper quarter of the numbers of so many bits."""
    candidate = (3 << (bits - 2)) + (number(label, 1 << (bits - 4)) << 2) + 3
    while not gmpy2.is_prime(candidate, 40):
        candidate += 4
    return candidate


def power(base: int, exponent: int, modulus: int) -> int:
    """base^exponent mod modulus; a negative exponent inverts."""
    return int(gmpy2.powmod(base, exponent, modulus))


def hexadecimal(value: int, width: int) -> str:
    """`width` bytes, big-endian."""
    return value.to_bytes(width, "big").hex()


@dataclass(frozen=True)
class Key:
    """A key from fixed primes."""

    name: str
    prime_bits: int

    @cached_property
    def primes(self) -> tuple[int, int]:
        """The first pair with gcd(p-1, q-1) = 2 and gcd(N, lambda) = 1."""
        p = prime(f"{self.name} p", self.prime_bits)
        for attempt in range(1000):
            q = prime(f"{self.name} q {attempt}", self.prime_bits)
            if p != q and math.gcd(p - 1, q - 1) == 2 and math.gcd(p * q, (p - 1) * (q - 1)) == 1:
                return p, q
        raise LookupError(self.name)

    @property
    def n(self) -> int:
        """N = p*q."""
        return self.primes[0] * self.primes[1]

    @property
    def square(self) -> int:
        """N^2."""
        return self.n**2

    @property
    def lambda_(self) -> int:
        """(p-1)(q-1)."""
        return (self.primes[0] - 1) * (self.primes[1] - 1)

    @property
    def u(self) -> int:
        """lambda^-1 mod N."""
        return power(self.lambda_, -1, self.n)

    @cached_property
    def h_s(self) -> int:
        """h^N mod N^2 with h = -x^2 mod N."""
        x = 2 + number(f"{self.name} x", self.n - 2)
        return power(-x * x % self.n, self.n, self.square)

    @property
    def n_bytes(self) -> int:
        """Bytes of a number modulo N."""
        return (self.n.bit_length() + 7) // 8

    @property
    def c_bytes(self) -> int:
        """Bytes of a number modulo N^2."""
        return (2 * self.n.bit_length() + 7) // 8

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of a label, N and h_s."""
        numbers = self.n.to_bytes(self.c_bytes, "big") + self.h_s.to_bytes(self.c_bytes, "big")
        return hashlib.sha256(b"crowdfl public key 1" + numbers).digest()

    @cached_property
    def shares(self) -> tuple[int, int]:
        """lambda_1 fixed in [0, lambda*N), lambda_2 the rest to eps modulo lambda*N."""
        modulus = self.lambda_ * self.n
        lambda_1 = number(f"{self.name} lambda_1", modulus)
        return lambda_1, (self.lambda_ * self.u - lambda_1) % modulus

    def exponent(self, label: str) -> int:
        """A fixed exponent of |N|/2 bits."""
        return number(f"{self.name} exponent {label}", 2 ** (self.n.bit_length() // 2))

    def encrypt(self, m: int, exponent: int) -> int:
        """(1 + m*N) * h_s^exponent mod N^2."""
        return (1 + m % self.n * self.n) * power(self.h_s, exponent, self.square) % self.square

    def signed(self, m: int) -> int:
        """The number in (-N/2, N/2) congruent to m."""
        m %= self.n
        return m if 2 * m < self.n else m - self.n

    def c_hex(self, value: int) -> str:
        """A number modulo N^2."""
        return hexadecimal(value, self.c_bytes)

    def public(self) -> dict[str, Json]:
        """What everybody may know."""
        return {
            "n": hexadecimal(self.n, self.n_bytes),
            "h_s": self.c_hex(self.h_s),
            "fingerprint": self.fingerprint.hex(),
        }


SMALL = Key("small", 64)
OTHER = Key("other", 64)
REAL = Key("real", 1024)


def pctd() -> Json:
    """The cryptosystem: one test key, one key of real length."""
    return {
        "about": "PCTD. Hexadecimal is big-endian and unsigned; decimal strings are signed plaintexts and scalars.",
        "keys": [_pctd_of(SMALL), _pctd_of(REAL)],
    }


def _pctd_of(key: Key) -> Json:
    most = key.n // 2
    plaintexts = [0, 1, -1, 1234567, -1234000, most, -most]
    exponents = [key.exponent(str(i)) for i in range(len(plaintexts))]
    ciphertexts = [key.encrypt(m, e) for m, e in zip(plaintexts, exponents, strict=True)]
    share_bytes = (key.lambda_ * key.n).bit_length() // 8 + 1
    encryptions: list[Json] = [
        {
            "plaintext": str(m),
            "exponent": hexadecimal(e, key.n_bytes),
            "randomizer": key.c_hex(power(key.h_s, e, key.square)),
            "ciphertext": key.c_hex(c),
            "partial_1": key.c_hex(power(c, key.shares[0], key.square)),
            "partial_2": key.c_hex(power(c, key.shares[1], key.square)),
        }
        for m, e, c in zip(plaintexts, exponents, ciphertexts, strict=True)
    ]

    def pairs(indices: Iterable[tuple[int, int]], sign: int) -> list[Json]:
        return [
            {
                "left": i,
                "right": j,
                "plaintext": str(key.signed(plaintexts[i] + sign * plaintexts[j])),
                "ciphertext": key.c_hex(ciphertexts[i] * power(ciphertexts[j], sign, key.square) % key.square),
            }
            for i, j in indices
        ]

    products: list[Json] = [
        {
            "index": i,
            "scalar": str(k),
            "plaintext": str(key.signed(plaintexts[i] * k)),
            "ciphertext": key.c_hex(power(ciphertexts[i], k, key.square)),
        }
        for i, k in ((3, 0), (3, 1), (3, -1), (3, 1000), (4, -7), (1, most), (5, 2))
    ]
    p, q = key.primes
    return {
        "name": key.name,
        "bits": key.n.bit_length(),
        "p": hexadecimal(p, (key.prime_bits + 7) // 8),
        "q": hexadecimal(q, (key.prime_bits + 7) // 8),
        **key.public(),
        "lambda": hexadecimal(key.lambda_, key.n_bytes),
        "u": hexadecimal(key.u, key.n_bytes),
        "lambda_1": hexadecimal(key.shares[0], share_bytes),
        "lambda_2": hexadecimal(key.shares[1], share_bytes),
        "encryptions": encryptions,
        "sums": pairs([(3, 4), (1, 2), (5, 1)], 1),
        "differences": pairs([(3, 4), (1, 1), (6, 1)], -1),
        "products": products,
        "bad": [
            {"step": "encrypt", "plaintext": str(most + 1), "error": "PlaintextOutOfRange"},
            {"step": "encrypt", "plaintext": str(-most - 1), "error": "PlaintextOutOfRange"},
            {"step": "scale", "scalar": str(most + 1), "error": "PlaintextOutOfRange"},
            {"step": "receive", "ciphertext": key.c_hex(0), "error": "CiphertextOutOfRange"},
            {"step": "receive", "ciphertext": key.c_hex(key.square), "error": "CiphertextOutOfRange"},
            {"step": "receive", "ciphertext": "ff" * key.c_bytes, "error": "CiphertextOutOfRange"},
            {"step": "receive", "ciphertext": key.c_hex(key.n), "error": "NotAUnit"},
            {"step": "receive", "ciphertext": key.c_hex(5 * p), "error": "NotAUnit"},
            {"step": "receive", "ciphertext": key.c_hex(q * q), "error": "NotAUnit"},
            {"step": "combine", "partials": [[3, 1], [3, 1]], "error": "SharesDoNotMatch"},
            {"step": "combine", "partials": [[3, 1], [4, 2]], "error": "SharesDoNotMatch"},
        ],
    }


def packing() -> Json:
    """Signed slots in plaintexts."""
    shapes = [
        (SMALL, 3, 38, "mixed"),
        (SMALL, 1, 2, "mixed"),
        (SMALL, 7, 18, "extremes"),
        (SMALL, 2, 63, "extremes"),
        (SMALL, 1, 127, "extremes"),
        (REAL, 53, 38, "mixed"),
        (REAL, 20, 99, "extremes"),
    ]
    return {
        "about": "T = sum of v_j * 2^(W*j) mod N for each run of K values; the last run is padded with zeros.",
        "good": [_packed(*shape) for shape in shapes],
        "bad": [
            _bad_packing(SMALL, 0, 38, "WidthError"),
            _bad_packing(SMALL, 3, 1, "WidthError"),
            _bad_packing(SMALL, 4, 32, "WidthError"),
            _bad_packing(SMALL, 3, 38, "SlotOverflow", values=["0", str(2**37)]),
            _bad_packing(SMALL, 3, 38, "SlotOverflow", values=[str(-(2**37))]),
            _bad_packing(SMALL, 3, 38, "SlotOverflow", residue=SMALL.n // 2),
            _bad_packing(SMALL, 3, 38, "SlotOverflow", residue=2**114),
            _bad_packing(SMALL, 3, 38, "SlotOverflow", residue=SMALL.n - 2**114),
        ],
    }


def _packed(key: Key, slots: int, slot_bits: int, style: str) -> Json:
    most = 2 ** (slot_bits - 1) - 1
    count = 2 * slots + 1
    if style == "extremes":
        values = [(most, -most, -most)[i % 3] for i in range(count)]
    else:
        values = [number(f"packing {slots} {slot_bits} {i}", 2 * most + 1) - most for i in range(count)]
    rows = [values[i : i + slots] for i in range(0, count, slots)]
    totals = [sum(v * 2 ** (slot_bits * j) for j, v in enumerate(row)) % key.n for row in rows]
    return {
        "n": hexadecimal(key.n, key.n_bytes),
        "slots": slots,
        "slot_bits": slot_bits,
        "values": [str(v) for v in values],
        "residues": [hexadecimal(t, key.n_bytes) for t in totals],
    }


def _bad_packing(
    key: Key, slots: int, slot_bits: int, error: str, *, values: list[Json] | None = None, residue: int | None = None
) -> Json:
    step = "pack" if values is not None else "shape" if residue is None else "unpack"
    case: dict[str, Json] = {
        "step": step,
        "n": hexadecimal(key.n, key.n_bytes),
        "slots": slots,
        "slot_bits": slot_bits,
        "error": error,
    }
    if values is not None:
        case["values"] = values
    if residue is not None:
        case["residues"] = [hexadecimal(residue, key.n_bytes)]
    return case


def _form(
    key: Key,
    numbers: list[int],
    *,
    magic: bytes = b"CFLV",
    version: int = 1,
    kind: int = 1,
    reserved: int = 0,
    width: int | None = None,
    count: int | None = None,
) -> bytes:
    header = struct.pack(
        ">4sBBH32sIQ",
        magic,
        version,
        kind,
        reserved,
        key.fingerprint,
        key.c_bytes if width is None else width,
        len(numbers) if count is None else count,
    )
    return header + b"".join(c.to_bytes(key.c_bytes, "big") for c in numbers)


def vector_form() -> Json:
    """The binary form of a vector, right and wrong."""
    three = [SMALL.encrypt(m, SMALL.exponent(f"form {m}")) for m in (1, -2, 3)]
    partials = [power(c, SMALL.shares[0], SMALL.square) for c in three]
    real = [REAL.encrypt(-5, REAL.exponent("form"))]
    good = [
        ("no entries", SMALL, 1, []),
        ("three ciphertexts", SMALL, 1, three),
        ("the smallest and the largest unit", SMALL, 1, [1, SMALL.square - 1]),
        ("three partial decryptions", SMALL, 2, partials),
        ("one ciphertext of a real key", REAL, 1, real),
    ]
    whole = _form(SMALL, three)
    bad = [
        ("nothing", 1, b"", "Truncated"),
        ("half a header", 1, whole[:26], "Truncated"),
        ("a header one byte short", 1, whole[:51], "Truncated"),
        ("a last number one byte short", 1, whole[:-1], "Truncated"),
        ("a last number missing", 1, whole[: -SMALL.c_bytes], "Truncated"),
        ("a byte too many", 1, whole + b"\0", "TrailingBytes"),
        ("a number too many", 1, whole + bytes(SMALL.c_bytes), "TrailingBytes"),
        ("another magic", 1, _form(SMALL, three, magic=b"CFLX"), "FormatError"),
        ("version 0", 1, _form(SMALL, three, version=0), "UnsupportedVersion"),
        ("version 2", 1, _form(SMALL, three, version=2), "UnsupportedVersion"),
        ("an unknown kind", 1, _form(SMALL, three, kind=3), "FormatError"),
        ("ciphertexts for partial decryptions", 2, whole, "FormatError"),
        ("partial decryptions for ciphertexts", 1, _form(SMALL, partials, kind=2), "FormatError"),
        ("reserved bits set", 1, _form(SMALL, three, reserved=1), "FormatError"),
        ("another key", 1, _form(OTHER, [1, 1, 1]), "KeyMismatch"),
        ("another width", 1, _form(SMALL, three, width=SMALL.c_bytes + 1), "FormatError"),
        ("one entry more than is allowed", 1, _form(SMALL, [*three, 1]), "LimitExceeded"),
        ("2^64 - 1 entries announced", 1, _form(SMALL, three, count=2**64 - 1), "LimitExceeded"),
        ("a zero", 1, _form(SMALL, [three[0], 0]), "CiphertextOutOfRange"),
        ("N^2", 1, _form(SMALL, [three[0], SMALL.square]), "CiphertextOutOfRange"),
        ("N", 1, _form(SMALL, [three[0], SMALL.n]), "NotAUnit"),
        ("a multiple of p", 1, _form(SMALL, [7 * SMALL.primes[0], three[0]]), "NotAUnit"),
        ("a zero among partial decryptions", 2, _form(SMALL, [0], kind=2), "CiphertextOutOfRange"),
    ]
    return {
        "about": "kind 1: ciphertexts, kind 2: partial decryptions. In the bad cases the reader expects `kind` under key "
        "`small` and allows max_count entries.",
        "keys": {key.name: {"bits": key.n.bit_length(), **key.public()} for key in (SMALL, REAL)},
        "good": [
            {
                "name": name,
                "key": key.name,
                "kind": kind,
                "numbers": [key.c_hex(c) for c in numbers],
                "bytes": _form(key, numbers, kind=kind).hex(),
            }
            for name, key, kind, numbers in good
        ],
        "max_count": 3,
        "bad": [{"name": name, "kind": kind, "bytes": data.hex(), "error": error} for name, kind, data, error in bad],
    }


def permutation() -> Json:
    """Public coins and the permutation they give."""
    cases = [
        (b"", "", 0),
        (b"", "", 1),
        (b"task 1", "parameters", 10),
        (bytes(32), "sketch", 33),
        (b"\xff" * 32, "\u00e9", 50),
    ]
    return {
        "about": "stream: SHAKE-256(2-byte length of purpose || purpose in UTF-8 || seed), first 32 bytes. order: positions "
        "sorted by the stream's successive big-endian 64-bit numbers, ties by position.",
        "cases": [
            {
                "seed": seed.hex(),
                "purpose": purpose,
                "count": count,
                "stream": _public_stream(seed, purpose, 32).hex(),
                "order": list(_order(seed, purpose, count)),
            }
            for seed, purpose, count in cases
        ],
    }


def _public_stream(seed: bytes, purpose: str, length: int) -> bytes:
    label = purpose.encode()
    return hashlib.shake_256(struct.pack(">H", len(label)) + label + seed).digest(length)


def _order(seed: bytes, purpose: str, count: int) -> list[int]:
    keys = struct.unpack(f">{count}Q", _public_stream(seed, purpose, 8 * count))
    return sorted(range(count), key=lambda position: (keys[position], position))


TASK, NUMBER = "0123456789abcdef" * 4, "00112233445566778899aabbccddeeff"


def _raw_keys(label: str) -> tuple[Ed25519PrivateKey, X25519PrivateKey]:
    signing = Ed25519PrivateKey.from_private_bytes(stream(f"{label} signing", 32))
    return signing, X25519PrivateKey.from_private_bytes(stream(f"{label} reading", 32))


def _public(label: str) -> str:
    return _raw_keys(label)[0].public_key().public_bytes_raw().hex()


def _letters(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _document(kind: str, body: dict[str, str | int | float], signer: str) -> str:
    payload, name = json.dumps({"form": 1, **body}, separators=(",", ":")), f"application/vnd.crowdfl.{kind}+json"
    signature = _raw_keys(signer)[0].sign(f"DSSEv1 {len(name)} {name} {len(payload)} {payload}".encode())
    return f"crowdfl {kind} {_letters(signature)} {payload}"


def _invitation(signer: str = "requester", task: str = TASK, device: int = 1, number: str = NUMBER) -> str:
    """Of a key whose private half the link carries."""
    body = {"task": task, "number": number, "device": device, "key": _public("link"), "expires": 2000000000.0}
    return _document("invitation", body, signer)


def _context(task: str, number: str, device: int, signing: str, reading: str) -> str:
    return f"crowdfl enrolment 3 {task} {number} {device} {signing} {reading}"


def _request(
    signer: str = "link",
    signing: str = "mine",
    prover: str = "mine",
    *,
    kind: str = "enrolment-request",
    task: str = TASK,
    number: str = NUMBER,
    device: int = 1,
) -> str:
    """A request to certify two keys, signed with an invitation's key; the prover should own the signing key."""
    reading = _raw_keys("mine")[1].public_key().public_bytes_raw().hex()
    said = _context(task, number, device, _public(signing), reading)
    body = {
        "task": task,
        "number": number,
        "device": device,
        "signing": _public(signing),
        "reading": reading,
        "proof": _raw_keys(prover)[0].sign(said.encode()).hex(),
    }
    return _document(kind, body, signer)


def _name(label: str) -> str:
    return hashlib.sha256(b"crowdfl participant 1" + bytes.fromhex(_public(label))).hexdigest()[:20]


def _certificate(
    invitation: str = "", request: str = "", *, signer: str = "kgc", task: str = TASK, who: str = "mine"
) -> str:
    body = {
        "task": task,
        "who": _name(who),
        "invitation": invitation or _invitation(),
        "request": request or _request(),
    }
    return _document("certificate", body, signer)


def enrolment() -> Json:
    """An invitation, requests to enrol with it, what KGC's answer holds, and certificates; right ones and wrong ones."""
    mine, bundle = _raw_keys("mine"), stream("bundle", 9)
    signing, reading = (key.public_key().public_bytes_raw().hex() for key in mine)
    certificate = _certificate()
    place = hashlib.sha256(b"crowdfl recruited 1" + bytes.fromhex(_public("link"))).hexdigest()[:32]
    opened = b"CFLM\2\x47"  # version 2, kind 71
    for field in (certificate.encode(), bundle):
        opened += struct.pack(">I", len(field)) + field
    requests = [
        ("signed by another key than the invitation's", _request("mine"), "BadSignature"),
        ("the signing key of another", _request(signing="another's"), "BadSignature"),
        ("signed for another purpose", _request(kind="order"), "DocumentError"),
        ("for another task", _request(task="f" * 64), "InvitationRefused"),
        ("for another number", _request(number="f" * 32), "InvitationRefused"),
        ("for another device", _request(device=2), "InvitationRefused"),
        ("a device too many", _request(device=6), "DocumentError"),
    ]
    certificates = [
        ("signed by another than KGC", _certificate(signer="another's"), "BadSignature"),
        ("for another task", _certificate(task="f" * 64), "DocumentError"),
        ("under another name", _certificate(who="another's"), "DocumentError"),
        ("with an invitation that KGC has signed", _certificate(_invitation("kgc")), "BadSignature"),
        ("with an invitation that its recruiter has signed, for a second device",
         _certificate(_invitation("recruiter", device=2), _request(device=2)), "BadSignature"),
        ("with an invitation that its recruiter has signed, for another place than its key's",
         _certificate(_invitation("recruiter")), "InvitationRefused"),
        ("with an invitation to another task", _certificate(_invitation(task="f" * 64)), "InvitationRefused"),
        *((f"with a request {name}", _certificate(request=request), error) for name, request, error in requests),
    ]  # fmt: skip
    return {
        "about": "All documents are to the byte as CrowdFL writes them. `ticket` is the invitation behind its private key, as "
        "a link holds both. The answer is sealed to the reading key with `context` (HPKE: X25519, HKDF-SHA256, "
        "ChaCha20-Poly1305); `opened` is its plaintext. Whoever reads requests has `invitation`; of certificates, "
        "the public keys.",
        "task": TASK,
        "requester": _public("requester"),
        "recruiter": _public("recruiter"),
        "kgc": _public("kgc"),
        "ticket": f"{_letters(_raw_keys('link')[0].private_bytes_raw())} {_invitation()}",
        "invitation": _invitation(),
        "private": {"signing": mine[0].private_bytes_raw().hex(), "reading": mine[1].private_bytes_raw().hex()},
        "who": _name("mine"),
        "request": _request(),
        "context": _context(TASK, NUMBER, 1, signing, reading),
        "opened": opened.hex(),
        "certificate": certificate,
        "recruited": _certificate(_invitation("recruiter", number=place), _request(number=place)),
        "bundle": bundle.hex(),
        "bad": [{"name": name, "request": request, "error": error} for name, request, error in requests],
        "bad certificates": [{"name": name, "certificate": text, "error": error} for name, text, error in certificates],
        "cut short": [{"opened": opened[:end].hex(), "error": "Truncated"} for end in (0, 5, 8, 20, -10, -1)],
    }


def _aes(key: bytes, block: bytes) -> bytes:
    return Cipher(AES(key), ECB()).encryptor().update(block)  # noqa: S305 - one block


def _expand(seed: bytes, context: bytes, length: int) -> bytes:
    """HKDF-SHA-256 without salt for one block of output, then AES-256 of the successive counters."""
    key = hmac.digest(hmac.digest(bytes(32), seed, "sha256"), context + b"\x01", "sha256")
    blocks = (_aes(key, counter.to_bytes(16, "big")) for counter in range(length // 16 + 1))
    return b"".join(blocks)[:length]


def _elements(values: Iterable[int], bits: int) -> bytes:
    return b"".join((value % 2**bits).to_bytes(bits // 8, "little") for value in values)


def shares_expansion() -> Json:
    """Seeds as bytes, rings of whole bytes, a sketch, a comparison."""
    return {
        "about": "Profile shares. Hexadecimal is bytes as they travel, in order; contexts are bytes too. Decimal strings are "
        "numbers: `values` signed, `elements` and `lanes` unsigned.",
        "expansions": [_expansion(*case) for case in EXPANSIONS],
        "rings": [_ring(bits) for bits in range(8, 65, 8)],
        "sharings": [_sharing(bits) for bits in (40, 56, 64)],
        "sketches": [_sketch("one", 12, 2, 4), _sketch("empty buckets", 5, 3, 20), _sketch("one bucket", 6, 1, 1)],
        "comparisons": [
            _comparisons("short", 3, list(range(8))),
            _comparisons("long", 40, [0, 2**40 - 1, 2**39, 12345]),
        ],
        "bad": [
            {"step": "ring", "bits": 0, "error": "WidthError"},
            {"step": "ring", "bits": 12, "error": "WidthError"},
            {"step": "ring", "bits": 72, "error": "WidthError"},
            {"step": "decode", "bits": 56, "bytes": bytes(15).hex(), "error": "LengthMismatch"},
            {"step": "decode", "bits": 16, "bytes": "00", "error": "LengthMismatch"},
            {"step": "compare", "bits": 3, "bytes": bytes(48).hex(), "error": "LengthMismatch"},
            {"step": "compare", "bits": 3, "bytes": bytes(50).hex(), "error": "LengthMismatch"},
        ],
    }


EXPANSIONS = [
    (bytes(32), b"", 16),
    (bytes(range(32)), b"weights", 0),
    (bytes(range(32)), b"weights", 1),
    (bytes(range(32)), b"weights", 33),
    (bytes(range(32)), b"weights 2", 33),
    (b"\xff" * 32, bytes(70), 16 * 300),
]


def _expansion(seed: bytes, context: bytes, length: int) -> Json:
    """A long stream by its hash and its last bytes."""
    data = _expand(seed, context, length)
    case: dict[str, Json] = {"seed": seed.hex(), "context": context.hex(), "length": length}
    if length <= 64:
        return {**case, "bytes": data.hex()}
    return {**case, "sha256": hashlib.sha256(data).hexdigest(), "last": data[-16:].hex()}


def _ring(bits: int) -> Json:
    half = 2 ** (bits - 1)
    values = [0, 1, -1, half - 1, -half, number(f"ring {bits}", 2 * half) - half]
    return {
        "bits": bits,
        "values": [str(v) for v in values],
        "elements": [str(v % 2**bits) for v in values],
        "bytes": _elements(values, bits).hex(),
    }


def _sharing(bits: int) -> Json:
    """Values that two shares add up to, CSP's from a seed: elements in the order of its stream."""
    values = [number(f"sharing {bits} {i}", 2000001) - 1000000 for i in range(9)]
    seed, context = stream(f"sharing {bits}", 32), f"sharing of {bits} bits".encode()
    csp = _expand(seed, context, len(values) * bits // 8)
    masks = [int.from_bytes(csp[i : i + bits // 8], "little") for i in range(0, len(csp), bits // 8)]
    return {
        "bits": bits,
        "values": [str(v) for v in values],
        "seed": seed.hex(),
        "context": context.hex(),
        "csp": csp.hex(),
        "sp": _elements((v - mask for v, mask in zip(values, masks, strict=True)), bits).hex(),
    }


def _sketch(name: str, parameters: int, rows: int, buckets: int) -> Json:
    coins = stream(f"sketch {name}", 32)
    vector = [number(f"sketch {name} {i}", 2**64) for i in range(parameters)]
    where: list[list[int]] = []
    signs: list[list[int]] = []
    lanes = [0] * (rows * buckets)
    for row in range(rows):
        words = struct.unpack(f"<{parameters}Q", _expand(coins, f"crowdfl sketch 1 0 {row}".encode(), 8 * parameters))
        where.append([(word >> 16) * buckets >> 48 for word in words])
        signs.append([1 - 2 * (word & 1) for word in words])
        for value, bucket, sign in zip(vector, where[-1], signs[-1], strict=True):
            lanes[row * buckets + bucket] += sign * value
    return {
        "name": name,
        "coins": coins.hex(),
        "parameters": parameters,
        "rows": rows,
        "buckets": buckets,
        "bucket": [list(row) for row in where],
        "sign": [list(row) for row in signs],
        "vector": [str(v) for v in vector],
        "lanes": [str(lane % 2**64) for lane in lanes],
    }


def _half(seed: int, side: int) -> tuple[int, int, int]:
    """Seed, control bit and output bit to the left (0) or to the right (1)."""
    key = hashlib.sha256(f"crowdfl comparison 1 {('left', 'right')[side]}".encode()).digest()[:16]
    data = int.from_bytes(_aes(key, seed.to_bytes(16, "little")), "little") ^ seed
    return data & ~3, data & 1, data >> 1 & 1


def _corrections(alpha: int, bits: int, seeds: tuple[int, int]) -> tuple[list[tuple[int, int, int, int]], int]:
    """Per level the corrections of seed, left control, right control and output; then the last one of the output."""
    s, t, value, levels = list(seeds), [0, 1], 0, []
    for level in range(bits):
        keep = alpha >> (bits - 1 - level) & 1
        left, right = [_half(seed, 0) for seed in s], [_half(seed, 1) for seed in s]
        kept, lost = (right, left) if keep else (left, right)
        word, output = lost[0][0] ^ lost[1][0], lost[0][2] ^ lost[1][2] ^ value ^ keep
        controls = (left[0][1] ^ left[1][1] ^ keep ^ 1, right[0][1] ^ right[1][1] ^ keep)
        value ^= kept[0][2] ^ kept[1][2] ^ output
        s = [kept[b][0] ^ t[b] * word for b in (0, 1)]
        t = [kept[b][1] ^ t[b] * controls[keep] for b in (0, 1)]
        levels.append((word, *controls, output))
    return levels, value ^ s[0] >> 2 & 1 ^ s[1] >> 2 & 1


def _output(party: int, seed: int, levels: list[tuple[int, int, int, int]], last: int, point: int) -> int:
    s, t, value = seed, party, 0
    for level, (word, left, right, output) in enumerate(levels):
        side = point >> (len(levels) - 1 - level) & 1
        half = _half(s, side)
        s, value, t = half[0] ^ t * word, value ^ half[2] ^ t * output, half[1] ^ t * (right if side else left)
    return value ^ s >> 2 & 1 ^ t * last


def _comparisons(name: str, bits: int, alphas: list[int]) -> Json:
    """Each number at itself and beside itself."""
    seeds = [stream(f"comparison {name} {party}", 16 * len(alphas)) for party in ("sp", "csp")]
    keys = [[int.from_bytes(s[i : i + 16], "little") & ~3 for s in seeds] for i in range(0, len(seeds[0]), 16)]
    made = [_corrections(alpha, bits, (key[0], key[1])) for alpha, key in zip(alphas, keys, strict=True)]
    points = [(i, point) for i, a in enumerate(alphas) for point in (a - 1, a, a + 1) if 0 <= point < 2**bits]
    return {
        "name": name,
        "bits": bits,
        "alphas": [str(alpha) for alpha in alphas],
        "seeds": {"sp": seeds[0].hex(), "csp": seeds[1].hex()},
        "corrections": b"".join(_correction_bytes(levels, last) for levels, last in made).hex(),
        "instances": [i for i, _ in points],
        "points": [str(point) for _, point in points],
        "sp": [_output(0, keys[i][0], *made[i], point) for i, point in points],
        "csp": [_output(1, keys[i][1], *made[i], point) for i, point in points],
        "below": [int(point < alphas[i]) for i, point in points],
    }


def _correction_bytes(levels: list[tuple[int, int, int, int]], last: int) -> bytes:
    words = b"".join((word | left | right << 1).to_bytes(16, "little") for word, left, right, _ in levels)
    outputs = sum(bit << i for i, bit in enumerate([*(level[3] for level in levels), last]))
    return words + outputs.to_bytes(len(levels) // 8 + 1, "little")


def documents() -> dict[str, str]:
    """Every file's name and text."""
    parts = {
        "pctd.json": pctd(),
        "packing.json": packing(),
        "vector_form.json": vector_form(),
        "permutation.json": permutation(),
        "enrolment.json": enrolment(),
        "shares_expansion.json": shares_expansion(),
    }
    return {name: json.dumps(part, indent=1) + "\n" for name, part in parts.items()}


def main() -> None:
    """Write them."""
    for name, text in documents().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
