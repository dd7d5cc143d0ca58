"""Writes phone_updates.json beside this file: what a phone in a browser must compute, sign and read as Python does.

As `generate.py`: everything follows from fixed labels, the standard library and Ed25519 of the package `cryptography`.
Nothing of CrowdFL is imported. The keys are public: never use them.
"""

import hashlib
import json
import math
import struct
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


def within(units: list[float], most: int) -> list[int]:
    """The nearest integers, shrunk until their length is at most `most`: doubles alone decide by how much."""
    factor, least = 1.0, 0.25 / most
    whole = [round(entry) for entry in units]
    while (square := sum(entry * entry for entry in whole)) > most * most:
        factor *= max(0.0, min(most / math.sqrt(square), 1 - least))
        least *= 2
        whole = [round(entry * factor) for entry in units]
    return whole


def update(
    name: str,
    model: list[int],
    weights: list[float],
    samples: int,
    *,
    decimals: int = 6,
    clip: float = 2.0,
    max_norm: float | None = None,
    weighting: str = "samples",
) -> Body:
    """What an update becomes before it is shared."""
    unit = 10**decimals
    change = [weight - value / unit for weight, value in zip(weights, model, strict=True)]
    norm = norm_of(change)
    scaled = None if max_norm is None or norm <= max_norm else max_norm / norm
    kept = change if scaled is None else [entry * scaled for entry in change]
    units = [min(max(entry, -clip), clip) * unit for entry in kept]
    if weighting == "equal":
        whole = within(units, math.ceil((max_norm or 0) * unit))
    else:
        whole = [round(entry) * samples for entry in units]  # halves to the even one
    return {
        "name": name,
        "settings": {"decimals": decimals, "clip": clip, "max_norm": max_norm, "weighting": weighting},
        "model": integers(model),
        "weights": floats(weights),
        "samples": samples,
        "integers": integers(whole),
        "clipped": sum(abs(entry) > clip for entry in kept),
        "scaled": None if scaled is None else floats([scaled]),
    }


LONG = [0] * 7, [1.1, -2.2, 3.3, 0.7, -0.123456789, 2.5, 1e-9]


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
        update("counts once, within the norm", model, weights, 500, max_norm=100, weighting="equal"),
        update("counts once, scaled down to the norm", model, weights, 500, max_norm=1.0, weighting="equal"),
        update(
            "counts once, rounding makes it too long", model, weights, 7, decimals=2, max_norm=0.5, weighting="equal"
        ),
        update("counts once, longer and longer", [0] * 5, [0.5] * 5, 1, decimals=0, max_norm=1, weighting="equal"),
        update("counts once, a few units", model, weights, 1, decimals=1, max_norm=0.3, weighting="equal"),
        update("counts once, squares beyond 2^53", *LONG, 1, decimals=9, clip=9.0, max_norm=3.3, weighting="equal"),
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


# Models: safetensors files, written by hand.

MATRIX, BIAS = [0.5, -1.25, 3.0, 1e-3, 7.75, -0.0], [1.0, 2.0, 3.0]
WEIGHT: Body = {"dtype": "F64", "shape": [2, 3], "data_offsets": [32, 80]}
HEADER: Body = {  # as the library writes it: by name
    "bias": {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]},
    "scale": {"dtype": "F64", "shape": [], "data_offsets": [24, 32]},
    "weight": WEIGHT,
}
DATA = struct.pack("<10d", *BIAS, 9.5, *MATRIX)


def safetensors(header: Body | bytes = HEADER, data: bytes = DATA, more: int = 0) -> bytes:
    """`more` is added to the length that the file gives for its header."""
    head = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    padded = head + b" " * (-len(head) % 8)
    return struct.pack("<Q", len(padded) + more) + padded + data


def moved(**changes: Body) -> bytes:
    """The same data behind other entries of the header."""
    return safetensors({name: entry | changes.get(name, {}) for name, entry in HEADER.items()})


