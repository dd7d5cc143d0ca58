"""Headers of .npy files, read without evaluating them."""

import io

import numpy as np
import pytest

from crowdfl.errors import FormatError
from crowdfl.learning.datasets.npy import read_npy_header


def header(text: bytes) -> io.BytesIO:
    """A file of version 1.0 with this header and nothing else."""
    return io.BytesIO(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_writes_is_understood(shape, order):
    """And the content starts where the header ends."""
    stream, array = io.BytesIO(), np.zeros(shape, dtype="<f4", order=order)
    np.save(stream, array)
    stream.seek(0)
    assert read_npy_header(stream) == ("<f4", array.flags.fnc, shape)
    assert len(stream.read()) == array.nbytes


@pytest.mark.parametrize(
    "text",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (2**40,), }\n",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }\n",
        b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }\n",
        b"{'descr': '<f8', 'fortran_order': 0, 'shape': (1,), }\n",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n\n",
        b"-" * 500,
        b" " * 60_000,
        b"",
    ],
    ids=["sum", "negative", "fields", "number for truth", "no end", "two ends", "many signs", "long", "empty"],
)
def test_any_other_header_is_refused(text):
    """Even where Python could make sense of it."""
    with pytest.raises(FormatError):
        read_npy_header(header(text))


def test_other_versions_and_short_files_are_refused():
    """The first bytes decide."""
    for data in (b"", b"\x93NUMPY", b"\x93NUMPY\x02\x00" + bytes(100), b"PK\x03\x04" + bytes(100)):
        with pytest.raises(FormatError):
            read_npy_header(io.BytesIO(data))
