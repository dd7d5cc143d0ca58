"""What every fuzz test does: one input at a time, counted, and nothing comes out but a value or an error of ours."""

import warnings
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from crowdfl.errors import CrowdFLError

_USUAL = 50  # what the numbers below are in proportion to


class Tally:
    inputs = 0


def scaled(examples: int) -> int:
    """So many examples for each 50 of every other test, which takes 30 in `make test` and 2,500 in `make fuzz`."""
    return examples * settings.default.max_examples // _USUAL  # type: ignore[union-attr]


def attempt(decoder: Callable[..., Any], *given: object) -> Any:
    """What a decoder makes of an input: a value, or the error of ours that refused it. Any other error is the test's.

    A library that warns of what it reads has read it: outside of tests nothing comes of that.
    """
    Tally.inputs += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return decoder(*given)
    except CrowdFLError as refusal:
        return refusal


def refused(outcome: object) -> bool:
    return isinstance(outcome, CrowdFLError)


class Form(bytes):
    """Bytes that a failing test need not print: the examples say what was changed in them."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


@st.composite
def mutated(draw: st.DrawFn, form: bytes) -> bytes:
    """A good form with bytes changed, put in or taken out, or cut short."""
    changed = bytearray(form)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(changed)))
        kind = draw(st.sampled_from(["change", "insert", "delete", "cut"]))
        if kind == "insert":
            changed[place:place] = draw(st.binary(min_size=1, max_size=40))
        elif kind == "delete":
            del changed[place : place + draw(st.integers(1, 40))]
        elif kind == "cut":
            del changed[place:]
        elif place < len(changed):
            changed[place] ^= draw(st.integers(1, 255))
    return bytes(changed)


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


# What a careless reader of JSON trips over.
AWKWARD = st.sampled_from(
    [
        *[0, -1, 2**31, 2**63, 2**64, 10**400, 1e308, -0.0, float("nan"), float("inf"), True, None],
        *["", "\0", "\ud800", "a" * 3000, "0" * 64, "ff", "1e400", "\u0661"],
        *[nested(900), {"": None}, [], {}],
    ]
)
JSON = st.recursive(
    AWKWARD | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.text(max_size=8) | st.just("\ud800")


@st.composite
def changed_body(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    """A document's body with one or two fields replaced, removed or added, at the top or one below."""
    found = {name: dict(value) if isinstance(value, dict) else value for name, value in body.items()}
    for _ in range(draw(st.integers(1, 2))):
        below = [value for value in found.values() if isinstance(value, dict) and value]
        target = draw(st.sampled_from([found, *below]))
        name = draw(st.sampled_from(sorted(target))) if target else "x"
        what = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]))
        if what == "remove":
            target.pop(name, None)
        else:
            value = draw(
                JSON
            )  # a copy goes in: the next change may be one of this, which other examples have a share in
            target[name if what == "replace" else draw(NAMES)] = dict(value) if isinstance(value, dict) else value
    return found
