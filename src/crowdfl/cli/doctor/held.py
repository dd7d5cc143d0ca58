"""What a role still holds of tasks, with the reason."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from crowdfl.cli.doctor.check import DoctorCheck, fail, ok, warn
from crowdfl.errors import (
    CrowdFLError,
    StoreError,
)
from crowdfl.roles.records import TaskState
from crowdfl.roles.retention import Held, Retention, WhyHeld, secrets_of
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.roles.waiting import PEERS, format_time
from crowdfl.services.run import open_retention
from crowdfl.settings import ServiceSettings
from crowdfl.storage.settings_file import role_of

_ADVICE = {
    WhyHeld.ENDED: "the service erases it within the hour; if it does not run, `crowdfl {role} task purge`",
    WhyHeld.PAST: "SP never said that it is over: `crowdfl {role} task purge`, or wait for a day of sightings",
    WhyHeld.UNREADABLE: "`crowdfl {role} task list` says why; run the version that wrote it, or a later one",
    WhyHeld.UNKNOWN: "left by a creation that never ended: swept after a week; is `database` the right one?",
}


def held_checks(settings: ServiceSettings) -> list[DoctorCheck]:
    if settings.database is None and not (settings.data / "state.db").exists():
        return []
    try:
        return list(_held_lines(settings, role_of(settings)))
    except StoreError:  # reported above
        return []
    except CrowdFLError as wrong:
        return [fail("held", type(wrong).__name__, str(wrong))]


def _held_lines(settings: ServiceSettings, role: str) -> Iterator[DoctorCheck]:
    """One line for each reason; the kinds are counted together."""
    with open_retention(settings) as retention:
        held = {task: secrets_of(counts) for task, counts in retention.held().items() if secrets_of(counts)}
        reasons = {task: retention.why_held(task, counts) for task, counts in held.items()}
        yield from _lines(held, {task: (why, _until(retention, task, why)) for task, why in reasons.items()}, role)
        if isinstance(retention, SpRetention):
            yield from _not_told(retention)


def _until(retention: Retention[Any], task: str, why: WhyHeld) -> str:
    return f" until {format_time(retention.store.task(task).claims_until)}" if why is WhyHeld.CLAIMS else ""


def _lines(held: Held, reasons: dict[str, tuple[WhyHeld, str]], role: str) -> Iterator[DoctorCheck]:
    if not held:
        yield ok("held", "nothing secret of any task")
    for (why, until), count in sorted(Counter(reasons.values()).items(), key=lambda one: one[0][0].words + one[0][1]):
        kinds: Counter[str] = sum((held[task] for task in held if reasons[task] == (why, until)), Counter())
        told = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
        found = f"{count} task{'s' if count > 1 else ''}, {why.words}{until}: {told}"
        advice = _ADVICE.get(why, "").format(role=role)
        yield warn("held", found, advice) if advice else ok("held", found)


def _not_told(retention: SpRetention) -> Iterator[DoctorCheck]:
    """Peers that have not acknowledged the end of a task."""
    settled = [stored for stored in retention.store.tasks() if stored.state == TaskState.SETTLED]
    for name, shown in PEERS.items():
        waiting = [stored for stored in settled if name in stored.unnotified(PEERS)]
        if waiting:
            found = f"has not acknowledged the end of {len(waiting)} task{'s' if len(waiting) > 1 else ''}"
            yield warn(f"{shown}'s keys", found, "is `sp_key` in its settings? It is told again, once an hour at least")
