"""The forms that a model may have in somebody's program and in a file, and the arrays that are averaged.

A model is a list or tuple of arrays, a single array, or a dictionary of arrays: NumPy's, torch's (a `state_dict`), or whatever
NumPy reads. `ModelForm` notes which it is, copies the numbers out as float64, and builds the same form again from an average.

Entries of a dictionary that hold integers or truth values, such as BatchNorm's `num_batches_tracked`, or no number at all, are
not averaged: whoever builds a model says which ones to put there.

Files are npz, which NumPy reads, and safetensors, which nearly everything else reads, and which travels. Neither can hold code.
"""

import copy
import json
import math
import re
import sys
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import EncodingError, FormatError, LearningUnavailable, ModelMismatch, NotFinite, SettingsError
from crowdfl.learning.datasets.npz_files import MAX_HEADER, UNREADABLE
from crowdfl.learning.models.shape import ModelShape, Weights

_COUNTS = "iub"  # kinds of NumPy types that count, and are not averaged in a dictionary
_SINGLE = "array 0"
_LONGEST_HEAD = 1 << 24  # bytes of a file in which its arrays are listed
_FLOATS = ("<f4", "<f8")
_FILE_TYPES = {"BOOL": "?", "F16": "<f2", "F32": "<f4", "F64": "<f8"} | {
    f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)
}


def named_arrays(model: object, personal: Collection[str] = ()) -> dict[str, npt.NDArray[np.float64]]:
    """Copies of a model's arrays by name; `array 0` and so on, if it has no names. What a dictionary keeps is left out.

    Raises:
        EncodingError: An entry does not hold real numbers; the error names it.
    """
    entries = _entries(model)
    kept = {name for name, entry in entries.items() if _is_kept(name, entry)} if isinstance(model, Mapping) else ()
    arrays = {name: _copied(name, entry) for name, entry in entries.items() if name not in (*kept, *personal)}
    if not arrays:
        raise EncodingError("the model holds nothing that can be averaged: it needs an array of real numbers")
    return arrays


def model_npz(model: object) -> bytes:
    """Everything in a model by name, integers too. NumPy has no bfloat16: that is written as float32."""
    found = {}
    for name, entry in _entries(model).items():
        array = entry_array(entry)
        found[name] = array.astype(np.float32) if _is_small_float(array.dtype) else np.array(array)
    return write_npz(found)


def model_safetensors(model: object) -> bytes:
    """Everything in a model by name, integers too, in the types that it has."""
    entries = _entries(model)
    if not any(map(_is_tensor, entries.values())):
        return write_safetensors({name: np.asarray(entry) for name, entry in entries.items()})
    from safetensors import torch as safetensors_torch

    torch = _torch()  # copies: entries may share memory, which a file cannot say
    return safetensors_torch.save(
        {name: torch.as_tensor(entry).detach().cpu().clone().contiguous() for name, entry in entries.items()}
    )


def entry_array(entry: Any) -> npt.NDArray[Any]:  # noqa: ANN401
    """One part of a model as NumPy has it; bfloat16 as float32."""
    return _written(entry) if _is_tensor(entry) else np.asarray(entry)


def container_of(model: object) -> dict[str, Any]:
    """What a file of a model does not say: how its entries are held, in which order, and whether they are torch's."""
    entries = _entries(model)
    kind = (
        "dict" if isinstance(model, Mapping) else type(model).__name__ if isinstance(model, list | tuple) else "array"
    )
    return {"kind": kind, "entries": list(entries), "torch": any(map(_is_tensor, entries.values()))}


def model_in(container: Mapping[str, Any], data: bytes) -> Any:  # noqa: ANN401
    """The model that `model_safetensors` has written."""
    if container["torch"]:
        _torch()
        from safetensors.torch import load as load_tensors

        found: dict[str, Any] = load_tensors(data)
    else:
        found = dict(safetensors_arrays(data))
    held = {name: found[name] for name in container["entries"]}
    if container["kind"] == "dict":
        return held
    entries = list(held.values())
    return entries[0] if container["kind"] == "array" else tuple(entries) if container["kind"] == "tuple" else entries


def _written(tensor: Any) -> npt.NDArray[Any]:  # noqa: ANN401
    fresh = tensor.detach().cpu()
    found: npt.NDArray[Any] = (fresh.float() if str(fresh.dtype) == "torch.bfloat16" else fresh).numpy()
    return found


