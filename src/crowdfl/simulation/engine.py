"""What plays a simulated task: every role on one host, or a crowd in batches."""

from collections.abc import Callable, Mapping
from typing import Protocol

from crowdfl.learning.models.shape import Weights
from crowdfl.protocols.party import Costs
from crowdfl.protocols.shares.server_optimizers import Moments
from crowdfl.roles.records import Round
from crowdfl.settings import TaskSettings
from crowdfl.simulation.log import SimulationLog


class Engine(Protocol):
    """One task. Rounds have the numbers that they have in the task."""

    settings: TaskSettings
    log: SimulationLog
    rounds: list[Round]

    def run(self) -> None:
        """Until the task is over, or `on_read` says so after a round; the last round is read by the caller's `read_last`."""

    def read_last(self) -> None: ...  # the requester's, which everyone evaluates here
    def model(self) -> Weights: ...  # after the last round that was read
    def moments(self) -> Moments: ...  # what the server step carries then
    def sampled(self, number: int) -> tuple[str, ...]: ...  # who was drawn; nobody, where everyone is in a round
    def averaged(self, number: int) -> tuple[str, ...]: ...  # whose updates are in a round's average
    def rejected(self, number: int) -> dict[str, str]: ...  # whose updates were left out, and why, in words
    def costs(self) -> Mapping[str, Costs]: ...


OnChange = Callable[[Engine], None]
"""Somebody has trained."""
OnRead = Callable[[Engine, Round], bool]
"""A round but the last is over, and everyone has read it; True ends the task."""
