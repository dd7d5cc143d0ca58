"""A participant's claim: which rounds go into it, when it is sent, and what SP has answered of each.

A claim is cumulative: the newest one names every round that can be claimed so far, and where to be paid. CSP attests by person
and round, so that a claim of some rounds forfeits none, and the same one again is the same payment: nothing is waited for, and
nothing is given up. Receipts, rewards, the newest claim, SP's answer to it and refused claims are kept. That SP has booked a
claim does not say that anybody was paid.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from crowdfl.documents.destination import destination_name
from crowdfl.documents.signed import Definition
from crowdfl.errors import ClaimRefused, Conflict, MasksDoNotFit, NotReady, TooLate, WrongAmount
from crowdfl.protocols.capabilities import PaysOpenly
from crowdfl.protocols.claims import BONUS, Beside
from crowdfl.protocols.profile import ParticipantKeys, ParticipantProtocol
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.participant.evidence import CspWord, SpWord
from crowdfl.roles.ports import Blobs, replace_blob
from crowdfl.roles.records import PaidClaim, PayState, PayWord

_UNDER_WAY = ("running", "paused")
_AGAIN = 3600.0  # seconds until what is disputed, left out or refused is asked about again
_LONGEST_WAIT = 86400.0  # seconds after the last day of rounds until an owner is told what SP does not show


@dataclass(frozen=True)
class _Contents:
    """What a claim says."""

    rounds: tuple[int, ...]  # with a reward
    unused: tuple[int, ...]
    destination: str  # the hash, in hex
    counter: int

    def kept(self) -> str:
        return json.dumps(vars(self))

    def beside(self) -> Beside:
        return Beside(self.unused, bytes.fromhex(self.destination), self.counter)


class ClaimsService(Protocol):
    """What a claim asks of `ParticipantSp`, and no more."""

    def claim(self, task: str, claim: bytes, keys: ParticipantKeys) -> PaidClaim: ...
    def pay_words(self, task: str, keys: ParticipantKeys) -> Mapping[int, PayWord]: ...


class Claimant(Protocol):
    """What a claim needs of the participant whose it is."""

    task: str
    blobs: Blobs
    unread: dict[int, bool]  # rewards that could not be read: may that pass?

    @property
    def on_event(self) -> Callable[[str, Mapping[str, Any]], None]: ...
    @property
    def now(self) -> Callable[[], float]: ...
    @property
    def sp(self) -> ClaimsService: ...
    @property
    def definition(self) -> Definition: ...
    @property
    def keys(self) -> ParticipantKeys: ...
    @property
    def currency(self) -> str: ...
    @property
    def destination(self) -> tuple[bytes, int]: ...  # the newest one, sealed, and its counter
    def look_again(self) -> Mapping[str, Any]: ...
    def claims_until(self, status: Mapping[str, Any]) -> int: ...
    def has_earned(self, number: int) -> bool: ...
    def open_at_end(self, number: int) -> None: ...
    def open_bonus(self) -> None: ...
    def awaits_bonus(self) -> bool: ...
    def unused_rounds(self) -> list[int]: ...
    def rewards(self) -> dict[int, int]: ...
    def tell_difference(self, number: int, said: SpWord, signed: CspWord) -> None: ...
    def send_destination(self, *, again: bool) -> None: ...
    def new_side(self) -> ParticipantProtocol: ...


class Claiming:
    """The claim of a participant."""

    def __init__(self, person: Claimant) -> None:
        self.person, self.blobs = person, person.blobs

    def claim(self) -> int:
        """Claim all that can be claimed now; millionths that SP has booked so far. `NotReady` if there is nothing yet."""
        status = self.person.look_again()
        self._require_open(status)
        if status["state"] not in _UNDER_WAY:
            self._read_last(status)
        self._send_destination(status)
        contents = self._contents()
        if not contents.rounds and not contents.unused:
            if status["state"] in _UNDER_WAY or _is_under_way(status):
                raise NotReady("there is nothing to claim yet: come back when a round is rewarded")
            missing = self._missing(status)
            if self._may_be_shown(missing, status):
                raise NotReady(
                    f"the platform does not show the reward of round {', '.join(map(str, missing))}: come back later"
                )
            return 0
        if status["state"] == "settled":
            self._require_booked(contents)
            return self.booked or 0
        rounds = list(contents.rounds)
        while True:
            try:
                self._send(_Contents(tuple(rounds), contents.unused, contents.destination, contents.counter), status)
            except ClaimRefused as refusal:
                self._note_refused(str(refusal), contents, status)
                if isinstance(refusal, WrongAmount) and len(rounds) > 1:
                    rounds = self._attested_alone(rounds, contents, status)
                    continue
                newest = rounds.pop() if rounds else None
                if not isinstance(refusal, MasksDoNotFit) or not (rounds or contents.unused):
                    raise  # else SP says that CSP was set back, and has lost the newest rounds
                self.person.on_event("claiming without", {"rounds": [newest], "why": str(refusal)})
            else:
                if len(rounds) == len(contents.rounds):
                    self.blobs.delete("claim-refused")
                return self.booked or 0

    def _attested_alone(self, rounds: Sequence[int], contents: _Contents, status: Mapping[str, Any]) -> list[int]:
        """Where a server has altered what one round paid: the others are claimed all the same."""
        found = []
        for number in rounds:
            try:
                self._send(replace(contents, rounds=(number,)), status)
            except WrongAmount as refusal:
                self.person.on_event("claiming without", {"rounds": [number], "why": str(refusal)})
            else:
                found.append(number)
        if not found or len(found) == len(rounds):
            raise WrongAmount("CSP attests no claim of these rounds: show somebody what was claimed")
        return found

    def is_due(self, status: Mapping[str, Any]) -> bool:
        """Whether something can be claimed that SP has not answered."""
        try:
            self._require_open(status)
        except NotReady:
            return False
        contents = self._contents()
        if status["state"] == "settled" or not (contents.rounds or contents.unused):
            return False
        refused = self._kept("claim-refused")
        if refused.get("of") == self._name(contents, status):
            return self._is_again(refused)
        answered = self._kept("claim-answered")
        if answered.get("of") != self._name(contents, status):
            return True
        return bool(self.disputed or self._left_out(contents)) and self._is_again(answered)

    def _left_out(self, contents: _Contents) -> set[int]:
        """Rounds that SP has not answered: it cannot yet, or does not."""
        answer = self.answer
        return {*contents.rounds, *contents.unused} - {*answer.paid, *answer.unused, *answer.disputed}

    @property
    def booked(self) -> int | None:
        """Millionths that SP says to pay; None before it has answered."""
        return self.answer.amount if self.blobs.has("claim-answered") else None

    @property
    def answer(self) -> PaidClaim:
        """SP's word of each round that was claimed."""
        found = self._kept("claim-answered").get("answer", {})
        said = [found.get(how, {}) for how in ("paid", "unused", "disputed")]
        return PaidClaim(*({int(number): int(amount) for number, amount in one.items()} for one in said))

    def ask_pay(self) -> None:
        """Have SP say where the money stands; what it says is kept."""
        words = self.person.sp.pay_words(self.person.task, self.person.keys)
        rows = [one.row(number) for number, one in sorted(words.items())]
        if rows or self.blobs.has("pay-words"):
            replace_blob(self.blobs, "pay-words", json.dumps(rows).encode())

    @property
    def pay_words(self) -> dict[int, PayWord]:
        """Where the money of each round stands: by what SP said last, of what was claimed; and what was earned."""
        said = PayWord.by_round(json.loads(self.blobs.get("pay-words"))) if self.blobs.has("pay-words") else {}
        answer, found = self.answer, dict[int, PayWord]()
        booked = {**answer.paid, **answer.unused, **answer.disputed}
        for number, amount in sorted(self.person.rewards().items()):
            known = PayState.CLAIMED if number in booked else PayState.EARNED
            found[number] = said.get(number) or PayWord(amount, known)
        return {**said, **found}

    @property
    def disputed(self) -> list[int]:
        return sorted(self.answer.disputed)

    def waits(self, status: Mapping[str, Any]) -> bool:
        """Whether the platform may still show a reward of a task that is over. Once it is not waited for, its owner is told."""
        missing = self._missing(status)
        if status["state"] == "settled" or not missing:
            return False
        if self._may_be_shown(missing, status):
            return True
        self.person.on_event("claiming without", {"rounds": missing, "why": "the platform does not show their rewards"})
        return False

    def _may_be_shown(self, missing: Sequence[int], status: Mapping[str, Any]) -> bool:
        """A day long, but not past half of the time to claim; where the platform merely fails, until a quarter is left."""
        if status["state"] == "settled" or not missing:
            return False
        left = self.person.claims_until(status) - self.person.now()
        window = self.person.definition.claim_window
        fails = any(self.person.unread.get(number) for number in missing)  # and may be back at any moment
        return left > (window / 4 if fails else max(window / 2, window - _LONGEST_WAIT))

    def _require_open(self, status: Mapping[str, Any]) -> None:
        """As SP: where anyone can compute what a round pays, at once; else after the last round."""
        settings = self.person.definition.settings
        profile = profile_named(settings.profile)
        if isinstance(profile, PaysOpenly) and profile.pays_openly(settings):
            return
        if status["state"] in _UNDER_WAY or _is_under_way(status):
            raise NotReady("rewards of this task are claimed after its last round: come back then")

    def _read_last(self, status: Mapping[str, Any]) -> None:
        """Whoever was away may not have read the last rounds. What CSP has signed, and SP does not show, is told."""
        rewarded = [entry["number"] for entry in status["rounds"] if entry["state"] == "rewarded"]
        for number in rewarded:
            self.person.open_at_end(number)
        self.person.open_bonus()
        for number in self._opened():
            if number not in (*rewarded, BONUS):  # an SP that was restored, or lies
                self.person.tell_difference(number, SpWord.NO_AVERAGE, CspWord.ACCEPTED)

    def _missing(self, status: Mapping[str, Any]) -> list[int]:
        known = {entry["number"] for entry in status["rounds"] if entry["state"] == "aborted"} | set(self._opened())
        every = range(1, self.person.definition.settings.rounds + 1)  # whatever the platform lists
        earned = [number for number in every if number not in known and self.person.has_earned(number)]
        missing = [number for number in earned if not self.blobs.has(f"rounds/{number}/no-reward")]
        return [*([BONUS] if self.person.awaits_bonus() else []), *missing]

    def _opened(self) -> list[int]:
        """Those with a reward that the servers computed."""
        every = range(BONUS, self.person.definition.settings.rounds + 1)
        return [number for number in every if self.blobs.has(f"rounds/{number}/reward")]

    def _contents(self) -> _Contents:
        """All that can be claimed now. A destination is named once SP has it."""
        sealed, counter = self.person.destination
        before = self._kept("claim-made")
        if counter and self.blobs.has(f"destinations/{counter}-sent"):
            where = destination_name(sealed).hex(), counter
        else:
            where = str(before.get("destination", "")), int(before.get("counter", 0))
        return _Contents(tuple(self._opened()), tuple(self.person.unused_rounds()), *where)

    def _send_destination(self, status: Mapping[str, Any]) -> None:
        """First: then the claim can name it. An SP that was restored may have lost it."""
        again = self._kept("claim-answered").get("epoch", "") != _epoch(status)
        with contextlib.suppress(Conflict):  # claims have ended for it
            self.person.send_destination(again=again)

    def _send(self, contents: _Contents, status: Mapping[str, Any]) -> None:
        if not self.blobs.has("claim") or self._kept("claim-made") != json.loads(contents.kept()):
            self._make(contents)
        before = self.answer
        outcome = self.person.sp.claim(self.person.task, self.blobs.get("claim"), self.person.keys)
        said = {"paid": outcome.paid, "unused": outcome.unused, "disputed": outcome.disputed}
        kept = {"of": self._name(contents, status), "at": self.person.now(), "epoch": _epoch(status), "answer": said}
        first = not self.blobs.has("claim-answered")
        replace_blob(self.blobs, "claim-answered", json.dumps(kept).encode())
        if first or self.answer != before:
            self._tell_answer(contents)

    def _tell_answer(self, contents: _Contents) -> None:
        """By what CSP has signed: an SP that pays less would also say that less was claimed."""
        answer, earned = self.answer, self.person.rewards()
        got = {**answer.paid, **answer.unused}
        asked = [number for number in (*contents.rounds, *contents.unused) if number not in answer.disputed]
        short = {number: earned[number] - got.get(number, 0) for number in asked if got.get(number, 0) < earned[number]}
        told = {"millionths": answer.amount, "currency": self.person.currency}
        told |= {"missing": short} if short else {}
        self.person.on_event("claimed", told | ({"disputed": dict(answer.disputed)} if answer.disputed else {}))

    def _make(self, contents: _Contents) -> None:
        side = self.person.new_side()
        for number in contents.rounds:
            side.open_reward(self.blobs.get(f"rounds/{number}/reward"), number)
        claim = side.claim(contents.beside())
        self.blobs.delete("claim")  # first: a crash must not leave a claim of other contents
        replace_blob(self.blobs, "claim-made", contents.kept().encode())
        self.blobs.put("claim", claim)

    def _note_refused(self, why: str, contents: _Contents, status: Mapping[str, Any]) -> None:
        """Nobody but SP says that CSP refuses it: the person is told, and can show what was claimed."""
        claim = self.blobs.get("claim")
        evidence = f"refused-claims/{hashlib.sha256(claim).hexdigest()[:16]}"
        if not self.blobs.has(evidence):
            self.blobs.put(evidence, claim)
            self.person.on_event("claim refused", {"why": why})
        kept = {"of": self._name(contents, status), "at": self.person.now()}
        replace_blob(self.blobs, "claim-refused", json.dumps(kept).encode())

    def _require_booked(self, contents: _Contents) -> None:
        """Of a task whose books are closed."""
        if self._left_out(contents):
            raise TooLate("the platform says that the time to claim is over, and that what was unclaimed has returned")

    def _name(self, contents: _Contents, status: Mapping[str, Any]) -> str:
        return f"{_epoch(status)} {contents.kept()}"

    def _is_again(self, noted: Mapping[str, Any]) -> bool:
        return bool(abs(self.person.now() - float(noted.get("at", 0.0))) >= _AGAIN)

    def _kept(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.blobs.get(name))) if self.blobs.has(name) else {}


def _is_under_way(status: Mapping[str, Any]) -> bool:
    """Whether a round may still be rewarded, of a task that was cancelled too."""
    return any(entry["state"] not in ("rewarded", "aborted") for entry in status["rounds"])


def _epoch(status: Mapping[str, Any]) -> str:
    return str(status.get("epoch", ""))
