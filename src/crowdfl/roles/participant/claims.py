"""A participant's one claim: which rewards go into it, what is waited for, and what becomes of those that cannot.

A claim is paid once. A reward that the platform does not show, or says to be refused, is therefore waited for: a day after the
end, but not past half of the time to claim; where the platform merely fails, until a quarter is left. Then the rest is claimed,
and the person told. Receipts, rewards and refused claims are kept: the platform's word is not enough to give them up.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crowdfl.errors import MasksDoNotFit, NotReady, TooLate
from crowdfl.protocols.capabilities import NO_CLAIMS, MakesClaims
from crowdfl.roles.ports import Blobs, replace_blob

if TYPE_CHECKING:
    from crowdfl.roles.participant.participant import Participant

_LONGEST_WAIT = 86400.0  # seconds
_FAR = 8  # parts of the time to claim that the platform's clock and this device's may differ by
_LOOKS = 10  # a few minutes, as an agent looks


@dataclass
class ClaimTime:
    """What this process itself knows of the time to claim: a platform whose clock jumps must not hurry anyone.

    A device's clock may be wrong too. After a few looks the platform is believed.
    """

    now: Callable[[], float] = time.time
    _seen: tuple[float, float] | None = None  # when, and how much time there was at least
    _doubted: int = 0

    def saw_running(self, window: float) -> None:
        self._seen, self._doubted = (self.now(), window), 0

    def believed(self, left: float | None, window: float) -> float | None:
        """What the platform says is left; None where it does not know, or where that cannot be."""
        if left is None:
            return None
        if self._seen is None:
            self._seen = self.now(), left
        seen, before = self._seen
        if left >= before - (self.now() - seen) - window / _FAR or self._doubted >= _LOOKS:
            return left
        self._doubted += 1
        return None


class Claiming:
    """The claim of a participant."""

    def __init__(self, person: "Participant") -> None:
        self.person, self.blobs, self.tell = person, person.blobs, person.on_event

    def claim(self, *, without_missing: bool) -> int:
        if self.blobs.has("paid"):
            return int(self.blobs.get("paid"))
        if not self.blobs.has("claim"):
            self._make(self._rounds(without_missing=without_missing))
        while True:
            try:
                return self._send()
            except NotReady:
                self.blobs.delete("claim")  # made too early: later rewards are not in it
                raise
            except MasksDoNotFit as refusal:  # so SP says: CSP was restored, and has lost the newest rounds
                self._keep_refused(str(refusal))
                if not without_missing:
                    self._wait_for_masks(refusal)
                if not self._make_smaller(str(refusal)):
                    raise

    def claim_again(self) -> int:
        """The same claim is the same payment."""
        paid = int(self.blobs.get("paid"))
        with contextlib.suppress(NotReady):  # its time is over
            return self._send()
        return paid

    def _send(self) -> int:
        outcome = self.person.sp.claim(self.person.task, self.blobs.get("claim"), self.person.keys)
        replace_blob(self.blobs, "paid", str(outcome.amount).encode())
        paid = {"millionths": outcome.amount, "currency": self.person.definition.settings.currency}
        self.tell("paid", paid | ({"missing": outcome.short} if outcome.short else {}))
        return outcome.amount

    def _make(self, rounds: Sequence[int]) -> None:
        side = self.person.new_side()
        for number in self._opened(rounds):
            side.open_reward(self.blobs.get(f"rounds/{number}/reward"), number)
        if not isinstance(side, MakesClaims):
            raise NO_CLAIMS
        claim = side.claim()
        self.blobs.delete("claim")  # first: a crash must not leave a claim whose rounds nobody knows
        replace_blob(self.blobs, "claimed-rounds", json.dumps(list(rounds)).encode())
        self.blobs.put("claim", claim)

    def _keep_refused(self, why: str) -> None:
        """Nobody but SP says that CSP refuses it: the person is told, and can show what was claimed."""
        claim = self.blobs.get("claim")
        evidence = f"refused-claims/{hashlib.sha256(claim).hexdigest()[:16]}"
        if not self.blobs.has(evidence):
            self.blobs.put(evidence, claim)
            self.tell("claim refused", {"why": why})

    def _make_smaller(self, why: str) -> bool:
        """Without the newest round; False if there would be nothing left."""
        rounds = json.loads(self.blobs.get("claimed-rounds"))
        newest = self._opened(rounds)[-1:]
        rest = [number for number in rounds if number not in newest]
        if not newest or not rest:
            return False
        self.tell("claiming without", {"rounds": newest, "why": why})
        self._make(rest)
        return True

    def _opened(self, rounds: Sequence[int]) -> list[int]:
        """Those with a reward that the servers computed: what an unused upload earns, SP owes by its receipt alone."""
        return [number for number in rounds if self.blobs.has(f"rounds/{number}/reward")]

    def _rounds(self, *, without_missing: bool) -> list[int]:
        """The rounds to claim: whoever was away may not have read the last."""
        status = self.person.sp.status(self.person.task)
        rewarded = _rewarded(status)
        for number in rewarded:
            self.person.open_at_end(number)
        earned = list(self.person.rewards())
        missing = [number for number in rewarded if number not in earned and self._is_owed(number)]
        lost = [number for number in self._opened(earned) if number not in rewarded]  # an SP that was restored
        missing += lost
        if missing and not without_missing:
            self._wait_for(missing, status)
        if missing:
            self.tell("claiming without", {"rounds": missing, "why": "the platform does not show their rewards"})
        return [number for number in earned if number not in lost]

    def _is_owed(self, number: int) -> bool:
        return holds_receipt(self.blobs, number) and not self.blobs.has(f"rounds/{number}/no-reward")

    def _wait_for(self, missing: Sequence[int], status: Mapping[str, Any]) -> None:
        fails = any(self.person.unread.get(number) for number in missing)  # and may be back at any moment
        if self._is_early(status, fails=fails):
            raise NotReady(
                f"the platform does not show the reward of round {', '.join(map(str, missing))}, and a claim is paid once: "
                "come back later, or claim the rest without it"
            )

    def _wait_for_masks(self, refusal: MasksDoNotFit) -> None:
        """The claim stays as it is: only SP says that CSP refuses it."""
        if self._is_early(self.person.sp.status(self.person.task), fails=False):
            raise NotReady(
                f"the platform says that the whole claim is refused ({refusal}), and a claim is paid once: come back later, "
                "or claim without the newest rewards"
            )

    def _is_early(self, status: Mapping[str, Any], *, fails: bool) -> bool:
        window = float(self.person.definition.claim_window)
        least = window / 4 if fails else max(window / 2, window - _LONGEST_WAIT)
        believed = self.person.claim_time.believed(status.get("claim_seconds_left"), window)
        return believed is None or believed > least  # None: nobody knows what time it is, and nothing ends meanwhile


def holds_receipt(blobs: Blobs, number: int) -> bool:
    """Also one of an upload that SP says to have lost since: its signature stands."""
    return blobs.has(f"rounds/{number}/receipt") or blobs.has(f"rounds/{number}/lost-receipt")


def _rewarded(status: Mapping[str, Any]) -> list[int]:
    """The rounds that were rewarded, of a task that has ended."""
    if status["state"] == "settled":
        raise TooLate("the deadline for claims has passed, and what was unclaimed went back to the requester")
    under_way = [entry for entry in status["rounds"] if entry["state"] not in ("rewarded", "aborted")]
    if status["state"] in ("running", "paused") or under_way:
        raise NotReady("rewards are claimed once, after the end of the task: come back then")
    return [entry["number"] for entry in status["rounds"] if entry["state"] == "rewarded"]
