"""CrowdFL: privacy-preserving mobile crowdsensing on federated learning."""

from crowdfl import errors
from crowdfl.crypto.paillier import pctd
from crowdfl.joining import AcceptedInvitation, JoinedRound, JoinResult, join
from crowdfl.learning.functions import TrainingInfo
from crowdfl.learning.models.learner import Update
from crowdfl.settings import TaskSettings
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
    "TaskSettings",
    "TrainingInfo",
    "Update",
    "__version__",
    "errors",
    "join",
    "pctd",
    "simulate",
]