@dataclass(frozen=True)
class ModelForm:
    """The form of one model: its container, and the kind of each array."""

    shape: ModelShape  # of what is averaged
    kept: tuple[str, ...]  # entries with integers, or without a number, which are not
    _example: Any = field(repr=False)
    personal: tuple[str, ...] = ()  # entries that stay with each person

    @classmethod
    def of(cls, model: object, personalize: Sequence[str] = ()) -> "ModelForm":
        """The form of this model. A model outside a dictionary must not hold integers: they would be cut off.

        Args:
            model: An example.
            personalize: Names of entries that stay with each person, or patterns such as `head.*`.
        """
        entries = _entries(model)
        personal = _personal(model, personalize)
        arrays = named_arrays(model, personal)
        for name, entry in entries.items():
            if not isinstance(model, Mapping) and _is_count(name, entry):
                raise EncodingError(f"{name} holds integers: make it floating point, as in `array.astype(float)`")
        kept = tuple(name for name in entries if name not in arrays and name not in personal)
        return cls(ModelShape.of(arrays), kept, _snapshot(model), personal)

    @property
    def is_torch(self) -> bool:
        return any(map(_is_tensor, _entries(self._example).values()))

    def arrays(self, model: object, why: str = "the training has diverged, or divides by zero") -> Weights:
        """Copies of the averaged arrays of a model that has this form; `why` is said of numbers that are none.

        Raises:
            ModelMismatch: An array is missing, is one too many, or has another shape.
            NotFinite: An array holds NaN or infinity.
        """
        if isinstance(self._example, Mapping) and not isinstance(model, Mapping):
            raise ModelMismatch(f"the model is a {type(model).__name__} where a dictionary of arrays is expected")
        own = (*self.kept, *self.personal)
        found = {name: _copied(name, entry) for name, entry in _entries(model).items() if name not in own}
        ordered = {name: found.pop(name) for name in self.shape.names if name in found} | found
        self.shape.match(ModelShape.of(ordered))
        for name, array in ordered.items():
            if not np.isfinite(array).all():
                raise NotFinite(f"{name} holds NaN or infinity: {why}")
        return list(ordered.values())

    def ordered_as(self, shape: ModelShape) -> "ModelForm":
        """The same form, whose averaged arrays come in the order of a task's model; `ModelMismatch` if it has others."""
        own = dict(zip(self.shape.names, self.shape.shapes, strict=True))
        names = [name for name in shape.names if name in own] + [name for name in own if name not in shape.names]
        ordered = ModelShape(tuple(names), tuple(own[name] for name in names))
        shape.match(ordered)
        return replace(self, shape=ordered)

    def counts(self, model: object) -> dict[str, Any]:
        """Copies of the entries that are not averaged; `ModelMismatch` if one that stays with each person is not as it was."""
        entries, old = _entries(model), _entries(self._example)
        found = {name: _snapshot_entry(entries[name]) for name in self.kept if name in entries}
        if missing := [name for name in self.personal if name not in entries]:
            raise ModelMismatch(f"{missing[0]}, which stays with each person, is missing in the trained model")
        for name in self.personal:
            array, sides = _copied(name, entries[name]), tuple(np.shape(old[name]))
            if array.shape != sides or not np.isfinite(array).all():
                raise ModelMismatch(
                    f"{name}, which stays with each person, has the shape {array.shape}, not {sides}, or NaN"
                )
            found[name] = _like(old[name], array)
        return found

    def counts_like(self, found: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
        """Entries that are not averaged, read from a file, as this form has them; `ModelMismatch` if it has others."""
        entries = _entries(self._example)
        for name, array in found.items():
            differs = name in self.personal and array.shape != tuple(np.shape(entries[name]))
            if differs or name not in (*self.kept, *self.personal):
                raise ModelMismatch(
                    f"{name}, of the shape {array.shape}, was kept of an earlier model; this one lacks it"
                )
        return {
            name: _torch().from_numpy(np.array(array)).to(entries[name]) if _is_tensor(entries[name]) else array
            for name, array in found.items()
        }

    def model(self, arrays: Sequence[npt.ArrayLike], counts: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
        """A model of this form, and of its types of numbers, that holds these arrays and shares no memory with anything."""
        fresh = dict(zip(self.shape.names, self.shape.check(arrays), strict=True))
        old, own = _entries(self._example), dict(counts or {})
        built = {
            name: _like(entry, fresh[name]) if name in fresh else _snapshot_entry(own.get(name, entry))
            for name, entry in old.items()
        }
        if isinstance(self._example, Mapping):
            filled = copy.copy(self._example)  # with its own attributes, such as a state_dict's versions
            filled.update(built)  # type: ignore[attr-defined]
            return filled
        if isinstance(self._example, list | tuple):
            return type(self._example)(built.values())
        return built[_SINGLE]


def _personal(model: object, personalize: Sequence[str]) -> tuple[str, ...]:
    asked = [personalize] if isinstance(personalize, str) else list(personalize)
    if not asked:
        return ()
    if not isinstance(model, Mapping):
        raise SettingsError("`personalize` names entries of a dictionary or a state_dict, and this model has no names")
    for pattern in asked:
        if not any(fnmatchcase(name, pattern) for name in model):
            raise SettingsError(f"`personalize` has {pattern!r}; the model's entries are {', '.join(model)}")
    return tuple(
        name
        for name, entry in model.items()
        if any(fnmatchcase(name, pattern) for pattern in asked) and not _is_kept(name, entry)
    )


def dictionary_form(shape: ModelShape, *, torch: bool = False) -> ModelForm:
    """The form that a task's own names suggest: a list where they are `array 0` and so on, an array for one, else a dictionary.

    Of NumPy's float64; with `torch`, of tensors of float32.
    """
    zeros: dict[str, Any] = {name: np.zeros(sides) for name, sides in zip(shape.names, shape.shapes, strict=True)}
    if torch:
        library = _torch()
        zeros = {name: library.from_numpy(array.astype(np.float32)) for name, array in zeros.items()}
    if shape.names == tuple(f"array {i}" for i in range(len(shape.names))):
        return ModelForm.of(list(zeros.values()) if len(zeros) > 1 else zeros[_SINGLE])
    return ModelForm.of(zeros)


def _entries(model: object) -> dict[str, Any]:
    """The parts of a model by name, as they are."""
    if isinstance(model, Mapping):
        for name in model:
            if not isinstance(name, str):
                raise EncodingError(
                    f"the model's entry {name!r} has a name of type {type(name).__name__}, not a string"
                )
        return dict(model)
    if hasattr(model, "state_dict"):
        raise EncodingError(f"{type(model).__name__} is a module: pass its `state_dict()`")
    if hasattr(model, "fit") and hasattr(model, "get_params"):
        kind = model if isinstance(model, type) else type(model)
        raise EncodingError(
            f"{kind.__name__} is an estimator: pass its arrays, as in `[model.coef_, model.intercept_]`, which exist "
            "once it was fitted"
        )
    if isinstance(model, list | tuple):
        return {f"array {i}": entry for i, entry in enumerate(model)}
    return {_SINGLE: model}


def _is_tensor(entry: object) -> bool:
    """Without loading torch: whoever has a tensor has loaded it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(entry, torch.Tensor)


def _is_count(name: str, entry: Any) -> bool:  # noqa: ANN401
    if _is_tensor(entry):
        return not (entry.is_floating_point() or entry.is_complex() or entry.is_quantized)
    return _as_numpy(name, entry).dtype.kind in _COUNTS


def _is_kept(name: str, entry: Any) -> bool:  # noqa: ANN401
    empty = entry.numel() == 0 if _is_tensor(entry) else _as_numpy(name, entry).size == 0
    return empty or _is_count(name, entry)


def _copied(name: str, entry: Any) -> npt.NDArray[np.float64]:  # noqa: ANN401
    """The numbers of one entry, in memory of their own."""
    array = _tensor_numbers(name, entry) if _is_tensor(entry) else _as_numpy(name, entry)
    if array.dtype.kind not in "f" + _COUNTS and not _is_small_float(array.dtype):
        raise EncodingError(f"{name} holds {array.dtype}: a model's arrays hold real numbers")
    if array.size == 0:
        raise EncodingError(f"{name} has the shape {array.shape}, which holds no number: leave it out")
    return np.array(array, dtype=np.float64, order="C", copy=True)


def _as_numpy(name: str, entry: object) -> npt.NDArray[Any]:
    if entry is None or isinstance(entry, str | bytes | Mapping | set | frozenset | np.ma.MaskedArray):
        raise EncodingError(f"{name} is a {type(entry).__name__}: a model's entries are arrays of numbers")
    try:
        array = np.asarray(entry)
    except (ValueError, TypeError) as wrong:
        raise EncodingError(f"{name} is not an array of numbers: {wrong}") from None
    if array.dtype == object and array.ndim == 0:  # a generator, a function, a coroutine
        raise EncodingError(f"{name} is a {type(entry).__name__}: a model's entries are arrays of numbers")
    return array


def _tensor_numbers(name: str, tensor: Any) -> npt.NDArray[Any]:  # noqa: ANN401
    if tensor.is_complex() or tensor.is_quantized or str(tensor.layout) != "torch.strided":
        kind = tensor.dtype if tensor.is_complex() or tensor.is_quantized else f"{tensor.layout} numbers"
        raise EncodingError(f"{name} holds {kind}: a model's tensors are dense and real")
    if tensor.device.type == "meta":
        raise EncodingError(f"{name} is on the device `meta`, which holds no numbers")
    found: npt.NDArray[Any] = tensor.detach().cpu().double().numpy()
    return found


def _is_small_float(dtype: np.dtype[Any]) -> bool:
    """bfloat16 and the like, which other packages add to NumPy."""
    return dtype.kind == "V" and dtype.names is None and dtype.name.startswith(("bfloat", "float"))


def _like(entry: Any, array: npt.NDArray[np.float64]) -> Any:  # noqa: ANN401
    """The numbers as the entry held its own."""
    if _is_tensor(entry):
        torch = _torch()
        tensor = torch.from_numpy(np.array(array)).to(device=entry.device, dtype=entry.dtype)
        if isinstance(entry, torch.nn.Parameter):
            return torch.nn.Parameter(tensor, requires_grad=entry.requires_grad)
        return tensor.requires_grad_(entry.requires_grad)
    if isinstance(entry, float) and not isinstance(entry, np.floating):
        return float(array)
    dtype = np.asarray(entry).dtype
    return np.array(array, dtype=np.float64 if dtype.kind in _COUNTS else dtype)


def _snapshot(model: object) -> Any:  # noqa: ANN401
    """The same form, whose numbers nobody else can alter."""
    entries = {name: _snapshot_entry(entry) for name, entry in _entries(model).items()}
    if isinstance(model, Mapping):
        copied = copy.copy(model) if isinstance(model, dict) else {}
        copied.update(entries)
        return copied
    if isinstance(model, list | tuple):
        return list(entries.values()) if isinstance(model, list) else tuple(entries.values())
    return entries[_SINGLE]


def _snapshot_entry(entry: Any) -> Any:  # noqa: ANN401
    if not _is_tensor(entry):
        return entry if isinstance(entry, int | float) else np.array(entry)
    fresh = entry.detach().clone()
    parameter = _torch().nn.Parameter
    if isinstance(entry, parameter):
        return parameter(fresh, requires_grad=entry.requires_grad)
    return fresh.requires_grad_(entry.requires_grad)


def _torch() -> Any:  # noqa: ANN401
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise LearningUnavailable("tensors need torch: `pip install 'crowdfl[learning]'`") from missing
    return torch


def to_npz(shape: ModelShape, weights: Sequence[npt.ArrayLike]) -> bytes:
    """The arrays under their names, as float64: an average loses nothing."""
    return write_npz(dict(zip(shape.names, shape.check(weights), strict=True)))


def write_npz(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Arrays under their names, as they are."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:  # `savez` takes some names as its own arguments
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return stream.getvalue()


def to_safetensors(shape: ModelShape, weights: Sequence[npt.ArrayLike]) -> bytes:
    return write_safetensors(dict(zip(shape.names, shape.check(weights), strict=True)))


def write_safetensors(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Arrays under their names, as they are."""
    from safetensors import numpy as safetensors_numpy  # late: a bare GPU machine computes without it

    return safetensors_numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def from_npz(shape: ModelShape, data: bytes) -> Weights:
    """The arrays in the model's order."""
    return _weights(shape, _npz_arrays(data))


def from_safetensors(shape: ModelShape, data: bytes) -> Weights:
    """The arrays in the model's order; the file keeps none."""
    return _weights(shape, safetensors_arrays(data))


def require_safetensors(shape: ModelShape, size: int, read: Callable[[slice], bytes]) -> None:
    """As `from_safetensors`, by the head of a file of so many bytes: no array is read."""
    length = int.from_bytes(read(slice(8)), "little")
    if not size >= 8 + length <= 8 + _LONGEST_HEAD:
        raise FormatError("the model is not a readable safetensors file: its head is too long, or cut off")
    try:
        head = json.loads(read(slice(8, 8 + length)))
        found = {name: head[name] for name in head if name != "__metadata__"}
        kinds = {name: str(one["dtype"]) for name, one in found.items()}
        shapes = {name: tuple(map(int, one["shape"])) for name, one in found.items()}
        places = sorted(tuple(map(int, one["data_offsets"])) for one in found.values())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"the model is not a readable safetensors file: {error}") from None
    _require_names(shape, found)
    for name, wanted in zip(shape.names, shape.shapes, strict=True):
        _require_float(name, _FILE_TYPES.get(kinds[name], kinds[name]))
        if shapes[name] != wanted:
            raise ModelMismatch(f"the array {name!r} has the shape {shapes[name]}, the model's has {wanted}")
    sizes = {name: math.prod(shapes[name]) * (4 if kinds[name] == "F32" else 8) for name in found}
    lengths = {name: int(one["data_offsets"][1]) - int(one["data_offsets"][0]) for name, one in found.items()}
    ends = [8 + length + end for _, end in places]
    starts = [8 + length + start for start, _ in places]
    if lengths != sizes or starts != [8 + length, *ends[:-1]] or (ends and ends[-1] != size):
        raise FormatError("the model is not a readable safetensors file: its arrays do not fill it one after the other")


def _weights(shape: ModelShape, found: Mapping[str, npt.NDArray[Any]]) -> Weights:
    _require_names(shape, found)
    for name in shape.names:
        _require_float(name, found[name].dtype.str)
    return shape.check([found[name] for name in shape.names])


def _require_names(shape: ModelShape, found: Collection[str]) -> None:
    if set(found) != set(shape.names):
        missing, extra = sorted(set(shape.names) - set(found)), sorted(set(found) - set(shape.names))
        raise ModelMismatch(f"the file's arrays are not the model's: {missing} missing, {extra} not expected")


def _require_float(name: str, kind: str) -> None:
    if kind not in _FLOATS:
        raise ModelMismatch(f"the array {name!r} holds {kind}; expected float32 ('<f4') or float64 ('<f8')")


def read_arrays(data: bytes, ending: str) -> dict[str, npt.NDArray[np.float64]]:
    """The arrays of a file of one's own, integers left out: `.npz` in its order, `.safetensors`, which has none, by name.

    Raises:
        FormatError: It cannot be read.
        EncodingError: An array does not hold real numbers.
        NotFinite: An array holds NaN or infinity.
    """
    found = _npz_arrays(data) if ending == ".npz" else safetensors_arrays(data)
    arrays = named_arrays({_own_name(name): array for name, array in found.items()})
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise NotFinite(f"{name} holds NaN or infinity")
    return arrays


def _npz_arrays(data: bytes) -> dict[str, npt.NDArray[np.generic]]:
    try:
        with np.load(BytesIO(data), allow_pickle=False, max_header_size=MAX_HEADER) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise FormatError("the model is a single array: write it by `numpy.savez`, under a name")
            return {name: np.asarray(array) for name, array in file.items()}  # NumPy gives other members as bytes
    except UNREADABLE as error:
        raise FormatError(f"the model is not a readable npz file: {error}") from error


def _own_name(stored: str) -> str:
    """`numpy.savez` calls arrays without a name arr_0 and so on; here they are `array 0`, as in a model without names."""
    number = stored.removeprefix("arr_")
    return f"array {number}" if number != stored and number.isdecimal() else stored


def safetensors_arrays(data: bytes) -> dict[str, npt.NDArray[np.generic]]:
    """All arrays of a file by name, as they are."""
    import safetensors

    try:
        found = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise FormatError(f"the model is not a readable safetensors file: {error}") from error
    # They come in another order each time.
    return {name: _from_file(**found[name]).copy() for name in sorted(found, key=_natural)}


def _from_file(dtype: str, shape: Sequence[int], data: bytes) -> npt.NDArray[np.generic]:
    if dtype == "BF16":  # NumPy has none: it is the upper half of a float32
        wide = np.frombuffer(data, dtype="<u2").astype("<u4") << 16
        return wide.view("<f4").reshape(shape)
    if dtype not in _FILE_TYPES:
        raise FormatError(f"the model holds numbers of the type {dtype}, which NumPy lacks: write it as float32")
    return np.frombuffer(data, dtype=_FILE_TYPES[dtype]).reshape(shape)


def _natural(name: str) -> tuple[list[str | int], str]:
    """`array 2` before `array 10`."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], name
