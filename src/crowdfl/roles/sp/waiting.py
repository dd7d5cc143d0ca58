"""What a task waits for, in words for the operator of SP."""

import datetime

from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import Round, RoundState, StoredTask, TaskState
from crowdfl.roles.sp.core import UNDER_WAY
from crowdfl.roles.sp.ends import claims_until
from crowdfl.roles.sp.ledger import ESCROW, Ledger
from crowdfl.settings import TaskSettings, from_millionths, to_millionths

PEERS = {"kgc": "KGC", "csp": "CSP"}


def format_time(seconds: float) -> str:
    """A time as people read it; one that no calendar has stays a number."""
    try:
        return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s after 1970"


def waits_for(store: SpStore, stored: StoredTask, settings: TaskSettings | None = None) -> str:
    """`settings` are the task's, for whoever has read them already."""
    if stored.state == TaskState.SETTLED:
        missing = stored.unnotified(PEERS)
        return f"{' and '.join(PEERS[name] for name in missing)} to hear that it is over" if missing else "nothing"
    rounds = store.rounds(stored.task)
    last, settings = (rounds[-1] if rounds else None), settings or stored.opened.settings
    if last is not None and last.state in UNDER_WAY:
        return _computing(stored, last)
    if stored.state in (TaskState.FINISHED, TaskState.CANCELLED):
        return f"claims, until {format_time(claims_until(stored))}"
    if stored.state == TaskState.PAUSED:
        since = stored.paused_at
        return "its requester, who paused it" + (f" on {format_time(since)}" if since is not None else "")
    if last is not None and last.state is RoundState.OPEN:
        return _uploads(store, stored.task, last, settings)
    return _next_round(store, stored.task, settings, 1 if last is None else last.number + 1)


def _computing(stored: StoredTask, last: Round) -> str:
    if stored.csp_away_since is not None:
        return f"CSP, which has not answered round {last.number} since {format_time(stored.csp_away_since)}"
    return f"round {last.number} to be computed with CSP"


def _uploads(store: SpStore, task: str, last: Round, settings: TaskSettings) -> str:
    uploaded, missing = store.turnout(task, last.number)
    until = format_time(last.last_call(settings))
    return f"uploads to round {last.number}, until {until}: {uploaded} of {uploaded + missing} have come"


def _next_round(store: SpStore, task: str, settings: TaskSettings, number: int) -> str:
    if number > settings.rounds:
        return "the final model"
    needed = []
    people = settings.min_participants - store.turnout(task, 0)[1]
    if people > 0:
        needed.append(f"{people} more participant{'s' if people > 1 else ''}")
    money = to_millionths(settings.budget or 0) - Ledger(store.movements(task)).balance(ESCROW)
    if money > 0:
        needed.append(f"a confirmed deposit of {from_millionths(money):.2f}")
    return " and ".join(needed) or f"round {number} to open"
