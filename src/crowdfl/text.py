"""Text that another party wrote, as it may be shown, logged or passed on."""

import re

_LINE = re.compile(r"[^\n\t]+")  # lines, and the columns of a list


def printable(text: str, most: int = 2000) -> str:
    """Text of another party, as one line: what could steer a terminal or forge a line is replaced, and the rest is cut off."""
    return "".join(one if one.isprintable() else " " if one.isspace() else "?" for one in text[:most])


def printable_lines(text: str) -> str:
    """The same of a text of several lines, which stay lines; nothing is cut off."""
    return _LINE.sub(lambda part: printable(part[0], len(part[0])), text)
