"""The version, in one place: the package's metadata and the services read it here."""

__version__ = "0.2.0"
