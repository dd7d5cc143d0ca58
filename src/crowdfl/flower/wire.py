"""What passes between the strategy and the mod, inside Flower's messages: one record of settings, called `crowdfl`.

Everything in it is either public or sealed: papers, publications, rewards in their envelopes, and shares of updates.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from crowdfl.errors import DocumentError, FormatError, ModelMismatch
from crowdfl.flower.admission import AGREED, RECORD, TRAINING, Agreed
from crowdfl.learning.models.shape import ModelShape, Weights

ENROL, WORK, READ = "enrol", "work", "read"


class _Form:
    """Fields as a Flower record has them: texts, bytes, numbers, truth values, and lists of one kind."""

    def values(self) -> dict[str, Any]:
        """Less what is empty: Flower's own mods that count bytes stumble over that."""
        found = {one.name.replace("_", "-"): getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if value not in ("", b"", [])}

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Every field is there or empty, and of its kind: what comes from elsewhere is believed in nothing."""
        taken = {}
        for name, kind in get_type_hints(cls).items():
            empty = None if kind in (int, bool) else (get_origin(kind) or kind)()
            taken[name] = found.get(name.replace("_", "-"), empty)
            if not _is(taken[name], kind):
                raise FormatError(f"Flower's record {RECORD!r} has no valid {name!r}: are both sides of one version?")
        return cls(**taken)


def _is(value: object, kind: Any) -> bool:  # noqa: ANN401 -- a type, or a list of one
    if get_origin(kind) is list:
        return isinstance(value, list) and all(type(part) is get_args(kind)[0] for part in value)
    return type(value) is kind


@dataclass(frozen=True)
class Instruction(_Form):
    """From the strategy: papers for a newcomer, and what a client has not read yet."""

    step: str
    task: str
    local: bool  # KGC and CSP run inside the server's process
    kgc_key: bytes
    definition: str = ""
    appointment: str = ""
    invitation: str = field(default="", repr=False)
    sealed: bytes = field(default=b"", repr=False)  # KGC's answer to a request to enrol
    initial: bytes = field(default=b"", repr=False)
    number: int = 0  # of the round to take part in; 0: none
    states: str = "[]"  # JSON: numbers and states of the rounds before
    numbers: list[int] = field(default_factory=list)  # of the publications that follow
    publications: list[bytes] = field(default_factory=list, repr=False)
    rewarded: list[int] = field(default_factory=list)  # rounds of the envelopes that follow
    envelopes: list[bytes] = field(default_factory=list, repr=False)
    ended: list[int] = field(default_factory=list)  # rounds that were given up, of the words that follow
    ends: list[bytes] = field(default_factory=list, repr=False)  # CSP's, signed

    def rounds(self) -> list[tuple[int, str]]:
        try:
            return [(int(number), str(state)) for number, state in json.loads(self.states)]
        except (ValueError, TypeError, RecursionError):
            raise FormatError("the server's list of rounds cannot be read") from None


@dataclass(frozen=True)
class ClientAnswer(_Form):
    """From the mod: a request to enrol, or an upload and how far this client has read. `refused` says why there is neither."""

    task: str
    request: str = ""
    certificate: str = ""
    upload: bytes = field(default=b"", repr=False)
    last: int = 0  # the last round that was read
    lost: bool = False  # this client has no keys for the task: enrol it again
    refused: str = ""


def states_text(rounds: Sequence[tuple[int, str]]) -> str:
    return json.dumps([[number, state] for number, state in rounds])


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
        found = training.get(TRAINING)
        if not isinstance(found, dict) or not isinstance(found.get("types"), dict):
            raise DocumentError("this task was not made for Flower: its definition does not name Flower's arrays")
        names = tuple(map(str, found.get("names", ())))
        types = {str(k): str(v) for k, v in found["types"].items()}
        agreed = Agreed.from_json(found.get(AGREED))
        if not set(types) <= set(names):
            raise DocumentError("this task's definition gives types of arrays that it does not name")
        return cls(names, types, agreed)

    def training(self) -> dict[str, Any]:
        return {TRAINING: {"names": list(self.names), "types": dict(self.types), AGREED: self.agreed.to_json()}}

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
