"""A network in torch as a learner, on one thread: a stack of layers, or any module that its user has."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crowdfl.learning.datasets.data import Labels
from crowdfl.learning.features import Inputs
from crowdfl.learning.models.adam import Adam
from crowdfl.learning.models.layers import build, mlp
from crowdfl.learning.models.learner import Metrics, Training, batches, check_pairs, score
from crowdfl.learning.models.shape import ModelShape, Weights

if TYPE_CHECKING:
    import torch

__all__ = ["TorchLearner", "mlp"]


class TorchLearner:
    """Layers written as in a task file; see `layers`. The last must be linear, one output per label."""

    def __init__(self, inputs: int, layers: Sequence[str], seed: int = 0, channels: int | None = None) -> None:
        self._width, self._channels = inputs, channels
        self._network: torch.nn.Module = build(inputs, layers, seed, channels)

    @classmethod
    def around(cls, network: "torch.nn.Module", inputs: int) -> "TorchLearner":
        """Any module that takes rows of `inputs` numbers and gives a score to each label."""
        learner = cls.__new__(cls)
        learner._width, learner._channels, learner._network = inputs, None, network
        return learner

    @property
    def shape(self) -> ModelShape:
        """The arrays under torch's names: `0.weight`, `0.bias`, and so on."""
        return ModelShape.of({name: np.empty(tuple(tensor.shape)) for name, tensor in self._tensors.items()})

    def weights(self) -> Weights:
        """Copies, as float64."""
        return [tensor.detach().numpy().astype(np.float64) for tensor in self._tensors.values()]

    def load(self, weights: Sequence[npt.ArrayLike]) -> None:
        """Take these weights on, as float32."""
        import torch

        arrays = self.shape.check(weights)
        with torch.no_grad():
            for tensor, array in zip(self._tensors.values(), arrays, strict=True):
                tensor.copy_(torch.from_numpy(array.astype(np.float32)))

    def train(self, inputs: Inputs, labels: Labels, training: Training) -> int:
        """Adam on the cross entropy, its moments new in every round: a phone keeps nothing between rounds."""
        import torch

        check_pairs(inputs, labels, self._width)
        rows, wanted = self._rows(inputs), torch.from_numpy(np.ascontiguousarray(labels))
        # Deviation D18: Eq. 1 prints a plain gradient step.
        optimizer = Adam(self._network.parameters(), training.rate)
        with torch.random.fork_rng(devices=[]):  # a module may draw random numbers of its own, as for dropout
            torch.manual_seed(training.seed)
            for batch in batches(len(labels), training):
                self._network.train()  # anew, for someone may have asked between epochs
                chosen = torch.from_numpy(batch)
                optimizer.forget()
                loss = torch.nn.functional.cross_entropy(self._network(rows[chosen]), wanted[chosen])
                torch.autograd.backward(loss)
                optimizer.step()
        return len(labels)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """The probability of each label."""
        import torch

        self._network.eval()
        with torch.no_grad():
            scores = self._network(self._rows(inputs))
            return np.asarray(torch.softmax(scores.double(), dim=1).numpy())

    def evaluate(self, inputs: Inputs, labels: Labels) -> Metrics:
        """Accuracy and loss."""
        check_pairs(inputs, labels, self._width)
        return score(self.predict(inputs), labels)

    @property
    def _tensors(self) -> "dict[str, torch.Tensor]":
        """All that training changes: parameters, and what a module keeps besides, such as running means."""
        kept = {name: buffer for name, buffer in self._network.named_buffers() if buffer.is_floating_point()}
        return dict(self._network.named_parameters()) | kept

    def _rows(self, inputs: Inputs) -> "torch.Tensor":
        import torch

        rows = torch.from_numpy(np.ascontiguousarray(inputs))
        if self._channels is None:
            return rows
        return rows.reshape(len(rows), -1, self._channels).transpose(1, 2)  # `flat` has time first, convolutions last
