"""Models as rows and as files, and what is said of those that do not fit."""

import io
import json
import random
import re
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from crowdfl.errors import FormatError, ModelMismatch
from crowdfl.learning.models.forms import from_npz, from_safetensors, to_npz, to_safetensors
from crowdfl.learning.models.shape import ModelShape

SHAPE = ModelShape(("0.weight", "0.bias", "file"), ((3, 2), (3,), ()))
WEIGHTS = [np.array([[1.0, -2.5], [1e-300, 3.0], [0.1, 7.0]]), np.array([np.pi, 0.0, -1.0]), np.array(4.0)]

both = pytest.mark.parametrize(
    ("write", "read"), [(to_npz, from_npz), (to_safetensors, from_safetensors)], ids=["npz", "safetensors"]
)


def same(left, right) -> bool:
    return [a.tobytes() for a in left] == [b.tobytes() for b in right] and len(left) == len(right)


def test_a_row_holds_all_arrays_in_order():
    row = SHAPE.flat(WEIGHTS)
    assert row.shape == (SHAPE.parameters,) == (10,)
    assert same(SHAPE.arrays(row), WEIGHTS)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: SHAPE.arrays(np.zeros(11)), r"10 parameters.*\(11,\)"),
        (
            lambda: SHAPE.check([WEIGHTS[0], np.zeros(4), WEIGHTS[2]]),
            r"'0.bias' has the shape \(4,\), the model's has \(3,\)",
        ),
        (lambda: SHAPE.check([WEIGHTS[0].T, *WEIGHTS[1:]]), r"'0.weight' has the shape \(2, 3\)"),
        (lambda: SHAPE.flat(WEIGHTS[:2]), r"3 arrays, not 2: 'file' of shape \(\) is the first"),
        (lambda: SHAPE.flat([*WEIGHTS, np.zeros(7)]), r"3 arrays, not 4: \(7,\) is one too many"),
        (lambda: ModelShape(("a", "a"), ((1,), (1,))), "same name"),  # a file could hold only one of them
    ],
)
def test_what_does_not_fit_is_named(call, said):
    with pytest.raises(ModelMismatch, match=said):
        call()


def test_another_models_arrays_are_told_apart_by_name():
    """The first that differs, as expected and as found; the same arrays in another order are another model too."""
    SHAPE.match(ModelShape(SHAPE.names, SHAPE.shapes))
    arrays = dict(zip(SHAPE.names, SHAPE.shapes, strict=True))
    first, second, third = SHAPE.names
    cases = [
        (
            {first: arrays[first], third: arrays[third]},
            f"'{second}' of shape .* is missing among {first}, {third}",
        ),
        (
            arrays | {second: (9, 9)},
            rf"'{second}' has the shape \(9, 9\), the model's has {re.escape(str(arrays[second]))}",
        ),
        (arrays | {"more": (2,)}, r"'more' of shape \(2,\) is not in the model"),
        (dict(reversed(arrays.items())), f"come as {third}, {second}, {first}"),
    ]
    for found, said in cases:
        with pytest.raises(ModelMismatch, match=said):
            SHAPE.match(ModelShape(tuple(found), tuple(found.values())))


@both
def test_a_model_comes_back_in_every_bit(write, read):
    """In the model's order, whatever the order in the file. No date, no chance: files can be compared by hash."""
    assert same(read(SHAPE, write(SHAPE, WEIGHTS)), WEIGHTS)
    assert write(SHAPE, WEIGHTS) == write(SHAPE, [array.copy() for array in WEIGHTS])


@both
def test_a_file_of_another_model_says_which_array_differs(write, read):
    """As when the task was changed after the download."""
    wider = ModelShape(SHAPE.names, ((3, 2), (4,), ()))
    with pytest.raises(ModelMismatch, match=r"'0.bias' has the shape \(4,\)"):
        read(SHAPE, write(wider, [WEIGHTS[0], np.zeros(4), WEIGHTS[2]]))
    renamed = ModelShape(("0.weight", "1.bias", "file"), SHAPE.shapes)
    with pytest.raises(ModelMismatch, match=r"\['0.bias'\] missing, \['1.bias'\] not expected"):
        read(SHAPE, write(renamed, WEIGHTS))


