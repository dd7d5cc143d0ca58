"""Lengths of time as people write them: "10 min", "7 days"."""

import re

_UNITS = {
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("day", "days"), 86400.0),
    **dict.fromkeys(("week", "weeks"), 7 * 86400.0),
}
_FORM = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ([a-z]+)")
_SPOKEN = ((86400, "days"), (3600, "hours"), (60, "min"))
_SHOWN = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def seconds_in(text: str) -> float | None:
    """None of what is no length of time."""
    found = _FORM.fullmatch(text)
    unit = _UNITS.get(found[2]) if found else None
    return None if found is None or unit is None else float(found[1]) * unit


def duration(seconds: float) -> str:
    """In the largest unit that it is whole in; reads back as the same number."""
    for unit, name in _SHOWN:
        if seconds >= unit and seconds % unit == 0:
            count = int(seconds // unit)
            return f"{count} {'day' if name == 'days' and count == 1 else name}"
    return f"{seconds:f}".rstrip("0").rstrip(".") + " s"


def span_words(seconds: float) -> str:
    """A time span as people say it: two of a unit or more, else the next smaller one."""
    for length, name in _SPOKEN:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"
