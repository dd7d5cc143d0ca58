"""Whether this machine's clock can be believed. A wrong one would close rounds and end the time to claim for everyone.

The clock is compared with what goes on beside it: a steady clock that counts seconds and knows no date, the time that the store
saw last, and the date on every answer of a peer. One that has jumped further than the bound, forward or back, is in doubt until
every peer that can be reached agrees with it, until it is set right, or until the operator confirms it. A machine that was off
for a week finds that its peers agree. One peer that lies can raise doubt, and ends none that another peer has.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from crowdfl.errors import ClockInDoubt
from crowdfl.roles.ports import Clock, SpStore

_NOTED = 4  # parts of the bound that may pass between two notes of the time


def confirm_clock(store: SpStore, clock: Clock) -> float:
    """The operator's word that the clock is right as it is now; a running SP sees it at its next look."""
    now = clock.now()
    store.note_clock(confirmed=now)
    return now


@dataclass
class ClockWatch:
    """One for each process: a clock that says what time it is, or that it does not know. Threads may share it."""

    clock: Clock
    steady: Callable[[], float]  # seconds since some moment; nobody can set it
    store: SpStore
    bound: float  # seconds of a jump, at most
    on_change: Callable[[bool], object] = lambda _sure: None  # hears whether the clock is sure from now on
    ask_peers: Callable[[], object] = lambda: None  # makes them answer, with a date
    _peers: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _silent: set[str] = field(default_factory=set, init=False, repr=False)  # asked, and has not answered yet
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)
    # Differences between a date and the steady clock. The date that belongs to one now is the steady clock's time and it.
    _anchor: float | None = field(default=None, init=False, repr=False)  # when the clock was last known to be right
    _confirmed: float | None = field(default=None, init=False, repr=False)  # by the operator
    _asked: float | None = field(default=None, init=False, repr=False)  # the clock's, when all peers were last asked
    _noted: float | None = field(default=None, init=False, repr=False)
    _noted_doubt: bool = field(default=False, init=False, repr=False)
    _sure: bool = field(default=True, init=False, repr=False)

    def heard(self, peer: str, date: float) -> None:
        """A peer's answer says that it is now this time there."""
        with self._lock:
            self._peers[peer] = date - self.steady()
            self._silent.discard(peer)

    def ask(self) -> None:
        """Ask every peer for the time. What one said before that does not answer now counts no more."""
        with self._lock:
            self._silent = set(self._peers)
            own = self.clock.now() - self.steady()
        self.ask_peers()
        with self._lock:
            self._asked = own
            for peer in self._silent:
                self._peers.pop(peer, None)
            self._silent = set()

    def is_sure(self) -> bool:
        with self._lock:
            sure = self._is_sure()
            changed = sure != self._sure
            self._sure = sure
        if changed:
            self.on_change(sure)
        return sure

    def now(self) -> float:
        """The time, for what cannot be undone; `ClockInDoubt` while nobody knows what time it is."""
        if not self.is_sure():
            raise ClockInDoubt(
                "this platform's clock is in doubt, and nothing that depends on it is done: try again later"
            )
        return self.clock.now()

    def note(self) -> None:
        """Make the time durable, a few times in `bound`: the next start compares with it, and so do an operator's commands."""
        now = self.clock.now()
        if self._noted is None or abs(now - self._noted) > self.bound / _NOTED:
            self.store.note_clock(seen=now, in_doubt=False)
            self._noted, self._noted_doubt = now, False

    def note_doubt(self) -> None:
        """Make the doubt durable, for commands that the operator runs beside this process."""
        if not self._noted_doubt:
            self.store.note_clock(in_doubt=True)
            self._noted, self._noted_doubt = None, True  # it goes with the next note

    def estimate(self) -> float:
        """What time it probably is: in doubt, by the seconds that passed since the clock was last known to be right."""
        sure = self.is_sure()
        anchor = self._anchor
        return self.clock.now() if sure or anchor is None else anchor + self.steady()

    def _is_sure(self) -> bool:
        own = self.clock.now() - self.steady()
        if self._anchor is None:
            self._anchor = self._as_stored(own)
        agreed = all(self._near(own, date) for date in self._peers.values())
        # After a jump a peer's word counts once all were asked: the first to speak may be the one that lies.
        if agreed and (self._near(own, self._anchor) or (self._peers and self._near(own, self._asked))):
            self._anchor = own if self._peers else self._anchor
            return True
        return self._near(own, self._confirmed) or self._confirms(own)

    def _as_stored(self, own: float) -> float:
        """As a start finds it: what the store saw last, unless the clock fits to it."""
        seen = self.store.clock_notes().seen
        stored = own if seen is None else seen - self.steady()
        return own if self._near(own, stored) else stored

    def _confirms(self, own: float) -> bool:
        """Whether the operator has confirmed a time that it is about now."""
        confirmed = self.store.clock_notes().confirmed
        if confirmed is None or abs(self.clock.now() - confirmed) > self.bound:
            return False
        self._confirmed = self._anchor = own
        return True

    def _near(self, own: float, other: float | None) -> bool:
        return other is not None and abs(own - other) <= self.bound


@dataclass(frozen=True)
class OperatorClock:
    """The clock of a command that runs beside SP: it knows what SP has noted, and what the operator has confirmed."""

    clock: Clock
    steady: Callable[[], float]
    store: SpStore
    bound: float

    def now(self) -> float:
        """The time, for what cannot be undone; `ClockInDoubt` where SP would not believe it, or does not."""
        notes, now = self.store.clock_notes(), self.clock.now()
        if notes.confirmed is not None and abs(now - notes.confirmed) <= self.bound:
            return now
        if notes.in_doubt or not ClockWatch(self.clock, self.steady, self.store, self.bound).is_sure():
            raise ClockInDoubt(
                "this machine's clock is not what SP saw last, or SP doubts it: compare it with another clock, set it or "
                "confirm it with `crowdfl sp clock confirm`, then try again"
            )
        return now
