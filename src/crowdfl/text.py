"""Text that another party wrote, before it is shown, logged or passed on."""


def printable(text: str, most: int = 2000) -> str:
    """Text of another party, as one line: what could steer a terminal or forge a line is replaced, and the rest is cut off."""
    return "".join(one if one.isprintable() else " " if one.isspace() else "?" for one in text[:most])
