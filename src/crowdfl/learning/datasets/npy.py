"""The header of a .npy file, as NumPy writes it and in no other form: NumPy's own reader evaluates it as Python."""

import re
from typing import IO

from crowdfl.errors import FormatError

__all__ = ["NpyHeader", "read_npy_header"]

NpyHeader = tuple[str, bool, tuple[int, ...]]
"""Type of number, whether in Fortran's order, shape."""

_MAGIC = b"\x93NUMPY\x01\x00"  # later versions are for headers that no array of plain numbers needs
_LONGEST = 512
_SHAPE = rb"\((|\d{1,18},(?: \d{1,18})?(?:, \d{1,18}){0,30})\)"
_TEXT = re.compile(rb"\{'descr': '([<>|=]\w{1,8})', 'fortran_order': (True|False), 'shape': " + _SHAPE + rb", \} *\n")


def read_npy_header(stream: IO[bytes]) -> NpyHeader:
    """Leaves the stream where the content starts."""
    start = stream.read(len(_MAGIC) + 2)
    length = int.from_bytes(start[len(_MAGIC) :], "little")
    if not start.startswith(_MAGIC) or length > _LONGEST:
        raise FormatError("not the start of a .npy file of version 1.0")
    match = _TEXT.fullmatch(stream.read(length))
    if match is None:
        raise FormatError("the header of a .npy file is not as NumPy writes it")
    descr, fortran, shape = match.groups()
    return descr.decode("ascii"), fortran == b"True", tuple(map(int, re.findall(rb"\d+", shape)))
