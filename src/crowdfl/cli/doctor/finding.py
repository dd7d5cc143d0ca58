"""One line of `crowdfl doctor`."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Verdict", "fail", "ok", "warn"]


class Verdict(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and what to do about it."""

    verdict: Verdict
    what: str
    found: str
    advice: str = ""


def ok(what: str, found: str) -> Finding:
    """As it should be."""
    return Finding(Verdict.OK, what, found)


def warn(what: str, found: str, advice: str) -> Finding:
    """Works, but not for everything."""
    return Finding(Verdict.WARN, what, found, advice)


def fail(what: str, found: str, advice: str) -> Finding:
    """Does not work."""
    return Finding(Verdict.FAIL, what, found, advice)