def test_numpy_reads_what_is_written():
    with np.load(io.BytesIO(to_npz(SHAPE, WEIGHTS)), allow_pickle=False) as archive:
        assert archive.files == list(SHAPE.names)
        assert same([archive[name] for name in SHAPE.names], WEIGHTS)


def test_what_numpy_writes_is_read():
    stream = io.BytesIO()
    matrix = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2))
    np.savez_compressed(stream, m=matrix)
    assert from_npz(ModelShape(("m",), ((3, 2),)), stream.getvalue())[0].tolist() == matrix.tolist()


def test_objects_and_integers_are_no_weights():
    """The array is named; objects could hold code, and are not read at all."""
    for array, error, said in (
        (np.array([1, 2]), ModelMismatch, "'counts' holds"),
        (np.array([None, "x"], dtype=object), FormatError, "Object arrays cannot be loaded"),
    ):
        stream = io.BytesIO()
        np.savez(stream, counts=array)
        with pytest.raises(error, match=said):
            from_npz(ModelShape(("counts",), ((2,),)), stream.getvalue())


@both
def test_damaged_files_are_refused_by_name(write, read):
    """Cut short, or with bytes changed: a model or a named error, nothing else."""
    whole, dice = write(SHAPE, WEIGHTS), random.Random(9)  # noqa: S311 -- repeatable damage
    refused = 0
    for _ in range(1_500):
        damaged = bytearray(whole[: dice.randrange(len(whole))] if dice.random() < 0.3 else whole)
        for _ in range(dice.randrange(1, 4) if damaged else 0):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            read(SHAPE, bytes(damaged))
        except (FormatError, ModelMismatch):
            refused += 1
    assert refused > 500


def test_a_small_file_cannot_ask_for_much_memory():
    """What travels is refused before memory is taken for what it announces."""
    header = json.dumps({"m": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}}).encode()
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            from_safetensors(ModelShape(("m",), ((2,),)), struct.pack("<Q", len(header)) + header)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def archive_of(member: bytes) -> bytes:
    """An npz file whose array `m` is stored as these bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("m.npy", member)
    return stream.getvalue()


def member_with(header: bytes) -> bytes:
    """A .npy file of version 1.0 with this header, and a number as content."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)


HOSTILE_HEADERS = {
    "sum": b"{'descr': '<f8', 'fortran_order': False, 'shape': (2**40,), }\n",
    "negative": b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }\n",
    "fields": b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }\n",
    "objects": b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n",
    "number for truth": b"{'descr': '<f8', 'fortran_order': 0, 'shape': (1,), }\n",
    "call": b"{'descr': '<f8', 'fortran_order': False, 'shape': (len('a'),), }\n",
    "empty type": b"{'descr': (), 'fortran_order': False, 'shape': (1,), }\n",
    "huge type": b"{'descr': '|V2000000000', 'fortran_order': False, 'shape': (1,), }\n",
    "many signs": b"-" * 500,
    "many brackets": b"(" * 500,
    "long": b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }" + b" " * 60_000 + b"\n",
    "empty": b"",
}


HOSTILE_MEMBERS = {name: member_with(header) for name, header in HOSTILE_HEADERS.items()} | {
    "nothing": b"",
    "no version": b"\x93NUMPY",
    "zeros": b"\x93NUMPY\x02\x00" + bytes(100),
    "no array": b"PK\x03\x04" + bytes(100),
}


@pytest.mark.parametrize("member", HOSTILE_MEMBERS.values(), ids=HOSTILE_MEMBERS)
def test_a_hostile_member_is_refused_by_name(member):
    with pytest.raises((FormatError, ModelMismatch)):
        from_npz(ModelShape(("m",), ((1,),)), archive_of(member))


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_any_shape_and_order_are_read(shape, order):
    array, stream = np.zeros(shape, dtype="<f4", order=order), io.BytesIO()
    array[...] = np.arange(array.size).reshape(shape)
    np.save(stream, array)
    (found,) = from_npz(ModelShape(("m",), (shape,)), archive_of(stream.getvalue()))
    assert found.tolist() == array.tolist()
