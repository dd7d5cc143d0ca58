"""What the paper prints in section 8, to stand beside what is measured here: the numbers are in `published.json`.

Its figures are drawn, not tabulated: for those, the sentences that say what they show. Our own remarks are in `remarks.json`.
Tables 4 and 5 are by scheme, role and operation or quantity. In table 4 SecDiv is SDIV, as in the paper's own comparison of
times, and K = 1. In table 5 L is the length of a ciphertext; PPFDL's garbled circuits, (n+1)(|GC| + 5h) on top, are left out,
for neither length is given.
"""

import json
from importlib.resources import files
from typing import NamedTuple

_PRINTED, _REMARKS = (
    json.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))
    for name in ("published.json", "remarks.json")
)


class Formula(NamedTuple):
    """A count as the paper writes it, and why ours differs from it. Without a text, the paper's table has no such row."""

    text: str = ""
    slope: int = 0
    constant: int = 0
    why: str = ""

    def at(self, participants: int) -> int | None:
        return self.slope * participants + self.constant if self.text else None


def _formulas(table: str) -> dict[tuple[str, str, str], Formula]:
    return {(scheme, role, name): Formula(*formula) for scheme, role, name, *formula in _PRINTED[table]}


FULL_PARAMETERS: int = _PRINTED["parameters"]  # 270-1000-6
BUDGET: str = _PRINTED["budget"]  # of a round, in dollars
TABLE3: dict[str, list[float | None]] = _PRINTED["table3"]  # accuracy, precision, recall, F1, MAD
TABLE4, TABLE5 = _formulas("table4"), _formulas("table5")
TABLE6: dict[str, list[str]] = _PRINTED["table6"]  # seconds, then messages of the participant, SP and CSP


def remarks(name: str, settings: object, **found: object) -> tuple[str, ...]:
    """What the paper says of a figure, then what must be said with ours, with what was found filled in."""
    said = [f"Paper: {sentence}" for sentence in _PRINTED["figures"].get(name, ())]
    return (*said, *(remark.format(settings=settings, **found) for remark in _REMARKS[name]))
