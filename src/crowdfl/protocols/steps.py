"""The form in which every profile declares its steps: who sends what, of which size, bound to what, and what the answer shows.

A size is written once, as an expression of named quantities: guards and limits compute it, documents and scripts print it.
"""

from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

from crowdfl.errors import LengthMismatch
from crowdfl.protocols.messages import HEADER_BYTES, LENGTH_BYTES, Limits, Message

Of = TypeVar("Of")
"""What sizes follow from: a task, and what is known of a round."""
_Message = TypeVar("_Message", bound=Message)


@dataclass(frozen=True)
class Size(Generic[Of]):
    """A whole number that follows from a round, and how it is written; `exact` unless anything up to it is as good."""

    text: str
    of: Callable[[Of], int]
    words: str = ""  # of a quantity
    exact: bool = True

    def __add__(self, other: "Size[Of] | int") -> "Size[Of]":
        more = _size(other)
        if self.text.isdigit() and more.text.isdigit():
            return _size(int(self.text) + int(more.text))
        return Size(f"{self.text} + {more.text}", lambda of: self.of(of) + more.of(of))

    def __mul__(self, other: "Size[Of] | int") -> "Size[Of]":
        more = _size(other)
        return Size(f"{_factor(self.text)} * {_factor(more.text)}", lambda of: self.of(of) * more.of(of))

    def up_to(self) -> "Size[Of]":
        return replace(self, exact=False)

    def fits(self, length: int, of: Of) -> bool:
        size = self.of(of)
        return length == size if self.exact else length <= size


def _size(value: Size[Of] | int) -> Size[Of]:
    if isinstance(value, Size):
        return value
    return Size(str(value), lambda _: value)


def _factor(text: str) -> str:
    return f"({text})" if " + " in text else text


def in_bits(count: Size[Of]) -> Size[Of]:
    """Bytes of so many bits, eight to a byte."""
    return Size(f"ceil({_factor(count.text)} / 8)", lambda of: (count.of(of) + 7) // 8)


@dataclass(frozen=True)
class FieldForm(Generic[Of]):
    """A field of a message, or a piece of a payload: the bytes of one entry, and how many a list or a vector has."""

    name: str
    each: Size[Of]
    count: Size[Of] | None = None
    words: str = ""
    head: int = 0  # bytes before the numbers of a vector
    is_message: bool = False  # one inside another, which its words name

    def bytes_of(self, of: Of) -> int:
        """In a payload, where entries stand one after the other."""
        return self.each.of(of) * (1 if self.count is None else self.count.of(of))

    @cached_property
    def field(self) -> Size[Of]:
        """Bytes in a message, where each entry of a list stands behind its length."""
        if self.count is None:
            return self.each
        return self.each * self.count + self.head if self.head else (self.each + LENGTH_BYTES) * self.count

    def require(self, value: object, of: Of) -> None:
        """The value of a field; a vector's numbers are looked at when it is decoded."""
        entries: Iterable[object] = value if isinstance(value, tuple) else () if self.count is not None else (value,)
        if self.count is not None and not self.count.fits(_length(value), of):
            raise LengthMismatch(f"{_length(value)} {self.name} where {self.count.of(of)} are expected")
        for entry in entries:
            if not self.each.fits(_length(entry), of):
                raise LengthMismatch(
                    f"{self.name} of {_length(entry)} bytes where {self.each.of(of)} are expected: not of this task"
                )


def _length(value: object) -> int:
    """Entries of a list or a vector, bytes of anything else as it travels."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, int):
        return (value.bit_length() + 7) // 8
    if isinstance(value, Sized):
        return len(value)
    raise TypeError(f"a {type(value).__name__} is in no message")


@dataclass(frozen=True)
class Condition(Generic[Of]):
    """Whether a task or a round has a step, and in which words."""

    words: str
    holds: Callable[[Of], bool]


@dataclass(frozen=True)
class StepForm(Generic[Of]):
    """One step: a request, and its answer. Without a message the parts make a payload, one after the other."""

    name: str
    sender: str
    receiver: str
    when: Condition[Of]
    request: tuple[FieldForm[Of], ...]
    reply: tuple[FieldForm[Of], ...]
    bound_to: str
    shows: str  # what the answer shows to whoever gets it, or the request to whoever answers
    kind: int = 0  # of a request that is a message
    answer: int = 0  # of an answer that is one

    def require_message(self, message: Message, of: Of) -> None:
        """Every field of a request has the size that is declared."""
        require_fields(self.request, message, of)

    def require_answer(self, message: Message, of: Of) -> None:
        require_fields(self.reply, message, of)

    def read(self, kind: type[_Message], request: bytes, of: Of) -> _Message:
        """A request that is a message, with every field as long as declared."""
        found = kind.from_bytes(request, limits(self.request, of))
        self.require_message(found, of)
        return found

    def require_payload(self, payload: bytes, of: Of) -> bytes:
        return _of_size(self.name, self.request, payload, of)

    def require_reply(self, payload: bytes, of: Of) -> bytes:
        return _of_size(f"the answer to {self.name}", self.reply, payload, of)

    def longest_request(self, of: Of) -> int:
        return longest(self.request, of, is_message=bool(self.kind))

    def longest_reply(self, of: Of) -> int:
        return longest(self.reply, of, is_message=bool(self.answer))


def require_fields(parts: Sequence[FieldForm[Of]], message: Message, of: Of) -> None:
    for part in parts:
        part.require(getattr(message, part.name), of)


def limits(parts: Sequence[FieldForm[Of]], of: Of) -> Limits:
    """What is read of a message with these fields, none of which holds ciphertexts."""
    entries = [part.count.of(of) for part in parts if part.count is not None]
    return Limits(None, 0, max_entries=max(entries, default=0), longest=max(part.field.of(of) for part in parts))


def longest(parts: Sequence[FieldForm[Of]], of: Of, *, is_message: bool = True) -> int:
    """Bytes of the longest message, or payload, of these parts."""
    if not is_message:
        return sum(part.bytes_of(of) for part in parts)
    return HEADER_BYTES + sum(LENGTH_BYTES + part.field.of(of) for part in parts)


def message_size(parts: Sequence[FieldForm[Of]]) -> Size[Of]:
    """Of a message with these fields, each behind its length."""
    sizes = sorted(
        (part.field for part in parts), key=lambda size: not size.text.isdigit()
    )  # numbers are added up first
    return sum(sizes, _size(HEADER_BYTES + LENGTH_BYTES * len(parts)))


def _of_size(name: str, parts: Sequence[FieldForm[Of]], payload: bytes, of: Of) -> bytes:
    least = sum(part.bytes_of(of) for part in parts if part.each.exact)
    most = sum(part.bytes_of(of) for part in parts)
    if not least <= len(payload) <= most:
        raise LengthMismatch(f"{name} has {len(payload)} bytes where {most} are expected")
    return payload
