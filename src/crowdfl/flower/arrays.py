"""Flower's arrays as the weights of a task: floating-point arrays are shared and averaged, all others stay as they began."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from crowdfl.errors import DocumentError, ModelMismatch
from crowdfl.flower.client_config import Agreed
from crowdfl.learning.models.shape import ModelShape, Weights

_TRAINING, _AGREED = "flower", "agreed"


@dataclass(frozen=True)
class Template:
    """The names of all arrays of a model in their order, the types of those that are averaged, and what else is agreed."""

    names: tuple[str, ...]
    types: Mapping[str, str]
    agreed: Agreed = field(default_factory=Agreed)

    @classmethod
    def of(cls, arrays: ArrayRecord) -> "Template":
        types = {name: array.dtype for name, array in arrays.items() if _is_averaged(name, array)}
        if not types:
            raise ModelMismatch("the model has no floating-point array: there is nothing to average")
        return cls(tuple(arrays), types)

    @classmethod
    def from_training(cls, training: Mapping[str, Any]) -> "Template":
        """As a task's definition has it."""
        found = training.get(_TRAINING)
        if not isinstance(found, dict) or not isinstance(found.get("types"), dict):
            raise DocumentError("this task was not made for Flower: its definition does not name Flower's arrays")
        names, types = tuple(map(str, found.get("names", ()))), {str(k): str(v) for k, v in found["types"].items()}
        agreed = Agreed.from_json(found.get(_AGREED))
        if not set(types) <= set(names):
            raise DocumentError("this task's definition gives types of arrays that it does not name")
        return cls(names, types, agreed)

    def training(self) -> dict[str, Any]:
        return {_TRAINING: {"names": list(self.names), "types": dict(self.types), _AGREED: self.agreed.to_json()}}

    @property
    def averaged(self) -> list[str]:
        return [name for name in self.names if name in self.types]

    def kept(self, arrays: ArrayRecord) -> ArrayRecord:
        """The arrays that are not averaged, such as counters: they go in the clear, and never change."""
        return ArrayRecord({name: array for name, array in arrays.items() if name not in self.types})

    def shape(self, arrays: ArrayRecord) -> ModelShape:
        return ModelShape.of({name: arrays[name].numpy() for name in self.averaged})

    def initial(self, arrays: ArrayRecord) -> Weights:
        """What everyone starts from: clients would refuse what cannot be counted, one by one."""
        found = self.weights(arrays)
        for name, one in zip(self.averaged, found, strict=True):
            if not np.isfinite(one).all():
                raise ModelMismatch(f"the initial array {name!r} has a value that is NaN or infinite")
        return found

    def weights(self, arrays: ArrayRecord) -> Weights:
        """What a client has trained, or what everyone starts from; the error names what does not fit."""
        missing = [name for name in self.averaged if name not in arrays]
        if missing:
            raise ModelMismatch(f"the array {missing[0]!r} is missing from the arrays that the app has returned")
        return [np.asarray(arrays[name].numpy(), dtype=np.float64) for name in self.averaged]

    def record(self, weights: Sequence[npt.NDArray[np.float64]], kept: ArrayRecord) -> ArrayRecord:
        """The model as the app knows it: the same names, order and types."""
        averaged = dict(zip(self.averaged, weights, strict=True))
        return ArrayRecord(
            {
                name: Array(np.asarray(averaged[name], self.types[name])) if name in averaged else kept[name]
                for name in self.names
                if name in averaged or name in kept
            }
        )


def _is_averaged(name: str, array: Array) -> bool:
    """An array without entries has nothing to average, and stays as it began."""
    try:
        return bool(np.issubdtype(array.dtype, np.floating)) and 0 not in array.shape
    except TypeError:
        raise ModelMismatch(
            f"NumPy does not know the type {array.dtype!r} of the array {name!r}: take float32"
        ) from None
