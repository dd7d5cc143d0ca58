"""A participant's agent: polls, retries, trains, uploads, reads, claims, until its task ends."""

import itertools
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from crowdfl.crypto.randomness import random_between
from crowdfl.documents.signed import Definition
from crowdfl.errors import ClaimRefused, CrowdFLError, NotAuthenticated, NotReady, TooLate
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.retry import Backoff
from crowdfl.roles.participant.participant import Participant

_Result = TypeVar("_Result")
Waits = Generator[float, None, _Result]
"""Work that yields the seconds to wait before it goes on, and ends with a result."""
_LONGEST = 80.0  # seconds between two looks at the platform
_LOOKS_UNKNOWN = 10  # until a platform that does not know this participant is believed
_UNDER_WAY = ("running", "paused")


class Trainer(Protocol):
    """A participant's data and the task's model; see `crowdfl.learning.training.LocalTrainer`."""

    def prepare(self, shape: ModelShape) -> None: ...  # raises what would keep it from training such a model
    def evaluate(self, arrays: Weights, number: int, /) -> Mapping[str, float]: ...  # of a round, on held-out data

    def train(self, arrays: Weights, settings: Mapping[str, Any], number: int, /) -> tuple[Weights, int]:
        """The trained model, and the number of samples it was trained on."""


@dataclass
class Agent:
    """Runs one participant. `sleep` waits; whoever runs many agents in one process takes turns with `turns` instead."""

    person: Participant
    sleep: Callable[[float], None]
    jitter: Callable[[float, float], float] = random_between  # keeps phones that lost one server from returning at once

    @property
    def has_joined(self) -> bool:
        return self.person.blobs.has("certificate")

    def look(self) -> Definition:
        return self._sleeping(self._patiently(self.person.look))

    def take_part(self, definition: Definition, trainer: Trainer, invitation: str, *, claim: bool = True) -> None:
        """Join and take part until the task ends; after an interruption, continue where it stopped."""
        self._sleeping(self.turns(definition, trainer, invitation, claim=claim))

    def claim(self) -> None:
        """Claim what was earned, and wait for what the platform may still show; a refusal is an event."""
        self._sleeping(self._claim())

    def turns(self, definition: Definition, trainer: Trainer, invitation: str, *, claim: bool = True) -> Waits[None]:
        """What `take_part` does, as far as it goes without waiting: yields the seconds after which it wants to go on."""
        if not self.has_joined:
            trainer.prepare(definition.shape)  # someone who cannot train must not take a place
        if not self.person.has_left:  # someone who has left can still claim, and comes back with `join`
            yield from self._patiently(lambda: self.person.join(invitation))
        claims = claim and definition.settings.budget is not None
        yield from self._follow(trainer, definition.settings.window, claims=claims)
        if claims:
            yield from self._claim()

    def _sleeping(self, waits: Waits[_Result]) -> _Result:
        while True:
            try:
                seconds = next(waits)
            except StopIteration as done:
                result: _Result = done.value
                return result
            self.sleep(seconds)

    def _claim(self) -> Waits[None]:
        """At the end: until everything is claimed that the platform shows."""
        looks = self._idle().start()
        while True:
            try:
                yield from self._patiently(self.person.claim)
            except NotReady:
                pass
            except (ClaimRefused, TooLate) as refusal:
                self.person.on_event("not paid", {"why": str(refusal)})
                return
            else:
                if not self.person.awaits_rewards:
                    return
            yield looks.fail()

    def _claim_early(self) -> None:
        """While the task runs: what can be claimed already. A refusal is kept, and tried again."""
        try:
            self.person.claim()
        except (ClaimRefused, TooLate) as refusal:
            self.person.on_event("not paid", {"why": str(refusal)})
        except NotReady:
            pass

    def _follow(self, trainer: Trainer, window: float, *, claims: bool) -> Waits[None]:
        """Step by step until the task has ended. Polls less often while nothing happens."""
        looks = self._idle(longest=min(_LONGEST, max(3.0, window / 15))).start()
        while True:
            did = yield from self._patiently(lambda: self._step(trainer))
            if claims and self.person.has_claims:
                yield from self._patiently(self._claim_early)
            if did:
                looks.succeed()
            elif self.person.state in _UNDER_WAY or (self.person.state == "left" and self.person.awaits_words):
                yield looks.fail(self.person.come_back)
            else:
                return

    def _step(self, trainer: Trainer) -> bool:
        """Do what is due; with nothing due, make randomizers for the next upload."""
        did = self.person.step(trainer.train, trainer.evaluate)
        return did or (not self.person.has_left and self.person.stock_up())

    def _patiently(self, act: Callable[[], _Result]) -> Waits[_Result]:
        """Repeat what may pass: a platform that is away, fails, has no room or no database. A refusal is final.

        A platform that was restored from a backup may not know this participant until it enrols again: that is waited for a few
        minutes. Someone who has not joined yet gets the error at once: the address may be mistyped.
        """
        away, unknown = Backoff(1.5, _LONGEST, jitter=self.jitter).start(), itertools.count(1)
        while True:
            try:
                return act()
            except CrowdFLError as error:
                passes = error.passes or (isinstance(error, NotAuthenticated) and next(unknown) < _LOOKS_UNKNOWN)
                if not (passes and self.has_joined):
                    raise
                seconds = away.fail()
                self.person.on_wait(error, seconds)
            yield seconds

    def _idle(self, longest: float = _LONGEST) -> Backoff:
        return Backoff(1.0, longest, factor=1.5, jitter=self.jitter)
