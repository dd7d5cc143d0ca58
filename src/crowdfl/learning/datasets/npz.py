"""The arrays of an .npz data file, none of them objects, which could hold code."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, DataMissing

__all__ = ["Arrays", "read_arrays", "require"]

Arrays = Mapping[str, npt.NDArray[Any]]


def read_arrays(path: Path) -> Arrays:
    """By name."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError as error:
        raise DataMissing(f"there is no {path}: name the .npz file's path") from error
    except (ValueError, OSError, EOFError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise DataMalformed(f"{path} is not an .npz file of plain arrays: {error}") from error


def require(path: Path, arrays: Arrays, *names: str) -> None:
    """Numbers under these names, equally many of each."""
    for name in names:
        if name not in arrays:
            raise DataMalformed(f"{path} lacks the array {name!r}; it has {', '.join(sorted(arrays)) or 'none'}")
        if arrays[name].dtype.kind not in "fiub" or arrays[name].shape[:1] != arrays[names[0]].shape[:1]:
            found = f"{arrays[name].dtype} of shape {arrays[name].shape}"
            raise DataMalformed(f"{path}: {name!r} is {found}; as many numbers as {names[0]!r} has are needed")
