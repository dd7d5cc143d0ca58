"""Writes phone_updates.json beside this file: what a phone in a browser must compute, sign and read as Python does.

As `generate.py`: everything follows from fixed labels, the standard library and Ed25519 of the package `cryptography`.
Nothing of CrowdFL is imported. The keys are public: never use them.
"""

import hashlib
import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["documents", "main"]

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Body: TypeAlias = dict[str, Any]

SIGNING = "participant signing"


def stream(label: str, length: int) -> bytes:
    """Fixed bytes for a label: what stands in for randomness here."""
    return hashlib.shake_256(f"crowdfl phone vectors 1: {label}".encode()).digest(length)


def floats(values: Sequence[float]) -> str:
    return struct.pack(f"<{len(values)}d", *values).hex()


def integers(values: Sequence[int]) -> str:
    return struct.pack(f"<{len(values)}q", *values).hex()


def fractions(label: str, count: int) -> list[float]:
    """Fixed numbers in [-1, 1)."""
    words = struct.unpack(f"<{count}q", stream(label, 8 * count))
    return [word / 2**63 for word in words]


def pairwise(values: list[float]) -> float:
    """A sum in the order in which NumPy adds."""
    if len(values) > 128:
        half = len(values) // 2
        half -= half % 8
        return pairwise(values[:half]) + pairwise(values[half:])
    total, even = 0.0, 0
    if len(values) >= 8:
        lanes, even = values[:8], len(values) - len(values) % 8
        for i in range(8, even):
            lanes[i % 8] += values[i]
        a, b, c, d, e, f, g, h = lanes
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for value in values[even:]:
        total += value
    return total


def norm_of(change: list[float]) -> float:
    norm = math.sqrt(pairwise([entry * entry for entry in change]))
    if math.isfinite(norm):
        return norm
    largest = max(map(abs, change))
    return largest * math.sqrt(pairwise([(entry / largest) ** 2 for entry in change]))


def update(
    name: str,
    model: list[int],
    weights: list[float],
    samples: int,
    *,
    decimals: int = 6,
    clip: float = 2.0,
    max_norm: float | None = None,
) -> Body:
    """What an update becomes before it is shared."""
    unit = 10**decimals
    change = [weight - value / unit for weight, value in zip(weights, model, strict=True)]
    norm = norm_of(change)
    scaled = None if max_norm is None or norm <= max_norm else max_norm / norm
    kept = change if scaled is None else [entry * scaled for entry in change]
    whole = [round(min(max(entry, -clip), clip) * unit) * samples for entry in kept]  # halves to the even one
    return {
        "name": name,
        "settings": {"decimals": decimals, "clip": clip, "max_norm": max_norm},
        "model": integers(model),
        "weights": floats(weights),
        "samples": samples,
        "integers": integers(whole),
        "clipped": sum(abs(entry) > clip for entry in kept),
        "scaled": None if scaled is None else floats([scaled]),
    }


def updates() -> list[Json]:
    # With 303 of these, another order of adding gives another last digit of the norm.
    model = [round(value * 10**6) for value in fractions("model", 303)]
    weights = [value / 10**6 + 0.3 * change for value, change in zip(model, fractions("change", 303), strict=True)]
    halves = [step / 2 for step in range(-9, 10)]
    return [
        update("nothing to clip", model, weights, 500),
        update("scaled down to the norm", model, weights, 500, max_norm=1.0),
        update("scaled down, 129 weights", model[:129], weights[:129], 3, max_norm=0.125),
        update("scaled down, 7 weights", model[:7], weights[:7], 3, max_norm=0.1),
        update("within the norm", model, weights, 1, max_norm=100),
        update("clipped", model, weights, 7, clip=0.25),
        update("halves go to the even number", [0] * len(halves), halves, 1, decimals=0, clip=100.0),
        update("squares that are too large", model[:9], [1e300, -1e299, *weights[2:9]], 2, max_norm=3.0),
        update("products beyond 2^53", [0, 0, 0], [8999.999999999999, -9000.0, 0.1], 300, decimals=12, clip=9000.0),
    ]


def quotients() -> Body:
    """sums / total, to the nearest integer, halves to the even one."""
    sums = [*range(-25, 26), 2**62 + 1, -(2**62) - 1, 2**63 - 1, -(2**63), 10**15 + 5]
    return {str(total): [str(_nearest(value, total)) for value in sums] for total in (2, 3, 10, 999_999_937)} | {
        "sums": [str(value) for value in sums]
    }


def _nearest(value: int, total: int) -> int:
    low, rest = divmod(value, total)
    return low + (2 * rest > total or (2 * rest == total and low % 2 == 1))


def requests() -> list[Json]:
    """Requests that a participant signs."""
    key = Ed25519PrivateKey.from_private_bytes(stream(SIGNING, 32))
    who = hashlib.sha256(b"crowdfl participant 1" + key.public_key().public_bytes_raw()).hexdigest()[:20]
    made: list[Json] = []
    for method, target, body in (
        ("GET", "/v1/tasks/0123/rounds/1/average", b""),
        ("PATCH", "/v1/tasks/0123/rounds/2/upload?offset=262144", stream("piece", 100)),
        ("POST", "/v1/tasks/0123/claim", b'{"claim": "\xc3\xa9"}'),
    ):
        time, digest = "1790000000", hashlib.sha256(body).hexdigest()
        proof = key.sign("\n".join(("crowdfl request 1", method, target, time, digest)).encode()).hex()
        headers: Json = {
            "Authorization": f'CrowdFL who="{who}", time="{time}", signature="{proof}"',
            "X-Content-SHA256": digest,
        }
        made.append({"method": method, "target": target, "body": body.hex(), "time": int(time), "headers": headers})
    return made


