"""CrowdFL: privacy-preserving mobile crowdsensing on federated learning.

    result = simulate(train, evaluate, data, initial=model)   a whole campaign in this process, with your two functions
    with local_servers() as servers: ...                      the servers as processes on this machine, over TLS
    servers = connect("requester/settings.toml")              the servers of a real campaign
    task = servers.create(initial=model, rounds=5)            a task, by the names of simulate
    links = task.invite(10)                                   an invitation for each person
    join(links[0]).run(train, evaluate, person)               take part in it; `start` does it beside this program
    task.wait(); task.model; task.report()                    what came of it
    result.task_file("task.toml")                             what was simulated, as the file that makes the same task

    partition                   one data set dealt out to people: iid, dirichlet, shards, by_column
    trackers                    rounds in TensorBoard, MLflow or Weights & Biases
    Update, TrainingInfo        what a training function may return, and be handed
    TaskSettings, TaskOptions   every setting of a task, and its name
    LocalFederation             round by round, with updates that you bring yourself
    pctd                        the paper's cryptosystem
    errors                      everything that is raised on purpose

`crowdfl.flower` is CrowdFL for a Flower app. Servers of organisations are run by the command `crowdfl`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crowdfl.version import __version__

if TYPE_CHECKING:
    from crowdfl import errors, partition, trackers
    from crowdfl.campaigns.local import OwnServers, local_servers
    from crowdfl.campaigns.report import TaskReport
    from crowdfl.campaigns.servers import Servers, connect
    from crowdfl.campaigns.task import Task, TaskRound
    from crowdfl.crypto.paillier import pctd
    from crowdfl.joining import AcceptedInvitation, JoinedRound, JoinResult, TakingPart, join
    from crowdfl.learning.functions import TrainingInfo
    from crowdfl.learning.models.learner import Update
    from crowdfl.settings import TaskOptions, TaskSettings
    from crowdfl.simulation.federation import LocalFederation, RoundResult
    from crowdfl.simulation.history import FinishedRound, SimulatedRound
    from crowdfl.simulation.result import SimulationResult
    from crowdfl.simulation.run import simulate

__all__ = [
    "AcceptedInvitation",
    "FinishedRound",
    "JoinResult",
    "JoinedRound",
    "LocalFederation",
    "OwnServers",
    "RoundResult",
    "Servers",
    "SimulatedRound",
    "SimulationResult",
    "TakingPart",
    "Task",
    "TaskOptions",
    "TaskReport",
    "TaskRound",
    "TaskSettings",
    "TrainingInfo",
    "Update",
    "__version__",
    "connect",
    "errors",
    "join",
    "local_servers",
    "partition",
    "pctd",
    "simulate",
    "trackers",
]

# Loaded when asked for: a command, or the process that checks uploads, needs a small part of it and starts in half the time.
_HOMES = {
    "AcceptedInvitation": "joining",
    "FinishedRound": "simulation.history",
    "JoinResult": "joining",
    "JoinedRound": "joining",
    "LocalFederation": "simulation.federation",
    "OwnServers": "campaigns.local",
    "RoundResult": "simulation.federation",
    "Servers": "campaigns.servers",
    "SimulatedRound": "simulation.history",
    "SimulationResult": "simulation.result",
    "TakingPart": "joining",
    "Task": "campaigns.task",
    "TaskOptions": "settings",
    "TaskReport": "campaigns.report",
    "TaskRound": "campaigns.task",
    "TaskSettings": "settings",
    "TrainingInfo": "learning.functions",
    "Update": "learning.models.learner",
    "connect": "campaigns.servers",
    "join": "joining",
    "local_servers": "campaigns.local",
    "simulate": "simulation.run",
}
_MODULES = {"errors": "errors", "partition": "partition", "pctd": "crypto.paillier.pctd", "trackers": "trackers"}


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
