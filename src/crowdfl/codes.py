"""A code: what programs keep, send and compare, with the English that people are shown for it."""

from enum import StrEnum
from typing import Self

from crowdfl.errors import FormatError


class Code(StrEnum):
    """`NAME = "the_code", "what it says"`. Nobody takes a code that is not in the enumeration."""

    words: str

    def __new__(cls, code: str, words: str = "") -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.words = words
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self:
        raise FormatError(f"{str(value)[:80]!r} is no {cls.__name__} that this program knows")
