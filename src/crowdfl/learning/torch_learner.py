"""A stack of layers in torch, on one thread. torch is imported when a learner is made, not before: it takes seconds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crowdfl.errors import LearningUnavailable, SettingsError
from crowdfl.learning.data import Labels
from crowdfl.learning.features import Inputs
from crowdfl.learning.learner import Metrics, Training, batches, check_pairs, score
from crowdfl.learning.model import ModelShape, Weights

if TYPE_CHECKING:
    import torch

__all__ = ["TorchLearner", "mlp"]


def mlp(hidden: Sequence[int], labels: int) -> list[str]:
    """The layers of a network with these hidden sizes and ReLU between: `["linear 32", "relu", "linear 7"]`."""
    return [layer for size in hidden for layer in (f"linear {size}", "relu")] + [f"linear {labels}"]


class TorchLearner:
    """Layers written as in a task file: `linear N`, `relu`, `tanh`. The last must be linear, one output per label."""

    def __init__(self, inputs: int, layers: Sequence[str], seed: int = 0) -> None:
        self._width = inputs
        self._network = _network(inputs, layers, seed)

    @property
    def shape(self) -> ModelShape:
        """The arrays under torch's names: `0.weight`, `0.bias`, and so on."""
        named = self._network.named_parameters()
        return ModelShape.of({name: np.empty(tuple(parameter.shape)) for name, parameter in named})

    def weights(self) -> Weights:
        """Copies, as float64."""
        return [parameter.detach().numpy().astype(np.float64) for parameter in self._network.parameters()]

    def load(self, weights: Sequence[npt.ArrayLike]) -> None:
        """Take these weights on, as float32."""
        import torch

        arrays = self.shape.check(weights)
        with torch.no_grad():
            for parameter, array in zip(self._network.parameters(), arrays, strict=True):
                parameter.copy_(torch.from_numpy(array.astype(np.float32)))

    def train(self, inputs: Inputs, labels: Labels, training: Training) -> int:
        """Adam on the cross entropy, its moments new in every round: a phone keeps nothing between rounds."""
        import torch

        check_pairs(inputs, labels, self._width)
        rows, wanted = torch.from_numpy(np.ascontiguousarray(inputs)), torch.from_numpy(np.ascontiguousarray(labels))
        optimizer = torch.optim.Adam(self._network.parameters(), lr=training.rate)
        for batch in batches(len(labels), training):
            chosen = torch.from_numpy(batch)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self._network(rows[chosen]), wanted[chosen])
            torch.autograd.backward(loss)
            optimizer.step()
        return len(labels)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """The probability of each label."""
        import torch

        with torch.no_grad():
            scores = self._network(torch.from_numpy(np.ascontiguousarray(inputs)))
            return np.asarray(torch.softmax(scores.double(), dim=1).numpy())

    def evaluate(self, inputs: Inputs, labels: Labels) -> Metrics:
        """Accuracy and loss."""
        check_pairs(inputs, labels, self._width)
        return score(self.predict(inputs), labels)


def _network(inputs: int, layers: Sequence[str], seed: int) -> "torch.nn.Sequential":
    try:
        import torch
    except ModuleNotFoundError as error:
        raise LearningUnavailable("this model needs torch: `pip install 'crowdfl[learning]'`") from error
    torch.set_num_threads(1)  # small networks gain nothing from more, and a machine may run many participants
    if not layers or not layers[-1].startswith("linear"):
        raise SettingsError("the last layer must be linear, with one output per label")
    modules: list[torch.nn.Module] = []
    with torch.random.fork_rng(devices=[]):  # the caller's own random numbers go on undisturbed
        torch.manual_seed(seed)
        for layer in layers:
            match layer.split():
                case ["linear", size] if size.isdecimal() and int(size) > 0:
                    modules.append(torch.nn.Linear(inputs, int(size)))
                    inputs = int(size)
                case ["relu"]:
                    modules.append(torch.nn.ReLU())
                case ["tanh"]:
                    modules.append(torch.nn.Tanh())
                case _:
                    raise SettingsError(f"no layer is written {layer!r}: use `linear N`, `relu` or `tanh`")
    return torch.nn.Sequential(*modules)
