"""Networks in torch: convolutions, and a user's own `torch.nn.Module` or loss. Other networks need no torch (`network.py`).

torch is imported when a network is built: it takes seconds. A task may name the module that it is about, but code is never
sent: every participant installs it and names it again.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import LearningUnavailable, OwnCodeError, SettingsError
from crowdfl.learning.features import Inputs
from crowdfl.learning.models.layers import stack_of
from crowdfl.learning.models.learner import AnyScores, Training, batches, check_pairs, scored
from crowdfl.learning.models.network import KEEP, KEEP_SQUARES, SMALL
from crowdfl.learning.models.own_code import guarded, load_code
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.settings import LOSSES

if TYPE_CHECKING:
    import torch

Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Of outputs (n, labels) and targets: labels (n,) as int64, or values (n, values) as float32. One number, for backward."""

_ROWS = 4  # that an own loss is tried on
_RAW = ': with features = "windows", the shape is (window, channels)'  # what a network of one's own may have meant


def is_torch_module(found: type) -> bool:
    """Without loading torch, which such a class has loaded."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and issubclass(found, torch.nn.Module)


def _need_torch() -> None:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise LearningUnavailable("this model needs torch: `pip install 'crowdfl[learning]'`") from error
    torch.set_num_threads(1)  # small networks gain nothing from more, and a machine may run many participants


def build(inputs: int, layers: Sequence[str], seed: int, channels: int | None = None) -> "torch.nn.Sequential":
    """The layers for rows of `inputs` numbers; with channels, for (channels, inputs / channels), as convolutions need."""
    stack = stack_of(inputs, layers, channels)
    _need_torch()
    import torch

    modules: list[torch.nn.Module] = []
    with torch.random.fork_rng(devices=[]):  # leaves the caller's random state unchanged
        torch.manual_seed(seed)
        for layer in stack:
            match layer.kind:
                case "linear":
                    modules.append(torch.nn.Linear(layer.width, layer.size))
                case "conv":
                    modules.append(torch.nn.Conv1d(layer.width, layer.size, layer.reach))
                case "pool":
                    modules.append(torch.nn.MaxPool1d(layer.reach))
                case "flatten":
                    modules.append(torch.nn.Flatten())
                case "relu":
                    modules.append(torch.nn.ReLU())
                case "tanh":
                    modules.append(torch.nn.Tanh())
    return torch.nn.Sequential(*modules)


def own_module(name: str, inputs: int | tuple[int, ...], labels: int, seed: int) -> "torch.nn.Module":
    """`package.module:Class`, created as Class(inputs, labels): it maps rows of inputs to one score per label.

    For whole windows `inputs` is their shape, (window, channels), and it is handed (n, window, channels).
    """
    _need_torch()
    import torch

    found = load_code(name)
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


def built_in(name: str | None, *, values: bool) -> Loss:
    """By its name in a task; None is the usual one."""
    from torch.nn import functional

    if not values:
        usual: Loss = functional.cross_entropy
        return usual
    known: dict[str, Loss] = dict(
        zip(LOSSES, (functional.mse_loss, functional.l1_loss, functional.huber_loss), strict=True)
    )
    return known[name or "squared"]


def own_loss(name: str, outputs: int, *, values: bool) -> Loss:
    """`package.module:function`, tried once: it must return one number that depends on the outputs."""
    import torch

    found = load_code(name, "function")
    if not callable(found):
        raise OwnCodeError(f"{name} is not a function: a loss is function(outputs, targets)")
    scores = torch.linspace(-1.0, 1.0, _ROWS * outputs).reshape(_ROWS, outputs).requires_grad_()
    wanted = torch.full((_ROWS, outputs), 0.5) if values else torch.arange(_ROWS) % outputs
    with guarded(f"{name}(outputs, targets)"):
        loss = found(scores, wanted)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise OwnCodeError(
            f"{name} returns {what}; expected a torch tensor with one number, such as a mean over the rows"
        )
    if not loss.requires_grad:
        raise OwnCodeError(
            f"{name} returns a number that torch cannot differentiate: compute it from the outputs in torch"
        )
    return _named(name, found)


def _named(name: str, function: Loss) -> Loss:
    """Its errors while it trains say whose they are."""

    def loss(outputs: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
        with guarded(f"{name}(outputs, targets)"):
            return function(outputs, targets)

    return loss


class TorchLearner:
    """Layers written as in a task file; see `build`. The last must be linear, one output per label or value."""

    def __init__(self, inputs: int, layers: Sequence[str], seed: int = 0, channels: int | None = None) -> None:
        self._each: int | tuple[int, ...] = inputs
        self._channels = channels
        self._network: torch.nn.Module = build(inputs, layers, seed, channels)
        self._loss = built_in(None, values=False)
        self._values = False

    @classmethod
    def around(cls, network: "torch.nn.Module", inputs: int | tuple[int, ...]) -> "TorchLearner":
        """Any module that maps samples, rows of `inputs` numbers or arrays of that shape, to one score per label."""
        learner = cls.__new__(cls)
        learner._each, learner._channels, learner._network = inputs, None, network
        learner._loss = built_in(None, values=False)
        learner._values = False
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
        rows = self._rows(inputs)
        wanted = torch.from_numpy(np.ascontiguousarray(labels))
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
        self._parameters = list(parameters)
        self._rate = rate
        self._steps = 0
        self._proximal = proximal
        self._start = [parameter.detach().clone() for parameter in self._parameters] if proximal else []
        self._means = [parameter.detach().clone().zero_() for parameter in self._parameters]
        self._squares = [parameter.detach().clone().zero_() for parameter in self._parameters]

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        import torch

        self._steps += 1
        pace = self._rate / (1 - KEEP**self._steps)
        spread = (1 - KEEP_SQUARES**self._steps) ** 0.5
        with torch.no_grad():
            for parameter, start in zip(self._parameters, self._start, strict=False):  # without FedProx, none
                if parameter.grad is not None:
                    parameter.grad.add_(parameter - start, alpha=self._proximal)
            for parameter, mean, square in zip(self._parameters, self._means, self._squares, strict=True):
                if parameter.grad is None:
                    continue
                mean.lerp_(parameter.grad, 1 - KEEP)
                square.mul_(KEEP_SQUARES).addcmul_(parameter.grad, parameter.grad, value=1 - KEEP_SQUARES)
                parameter.addcdiv_(mean, (square.sqrt() / spread).add_(SMALL), value=-pace)
