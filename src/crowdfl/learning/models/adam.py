"""Adam (Kingma and Ba, 2015) as torch computes it, without torch's own class: that one's first step loads a compiler.

Loading it takes longer than a participant's training, and a machine that runs ten of them loads it ten times.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["Adam"]

_KEEP, _KEEP_SQUARES, _SMALL = 0.9, 0.999, 1e-8


class Adam:
    """Moments of each parameter, new with each object."""

    def __init__(self, parameters: Iterable["torch.nn.Parameter"], rate: float) -> None:
        self._parameters, self._rate, self._steps = list(parameters), rate, 0
        self._means = [parameter.detach().clone().zero_() for parameter in self._parameters]
        self._squares = [parameter.detach().clone().zero_() for parameter in self._parameters]

    def forget(self) -> None:
        """Drop the last gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        """Follow the gradients that are there."""
        import torch

        self._steps += 1
        pace = self._rate / (1 - _KEEP**self._steps)
        spread = (1 - _KEEP_SQUARES**self._steps) ** 0.5
        with torch.no_grad():
            for parameter, mean, square in zip(self._parameters, self._means, self._squares, strict=True):
                if parameter.grad is None:
                    continue
                mean.lerp_(parameter.grad, 1 - _KEEP)
                square.mul_(_KEEP_SQUARES).addcmul_(parameter.grad, parameter.grad, value=1 - _KEEP_SQUARES)
                parameter.addcdiv_(mean, (square.sqrt() / spread).add_(_SMALL), value=-pace)
