"""A participant's agent: polls, retries, trains, uploads, reads, claims, until its task ends; and what happens, in words."""

import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from crowdfl.crypto.randomness import random_between
from crowdfl.documents.signed import Definition
from crowdfl.errors import ClaimRefused, CrowdFLError, NotAuthenticated, NotReady, TooLate
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.reasons import Reason
from crowdfl.retry import Backoff
from crowdfl.roles.participant.evidence import CspWord, SpWord
from crowdfl.roles.participant.participant import Participant
from crowdfl.settings import money_words
from crowdfl.text import printable_lines


def event_words(what: str, details: Mapping[str, Any]) -> str:
    """An event of a participant; what another party said in it steers no terminal."""
    return printable_lines(_SAID[what](details) if what in _SAID else _plain(what, details))


def short_state(digest: str) -> str:
    """Enough of a state's digest for two people to compare."""
    return digest[:16]


def _rounds_words(numbers: Sequence[int]) -> str:
    return f"your upload of round {', '.join(map(str, numbers))}" if numbers else "no upload"


def _plain(what: str, details: Mapping[str, Any]) -> str:
    return f"{what}: " + ", ".join(f"{name} {value}" for name, value in details.items())


def _scores(event: Mapping[str, Any]) -> str:
    """How the average does on what this person holds out; and its state's digest, the same on every device."""
    scores = [f"{name} {value:.4g}" for name, value in event.items() if isinstance(value, float) and name != "windows"]
    on = f" on {event['windows']:.0f} windows of yours" if scores and "windows" in event else ""
    state = f"; its state is {short_state(event['state'])}" if "state" in event else ""
    return (": " + ", ".join(scores) + on if scores else "") + state


_SAID: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "joined": lambda e: f"joined as {e['who']}; a round begins when enough people have joined",
    "trained": lambda e: (
        f"round {e['round']}: trained on {e['samples']} samples; {e['clipped']} weights were clipped"
        + (f"; the update was scaled by {e['scaled']} to the task's largest norm" if "scaled" in e else "")
    ),
    "read": lambda e: f"round {e['round']}: the average is read{_scores(e)}",
    "noise": lambda e: (
        f"round {e['round']}: noise of about {e['length']:.3g} is in the average, which has moved by {e['change']:.3g}"
    ),
    "uploaded": lambda e: f"round {e['round']}: the upload is in{', late' if e['late'] else ''}; its receipt is kept",
    "unused": lambda e: (
        f"round {e['round']}: enough others were there first, so that the upload is not used; you earned "
        f"{money_words(e['millionths'], e['currency'])}"
    ),
    "refused": lambda e: f"round {e['round']}: the upload was not taken: {e['why']}",
    "nothing to contribute": lambda e: f"round {e['round']}: not part of it: {e['why']}",
    "not drawn": lambda e: (
        f"round {e['round']}: others were drawn; if some of them stay away you may be drawn later, else for another round"
    ),
    "rewarded": lambda e: (
        f"round {e['round']}: you earned {money_words(e['millionths'], e['currency'])}"
        + ("" if e["millionths"] else "; docs/incentives.md says what rewards follow")
    ),
    "claimed": lambda e: (
        f"you have claimed, and the platform is to pay, {money_words(e['millionths'], e['currency'])} so far"
        + "".join(
            f"; round {number}: {money_words(amount, e['currency'])} less than you earned: ask the platform why"
            for number, amount in e.get("missing", {}).items()
        )
        + "".join(
            f"; round {number}: {money_words(amount, e['currency'])} for an upload that was not used is disputed: the "
            "platform's operator decides. Keep your home folder, with its receipt"
            for number, amount in e.get("disputed", {}).items()
        )
    ),
    "pay to": lambda _: "where you are to be paid is with the platform, sealed to whoever pays",
    "waiting": lambda e: f"waiting for the platform, next try in about {e['seconds']} s: {e['why']}",
    "restored": lambda _: "the platform was restored from a backup: looking whether it still has what you sent",
    "sending again": lambda e: f"round {e['round']}: the platform has lost your upload, which is sent again",
    "upload rejected": lambda e: (
        f"round {e['round']}: both servers together left your upload out, and it earns nothing: {Reason(e['why']).words}"
    ),
    "check data": lambda _: (
        "two of your uploads were not in line with the task: your recordings or labels may be mixed up. Check them"
    ),
    "reward refused": lambda e: f"round {e['round']}: no reward: {e['why']}",
    "reward missing": lambda e: f"round {e['round']}: the reward cannot be read yet; it is tried again: {e['why']}",
    "average missing": lambda e: f"round {e['round']}: the average cannot be read; it is tried again: {e['why']}",
    "record missing": lambda e: f"round {e['round']}: its signed record cannot be read; it is tried again: {e['why']}",
    "claiming without": lambda e: (
        f"the claim is made without round {', '.join(map(str, e['rounds']))}: {e['why']}. Keep your home folder: its receipts "
        "prove your part, and `crowdfl participant claim` claims it later; ask the platform about it"
    ),
    "claim refused": lambda e: (
        f"the platform says that your claim is refused: {e['why']}. It is kept, and tried again. Keep your home folder, and "
        "ask the platform about it"
    ),
    "not paid": lambda e: f"not paid: {e['why']}",
    "words differ": lambda e: (
        f"round {e['round']}: the platform said that {SpWord(e['said']).words}; what the second server has signed says: "
        f"{CspWord(e['signed']).words}. That counts. Both are kept: `crowdfl participant evidence` shows them, and whom to "
        "send them to"
    ),
    "given up": lambda e: (
        f"round {e['round']} was given up or cancelled: your upload was not averaged, nobody is paid for it"
    ),
    "stopped": lambda e: (
        f"your device takes no further part in this task: {e['why']}. One of the servers may be trying to learn about you, "
        "or it fails: ask the platform. What you earned stays claimable"
    ),
    "left": lambda _: "you have left the task; what you earned stays claimable",
    "agreed": lambda e: (
        f"you have agreed to version {e['version']} of the consent text; your copy, with the proof, is {e['copy']} in your "
        "home folder"
    ),
    "replaced": lambda e: f"your device takes no further part in this task: {e['why']}",
    "withdrawn": lambda e: (
        f"you have withdrawn from the task. Deleted: {_rounds_words(e['deleted'])}. Not to be undone: "
        f"{_rounds_words(e['standing'])}, which the servers average or have averaged, and payments. The platform keeps "
        "your name in the task, your keys, your consent and this withdrawal, as evidence; what you earned stays claimable"
    ),
}


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
