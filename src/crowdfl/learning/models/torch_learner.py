"""A network in torch as a learner, on one thread: a stack of layers, or any module that its user has."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crowdfl.learning.datasets.data import Labels
from crowdfl.learning.features import Inputs
from crowdfl.learning.models.learner import ModelScores, Training, batches, check_pairs, score
from crowdfl.learning.models.networks import build
from crowdfl.learning.models.shape import ModelShape, Weights

if TYPE_CHECKING:
    import torch

_KEEP, _KEEP_SQUARES, _SMALL = 0.9, 0.999, 1e-8


class TorchLearner:
    """Layers written as in a task file; see `networks`. The last must be linear, one output per label."""

    def __init__(self, inputs: int, layers: Sequence[str], seed: int = 0, channels: int | None = None) -> None:
        self._width, self._channels = inputs, channels
        self._network: torch.nn.Module = build(inputs, layers, seed, channels)

    @classmethod
    def around(cls, network: "torch.nn.Module", inputs: int) -> "TorchLearner":
        """Any module that maps rows of `inputs` numbers to one score per label."""
        learner = cls.__new__(cls)
        learner._width, learner._channels, learner._network = inputs, None, network
        return learner

    @property
    def shape(self) -> ModelShape:
        """The arrays under torch's names: `0.weight`, `0.bias`, and so on."""
        return ModelShape.of({name: np.empty(tuple(tensor.shape)) for name, tensor in self._tensors.items()})

    def weights(self) -> Weights:
        return [tensor.detach().numpy().astype(np.float64) for tensor in self._tensors.values()]

    def load(self, weights: Sequence[npt.ArrayLike]) -> None:
        import torch

        arrays = self.shape.check(weights)
        with torch.no_grad():
            for tensor, array in zip(self._tensors.values(), arrays, strict=True):
                tensor.copy_(torch.from_numpy(array.astype(np.float32)))

    def train(self, inputs: Inputs, labels: Labels, training: Training) -> int:
        """Adam on the cross entropy, its moments reset in every round: a phone keeps nothing between rounds."""
        import torch

        check_pairs(inputs, labels, self._width)
        rows, wanted = self._rows(inputs), torch.from_numpy(np.ascontiguousarray(labels))
        # Deviation D18: Eq. 1 prints a plain gradient step.
        optimizer = Adam(self._network.parameters(), training.rate)
        with torch.random.fork_rng(devices=[]):  # a module may draw random numbers, as for dropout
            torch.manual_seed(training.seed)
            for batch in batches(len(labels), training):
                self._network.train()  # again, for the model may have been evaluated between epochs
                chosen = torch.from_numpy(batch)
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self._network(rows[chosen]), wanted[chosen])
                torch.autograd.backward(loss)
                optimizer.step()
        return len(labels)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        import torch

        self._network.eval()
        with torch.no_grad():
            scores = self._network(self._rows(inputs))
            return np.asarray(torch.softmax(scores.double(), dim=1).numpy())

    def evaluate(self, inputs: Inputs, labels: Labels) -> ModelScores:
        check_pairs(inputs, labels, self._width)
        return score(self.predict(inputs), labels)

    @property
    def _tensors(self) -> "dict[str, torch.Tensor]":
        """All that training changes: parameters, and buffers such as running means."""
        kept = {name: buffer for name, buffer in self._network.named_buffers() if buffer.is_floating_point()}
        return dict(self._network.named_parameters()) | kept

    def _rows(self, inputs: Inputs) -> "torch.Tensor":
        import torch

        rows = torch.from_numpy(np.ascontiguousarray(inputs))
        if self._channels is None:
            return rows
        return rows.reshape(len(rows), -1, self._channels).transpose(1, 2)  # `flat` has time first, convolutions last


class Adam:
    """Adam (Kingma and Ba, 2015), bit for bit as torch computes it, without torch's own class.

    That one's first step loads a compiler, which takes longer than a participant's training.
    """

    def __init__(self, parameters: Iterable["torch.nn.Parameter"], rate: float) -> None:
        self._parameters, self._rate, self._steps = list(parameters), rate, 0
        self._means = [parameter.detach().clone().zero_() for parameter in self._parameters]
        self._squares = [parameter.detach().clone().zero_() for parameter in self._parameters]

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
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
