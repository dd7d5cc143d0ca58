"""What `crowdfl doctor` says about the secrets that a role still holds, and why."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from crowdfl.cli.doctor.command import DoctorCheck, ok, warn
from crowdfl.roles.records import TaskState
from crowdfl.roles.retention import Held, Retention, secrets_of
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.roles.waiting import PEERS, format_time
from crowdfl.services.run import open_retention
from crowdfl.settings import ServiceSettings

_PURGE = "the service erases it within the hour; if it does not run, `crowdfl {role} task purge`"
_PAST = "SP never said that it is over: `crowdfl {role} task purge`, or wait for a day of sightings"


def held_checks(settings: ServiceSettings, role: str) -> Iterator[DoctorCheck]:
    """One line for each reason; the kinds are counted together."""
    with open_retention(settings, upgrade=False) as retention:
        held = {task: secrets_of(counts) for task, counts in retention.held().items() if secrets_of(counts)}
        yield from _lines(held, {task: _reason(retention, task, counts) for task, counts in held.items()}, role)
        if isinstance(retention, SpRetention):
            yield from _not_told(retention)


def _reason(retention: Retention[Any], task: str, counts: Counter[str]) -> str:
    why = retention.why_held(task, counts)
    return f"{why} until {format_time(retention.store.task(task).claims_until)}" if why == "claims open" else why


def _lines(held: Held, reasons: dict[str, str], role: str) -> Iterator[DoctorCheck]:
    if not held:
        yield ok("held", "nothing secret of any task")
    for reason, count in sorted(Counter(reasons.values()).items()):
        kinds: Counter[str] = sum((held[task] for task in held if reasons[task] == reason), Counter())
        told = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
        found = f"{count} task{'s' if count > 1 else ''}, {reason}: {told}"
        advice = _advice(reason).format(role=role)
        yield warn("held", found, advice) if advice else ok("held", found)


def _advice(reason: str) -> str:
    if reason.startswith("past"):
        return _PAST
    if reason.startswith("unknown"):
        return "left by a creation that never ended: swept after a week; is `database` the right one?"
    return _PURGE if reason.startswith("ended") else ""


def _not_told(retention: SpRetention) -> Iterator[DoctorCheck]:
    """Peers that have not acknowledged the end of a task."""
    settled = [stored for stored in retention.store.tasks() if stored.state == TaskState.SETTLED]
    for name, shown in PEERS.items():
        waiting = [stored for stored in settled if name in stored.unnotified(PEERS)]
        if waiting:
            found = f"has not acknowledged the end of {len(waiting)} task{'s' if len(waiting) > 1 else ''}"
            yield warn(f"{shown}'s keys", found, "is `sp_key` in its settings? It is told again, once an hour at least")
