"""CrowdFL: privacy-preserving mobile crowdsensing on federated learning.

    simulate(train, evaluate, data)    a whole campaign in this process, with your two functions
    join(invitation, train, evaluate)  take part in a real campaign with them
    Update, TrainingInfo               what a training function may return, and be handed
    TaskSettings, TaskOptions          every setting of a task, and its name
    LocalFederation                    round by round, with updates that you bring yourself
    pctd                               the paper's cryptosystem
    errors                             everything that is raised on purpose

`crowdfl.flower` is CrowdFL for a Flower app. Servers and campaigns are run by the command `crowdfl`.
"""

from crowdfl import errors
from crowdfl.crypto.paillier import pctd
from crowdfl.joining import AcceptedInvitation, JoinedRound, JoinResult, join
from crowdfl.learning.functions import TrainingInfo
from crowdfl.learning.models.learner import Update
from crowdfl.settings import TaskOptions, TaskSettings
from crowdfl.simulation.local_host import LocalFederation, RoundResult
from crowdfl.simulation.result import SimulatedRound, SimulationResult
from crowdfl.simulation.run import simulate
from crowdfl.version import __version__

__all__ = [
    "AcceptedInvitation",
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
    "pctd",
    "simulate",
]
