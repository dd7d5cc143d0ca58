"""Writes server_steps.json beside this file: server steps as every reader of a `shares` task must compute them.

As `generate.py`: everything follows from fixed labels and plain arithmetic; nothing of CrowdFL or NumPy is imported. Python's
floats are IEEE doubles, `math.sqrt` is rounded correctly, and `round` takes halves to the even neighbour.
"""

import hashlib
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

__all__ = ["documents", "main"]

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

TASK = "0123456789abcdef" * 4
TINY = 2.0**-256
LARGEST = 2**62
DEFAULTS: dict[str, Json] = {
    "server_rate": 1.0,
    "server_momentum": 0.9,
    "server_squares": 0.99,
    "server_floor": 0.001,
}


def stream(label: str, length: int) -> bytes:
    """Fixed bytes for a label: what stands in for randomness here."""
    return hashlib.shake_256(f"crowdfl step vectors 1: {label}".encode()).digest(length)


def drawn(label: str, count: int, bound: int) -> list[int]:
    """Fixed whole numbers from -bound to bound."""
    words = struct.unpack(f"<{count}Q", stream(label, 8 * count))
    return [word % (2 * bound + 1) - bound for word in words]


@dataclass(frozen=True)
class Step:
    """The settings of one task, and its step by the letter."""

    kind: str
    decimals: int = 6
    given: dict[str, Json] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Json]:
        return {"decimals": self.decimals, "server_step": self.kind} | DEFAULTS | self.given

    def number(self, name: str) -> float:
        return float(str(self.settings[f"server_{name}"]))

    def moved(self, change: int, m: float, v: float) -> tuple[float, float, float]:
        """In units, before it is rounded; and the moments after it."""
        rate, momentum, unit = self.number("rate"), self.number("momentum"), 10**self.decimals
        g = float(change) / unit
        if self.kind == "fedavgm":
            m = plain(momentum * m + g)
            return rate * m * unit, m, v
        squares = self.number("squares")
        m = plain(momentum * m + (1 - momentum) * g)
        if self.kind == "fedadagrad":
            v = plain(v + g * g)
        elif self.kind == "fedadam":
            v = plain(squares * v + (1 - squares) * (g * g))
        else:
            sign = (v > g * g) - (v < g * g)
            v = plain(squares * v + (1 - squares) * (v - sign * (g * g)))
        return rate * m / (math.sqrt(v) + self.number("floor")) * unit, m, v


def plain(value: float) -> float:
    return 0.0 if abs(value) < TINY else value


@dataclass
class Reader:
    """The state of one reader."""

    step: Step
    weights: list[int]
    number: int = 0
    base: bytes = field(default_factory=lambda: hashlib.sha256(b"crowdfl base 1" + TASK.encode()).digest())

    secret: bytes = bytes(32)

    def __post_init__(self) -> None:
        self.m, self.v = [0.0] * len(self.weights), [0.0] * len(self.weights)

    def read(self, number: int, base: bytes, secret: bytes, change: Sequence[int]) -> None:
        for i, entry in enumerate(change):
            step, self.m[i], self.v[i] = self.step.moved(entry, self.m[i], self.v[i])
            self.weights[i] += round(step)
        self.number, self.base, self.secret = number, base, secret

    @property
    def moments(self) -> list[list[float]]:
        return [self.m] if self.step.kind == "fedavgm" else [self.m, self.v]

    def kept(self) -> bytes:
        weights = b"".join(value.to_bytes(8, "little", signed=True) for value in self.weights)
        moments = b"".join(struct.pack(f"<{len(moment)}d", *moment) for moment in self.moments)
        return struct.pack(">I", self.number) + self.base + self.secret + weights + moments

    def said(self) -> dict[str, Json]:
        return {
            "weights": [str(value) for value in self.weights],
            "moments": [struct.pack(f"<{len(moment)}d", *moment).hex() for moment in self.moments],
            "chain": self.kept().hex(),
            "state": hashlib.sha256(b"crowdfl state 1" + self.kept()).hexdigest(),
        }


def case(name: str, step: Step, initial: list[int], rounds: dict[int, list[int]]) -> Json:
    reader, read = Reader(step, list(initial)), list[Json]()
    start = reader.said()
    for number, change in rounds.items():
        base, secret = (stream(f"{name} {what} {number}", 32) for what in ("base", "secret"))
        average = [w + c for w, c in zip(reader.weights, change, strict=True)]
        reader.read(number, base, secret, change)
        said = {"round": number, "base": base.hex(), "secret": secret.hex(), "change": [str(value) for value in change]}
        read.append(said | {"average": [str(value) for value in average]} | reader.said())
    return {"name": name, "settings": step.settings, "start": start, "rounds": read}


def usual(name: str, step: Step, bound: int, rounds: Sequence[int] = (1, 2, 3, 4)) -> Json:
    changes = {number: [*drawn(f"{name} {number}", 10, bound), 0, 1, -1] for number in rounds}
    return case(name, step, drawn(f"{name} initial", 13, 10 * bound), changes)


