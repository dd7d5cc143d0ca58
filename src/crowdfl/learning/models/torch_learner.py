"""A network in torch as a learner, on one thread: a stack of layers, or any module that its user has."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdfl.learning.features import Inputs
from crowdfl.learning.models.learner import AnyScores, Training, batches, check_pairs, scored
from crowdfl.learning.models.losses import Loss, built_in
from crowdfl.learning.models.networks import build
from crowdfl.learning.models.shape import ModelShape, Weights

if TYPE_CHECKING:
    import torch

_KEEP, _KEEP_SQUARES, _SMALL = 0.9, 0.999, 1e-8


class TorchLearner:
    """Layers written as in a task file; see `networks`. The last must be linear, one output per label or value."""

    def __init__(self, inputs: int, layers: Sequence[str], seed: int = 0, channels: int | None = None) -> None:
        self._each: int | tuple[int, ...] = inputs
        self._channels = channels
        self._network: torch.nn.Module = build(inputs, layers, seed, channels)
        self._loss, self._values = built_in(None, values=False), False

    @classmethod
    def around(cls, network: "torch.nn.Module", inputs: int | tuple[int, ...]) -> "TorchLearner":
        """Any module that maps samples, rows of `inputs` numbers or arrays of that shape, to one score per label."""
        learner = cls.__new__(cls)
        learner._each, learner._channels, learner._network = inputs, None, network
        learner._loss, learner._values = built_in(None, values=False), False
        return learner

    def aimed(self, loss: Loss, *, values: bool) -> "TorchLearner":
        """This learner with another loss; with `values`, outputs are the values themselves."""
        self._loss, self._values = loss, values
        return self

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

    def train(self, inputs: Inputs, labels: npt.NDArray[Any], training: Training) -> int:
        """Adam on the loss, its moments reset in every round: a phone keeps nothing between rounds."""
        import torch

        check_pairs(inputs, labels, self._each)
        rows, wanted = self._rows(inputs), torch.from_numpy(np.ascontiguousarray(labels))
        # Deviation D18: Eq. 1 prints a plain gradient step.
        optimizer = Adam(self._network.parameters(), training.rate, training.proximal)
        with torch.random.fork_rng(devices=[]):  # a module may draw random numbers, as for dropout
            torch.manual_seed(training.seed)
            for batch in batches(len(labels), training):
                self._network.train()  # again, for the model may have been evaluated between epochs
                chosen = torch.from_numpy(batch)
                optimizer.zero_grad()
                loss = self._loss(self._network(rows[chosen]), wanted[chosen])
                torch.autograd.backward(loss)
                optimizer.step()
        return len(labels)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        import torch

        self._network.eval()
        with torch.no_grad():
            scores = self._network(self._rows(inputs))
            found = scores.double() if self._values else torch.softmax(scores.double(), dim=1)
            return np.asarray(found.numpy())

    def evaluate(self, inputs: Inputs, labels: npt.NDArray[Any]) -> AnyScores:
        check_pairs(inputs, labels, self._each)
        return scored(self.predict(inputs), labels)

    @property
    def _tensors(self) -> "dict[str, torch.Tensor]":
        """All that training changes: parameters, and buffers such as running means."""
        kept = {name: buffer for name, buffer in self._network.named_buffers() if buffer.is_floating_point()}
        return dict(self._network.named_parameters()) | kept

    def _rows(self, inputs: Inputs) -> "torch.Tensor":
        import torch

        rows = torch.from_numpy(np.array(inputs, order="C"))  # a copy: a user's module may alter what it is fed
        if self._channels is None:
            return rows
        return rows.reshape(len(rows), -1, self._channels).transpose(1, 2)  # `flat` has time first, convolutions last


class Adam:
    """Adam (Kingma and Ba, 2015), bit for bit as torch computes it, without torch's own class.

    That one's first step loads a compiler, which takes longer than a participant's training. With `proximal`, mu, the gradient
    of mu / 2 * |parameters - start|^2 is added (FedProx: Li et al., 2020); the start is where the parameters are now.
    """

    def __init__(self, parameters: Iterable["torch.nn.Parameter"], rate: float, proximal: float = 0.0) -> None:
        self._parameters, self._rate, self._steps, self._proximal = list(parameters), rate, 0, proximal
        self._start = [parameter.detach().clone() for parameter in self._parameters] if proximal else []
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
            for parameter, start in zip(self._parameters, self._start, strict=False):  # without FedProx, none
                if parameter.grad is not None:
                    parameter.grad.add_(parameter - start, alpha=self._proximal)
            for parameter, mean, square in zip(self._parameters, self._means, self._squares, strict=True):
                if parameter.grad is None:
                    continue
                mean.lerp_(parameter.grad, 1 - _KEEP)
                square.mul_(_KEEP_SQUARES).addcmul_(parameter.grad, parameter.grad, value=1 - _KEEP_SQUARES)
                parameter.addcdiv_(mean, (square.sqrt() / spread).add_(_SMALL), value=-pace)
