"""A user's own `torch.nn.Module` as a learner's network. It is found on this machine under a name that its user gives.

A task may say which module it is about, but code is never sent: whoever takes part installs it, and names it again.
"""

import importlib
from typing import TYPE_CHECKING

from crowdfl.errors import SettingsError
from crowdfl.learning.models.layers import need_torch

if TYPE_CHECKING:
    import torch

__all__ = ["own_module"]


def own_module(name: str, inputs: int, labels: int, seed: int) -> "torch.nn.Module":
    """`package.module:Class`, made as Class(inputs, labels): takes rows of inputs, gives a score to each label."""
    need_torch()
    import torch

    place, colon, attribute = name.partition(":")
    if not (colon and attribute.isidentifier() and all(part.isidentifier() for part in place.split("."))):
        raise SettingsError(f"a module is written package.module:Class, not {name!r}")
    try:
        found = getattr(importlib.import_module(place), attribute)
    except ModuleNotFoundError as error:
        raise SettingsError(f"{name}: there is no {error.name!r} here: install it, or put it on PYTHONPATH") from error
    except (ImportError, AttributeError, SyntaxError) as error:
        raise SettingsError(f"{name} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
        raise SettingsError(f"{name} is not a class of torch.nn.Module")
    with torch.random.fork_rng(devices=[]):  # the caller's own random numbers go on undisturbed
        torch.manual_seed(seed)
        try:
            network: torch.nn.Module = found(inputs, labels)
            with torch.no_grad():
                scores = network.eval()(torch.zeros(2, inputs))
        except (TypeError, RuntimeError, ValueError) as error:
            raise SettingsError(f"{name}({inputs}, {labels}) does not take rows of {inputs} inputs: {error}") from error
    if tuple(getattr(scores, "shape", ())) != (2, labels):
        raise SettingsError(f"{name} gives {tuple(getattr(scores, 'shape', ()))} for two rows; (2, {labels}) is needed")
    return network
