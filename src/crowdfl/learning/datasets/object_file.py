"""NumPy object files read without running them.

Such a file is a program for pickle's machine, and loading it the usual way runs whatever it says. Here its instructions are
only listed, and a machine that knows the few which data needs puts together lists, dicts, strings, numbers and arrays. No name
from the file is imported and nothing from it is called: four constructors are recognised by name and acted out here.
"""

import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataAltered, FormatError
from crowdfl.learning.datasets.npy import read_npy_header

__all__ = ["StoredArray", "read_object_file"]

_ARRAY, _DTYPE, _ENCODE, _MAKE = "numpy ndarray", "numpy dtype", "_codecs encode", "numpy.core.multiarray _reconstruct"
_KNOWN: Final = {name: name for name in (_ARRAY, _DTYPE, _ENCODE, _MAKE)} | {
    "numpy._core.multiarray _reconstruct": _MAKE  # its name since NumPy 2
}
_NUMBERS = {"f4", "f8", "i4", "i8"}


@dataclass(frozen=True)
class _Name:
    """A constructor the file names; a stand-in, not the thing itself."""

    name: str


@dataclass
class _Type:
    code: str
    order: str = "="


@dataclass(eq=False)
class StoredArray:
    """An array as the file holds it; nothing is decoded before `read`."""

    shape: tuple[int, ...] = ()
    code: str = ""
    fortran: bool = False
    content: Any = None

    def read(self) -> npt.NDArray[Any]:
        """The numbers."""
        if self.code[1:] not in _NUMBERS or not isinstance(self.content, str):
            raise DataAltered(f"the object file holds an array of {self.code!r}, which is not read here")
        try:
            flat = np.frombuffer(self.content.encode("latin-1"), dtype=self.code)
            return flat.reshape(self.shape, order="F" if self.fortran else "C")
        except ValueError as error:
            raise DataAltered("the object file holds an array that is not as long as its shape says") from error


def read_object_file(data: bytes) -> object:
    """What a .npy file of a single object holds, its arrays as `StoredArray`."""
    stream = BytesIO(data)
    try:
        kind, _, shape = read_npy_header(stream)
        if kind != "|O" or shape != ():
            raise DataAltered(f"not an object file, but an array of {kind} with shape {shape}")
        outer = _Machine().run(stream)
        if not isinstance(outer, StoredArray):
            raise DataAltered("the object file holds no array")
        (content,) = outer.content
    except (FormatError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DataAltered(f"the object file does not make sense: {error}") from error
    return content  # of an array without axes


def _instructions(stream: BytesIO) -> list[tuple[pickletools.OpcodeInfo, Any, int | None]]:
    """Python warns of odd escapes in texts; a file that has them is refused for what it names, not for that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(pickletools.genops(stream))


class _Machine:
    """Pickle's stack machine, with the instructions of protocol 2 that data needs and no other."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, stream: BytesIO) -> object:
        for opcode, argument, _ in _instructions(stream):
            if opcode.name in _PUSHES:
                self.stack.append(argument)
            elif opcode.name in _STEPS:
                _STEPS[opcode.name](self, argument)
            elif opcode.name not in ("PROTO", "STOP"):
                raise DataAltered(f"the object file uses {opcode.name}, which data does not need")
        (result,) = self.stack
        return result

    def mark(self, _: object) -> None:
        self.marks.append(len(self.stack))

    def since_mark(self) -> list[Any]:
        return self.take(len(self.stack) - self.marks.pop())

    def take(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise IndexError("an instruction finds too little on the stack")
        start = len(self.stack) - count
        taken, self.stack[start:] = self.stack[start:], []
        return taken

    def name(self, name: str) -> None:
        if name not in _KNOWN:
            raise DataAltered(f"the object file names {name!r}, which data does not need")
        self.stack.append(_Name(_KNOWN[name]))

    def reduce(self, _: object) -> None:
        named, arguments = self.take(2)
        match named, arguments:
            case _Name(name=name), (_Name(), _, _) if name == _MAKE:
                self.stack.append(StoredArray())
            case _Name(name=name), (str(code), *_) if name == _DTYPE:
                self.stack.append(_Type(code))
            case _Name(name=name), (str(text), "latin1") if name == _ENCODE:
                self.stack.append(text)
            case _:
                raise DataAltered("the object file calls something that data does not need")

    def build(self, _: object) -> None:
        made, state = self.take(2)
        match made, state:
            case _Type(), (_, str(order), *_):
                made.order = order
            case StoredArray(), (_, tuple(shape), _Type(code=code, order=order), bool(fortran), content):
                made.shape, made.code, made.fortran, made.content = shape, order + code, fortran, content
            case _:
                raise DataAltered("the object file fills something that data does not need")
        self.stack.append(made)

    def put(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def get(self, place: int) -> None:
        self.stack.append(self.memo[place])

    def append(self, _: object) -> None:
        self.extend(self.take(1))

    def appends(self, _: object) -> None:
        self.extend(self.since_mark())

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise TypeError("only lists grow")
        self.stack[-1].extend(items)

    def item(self, _: object) -> None:
        self.update(self.take(2))

    def items(self, _: object) -> None:
        self.update(self.since_mark())

    def update(self, flat: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise TypeError("only dicts take items")
        self.stack[-1].update(zip(flat[::2], flat[1::2], strict=True))

    def push(self, value: object) -> None:
        self.stack.append(value)


def _tuple_of(count: int) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.push(tuple(machine.take(count)))


_PUSHES: Final = {"BININT", "BININT1", "BININT2", "BINUNICODE", "BINFLOAT"}
_STEPS: Final[dict[str, Callable[[_Machine, Any], None]]] = {
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "BINGET": _Machine.get,
    "BINPUT": _Machine.put,
    "BUILD": _Machine.build,
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": _tuple_of(0),
    "GLOBAL": _Machine.name,
    "LONG_BINGET": _Machine.get,
    "LONG_BINPUT": _Machine.put,
    "MARK": _Machine.mark,
    "NEWFALSE": lambda machine, _: machine.push(False),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NONE": lambda machine, _: machine.push(None),
    "REDUCE": _Machine.reduce,
    "SETITEM": _Machine.item,
    "SETITEMS": _Machine.items,
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
}
