"""Object files are read as data, and never run."""

import os
import pickle
import random
from io import BytesIO

import numpy as np
import pytest

from crowdfl.errors import DataAltered
from crowdfl.learning.datasets.object_file import StoredArray, read_object_file


def object_file(content: object, protocol: int = 2) -> bytes:
    """What `numpy.save` wrote in the days of protocol 2."""
    stream = BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|O", "fortran_order": False, "shape": ()})
    outer = np.empty((), dtype=object)
    outer[()] = content
    return stream.getvalue() + pickle.dumps(outer, protocol=protocol)


class Hostile:
    """Runs a function of its choice when unpickled."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


def plain(value: object) -> object:
    """Stored arrays as lists."""
    match value:
        case StoredArray():
            return value.read().tolist()
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
    return value


@pytest.mark.parametrize(
    "content",
    [{"a": [1, 2, 300, 70_000], "b": "text"}, {"x": [True, None, (1, 2)], "y": 0.5}, [[], {}, ()]],
    ids=["numbers", "others", "empty"],
)
def test_plain_content_comes_back(content):
    """Lists, dicts, tuples, strings and numbers."""
    assert read_object_file(object_file(content)) == content


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<i4", "<i8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back(dtype, order):
    """In either order, with every byte value in them."""
    array = np.asarray(np.random.default_rng(1).integers(-(2**30), 2**30, (7, 5)), dtype=dtype, order=order)
    stored = read_object_file(object_file({"a": [array, array]}))
    assert plain(stored) == {"a": [array.tolist()] * 2}


def test_nothing_in_the_file_is_called(tmp_path):
    """A file that would create a directory creates none."""
    target = tmp_path / "made"
    with pytest.raises(DataAltered, match="mkdir"):
        read_object_file(object_file({"a": Hostile(os.mkdir, str(target))}))
    assert not target.exists()


@pytest.mark.parametrize("call", [(eval, "1"), (np.load, "x"), (np.ndarray, (1,)), (np.dtype, np.dtype("f8"))])
def test_only_the_constructors_of_data_are_acted_out(call):
    """Not even NumPy's own, when used otherwise."""
    with pytest.raises(DataAltered):
        read_object_file(object_file([Hostile(*call)]))


def test_arrays_of_objects_are_not_read():
    """Only numbers come out of an array."""
    stored = read_object_file(object_file([np.array(["a", None], dtype=object)]))
    with pytest.raises(DataAltered, match="not read here"):
        plain(stored)


def test_an_array_shorter_than_its_shape_is_refused():
    """The shape does not decide how much memory is read."""
    with pytest.raises(DataAltered, match="as long as"):
        StoredArray((3, 2), "<f8", False, "\0" * 40).read()


def test_newer_protocols_are_refused():
    """Their instructions are not among the few that are known."""
    with pytest.raises(DataAltered):
        read_object_file(object_file([1], protocol=4))


def test_an_ordinary_array_file_is_refused():
    """It is no object file."""
    stream = BytesIO()
    np.save(stream, np.zeros(3))
    with pytest.raises(DataAltered, match="not an object file"):
        read_object_file(stream.getvalue())


def test_damaged_files_are_refused_by_name():
    """Cut short or with bytes changed: content or DataAltered, nothing else."""
    whole = object_file({"X": [np.arange(6.0).reshape(2, 3)], "y": np.arange(2), "names": ["a", "b"]})
    dice = random.Random(5)  # noqa: S311 -- repeatable damage
    refused = 0
    for _ in range(1_500):
        damaged = bytearray(whole[: dice.randrange(len(whole))] if dice.random() < 0.3 else whole)
        for _ in range(dice.randrange(1, 4) if damaged else 0):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            plain(read_object_file(bytes(damaged)))
        except DataAltered:
            refused += 1
    assert refused > 500
