"""What a task has cost and where it stands, for people: text, and a table in a notebook."""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Self

from crowdfl.settings import from_millionths
from crowdfl.tables import html_table, text_table

_SUMS = ("pending", "paid_in", "offered", "earned", "returned")


@dataclass(frozen=True, repr=False)
class TaskReport:
    """Where a task stands. Printed, or as the last line of a notebook's cell, it is a table of the rounds.

    Attributes:
        task: The task's id.
        state: "running", "paused", "cancelled", "finished", or "settled", once all claims are through.
        people: How many take part.
        rounds: For each round its `number`, `state` and `uploads`.
        currency: Of all amounts.
        pending: Announced, and not confirmed by the platform's operator yet.
        paid_in: Confirmed.
        offered: For rounds that were rewarded.
        earned: By everyone together; None until all claims are through: before, it would show single ones.
        returned: To the requester.
        attested: What CSP has signed of all claims; None until they are through.
    """

    task: str
    state: str
    people: int
    rounds: tuple[Mapping[str, Any], ...] = field(repr=False)
    currency: str
    pending: Decimal
    paid_in: Decimal
    offered: Decimal
    earned: Decimal | None
    returned: Decimal
    attested: Decimal | None

    @classmethod
    def of(cls, status: Mapping[str, Any], found: Mapping[str, Any], currency: str) -> Self:
        sums = {name: _amount(found[name]) for name in _SUMS}
        rounds = tuple({name: one[name] for name in ("number", "state", "uploads")} for one in status["rounds"])
        where = status["task"], status["state"], status["enrolled"], rounds, currency
        return cls(*where, **sums, attested=_amount(found["attested"]))  # type: ignore[arg-type]  # earned alone is None

    def __str__(self) -> str:
        return "\n".join([text_table(*self._table()), *self._lines()])

    def __repr__(self) -> str:
        return f"<TaskReport: {self.state}>\n{self}"

    def _repr_html_(self) -> str:
        return html_table(*self._table()) + "".join(f"<p>{html.escape(line)}</p>" for line in self._lines())

    def _table(self) -> tuple[list[str], list[list[str]]]:
        return ["round", "state", "uploads"], [[str(value) for value in one.values()] for one in self.rounds]

    def _lines(self) -> list[str]:
        lines = [f"the task is {self.state}; {self.people} people take part"]
        if not (self.paid_in or self.pending):
            return lines
        amounts = {name: getattr(self, name) for name in _SUMS}
        amounts["attested by CSP"] = self.attested
        known = [f"{name.replace('_', ' ')} {amount:.2f}" for name, amount in amounts.items() if amount is not None]
        unknown = [] if self.earned is not None else ["what people earned is known when all claims are through"]
        return [*lines, f"{self.currency}: {', '.join(known)}", *unknown]


def _amount(millionths: int | None) -> Decimal | None:
    return None if millionths is None else from_millionths(millionths)