# Models: npz files, written by hand.


def npy(values: Sequence[float], shape: str, kind: str = "<f8", fortran: str = "False") -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    padded = head + " " * (-(len(head) + 11) % 64) + "\n"
    packed = struct.pack(f"<{len(values)}{'f' if kind == '<f4' else 'd'}", *values)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode() + packed


def npz(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = method
            with archive.open(entry, "w", force_zip64=True) as member:  # as NumPy does
                member.write(data)
    return buffer.getvalue()


MATRIX, BIAS = [0.5, -1.25, 3.0, 1e-3, 7.75, -0.0], [1.0, 2.0, 3.0]


def models() -> Body:
    columns = [MATRIX[place] for place in (0, 3, 1, 4, 2, 5)]
    whole = {"arr_0.npy": npy(MATRIX, "(2, 3)"), "arr_1.npy": npy(BIAS, "(3,)"), "arr_2.npy": npy([9.5], "()")}
    stored = npz(whole)
    single = [struct.unpack("<f", struct.pack("<f", value))[0] for value in MATRIX]
    flat = [*MATRIX, *BIAS, 9.5]
    fine = [
        ("stored", stored, flat),
        ("packed", npz(whole, zipfile.ZIP_DEFLATED), flat),
        ("in another order", npz(dict(reversed(whole.items()))), flat),
        ("in Fortran's order", npz(whole | {"arr_0.npy": npy(columns, "(2, 3)", fortran="True")}), flat),
        ("float32", npz(whole | {"arr_0.npy": npy(MATRIX, "(2, 3)", "<f4")}), [*single, *BIAS, 9.5]),
    ]
    bad = [
        ("nothing", b"", "FormatError"),
        ("no ZIP file", b"a model, one would think: but not a ZIP file at all", "FormatError"),
        ("cut off", stored[:-30], "FormatError"),
        ("its middle cut out", stored[:100] + stored[180:], "FormatError"),
        ("an altered weight", stored.replace(struct.pack("<d", 7.75), struct.pack("<d", 7.5)), "FormatError"),
        ("an altered packed weight", forged(whole), "FormatError"),
        ("an array less", npz({name: whole[name] for name in ("arr_0.npy", "arr_1.npy")}), "ModelMismatch"),
        ("an array more", npz(whole | {"arr_3.npy": npy([1.0], "()")}), "ModelMismatch"),
        ("another name", npz({"w.npy": whole["arr_0.npy"], "arr_1.npy": b"", "arr_2.npy": b""}), "ModelMismatch"),
        ("another shape", npz(whole | {"arr_0.npy": npy(MATRIX, "(3, 2)")}), "ModelMismatch"),
        ("integers", npz(whole | {"arr_0.npy": npy(MATRIX, "(2, 3)", "<i8")}), "ModelMismatch"),
        ("objects", npz(whole | {"arr_0.npy": npy(MATRIX, "(2, 3)", "|O")}), "ModelMismatch"),
        ("a weight more", npz(whole | {"arr_0.npy": npy([*MATRIX, 1.0], "(2, 3)")}), "FormatError"),
        (
            "many more bytes",
            npz(whole | {"arr_0.npy": npy([0.0] * 9999, "(2, 3)")}, zipfile.ZIP_DEFLATED),
            "FormatError",
        ),
        ("a weight less", npz(whole | {"arr_0.npy": npy(MATRIX[1:], "(2, 3)")}), "FormatError"),
        (
            "version 2",
            npz(whole | {"arr_1.npy": whole["arr_1.npy"].replace(b"\x01\x00", b"\x02\x00", 1)}),
            "FormatError",
        ),
        ("no header", npz(whole | {"arr_1.npy": b"\x93NUMPY\x01\x00\xff\xff"}), "FormatError"),
    ]
    return {
        "arrays": [["weight", [2, 3]], ["bias", [3]], ["scale", []]],
        "models": [{"name": name, "npz": data.hex(), "weights": floats(values)} for name, data, values in fine],
        "bad": [{"name": name, "npz": data.hex(), "error": error} for name, data, error in bad],
    }


def forged(whole: dict[str, bytes]) -> bytes:
    """Another weight, packed rightly, under the checksum of the first one."""
    other = npy([*MATRIX[:4], 7.5, MATRIX[5]], "(2, 3)")
    sums = [struct.pack("<I", zlib.crc32(data)) for data in (other, whole["arr_0.npy"])]
    return npz(whole | {"arr_0.npy": other}, zipfile.ZIP_DEFLATED).replace(sums[0], sums[1])


def document() -> Json:
    return {
        "about": "What a phone computes. `model` and `integers` are little-endian signed 64-bit integers, `weights` and "
        "`scaled` little-endian doubles, in hexadecimal; `signing` is a private Ed25519 key.",
        "signing": stream(SIGNING, 32).hex(),
        "updates": updates(),
        "quotients": quotients(),
        "requests": requests(),
        "npz": models(),
    }


def documents() -> dict[str, str]:
    """The file's name and text."""
    return {"phone_updates.json": json.dumps(document(), indent=1) + "\n"}


def main() -> None:
    """Write it."""
    for name, text in documents().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
