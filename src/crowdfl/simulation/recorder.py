"""Counters and views by role, over everything that the roles of a host do."""

from crowdfl.protocols.exchange import Observer
from crowdfl.protocols.party import Costs, View


class Recorder(Observer):
    """Views hold secrets of a run, and grow with it."""

    def __init__(self, *, keep_views: bool = True) -> None:
        self._keep_views = keep_views
        self.costs_of: dict[str, Costs] = {}
        self.views_of: dict[str, View] = {}

    def costs(self, role: str) -> Costs:
        return self.costs_of.setdefault(role, Costs())

    def view(self, role: str) -> View:
        return self.views_of.setdefault(role, View(keep=self._keep_views))


def costs_by_role(observer: Observer) -> dict[str, Costs]:
    """Counters per role so far; those of the participants together."""
    names = {"SP": "SP", "CSP": "CSP", "requester": "requester", "participants": "participant"}
    return {name: observer.costs(role) for name, role in names.items()}
