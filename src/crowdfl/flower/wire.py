"""What passes between the strategy and the mod, inside Flower's messages: one record of settings, called `crowdfl`.

Everything in it is either public or sealed: papers, publications, rewards in their envelopes, and shares of updates.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, get_args, get_origin, get_type_hints

from crowdfl.errors import FormatError

RECORD = "crowdfl"
ENROL, WORK, READ = "enrol", "work", "read"


class _Form:
    """Fields as a Flower record has them: texts, bytes, numbers, truth values, and lists of one kind."""

    def values(self) -> dict[str, Any]:
        """Less what is empty: Flower's own mods that count bytes stumble over that."""
        found = {one.name.replace("_", "-"): getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if value not in ("", b"", [])}

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Every field is there or empty, and of its kind: what comes from elsewhere is believed in nothing."""
        taken = {}
        for name, kind in get_type_hints(cls).items():
            empty = None if kind in (int, bool) else (get_origin(kind) or kind)()
            taken[name] = found.get(name.replace("_", "-"), empty)
            if not _is(taken[name], kind):
                raise FormatError(f"Flower's record {RECORD!r} has no valid {name!r}: are both sides of one version?")
        return cls(**taken)


def _is(value: object, kind: Any) -> bool:  # noqa: ANN401 -- a type, or a list of one
    if get_origin(kind) is list:
        return isinstance(value, list) and all(type(part) is get_args(kind)[0] for part in value)
    return type(value) is kind


@dataclass(frozen=True)
class Instruction(_Form):
    """From the strategy: papers for a newcomer, and what a client has not read yet."""

    step: str
    task: str
    local: bool  # KGC and CSP run inside the server's process
    kgc_key: bytes
    definition: str = ""
    appointment: str = ""
    invitation: str = ""
    sealed: bytes = field(default=b"", repr=False)  # KGC's answer to a request to enrol
    initial: bytes = field(default=b"", repr=False)
    number: int = 0  # of the round to take part in; 0: none
    states: str = "[]"  # JSON: numbers and states of the rounds before
    numbers: list[int] = field(default_factory=list)  # of the publications that follow
    publications: list[bytes] = field(default_factory=list, repr=False)
    rewarded: list[int] = field(default_factory=list)  # rounds of the envelopes that follow
    envelopes: list[bytes] = field(default_factory=list, repr=False)
    arrays_key: str = "arrays"

    def rounds(self) -> list[tuple[int, str]]:
        try:
            return [(int(number), str(state)) for number, state in json.loads(self.states)]
        except (ValueError, TypeError, RecursionError):
            raise FormatError("the server's list of rounds cannot be read") from None


@dataclass(frozen=True)
class ClientAnswer(_Form):
    """From the mod: a request to enrol, or an upload and how far this client has read. `refused` says why there is neither."""

    task: str
    request: str = ""
    certificate: str = ""
    upload: bytes = field(default=b"", repr=False)
    last: int = 0  # the last round that was read
    lost: bool = False  # this client has no keys for the task: enrol it again
    refused: str = ""


def states_text(rounds: Sequence[tuple[int, str]]) -> str:
    return json.dumps([[number, state] for number, state in rounds])
