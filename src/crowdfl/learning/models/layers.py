"""A network's layers as a task file writes them, `linear 32`, and how wide each is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from crowdfl.errors import SettingsError

_LARGEST = 10**8
_WRITTEN = "`linear N`, `conv N K`, `pool K`, `relu` or `tanh`"


@dataclass(frozen=True)
class Layer:
    """`width` numbers, or channels, in and `size` out; `reach` samples at a time."""

    kind: str  # linear, conv, pool, relu, tanh, flatten
    width: int = 0
    size: int = 0
    reach: int = 0


def with_last(layers: Sequence[int | str], outputs: int) -> list[str]:
    """A task's `layers` in words, a width with ReLU behind it, and the last one: `["linear 32", "relu", "linear 7"]`."""
    words = [word for layer in layers for word in ((layer,) if isinstance(layer, str) else (f"linear {layer}", "relu"))]
    if words and words[-1].startswith("linear"):
        raise SettingsError(
            f"the last of `layers` is {words[-1]!r:.60}; the one with an output per label follows by itself: leave it out"
        )
    return [*words, f"linear {outputs}"]


def convolutional(labels: int) -> list[str]:
    """Two short convolutions over time and one linear layer: 6,502 parameters for 90 samples of 3 channels and 6 labels."""
    return with_last(["conv 16 5", "relu", "pool 2", "conv 32 5", "relu", "pool 2"], labels)


def is_folded(layers: Sequence[str]) -> bool:
    """Whether any of them slides over time."""
    return any(layer.split()[:1] == ["conv"] for layer in layers)


def stack_of(inputs: int, layers: Sequence[str], channels: int | None = None) -> list[Layer]:
    """For rows of `inputs` numbers; with channels, for (channels, inputs / channels), as convolutions need."""
    if not layers or not layers[-1].startswith("linear"):
        raise SettingsError("the last layer must be linear, with one output per label")
    if channels is not None and (channels < 1 or inputs % channels):
        raise SettingsError(f"{inputs} inputs cannot be laid out in {channels} channels: use the features `flat`")
    # Before the first linear layer `width` counts channels and `length` samples; after it `width` counts all values.
    width, length = (inputs, None) if channels is None else (channels, inputs // channels)
    stack: list[Layer] = []
    for layer in layers:
        words = _words(layer)
        if width * (length or 1) * math.prod(word for word in words if isinstance(word, int)) > _LARGEST:
            raise SettingsError(f"{layer!r:.60} takes over {_LARGEST:,} steps per window: too many for a phone")
        match words:
            case ["linear", int(size)]:
                if length is not None:
                    stack.append(Layer("flatten"))
                    width = width * length
                    length = None
                stack.append(Layer("linear", width, size))
                width = size
            case ["conv", int(size), int(reach)] if length is not None and reach <= length:
                stack.append(Layer("conv", width, size, reach))
                width = size
                length = length - reach + 1
            case ["pool", int(reach)] if length is not None and reach <= length:
                stack.append(Layer("pool", reach=reach))
                length //= reach
            case ["relu" | "tanh" as kind]:
                stack.append(Layer(str(kind)))
            case ["conv", int(), int()] | ["pool", int()]:
                raise SettingsError(f"{layer!r} does not fit here: {length or 'no'} samples are left")
            case _:
                raise SettingsError(f"{layer!r:.60} is not a layer: use {_WRITTEN}")
    return stack


def _words(layer: str) -> list[str | int]:
    return [int(word) if word.isdecimal() and len(word) < 10 and int(word) > 0 else word for word in layer.split()]
