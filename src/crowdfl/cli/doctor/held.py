"""What `crowdfl doctor` says about the secrets that a role still holds, and why."""

from collections import Counter
from collections.abc import Iterator

from crowdfl.cli.doctor.command import DoctorCheck, ok, warn
from crowdfl.errors import UnknownTask
from crowdfl.roles.ends import Held, Lifetimes, TaskEnds
from crowdfl.roles.records import TaskState
from crowdfl.roles.sp.ends import claims_until
from crowdfl.roles.sp.holdings import SpHoldings, secrets_of
from crowdfl.roles.sp.waiting import PEERS, format_time
from crowdfl.services.client.transport import SystemClock
from crowdfl.services.run import open_holdings
from crowdfl.settings import ServiceSettings

_PURGE = "the service erases it within the hour; if it does not run, `crowdfl {role} task purge`"
_PAST = "SP never said that it is over: `crowdfl {role} task purge`, or wait for a day of sightings"
_RUNNING = "running"


def held_checks(settings: ServiceSettings, role: str) -> Iterator[DoctorCheck]:
    """One line for each reason; the kinds are counted together."""
    with open_holdings(settings, upgrade=False) as holdings:
        held = {task: secrets_of(counts) for task, counts in holdings.held().items() if secrets_of(counts)}
        if isinstance(holdings, SpHoldings):
            reasons = {task: _reason_on_sp(holdings, settings, task) for task in held}
        else:
            ends = TaskEnds(holdings, SystemClock(), margin=settings.lifetime_margin)
            reasons = {task: ends.why_held(task, counts) for task, counts in held.items()}
        yield from _lines(held, reasons, role)
        if isinstance(holdings, SpHoldings):
            yield from _not_told(holdings)


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


def _reason_on_sp(holdings: SpHoldings, settings: ServiceSettings, task: str) -> str:
    try:
        stored = holdings.store.task(task)
    except UnknownTask:
        return "unknown here"
    if stored.state == TaskState.SETTLED:
        return "ended, to be erased"
    if stored.state in (TaskState.FINISHED, TaskState.CANCELLED):
        return f"claims open until {format_time(claims_until(stored))}"
    lifetimes = Lifetimes(holdings.store, SystemClock(), settings.lifetime_margin)
    return "past its lifetime" if lifetimes.is_past(stored, claims=False) else _RUNNING


def _not_told(holdings: SpHoldings) -> Iterator[DoctorCheck]:
    """Peers that have not acknowledged the end of a task."""
    settled = [stored for stored in holdings.store.tasks() if stored.state == TaskState.SETTLED]
    for name, shown in PEERS.items():
        waiting = [stored for stored in settled if name in stored.unnotified(PEERS)]
        if waiting:
            found = f"has not acknowledged the end of {len(waiting)} task{'s' if len(waiting) > 1 else ''}"
            yield warn(f"{shown}'s keys", found, "is `sp_key` in its settings? It is told again, once an hour at least")
