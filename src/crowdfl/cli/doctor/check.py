"""One thing that doctor has checked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from crowdfl.errors import CrowdFLError
from crowdfl.retry import Backoff

ONCE = Backoff(deadline=0.0)  # a service that is away is told at once


@dataclass(frozen=True)
class DoctorCheck:
    """What was checked, what was found, and what to do about it."""

    verdict: str
    what: str
    found: str
    advice: str = ""


ok = partial(DoctorCheck, "ok")
warn = partial(DoctorCheck, "warn")  # usable, with a limit that the advice removes
fail = partial(DoctorCheck, "fail")


def checked(what: str, check: Callable[[], DoctorCheck]) -> DoctorCheck:
    """A check that cannot be made has failed."""
    try:
        return check()
    except (CrowdFLError, OSError) as wrong:
        return fail(what, type(wrong).__name__, str(wrong))
