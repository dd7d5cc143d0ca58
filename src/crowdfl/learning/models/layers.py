"""Networks written as lines of text, as a task file has them. torch is imported when one is built: it takes seconds."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crowdfl.errors import LearningUnavailable, SettingsError

if TYPE_CHECKING:
    import torch

__all__ = ["build", "convolutional", "mlp", "need_torch"]

_LARGEST = 10**8
_WRITTEN = "`linear N`, `conv N K`, `pool K`, `relu` or `tanh`"


def mlp(hidden: Sequence[int], labels: int) -> list[str]:
    """The layers of a network with these hidden sizes and ReLU between: `["linear 32", "relu", "linear 7"]`."""
    return [layer for size in hidden for layer in (f"linear {size}", "relu")] + [f"linear {labels}"]


def convolutional(labels: int) -> list[str]:
    """Two short convolutions over time and one linear layer: 6,502 parameters for 90 samples of 3 channels and 6 labels."""
    return ["conv 16 5", "relu", "pool 2", "conv 32 5", "relu", "pool 2", f"linear {labels}"]


def need_torch() -> None:
    """torch can be imported, and runs on one thread; or how to get it."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise LearningUnavailable("this model needs torch: `pip install 'crowdfl[learning]'`") from error
    torch.set_num_threads(1)  # small networks gain nothing from more, and a machine may run many participants


def build(inputs: int, layers: Sequence[str], seed: int, channels: int | None = None) -> "torch.nn.Sequential":
    """The layers for rows of `inputs` numbers; with channels, for (channels, inputs / channels), as convolutions need."""
    need_torch()
    import torch

    if not layers or not layers[-1].startswith("linear"):
        raise SettingsError("the last layer must be linear, with one output per label")
    if channels is not None and (channels < 1 or inputs % channels):
        raise SettingsError(f"{inputs} inputs cannot be laid out in {channels} channels: use the features `flat`")
    # As long as samples have an order, `width` counts channels and `length` samples; afterwards `width` is all there is.
    width, length = (inputs, None) if channels is None else (channels, inputs // channels)
    modules: list[torch.nn.Module] = []
    with torch.random.fork_rng(devices=[]):  # the caller's own random numbers go on undisturbed
        torch.manual_seed(seed)
        for layer in layers:
            words = _words(layer)
            if width * (length or 1) * math.prod(word for word in words if isinstance(word, int)) > _LARGEST:
                raise SettingsError(
                    f"{layer!r:.60} takes more than {_LARGEST:,} steps for each window: too many for a phone"
                )
            match words:
                case ["linear", int(size)]:
                    if length is not None:
                        modules.append(torch.nn.Flatten())
                        width, length = width * length, None
                    modules.append(torch.nn.Linear(width, size))
                    width = size
                case ["conv", int(size), int(reach)] if length is not None and reach <= length:
                    modules.append(torch.nn.Conv1d(width, size, reach))
                    width, length = size, length - reach + 1
                case ["pool", int(reach)] if length is not None and reach <= length:
                    modules.append(torch.nn.MaxPool1d(reach))
                    length //= reach
                case ["relu"]:
                    modules.append(torch.nn.ReLU())
                case ["tanh"]:
                    modules.append(torch.nn.Tanh())
                case ["conv", int(), int()] | ["pool", int()]:
                    raise SettingsError(f"{layer!r} does not fit here: {length or 'no'} samples are left to slide over")
                case _:
                    raise SettingsError(f"no layer is written {layer!r:.60}: use {_WRITTEN}")
    return torch.nn.Sequential(*modules)


def _words(layer: str) -> list[str | int]:
    """A layer's name and its sizes."""
    return [int(word) if word.isdecimal() and len(word) < 10 and int(word) > 0 else word for word in layer.split()]
