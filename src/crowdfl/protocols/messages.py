"""Messages: frozen dataclasses with a kind and the number of its form, and one codec for all of them.

The form is `CFLM`, number, kind, then each field behind its length, in the order of the class. Lengths are checked before
memory is taken; vectors inside are checked number by number before anything computes on them.

The first form of each kind is 2. A later one only adds fields, last and with what they are in earlier forms as their default:
`class Word(Message, kind=57, form=3)` and `more: int = added(3, 0)`. A message that was read is written in the form it came in.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import lru_cache
from types import UnionType
from typing import Any, ClassVar, Self, dataclass_transform, get_type_hints

from crowdfl.crypto.compute import Backend
from crowdfl.crypto.long_bytes import LONG_BYTES, Joined, Long, LongPart
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.errors import FormatError, LimitExceeded, TrailingBytes, Truncated, UnsupportedVersion

_MAGIC = b"CFLM"
_FIRST = 2
_HEADER = struct.Struct(">4sBB")
_LENGTH = struct.Struct(">I")
HEADER_BYTES, LENGTH_BYTES = _HEADER.size, _LENGTH.size
LONGEST_NUMBER = 4096  # bytes
_hints = lru_cache(maxsize=256)(get_type_hints)  # of a class: looking them up takes longer than decoding


@dataclass(frozen=True)
class Limits:
    """What a receiver accepts: numbers under its key, at most so many in a vector, at most so many entries in a list."""

    public: PublicKey | None
    max_count: int
    max_entries: int = 1_000_000
    backend: Backend | None = None
    longest: int = 0  # bytes that a field may have, where that is more than the rest says

    @classmethod
    def plain(cls, longest: int = 0) -> "Limits":
        """For messages without ciphertexts."""
        return cls(None, 0, max_entries=10_000, longest=longest)

    @property
    def max_field(self) -> int:
        width = self.public.ciphertext_bytes if self.public else 0
        return max(self.longest, self.max_count * width + 4096 + self.max_entries * 8)


_NEWEST: dict[int, int] = {}  # forms, by kind


def added(form: int, before: Any) -> Any:  # noqa: ANN401 -- as `field`
    """A field that a kind has from this form on."""
    return field(default=before, metadata={"form": form})


@dataclass_transform(frozen_default=True, field_specifiers=(field, added))
@dataclass(frozen=True)
class Message:
    """A message: `class Question(Message, kind=40)` and its fields make a frozen dataclass; a kind is never used twice."""

    kind: ClassVar[int] = 0
    form: ClassVar[int] = _FIRST  # the newest; of a message that was read, its own

    def __init_subclass__(cls, *, kind: int = 0, form: int = _FIRST, repr: bool = True) -> None:
        cls.kind, cls.form = kind, form
        _NEWEST[kind] = form
        dataclass(frozen=True, repr=repr)(cls)

    def to_bytes(self) -> bytes:
        return _joined(self._parts({}))

    def unsigned(self) -> bytes:
        """What a message is signed over: all of it, with an empty signature."""
        return _joined(self._parts({"signature": b""}))

    def to_long(self) -> Long:
        """The same as `to_bytes`, without a copy of fields that are long."""
        found = Joined(self._parts({}))
        return found if len(found) > LONG_BYTES else found[:]

    def _parts(self, changed: Mapping[str, object]) -> list[Long]:
        parts: list[Long] = [_HEADER.pack(_MAGIC, self.form, self.kind)]
        for part in _fields_of(type(self), self.form):  # type: ignore[arg-type]  # a class is hashable
            value = changed.get(part.name, getattr(self, part.name))
            body = value if isinstance(value, Joined | LongPart) else _encode(value)
            parts += [_LENGTH.pack(len(body)), body]
        return parts

    @classmethod
    def from_bytes(cls, data: Long, limits: Limits) -> Self:
        """A field that may be long stays where it lies."""
        hints = _hints(cls)  # type: ignore[arg-type]  # a class is hashable
        bodies = cls._bodies(data, limits.max_field).items()
        found = cls(**{name: _decode(body, hints[name], limits) for name, body in bodies})
        if (form := data[4:5][0]) != cls.form:
            object.__setattr__(found, "form", form)
        return found

    @classmethod
    def require_form(cls, data: Long) -> None:
        """Whether these bytes are such a message, from the first to the last; what its fields hold is not looked at."""
        cls._bodies(data, len(data))

    @classmethod
    def _bodies(cls, data: Long, longest: int) -> "dict[str, memoryview | LongPart]":
        if len(data) < _HEADER.size:
            raise Truncated(f"{len(data)} bytes are not a message")
        magic, form, kind = _HEADER.unpack_from(data[: _HEADER.size])
        if magic != _MAGIC:
            raise FormatError("these bytes are not a CrowdFL message")
        if form < _FIRST or (kind == cls.kind and form > cls.form):
            raise UnsupportedVersion(
                f"a {cls.__name__} of form {form}; this program reads forms {_FIRST} to {cls.form}"
            )
        if kind != cls.kind:
            raise FormatError(f"a message of kind {kind} where {cls.__name__} is expected")
        view = memoryview(data) if isinstance(data, bytes | bytearray | memoryview) else LongPart(data, 0, len(data))
        place = _HEADER.size
        bodies = {}
        for part in _fields_of(cls, form):  # type: ignore[arg-type]
            bodies[part.name], place = _next(view, place, longest)
        if place != len(data):
            raise TrailingBytes(f"{len(data) - place} bytes after the end of a {cls.__name__}")
        return bodies

    @staticmethod
    def require_known(data: Long) -> None:
        """Of bytes that begin as a message does: that this program reads such."""
        head = data[: _HEADER.size]
        if head[:4] == _MAGIC and len(head) == _HEADER.size and not _FIRST <= head[4] <= _NEWEST.get(head[5], 0):
            raise UnsupportedVersion(
                f"a message of kind {head[5]} and form {head[4]}, which this program does not read"
            )

    @staticmethod
    def kind_of(data: Long) -> int:
        if len(data) < _HEADER.size:
            raise Truncated(f"{len(data)} bytes are not a message")
        return data[: _HEADER.size][5]


def _joined(parts: Sequence[Long]) -> bytes:
    return b"".join(part if isinstance(part, bytes | memoryview) else part[:] for part in parts)


@lru_cache(maxsize=512)
def _fields_of(kind: type[Message], form: int) -> tuple[Field[Any], ...]:
    """Those that this form has."""
    return tuple(part for part in fields(kind) if part.metadata.get("form", _FIRST) <= form)


class RoundRequest(Message):
    """SP to CSP, as a step of one round; CSP knows from its own records what belongs into it."""

    round_number: int


def _next(view: memoryview | LongPart, place: int, longest: int) -> tuple[memoryview | LongPart, int]:
    if len(view) < place + _LENGTH.size:
        raise Truncated("the message ends inside a length")
    (length,) = _LENGTH.unpack(view[place : place + _LENGTH.size])
    if length > longest:
        raise LimitExceeded(f"a field of {length} bytes; at most {longest} are allowed here")
    start = place + _LENGTH.size
    if len(view) < start + length:
        raise Truncated(f"the message ends inside a field of {length} bytes")
    end = start + length
    return view.part(start, end) if isinstance(view, LongPart) else view[start:end], end


def _encode(value: Any) -> bytes | memoryview:  # noqa: ANN401 -- the one place where fields of every type meet
    if value is None:
        return b""
    if isinstance(value, bytes | memoryview):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, CipherVector | PartialVector):
        return value.to_bytes()
    if isinstance(value, tuple):
        return b"".join(_LENGTH.pack(len(body)) + body for body in map(_encode, value))
    number = int(value)
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _decode(found: memoryview | LongPart, hint: Any, limits: Limits) -> Any:  # noqa: ANN401
    if hint is Long and len(found) > LONG_BYTES:
        return found
    body = found[:] if isinstance(found, LongPart) else found
    return _value(bytes(body), hint, limits)


def _value(body: bytes, hint: Any, limits: Limits) -> Any:  # noqa: ANN401
    if hint is CipherVector or hint is PartialVector:
        if limits.public is None:
            raise FormatError("no ciphertexts are expected here")
        return hint.from_bytes(body, limits.public, max_count=limits.max_count, backend=limits.backend)
    if hint is bytes or hint is Long:
        return body
    if hint is int:
        if len(body) > LONGEST_NUMBER or body[:1] == b"\0":
            raise FormatError("a number is too long, or padded")
        return int.from_bytes(body, "big")
    if isinstance(hint, type) and issubclass(hint, str):  # an enumeration refuses what it does not have
        try:
            return hint(body.decode())
        except UnicodeDecodeError:
            raise FormatError("a text field is not UTF-8") from None
    if isinstance(hint, UnionType):  # a code, or nothing
        return _value(body, hint.__args__[0], limits) if body else None
    view, place, values = memoryview(body), 0, list[Any]()  # a list: each entry behind its length
    while place < len(body):
        if len(values) >= limits.max_entries:
            raise LimitExceeded(f"a list of more than {limits.max_entries} entries")
        part, place = _next(view, place, limits.max_field)
        values.append(_value(bytes(part[:]), hint.__args__[0], limits))
    return tuple(values)