def models() -> Body:
    order = {
        "weight": WEIGHT | {"data_offsets": [0, 48]},
        "scale": HEADER["scale"] | {"data_offsets": [72, 80]},
        "bias": HEADER["bias"] | {"data_offsets": [48, 72]},
    }
    half = HEADER | {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [32, 56]}}
    single = struct.pack("<6f", *MATRIX)
    flat = [*MATRIX, *BIAS, 9.5]
    fine = [
        ("as the library writes it", safetensors(), flat),
        ("in another order", safetensors(order, struct.pack("<10d", *flat)), flat),
        ("float32", safetensors(half, DATA[:32] + single), [*struct.unpack("<6f", single), *BIAS, 9.5]),
        ("with words about it", safetensors({"__metadata__": {"format": "pt"}, **HEADER}), flat),
    ]
    whole = safetensors()
    less = {name: HEADER[name] for name in ("bias", "scale")}
    bad = [
        ("nothing", b"", "FormatError"),
        ("seven bytes", bytes(7), "FormatError"),
        ("no safetensors file", b"a model, one would think: but not at all", "FormatError"),
        ("a header beyond its end", safetensors(more=len(DATA) + 1), "FormatError"),
        ("a header of 2^63 bytes", safetensors(more=2**63), "FormatError"),
        ("no header", safetensors(b"", b""), "FormatError"),
        ("a header that is a list", safetensors(b"[]", b""), "FormatError"),
        ("a header that is not UTF-8", safetensors(b'{"\xff": 1}', b""), "FormatError"),
        ("an entry that is no table", safetensors(HEADER | {"weight": 7}), "FormatError"),
        (
            "an entry without a place",
            safetensors(HEADER | {"weight": {"dtype": "F64", "shape": [2, 3]}}),
            "FormatError",
        ),
        ("cut off", whole[:-8], "FormatError"),
        ("bytes after its end", whole + bytes(8), "FormatError"),
        ("arrays that overlap", moved(weight={"data_offsets": [24, 72]}), "FormatError"),
        ("two arrays in one place", moved(scale={"data_offsets": [0, 8]}), "FormatError"),
        ("a gap between arrays", moved(bias={"shape": [2], "data_offsets": [0, 16]}), "FormatError"),
        ("an array beyond its end", moved(weight={"data_offsets": [32, 88]}), "FormatError"),
        ("an array that ends before it starts", moved(weight={"data_offsets": [80, 32]}), "FormatError"),
        ("an array before its start", moved(bias={"data_offsets": [-24, 0]}), "FormatError"),
        ("half a place", moved(bias={"data_offsets": [0, 23.5]}), "FormatError"),
        ("three places", moved(bias={"data_offsets": [0, 24, 24]}), "FormatError"),
        ("a weight less than its shape", moved(weight={"data_offsets": [40, 80]}), "FormatError"),
        ("an array less", safetensors(less, DATA[:32]), "ModelMismatch"),
        (
            "an array more",
            safetensors(HEADER | {"more": HEADER["scale"] | {"data_offsets": [80, 88]}}, DATA + bytes(8)),
            "ModelMismatch",
        ),
        ("another name", safetensors(less | {"w": WEIGHT}), "ModelMismatch"),
        ("another shape", moved(weight={"shape": [3, 2]}), "ModelMismatch"),
        ("integers", moved(weight={"dtype": "I64"}), "ModelMismatch"),
    ]
    return {
        "arrays": [["weight", [2, 3]], ["bias", [3]], ["scale", []]],
        "models": [{"name": name, "file": data.hex(), "weights": floats(values)} for name, data, values in fine],
        "bad": [{"name": name, "file": data.hex(), "error": error} for name, data, error in bad],
    }


def document() -> Json:
    return {
        "about": "What a phone computes. `model` and `integers` are little-endian signed 64-bit integers, `weights` and "
        "`scaled` little-endian doubles, in hexadecimal; `signing` is a private Ed25519 key.",
        "signing": stream(SIGNING, 32).hex(),
        "updates": updates(),
        "quotients": quotients(),
        "requests": requests(),
        "safetensors": models(),
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
