"""CrowdFL: privacy-preserving mobile crowdsensing on federated learning."""

from crowdfl import errors
from crowdfl.crypto import pctd

__all__ = ["__version__", "errors", "pctd"]

__version__ = "0.1.0"
