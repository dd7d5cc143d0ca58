"""What happened in a simulation, by round and person."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any


@dataclass
class SimulationLog:
    """What happened, by round and person."""

    events: dict[tuple[str, int], dict[str, Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    late: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    dropped: dict[int, frozenset[str]] = field(default_factory=dict)
    up: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # bytes from participants
    down: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # and to them
    began: dict[int, float] = field(default_factory=dict)
    paid: dict[str, Decimal] = field(default_factory=dict)
    weights: dict[tuple[int, str], float] = field(
        default_factory=dict
    )  # of somebody's metrics, when an average was read

    def of(self, what: str, number: int) -> dict[str, Mapping[str, Any]]:
        """The events of one kind in a round, by person."""
        return self.events.get((what, number), {})

    def forget(self, number: int) -> None:
        """What a round's record has taken over."""
        for what in ("trained", "read", "uploaded", "rewarded", "noise"):
            self.events.pop((what, number), None)
