"""The arrays of an .npz data file, none of them objects, which could hold code."""

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, DataMissing

__all__ = ["MAX_HEADER", "UNREADABLE", "Arrays", "read_arrays", "require"]

Arrays = Mapping[str, npt.NDArray[Any]]

MAX_HEADER = 512  # bytes; NumPy parses a header as Python literals, and plain arrays need less than a hundred

# What zipfile and NumPy raise on damaged or hostile files. NumPy warns of a header that Python 2 wrote.
UNREADABLE: Final = (
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, Warning),
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError),
    *(OSError, RuntimeError, SyntaxError, TypeError, ValueError),
)


def read_arrays(path: Path) -> Arrays:
    """All arrays of the file, by name."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False, max_header_size=MAX_HEADER) as file:
            return dict(file)
    except FileNotFoundError as error:
        raise DataMissing(f"there is no {path}: name the .npz file's path") from error
    except UNREADABLE as error:
        raise DataMalformed(f"{path} is not an .npz file of plain arrays: {error}") from error


def require(path: Path, arrays: Arrays, *names: str) -> None:
    """Check that these arrays are there, hold numbers, and are all as long as the first."""
    for name in names:
        if name not in arrays:
            raise DataMalformed(f"{path} lacks the array {name!r}; it has {', '.join(sorted(arrays)) or 'none'}")
        if arrays[name].dtype.kind not in "fiub" or arrays[name].shape[:1] != arrays[names[0]].shape[:1]:
            found = f"{arrays[name].dtype} of shape {arrays[name].shape}"
            raise DataMalformed(f"{path}: {name!r} is {found}; expected as many numbers as {names[0]!r} has")
