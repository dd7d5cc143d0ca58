"""The backends that a user can choose, by name."""

from crowdfl.crypto.compute import Backend, Threads
from crowdfl.crypto.gpu.backend import Cuda
from crowdfl.errors import SettingsError

BACKENDS = ("threads", "cuda")


def backend_named(name: str, *, workers: int | None = None) -> Backend:
    """The backend a user chose, or `BackendUnavailable` with what is missing. `workers` is a number of threads."""
    if name == "threads":
        return Threads(workers)
    if name == "cuda":
        return Cuda(others=Threads(workers))
    raise SettingsError(f"{name!r} is not a compute backend; choose one of {', '.join(BACKENDS)}")
