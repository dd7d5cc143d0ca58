"""A task ends before its last round: by its requester, SP's operator, CSP, or because it took too long."""

from collections.abc import Callable
from dataclasses import replace

from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import Round, RoundState, TaskState, Tombstone
from crowdfl.roles.sp.core import UNDER_WAY, MoneyPorts, require_running
from crowdfl.roles.sp.ledger import Ledger

Abort = Callable[[str, Round], None]
"""Give an open round up, in a transaction that its caller holds."""


def cancel_task(ports: MoneyPorts, task: str, ending: Tombstone, abort: Abort | None = None) -> None:
    """No further round; an open one is aborted, a closed one is finished, what is earned stays claimable. Idempotent."""
    store = ports.store
    with store.transaction():
        state = store.task(task).state
        if state == TaskState.CANCELLED:
            return
        require_running(state)
        give_time_back(ports, task)
        rounds = store.rounds(task)
        if rounds and rounds[-1].state is RoundState.OPEN:
            (abort or (lambda _task, last: give_up_round(store, task, last)))(task, rounds[-1])
        store.change_task(task, state=TaskState.CANCELLED, ended_at=ports.clock.now(), end=ending)


def give_up_round(store: SpStore, task: str, current: Round) -> None:
    """For good: its money returns to escrow, and its seeds are erased. The caller holds a transaction."""
    store.post(task, Ledger(store.movements(task)).abort_round(current.number))
    store.put_round(task, replace(current, state=RoundState.ABORTED))
    store.erase_seeds(task, current.number)


def give_time_back(ports: MoneyPorts, task: str) -> None:
    """A pause takes nothing from a round's window."""
    store = ports.store
    since, rounds = store.task(task).paused_at, store.rounds(task)
    if since is not None:
        store.change_task(task, paused_at=None)
        if rounds and rounds[-1].state in (RoundState.OPEN, *UNDER_WAY):
            lost = max(0.0, ports.clock.now() - since)
            store.put_round(task, replace(rounds[-1], opened_at=rounds[-1].opened_at + lost))