def cases() -> list[Json]:
    halves = Step("fedavgm", 0, {"server_rate": 0.5, "server_momentum": 0})
    decays = Step("fedadam", 12, {"server_momentum": 1e-40, "server_squares": 1e-60, "server_floor": 1e-12})
    wide = {"server_rate": 0.25}
    return [
        usual("fedavgm", Step("fedavgm"), 400_000),
        usual("fedavgm, rounds 2 and 4 given up", Step("fedavgm"), 400_000, (1, 3, 5)),
        usual("fedavgm, whole settings", Step("fedavgm", 3, {"server_rate": 2, "server_momentum": 0}), 2_000),
        usual("fedavgm of rate 1 without momentum is the average", Step("fedavgm", 6, {"server_momentum": 0.0}), 10**9),
        usual("fedadam", Step("fedadam", 6, {"server_rate": 0.1}), 400_000),
        usual("fedadam, another floor", Step("fedadam", 6, {"server_rate": 0.01, "server_floor": 1e-9}), 4_000),
        usual(
            "fedadam, squares soon forgotten", Step("fedadam", 4, {"server_momentum": 0.5, "server_squares": 0.3}), 900
        ),
        usual("fedadam, no decimals", Step("fedadam", 0, {"server_rate": 30}), 20),
        usual("fedadagrad", Step("fedadagrad", 6, {"server_rate": 0.1}), 400_000),
        usual("fedadagrad, no momentum", Step("fedadagrad", 6, {"server_momentum": 0, "server_floor": 1e-9}), 4_000),
        usual("fedyogi", Step("fedyogi", 6, {"server_rate": 0.1}), 400_000),
        usual(
            "fedyogi, squares soon forgotten", Step("fedyogi", 4, {"server_momentum": 0.5, "server_squares": 0.3}), 900
        ),
        case(
            "fedyogi, squares below, at and above v",
            Step("fedyogi", 0, {"server_rate": 30, "server_momentum": 0.5, "server_squares": 0.75}),
            [0] * 4,
            {1: [2, -2, 8, 0], 2: [1, -2, 1, 3], 3: [1, 1, -4, 0], 4: [0, 5, 3, 1]},
        ),
        usual("twelve decimals", Step("fedavgm", 12, {"server_rate": 0.3}), 10**12),
        case("halves go to the even one", halves, [0] * 8, {1: [1, 3, 5, -1, -3, -5, 0, 2], 2: [1] * 8}),
        case(
            "beyond 2^53",
            Step("fedavgm", 0, wide),
            [0, 5, -7],
            {1: [2**53 + 1, -(2**60) - 3, 2**61 + 1], 2: [1, 0, -1]},
        ),
        case(
            "what is nearly nothing is 0", decays, [1, 2, 3], {1: [1, -5, 10**12], 2: [0] * 3, 3: [0] * 3, 4: [0, 7, 0]}
        ),
    ]


def bad() -> list[Json]:
    """A round that must be refused, and kept bytes that must be."""
    huge = Reader(Step("fedavgm", 0, {"server_rate": 1000, "server_momentum": 0}), [0, 0])
    full = Reader(Step("fedavgm", 0), [LARGEST - 10, 0])
    adam = Reader(Step("fedadam"), [1, 2])
    adam.read(1, stream("bad base", 32), stream("bad secret", 32), [100, -100])
    whole = adam.kept()
    wrong = {
        "a byte less": whole[:-1],
        "one moment": whole[:-16],
        "no moments": whole[:-32],
        "a moment more": whole + bytes(16),
        "NaN": whole[:-8] + struct.pack("<d", math.nan),
        "infinite": whole[:-8] + struct.pack("<d", math.inf),
    }
    return [
        _refused("a step out of range", huge, [2**55, 0], "SlotOverflow"),
        _refused("a step below the range", huge, [0, -(2**55)], "SlotOverflow"),
        _refused("a weight out of range", full, [10, 0], "SlotOverflow"),
        _refused("an average out of range", full, [2**62, 0], "SlotOverflow"),
        *(
            {"name": f"kept bytes: {name}", "settings": adam.step.settings, "chain": data.hex(), "error": "FormatError"}
            for name, data in wrong.items()
        ),
    ]


def _refused(name: str, reader: Reader, change: list[int], error: str) -> Json:
    said: dict[str, Json] = {"name": name, "settings": reader.step.settings, "chain": reader.kept().hex()}
    return said | {"change": [str(value) for value in change], "error": error}


def document() -> Json:
    return {
        "about": "Server steps. Decimal strings are numbers in units of 10^-decimals; `change` is sums / total of the round, "
        "rounded; moments are m and, of all but fedavgm, v, as little-endian doubles; `chain` is what a reader keeps, "
        "`state` its digest. docs/formats.md defines all.",
        "task": TASK,
        "cases": cases(),
        "bad": bad(),
    }


def documents() -> dict[str, str]:
    """The file's name and text."""
    return {"server_steps.json": json.dumps(document(), indent=1) + "\n"}


def main() -> None:
    """Write it."""
    for name, text in documents().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
