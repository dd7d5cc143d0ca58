"""What passes between the strategy and the mod, inside Flower's messages: one record of settings, called `crowdfl`.

Everything in it is either public or sealed: papers, publications, rewards in their envelopes, and shares of updates.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context

from crowdfl.errors import DocumentError, FormatError, ModelMismatch, SettingsError
from crowdfl.learning.models.shape import ModelShape, Weights

RECORD = "crowdfl"
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
    invitation: str = ""
    sealed: bytes = field(default=b"", repr=False)  # KGC's answer to a request to enrol
    initial: bytes = field(default=b"", repr=False)
    number: int = 0  # of the round to take part in; 0: none
    states: str = "[]"  # JSON: numbers and states of the rounds before
    numbers: list[int] = field(default_factory=list)  # of the publications that follow
    publications: list[bytes] = field(default_factory=list, repr=False)
    rewarded: list[int] = field(default_factory=list)  # rounds of the envelopes that follow
    envelopes: list[bytes] = field(default_factory=list, repr=False)

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


WEIGHT_KEY = "num-examples"  # FedAvg's default
_ROUND = "server-round"  # FedAvg puts it into every configuration
_KINDS = (bool, int, float, str)


@dataclass(frozen=True)
class Agreed:
    """`weight_key`: the metric that is a client's number of samples. `arrays_key`: the record that the app finds the model in.
    `kept`: a digest of the arrays that are not averaged.

    `train_config` and `run_config` are all that a client's app sees of either while it trains or evaluates; None: whatever the
    server says.
    """

    weight_key: str = WEIGHT_KEY
    arrays_key: str = "arrays"
    kept: str = ""
    train_config: Mapping[str, Any] | None = field(default=None)
    run_config: Mapping[str, Any] | None = field(default=None)

    @classmethod
    def from_json(cls, found: object) -> "Agreed":
        names = ("weight_key", "arrays_key", "kept")
        if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in names):
            raise DocumentError("this task's definition does not say how its clients train: make it anew")
        configs = [found.get(name) for name in ("train_config", "run_config")]
        if not all(one is None or isinstance(one, dict) for one in configs):
            raise DocumentError("this task's definition has settings for its clients that cannot be read")
        return cls(*(found[name] for name in names), *configs)

    def to_json(self) -> dict[str, Any]:
        configs = {"train_config": self.train_config, "run_config": self.run_config}
        return {"weight_key": self.weight_key, "arrays_key": self.arrays_key, "kept": self.kept, **configs}

    def require_kept(self, arrays: ArrayRecord) -> None:
        """Arrays that are not averaged could steer one client's training too."""
        if kept_digest(arrays) != self.kept:
            raise ModelMismatch("the server sent other arrays than the task has, of those that are not averaged")

    def require_config(self, sent: Mapping[str, Any], *, training: bool) -> None:
        """For the server's own sake: a setting that no client would see is an error, and not a riddle."""
        own = {name: value for name, value in sent.items() if name != _ROUND}
        if self.train_config is not None and own != self.train_config and (training or own):
            raise SettingsError(
                f"the task was prepared with train_config={dict(self.train_config)}, and this server sends {own}: clients take "
                "the task's alone; give the same to `prepare`"
            )

    def configured(self, sent: ConfigRecord, number: int) -> ConfigRecord:
        """What the app is told in a round."""
        return sent if self.train_config is None else ConfigRecord({**self.train_config, _ROUND: number})

    @contextlib.contextmanager
    def in_force(self, context: Context) -> Iterator[None]:
        """While the app works. What is kept of the context afterwards is as Flower knows it."""
        sent = context.run_config
        if self.run_config is not None:
            context.run_config = _Prepared(self.run_config)
        try:
            yield
        finally:
            context.run_config = sent


class _Prepared(dict[str, Any]):
    def __missing__(self, name: str) -> object:
        raise SettingsError(
            f"the app asks for {name!r} of its run configuration, and the task has none: give run_config to `prepare`"
        )


def plain_settings(name: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """As a definition can hold them: numbers, texts, truth values, and lists of these."""
    found = dict(given or {})
    for key, value in found.items():
        parts = value if isinstance(value, list) else [value]
        if not isinstance(key, str) or not all(isinstance(part, _KINDS) for part in parts):
            raise SettingsError(
                f"{name}[{key!r}] is {value!r}: expected a number, a text, a truth value, or a list of one"
            )
    return found


def kept_digest(arrays: ArrayRecord) -> str:
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        head = json.dumps([name, array.dtype, list(array.shape), array.stype, len(array.data)])
        found.update(len(head).to_bytes(8, "big") + head.encode() + array.data)
    return found.hexdigest()


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
