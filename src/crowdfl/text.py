"""Text for people: what another party wrote, as it may be shown, logged or passed on; spans of time in words."""

import re

_UNITS = ((86400, "days"), (3600, "hours"), (60, "min"))
_LINE = re.compile(r"[^\n\t]+")  # lines, and the columns of a list


def printable(text: str, most: int = 2000) -> str:
    """Text of another party, as one line: what could steer a terminal or forge a line is replaced, and the rest is cut off."""
    return "".join(one if one.isprintable() else " " if one.isspace() else "?" for one in text[:most])


def span_words(seconds: float) -> str:
    """A time span as people say it: two of a unit or more, else the next smaller one."""
    for length, name in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"


def printable_lines(text: str) -> str:
    """The same of a text of several lines, which stay lines; nothing is cut off."""
    return _LINE.sub(lambda part: printable(part[0], len(part[0])), text)
