"""A model as a file: npz, which NumPy reads, and safetensors, which nearly everything else reads. Neither can hold code.

Reading takes the shape that the task promises, and compares before it allocates: a few bytes may announce gigabytes.
"""

import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import FormatError, ModelMismatch, NotFinite
from crowdfl.learning.datasets.npz_files import MAX_HEADER, UNREADABLE
from crowdfl.learning.models.forms import named_arrays
from crowdfl.learning.models.shape import ModelShape, Weights

_FLOATS = ("<f4", "<f8")
_ENDING = ".npy"
_VERSION = (1, 0)  # later ones are for headers that no array of plain numbers needs


def to_npz(shape: ModelShape, weights: Sequence[npt.ArrayLike]) -> bytes:
    """The arrays under their names, as float64: an average loses nothing."""
    return write_npz(dict(zip(shape.names, shape.check(weights), strict=True)))


def write_npz(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Arrays under their names, as they are."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:  # `savez` takes some names as its own arguments
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(name + _ENDING), "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return stream.getvalue()


def from_npz(shape: ModelShape, data: bytes) -> Weights:
    """The arrays in the model's order."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            _check_names(shape, [name.removesuffix(_ENDING) for name in archive.namelist()])
            members = zip(shape.names, shape.shapes, strict=True)
            return [_read_member(archive, name, wanted) for name, wanted in members]
    except UNREADABLE as error:
        raise FormatError(f"the model is not a readable npz file: {error}") from error


def to_safetensors(shape: ModelShape, weights: Sequence[npt.ArrayLike]) -> bytes:
    from safetensors import numpy as safetensors_numpy  # late: a bare GPU machine computes without it

    arrays = [np.asarray(array, order="C") for array in shape.check(weights)]
    return safetensors_numpy.save(dict(zip(shape.names, arrays, strict=True)))


def from_safetensors(shape: ModelShape, data: bytes) -> Weights:
    """The arrays in the model's order; the file keeps none."""
    from safetensors import SafetensorError
    from safetensors import numpy as safetensors_numpy

    try:
        arrays = safetensors_numpy.load(data)
    except (SafetensorError, KeyError) as error:  # KeyError: a type of number that NumPy lacks
        raise FormatError(f"the model is not a readable safetensors file: {error}") from error
    _check_names(shape, list(arrays))
    for name in shape.names:
        _check_kind(name, arrays[name].dtype.str)
    return shape.check([arrays[name] for name in shape.names])


def _check_names(shape: ModelShape, found: Sequence[str]) -> None:
    if sorted(found) != sorted(shape.names):
        missing, extra = sorted(set(shape.names) - set(found)), sorted(set(found) - set(shape.names))
        raise ModelMismatch(f"the file's arrays are not the model's: {missing} missing, {extra} not expected")


def _check_kind(name: str, kind: str) -> None:
    if kind not in _FLOATS:
        raise ModelMismatch(f"the array {name!r} holds {kind}; expected float32 ('<f4') or float64 ('<f8')")


def _read_member(archive: zipfile.ZipFile, name: str, wanted: tuple[int, ...]) -> npt.NDArray[np.float64]:
    with archive.open(name + _ENDING) as member:
        if np.lib.format.read_magic(member) != _VERSION:
            raise FormatError(f"the array {name!r} is not stored in version 1.0 of NumPy's format")
        found, fortran, dtype = np.lib.format.read_array_header_1_0(member, max_header_size=MAX_HEADER)
        if found != wanted:
            raise ModelMismatch(f"the array {name!r} has the shape {found}, the model's has {wanted}")
        _check_kind(name, dtype.str)
        size = math.prod(wanted) * dtype.itemsize
        content = member.read(size + 1)
    if len(content) != size:
        raise FormatError(f"the array {name!r} does not hold as many bytes as its shape says")
    flat = np.frombuffer(content, dtype=dtype)
    return flat.reshape(wanted, order="F" if fortran else "C").astype(np.float64)


def read_arrays(data: bytes, ending: str) -> dict[str, npt.NDArray[np.float64]]:
    """The arrays of a file of one's own, integers left out: `.npz` in its order, `.safetensors`, which has none, by name.

    Raises:
        FormatError: It cannot be read.
        EncodingError: An array does not hold real numbers.
        NotFinite: An array holds NaN or infinity.
    """
    found = _npz_arrays(data) if ending == ".npz" else _safetensors_arrays(data)
    arrays = named_arrays(found)
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise NotFinite(f"{name} holds NaN or infinity")
    return arrays


def _npz_arrays(data: bytes) -> dict[str, npt.NDArray[np.generic]]:
    try:
        with np.load(BytesIO(data), allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise FormatError("the model is a single array: write it by `numpy.savez`, under a name")
            return {_own_name(name): file[name] for name in file.files}
    except UNREADABLE as error:
        raise FormatError(f"the model is not a readable npz file: {error}") from error


def _own_name(stored: str) -> str:
    """`numpy.savez` calls arrays without a name arr_0 and so on; here they are `array 0`, as in a model without names."""
    number = stored.removeprefix("arr_")
    return f"array {number}" if number != stored and number.isdecimal() else stored


def _safetensors_arrays(data: bytes) -> dict[str, npt.NDArray[np.generic]]:
    from safetensors import SafetensorError
    from safetensors import numpy as safetensors_numpy

    try:
        found = safetensors_numpy.load(data)
    except KeyError as kind:
        raise FormatError(
            f"the model holds numbers of the type {kind}, which NumPy lacks: write it as float32"
        ) from None
    except SafetensorError as error:
        raise FormatError(f"the model is not a readable safetensors file: {error}") from error
    return {name: found[name] for name in sorted(found, key=_natural)}  # it loads them in another order each time


def _natural(name: str) -> tuple[list[str | int], str]:
    """`array 2` before `array 10`."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], name
