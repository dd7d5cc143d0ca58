"""CrowdFL: privacy-preserving mobile crowdsensing on federated learning.

    simulate(train, evaluate, data)    a whole campaign in this process, with your two functions
    join(invitation, train, evaluate)  take part in a real campaign with them
    partition                          one data set dealt out to people: iid, dirichlet, shards, by_column
    Update, TrainingInfo               what a training function may return, and be handed
    TaskSettings, TaskOptions          every setting of a task, and its name
    LocalFederation                    round by round, with updates that you bring yourself
    pctd                               the paper's cryptosystem
    errors                             everything that is raised on purpose

`crowdfl.flower` is CrowdFL for a Flower app. Servers and campaigns are run by the command `crowdfl`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crowdfl.version import __version__

if TYPE_CHECKING:
    from crowdfl import errors, partition
    from crowdfl.crypto.paillier import pctd
    from crowdfl.joining import AcceptedInvitation, JoinedRound, JoinResult, join
    from crowdfl.learning.functions import TrainingInfo
    from crowdfl.learning.models.learner import Update
    from crowdfl.settings import TaskOptions, TaskSettings
    from crowdfl.simulation.federation import LocalFederation, RoundResult
    from crowdfl.simulation.result import FinishedRound, SimulatedRound, SimulationResult
    from crowdfl.simulation.run import simulate

__all__ = [
    "AcceptedInvitation",
    "FinishedRound",
    "JoinResult",
    "JoinedRound",
    "LocalFederation",
    "RoundResult",
    "SimulatedRound",
    "SimulationResult",
    "TaskOptions",
    "TaskSettings",
    "TrainingInfo",
    "Update",
    "__version__",
    "errors",
    "join",
    "partition",
    "pctd",
    "simulate",
]

# Loaded when asked for: a command, or the process that checks uploads, needs a small part of it and starts in half the time.
_HOMES = {
    "AcceptedInvitation": "joining",
    "FinishedRound": "simulation.result",
    "JoinResult": "joining",
    "JoinedRound": "joining",
    "LocalFederation": "simulation.federation",
    "RoundResult": "simulation.federation",
    "SimulatedRound": "simulation.result",
    "SimulationResult": "simulation.result",
    "TaskOptions": "settings",
    "TaskSettings": "settings",
    "TrainingInfo": "learning.functions",
    "Update": "learning.models.learner",
    "join": "joining",
    "simulate": "simulation.run",
}
_MODULES = {"errors": "errors", "partition": "partition", "pctd": "crypto.paillier.pctd"}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _MODULES:
        found: Any = import_module(f"crowdfl.{_MODULES[name]}")
    elif name in _HOMES:
        found = getattr(import_module(f"crowdfl.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
