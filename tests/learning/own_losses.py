"""Losses as users write them, good and bad."""

import torch

__all__ = ["detached", "fails", "half", "late", "likelihood", "number", "returns_float", "returns_rows"]

number = 3


def half(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(outputs, targets)


def likelihood(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs, targets)


def late(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if len(outputs) > 4:
        raise ValueError("too many rows")
    return half(outputs, targets)


def returns_float(outputs, targets):
    return 0.5


def returns_rows(outputs, targets):
    return (outputs - targets) ** 2


def detached(outputs, targets):
    return torch.tensor(float(((outputs.detach() - targets) ** 2).mean()))


def fails(outputs, targets):
    raise RuntimeError("no")
