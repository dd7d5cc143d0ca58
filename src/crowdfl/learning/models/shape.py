"""The names and shapes of a model's arrays, in an order that everyone in a task shares."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crowdfl.errors import ModelMismatch

Weights = list[npt.NDArray[np.float64]]
"""A model's arrays. float64, as averages are; float32 survives the conversion there and back."""


@dataclass(frozen=True)
class ModelShape:
    """Names and shapes, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shapes):
            raise ModelMismatch(f"{len(self.names)} names for {len(self.shapes)} arrays")
        if len(set(self.names)) != len(self.names):
            raise ModelMismatch("two arrays have the same name")
        if "__metadata__" in self.names:
            raise ModelMismatch("no array can be called __metadata__: safetensors files have something else there")

    @classmethod
    def of(cls, arrays: Mapping[str, npt.ArrayLike]) -> "ModelShape":
        return cls(tuple(arrays), tuple(np.shape(array) for array in arrays.values()))

    @property
    def parameters(self) -> int:
        return sum(map(math.prod, self.shapes))

    def match(self, found: "ModelShape") -> None:
        """Check that the other has the same arrays in the same order; the error names the first that differs."""
        for name, wanted in zip(self.names, self.shapes, strict=True):
            if name not in found.names:
                raise ModelMismatch(f"the array {name!r} of shape {wanted} is missing among {', '.join(found.names)}")
            if (shape := found.shapes[found.names.index(name)]) != wanted:
                raise ModelMismatch(f"the array {name!r} has the shape {shape}, the model's has {wanted}")
        for name, shape in zip(found.names, found.shapes, strict=True):
            if name not in self.names:
                raise ModelMismatch(f"the array {name!r} of shape {shape} is not in the model")
        if self.names != found.names:
            raise ModelMismatch(f"the arrays come as {', '.join(found.names)}, the model's as {', '.join(self.names)}")

    def check(self, weights: Sequence[npt.ArrayLike]) -> Weights:
        """The weights as arrays; the error names the first that does not fit."""
        if len(weights) < len(self.shapes):
            first = len(weights)
            raise ModelMismatch(
                f"the model has {len(self.shapes)} arrays, not {first}: {self.names[first]!r} of shape"
                f" {self.shapes[first]} is the first that is missing"
            )
        if len(weights) > len(self.shapes):
            extra = np.shape(weights[len(self.shapes)])
            raise ModelMismatch(f"the model has {len(self.shapes)} arrays, not {len(weights)}: {extra} is one too many")
        arrays = [np.asarray(array, dtype=np.float64) for array in weights]
        for name, wanted, array in zip(self.names, self.shapes, arrays, strict=True):
            if array.shape != wanted:
                raise ModelMismatch(f"the array {name!r} has the shape {array.shape}, the model's has {wanted}")
        return arrays

    def flat(
        self, weights: Sequence[npt.ArrayLike], room: npt.NDArray[np.float64] | None = None
    ) -> npt.NDArray[np.float64]:
        """All parameters in one row, as they are encrypted; in `room`, where it is given."""
        if not self.shapes:
            return np.zeros(0)
        parts = [array.reshape(-1) for array in self.check(weights)]
        return np.concatenate(parts) if room is None else np.concatenate(parts, out=room)

    def arrays(self, flat: npt.ArrayLike) -> Weights:
        """The inverse of `flat`."""
        row = np.asarray(flat, dtype=np.float64)
        if row.shape != (self.parameters,):
            raise ModelMismatch(f"the model has {self.parameters:,} parameters, the row has the shape {row.shape}")
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(row, ends), self.shapes, strict=True)]
