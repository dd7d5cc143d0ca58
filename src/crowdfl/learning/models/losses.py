"""What training makes small, in torch: the cross entropy of labels, three losses of values, or a function of the user's own."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from crowdfl.errors import OwnCodeError
from crowdfl.learning.models.own_code import guarded, load_code
from crowdfl.settings import LOSSES

if TYPE_CHECKING:
    import torch

Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Of outputs (n, labels) and targets: labels (n,) as int64, or values (n, values) as float32. One number, for backward."""

_ROWS = 4  # that an own loss is tried on


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
