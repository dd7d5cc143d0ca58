"""A participant's agent: takes part in a task until it ends, and claims what was earned.

It polls the platform, waits while the platform is away, and makes randomizers while there is nothing else to do. How to wait is
passed in, so that a test or a simulation can run it without waiting. What happens is told to the participant's `on_event`.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from crowdfl.errors import ClaimRefused, NotReady, ServiceUnavailable, TooLate
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.roles.documents import Definition
from crowdfl.roles.participant import Participant

__all__ = ["Agent", "Backoff", "Trainer"]

_Result = TypeVar("_Result")
_LONGEST_PAUSE = 60.0
_UNDER_WAY = ("running", "paused")


class Trainer(Protocol):
    """A participant's data and the task's model; see `crowdfl.learning.local_trainer.LocalTrainer`."""

    def prepare(self, shape: ModelShape) -> None:
        """Raise what would keep it from training a model of this shape."""

    def train(self, arrays: Weights, settings: Mapping[str, Any], number: int, /) -> tuple[Weights, int]:
        """The trained model, and the number of samples it was trained on."""

    def evaluate(self, arrays: Weights, /) -> Mapping[str, float]:
        """How a model does on the participant's held-out data."""


@dataclass
class Backoff:
    """Pauses in seconds, each longer than the one before, up to the longest."""

    first: float
    factor: float
    longest: float = _LONGEST_PAUSE
    _next: float = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def pause(self) -> float:
        """The next pause."""
        pause, self._next = self._next, min(self._next * self.factor, self.longest)
        return pause

    def reset(self) -> None:
        """Start again from the first pause."""
        self._next = self.first


@dataclass
class Agent:
    """Runs one participant."""

    person: Participant
    sleep: Callable[[float], None]
    jitter: Callable[[float, float], float] = random.uniform  # keeps phones that lost one server from returning at once

    @property
    def has_joined(self) -> bool:
        """Whether KGC has certified this participant."""
        return self.person.blobs.has("certificate")

    def look(self) -> Definition:
        """The task to take part in."""
        return self._patiently(self.person.look)

    def take_part(self, definition: Definition, trainer: Trainer, invitation: str, *, claim: bool = True) -> None:
        """Join and take part until the task ends; after an interruption, continue where it stopped."""
        if not self.has_joined:
            trainer.prepare(definition.shape)  # someone who cannot train must not take a place
        if not self.person.has_left:  # someone who has left can still claim, and comes back with `join`
            self._patiently(lambda: self.person.join(invitation))
        self._follow(trainer, definition.settings.window)
        if claim and definition.settings.budget is not None:
            self.claim()

    def claim(self) -> None:
        """Wait until the task has ended, and claim what was earned; a refusal is an event."""
        pauses = Backoff(0.75, 1.5)
        while True:
            try:
                self._patiently(self.person.claim)
                return
            except (ClaimRefused, TooLate) as refusal:
                self.person.on_event("not paid", {"why": str(refusal)})
                return
            except NotReady:
                self._pause(pauses.pause())

    def _follow(self, trainer: Trainer, window: float) -> None:
        """Step by step until the task has ended. Polls less often while nothing happens."""
        pauses = Backoff(0.75, 1.5, min(_LONGEST_PAUSE, max(2.0, window / 20)))
        while True:
            if self._patiently(lambda: self._step(trainer)):
                pauses.reset()
            elif self.person.state in _UNDER_WAY:
                self._pause(pauses.pause())
            else:
                return

    def _step(self, trainer: Trainer) -> bool:
        """Do what is due; with nothing due, make randomizers for the next upload."""
        did = self.person.step(trainer.train, trainer.evaluate)
        return did or (not self.person.has_left and self.person.stock_up())

    def _patiently(self, act: Callable[[], _Result]) -> _Result:
        """Repeat while the platform is away. Someone who has not joined yet gets the error at once."""
        pauses = Backoff(1.0, 2.0)
        while True:
            try:
                return act()
            except ServiceUnavailable as away:
                if not self.has_joined:
                    raise
                pause = pauses.pause()
                self.person.on_event("waiting", {"why": str(away), "seconds": round(pause, 1)})
                self._pause(pause)

    def _pause(self, seconds: float) -> None:
        self.sleep(self.jitter(0.5 * seconds, 1.5 * seconds))
