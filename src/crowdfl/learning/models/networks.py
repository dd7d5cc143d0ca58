"""Networks in torch: written as lines of text, as in a task file, or a user's own `torch.nn.Module`.

torch is imported when a network is built: it takes seconds. A task may name the module that it is about, but code is never
sent: every participant installs it and names it again.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crowdfl.errors import LearningUnavailable, SettingsError
from crowdfl.learning.models.own_code import load_code

if TYPE_CHECKING:
    import torch

_LARGEST = 10**8
_RAW = ': with features = "windows", the shape is (window, channels)'  # what a network of one's own may have meant
_WRITTEN = "`linear N`, `conv N K`, `pool K`, `relu` or `tanh`"


def mlp(hidden: Sequence[int], labels: int) -> list[str]:
    """The layers of a network with these hidden sizes and ReLU between: `["linear 32", "relu", "linear 7"]`."""
    return [layer for size in hidden for layer in (f"linear {size}", "relu")] + [f"linear {labels}"]


def convolutional(labels: int) -> list[str]:
    """Two short convolutions over time and one linear layer: 6,502 parameters for 90 samples of 3 channels and 6 labels."""
    return ["conv 16 5", "relu", "pool 2", "conv 32 5", "relu", "pool 2", f"linear {labels}"]


def _need_torch() -> None:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise LearningUnavailable("this model needs torch: `pip install 'crowdfl[learning]'`") from error
    torch.set_num_threads(1)  # small networks gain nothing from more, and a machine may run many participants


def build(inputs: int, layers: Sequence[str], seed: int, channels: int | None = None) -> "torch.nn.Sequential":
    """The layers for rows of `inputs` numbers; with channels, for (channels, inputs / channels), as convolutions need."""
    _need_torch()
    import torch

    if not layers or not layers[-1].startswith("linear"):
        raise SettingsError("the last layer must be linear, with one output per label")
    if channels is not None and (channels < 1 or inputs % channels):
        raise SettingsError(f"{inputs} inputs cannot be laid out in {channels} channels: use the features `flat`")
    # Before the first linear layer `width` counts channels and `length` samples; after it `width` counts all values.
    width, length = (inputs, None) if channels is None else (channels, inputs // channels)
    modules: list[torch.nn.Module] = []
    with torch.random.fork_rng(devices=[]):  # leaves the caller's random state unchanged
        torch.manual_seed(seed)
        for layer in layers:
            words = _words(layer)
            if width * (length or 1) * math.prod(word for word in words if isinstance(word, int)) > _LARGEST:
                raise SettingsError(f"{layer!r:.60} takes over {_LARGEST:,} steps per window: too many for a phone")
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
                    raise SettingsError(f"{layer!r} does not fit here: {length or 'no'} samples are left")
                case _:
                    raise SettingsError(f"{layer!r:.60} is not a layer: use {_WRITTEN}")
    return torch.nn.Sequential(*modules)


def own_module(name: str, inputs: int | tuple[int, ...], labels: int, seed: int) -> "torch.nn.Module":
    """`package.module:Class`, created as Class(inputs, labels): it maps rows of inputs to one score per label.

    For whole windows `inputs` is their shape, (window, channels), and it is handed (n, window, channels).
    """
    _need_torch()
    import torch

    found = load_code(name)
    if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
        raise SettingsError(f"{name} is not a subclass of torch.nn.Module")
    with torch.random.fork_rng(devices=[]):  # leaves the caller's random state unchanged
        torch.manual_seed(seed)
        try:
            network: torch.nn.Module = found(inputs, labels)
            with torch.no_grad():
                scores = network.eval()(torch.zeros(2, *(inputs if isinstance(inputs, tuple) else (inputs,))))
        except (TypeError, RuntimeError, ValueError, IndexError, AttributeError) as error:
            raise SettingsError(
                f"{name}({inputs}, {labels}) does not take rows of {inputs} inputs: {error}. It is made with the shape of an "
                f"input and the number of labels{'' if isinstance(inputs, tuple) else _RAW}"
            ) from error
    if (shape := tuple(getattr(scores, "shape", ()))) != (2, labels):
        raise SettingsError(f"{name} returns {shape} for two rows; expected (2, {labels})")
    return network


def _words(layer: str) -> list[str | int]:
    return [int(word) if word.isdecimal() and len(word) < 10 and int(word) > 0 else word for word in layer.split()]
