"""What a participant hands over after training."""

from dataclasses import dataclass, field

from crowdfl.learning.models.forms import named_arrays
from crowdfl.learning.models.shape import Weights


@dataclass(frozen=True, eq=False)
class Update:
    """What a participant trained: a model's weights, and on how many samples.

    The weights are copied, as float64: a model that is trained further does not change an update that was made of it. Lists
    of arrays are taken, single arrays, dictionaries and torch's `state_dict`; of any real type, tensors that require grad too.
    Integers in a dictionary, such as BatchNorm's `num_batches_tracked`, are left out: they are not averaged.

    Args:
        weights: The trained model.
        samples: How many samples it was trained on; the average counts it that often.

    Raises:
        EncodingError: Something in the weights is not an array of real numbers; the error names it.
    """

    weights: Weights = field(repr=False)  # what the whole protocol hides
    names: tuple[str, ...]
    samples: int

    def __init__(self, weights: object, samples: int) -> None:
        arrays = named_arrays(weights)
        for name, value in (("weights", list(arrays.values())), ("names", tuple(arrays)), ("samples", samples)):
            object.__setattr__(self, name, value)  # frozen: only here
