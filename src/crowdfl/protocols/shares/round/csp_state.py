"""What CSP keeps of a `shares` task, durably: one manifest a round, one request a step, one sum a base.

Whatever decides who is second is reserved: written at once, before the answer, even if the answer fails. The rest is kept
together with the answer, or not at all.
"""

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence

from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.errors import BaseSpent, OutOfTurn, RoundEnded, WrongBase
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.profile import MOST_UNSHOWN, CspMemory
from crowdfl.protocols.shares.chain import first_base, sha256
from crowdfl.protocols.shares.round.manifest import RoundManifest, Transcript

_RESTORED = "CSP was restored from a backup and may have answered round {} before. The round is void"
_ENDED = "CSP has ended round {}: what was computed is not what honest parties compute. The round is void"
_ABORTED = "round {} was given up: nothing was opened for it, and nothing will be"
_PASSED = "a later round has begun: round {} is over"


class SumOpened(Message, kind=62):
    """The last sum that CSP has opened: of which round, and the base that follows from its record."""

    number: int
    following: bytes


class CspState:
    """One task's records, in a memory that may be another one at each request."""

    def __init__(self, task: str, memory: CspMemory) -> None:
        self._task, self._memory = task, memory

    # A round's steps.

    def require_under_way(self, number: int) -> None:
        reasons = {"ended": _ENDED, "aborted": _ABORTED, "passed": _PASSED}
        for name, words in reasons.items():
            if self._memory.get(name, number) is not None:
                raise RoundEnded(words.format(number))
        if self._memory.restored:
            raise RoundEnded(_RESTORED.format(number))

    def transcript(self, number: int) -> Transcript | None:
        """What was said in a round so far; None before its manifest."""
        kept = self._memory.get("said", number)
        return None if kept is None else Transcript.from_bytes(kept)

    def payloads(self, number: int, steps: int) -> Iterator[bytes]:
        """SP's payloads, from the manifest on."""
        for step in range(1, steps + 1):
            payload = self._memory.get(f"heard {step}", number)
            if payload is None:
                raise RoundEnded(_ENDED.format(number))
            yield payload

    def reserve_step(self, number: int, step: int, request: bytes) -> None:
        """For this very request."""
        name = sha256(request)
        if self._memory.reserve(f"asked {step}", name, number) != name:
            raise OutOfTurn(f"step {step} of round {number} was asked for with other contents")

    def keep_step(self, number: int, payload: bytes, transcript: Transcript) -> None:
        self._memory.keep(f"heard {transcript.step}", payload, number)
        self._memory.keep("said", transcript.to_bytes(), number)

    def seed(self, number: int) -> bytes:
        """All of CSP's coins of a round come from this one: drawn once."""
        return self._memory.get("seed", number) or self._memory.reserve("seed", secrets.token_bytes(SEED_BYTES), number)

    def reserve_part(self, number: int, part: bytes) -> bytes:
        """CSP's part of a round's sum, whose seals are drawn anew each time: the first one stands."""
        return self._memory.reserve("part", part, number)

    def end(self, number: int) -> RoundEnded:
        """From here on, for good: the same error whatever it was."""
        self._memory.reserve("ended", b"", number)
        return RoundEnded(_ENDED.format(number))

    def abort(self, number: int) -> None:
        self._memory.keep("aborted", b"", number)

    # From round to round.

    def begin(self, manifest: RoundManifest) -> None:
        """A manifest that is in order ends every earlier round that is not through. It may not name a base that is spent."""
        for number in range(self._latest(), manifest.number):
            self._memory.reserve("passed", b"", number)
            self._forget(number)
        self._count_unshown(manifest.number)
        self._memory.keep("latest manifest", str(manifest.number).encode())
        if self._spent(manifest.base) not in (
            None,
            manifest.number,
        ):  # after what was reserved just now: one of two sees the other
            raise BaseSpent(_spent(manifest.number))

    # Of whom bits were shown.

    def keep_judged(self, number: int, names: Sequence[str]) -> None:
        self._memory.keep("judged", json.dumps([number, *names]).encode())

    def _count_unshown(self, number: int) -> None:
        """A round that showed bits, and whose sum was never opened: no phone sees a record of it."""
        judged, *names = json.loads(self._memory.get("judged") or b"[0]")
        if 0 < judged < number and self.record(judged) is None:
            counts = Counter(json.loads(self._memory.get("unshown") or b"{}")) + Counter(names)
            self._memory.keep("unshown", json.dumps(counts).encode())
        self._memory.keep("judged", b"[0]")

    def closed(self) -> set[str]:
        """In as many such rounds as a phone puts up with: an SP that lies to phones about them learns no more."""
        counts = json.loads(self._memory.get("unshown") or b"{}")
        return {who for who, count in counts.items() if count >= MOST_UNSHOWN}

    def _forget(self, number: int) -> None:
        """What SP said in a round that is over."""
        transcript = self.transcript(number)
        for step in range(1, transcript.step + 1 if transcript is not None else 0):
            self._memory.keep(f"heard {step}", b"", number)
        self._memory.keep("part", b"", number)  # its noise is nobody's to take off

    def check_base(self, manifest: RoundManifest) -> None:
        """The manifest starts from the model that the last opened sum gives."""
        if self._spent(manifest.base) is not None:
            raise BaseSpent(_spent(manifest.number))
        last = self.last()
        if manifest.base != (first_base(self._task) if last is None else last.following):
            raise WrongBase(
                f"the manifest of round {manifest.number} does not start from the last model that was opened"
            )

    def spend(self, number: int, base: bytes) -> None:
        """This round opens the one sum of uploads that name this base."""
        value = str(number).encode()
        if self._memory.reserve(f"spent {base.hex()}", value) != value:
            raise BaseSpent(_spent(number))
        self.require_under_way(number)  # a later manifest may have come meanwhile: of the two, one sees the other

    def keep_opened(self, opened: SumOpened, record: bytes, sums: bytes = b"") -> None:
        self._memory.keep("last sum", opened.to_bytes())
        if sums:
            self._memory.keep("alignment", sums)
        self._memory.keep("record", record, opened.number)

    def last(self) -> SumOpened | None:
        kept = self._memory.get("last sum")
        return None if kept is None else SumOpened.from_bytes(kept, Limits.plain())

    def sums(self) -> bytes | None:
        """Of products with references, as the last record left them."""
        return self._memory.get("alignment")

    def record(self, number: int) -> bytes | None:
        """Of the sum that a round has opened."""
        return self._memory.get("record", number)

    def keep_reward(self, number: int, who: str, kept: bytes) -> None:
        self._memory.keep("reward", kept, number, who)

    def reward(self, number: int, who: str) -> bytes | None:
        """What is kept of a participant's reward, with the record of its round."""
        return self._memory.get("reward", number, who)

    def spent_rounds(self) -> range:
        """Rounds in which nothing will be computed any more."""
        latest = self._latest()
        over = any(self._memory.get(end, latest) is not None for end in ("record", "ended", "aborted"))
        return range(1, latest + over)

    def _latest(self) -> int:
        return int(self._memory.get("latest manifest") or b"1")

    def _spent(self, base: bytes) -> int | None:
        kept = self._memory.get(f"spent {base.hex()}")
        return None if kept is None else int(kept)


def _spent(number: int) -> str:
    return f"round {number} starts from a model that a sum was opened for before: it needs uploads to the new one"
