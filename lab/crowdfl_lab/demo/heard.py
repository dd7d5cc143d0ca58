"""What the processes of a demo have told."""

from collections.abc import Mapping, Sequence
from typing import Any

Heard = Sequence[tuple[str, Mapping[str, Any]]]  # who said what


def uploads(heard: Heard) -> dict[int, list[int]]:
    """Who sent one, by round."""
    who: dict[int, list[int]] = {}
    for name, details in heard:
        if details["event"] == "uploaded":
            who.setdefault(details["round"], []).append(person_of(name))
    return {number: sorted(people) for number, people in sorted(who.items())}


def person_of(name: str) -> int:
    """3, of "person 3"."""
    return int(name.split()[1])
