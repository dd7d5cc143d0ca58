"""CrowdFL: privacy-preserving mobile crowdsensing on federated learning."""

from crowdfl import errors
from crowdfl.crypto import pctd
from crowdfl.protocols.local import LocalFederation, RoundResult, Update
from crowdfl.protocols.settings import TaskSettings

__all__ = ["LocalFederation", "RoundResult", "TaskSettings", "Update", "__version__", "errors", "pctd"]

__version__ = "0.1.0"
