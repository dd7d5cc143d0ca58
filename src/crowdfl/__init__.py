"""CrowdFL: privacy-preserving mobile crowdsensing on federated learning."""

from crowdfl import errors
from crowdfl.crypto import pctd
from crowdfl.local import LocalFederation, RoundResult, Update
from crowdfl.settings import TaskSettings
from crowdfl.version import __version__

__all__ = ["LocalFederation", "RoundResult", "TaskSettings", "Update", "__version__", "errors", "pctd"]
