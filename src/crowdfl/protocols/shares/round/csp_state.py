"""What CSP keeps of a `shares` task, durably: one manifest a cohort, one request a step, one sum a base.

Whatever decides who is second is reserved: written at once, before the answer, even if the answer fails. The rest is kept
together with the answer, or not at all.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from crowdfl.crypto.randomness import SEED_BYTES, secret_bytes
from crowdfl.errors import BaseSpent, OutOfTurn, RoundEnded, WrongBase
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.profile import MOST_UNSHOWN, CspMemory
from crowdfl.protocols.shares.chain import first_base, sha256
from crowdfl.protocols.shares.round.manifest import RoundManifest, RoundTally, RoundVerdict, Transcript
from crowdfl.protocols.shares.shape import SharesShape

_RESTORED = "CSP was restored from a backup and may have answered round {} before. The round is void"
_ENDED = "CSP has ended round {}: what was computed is not what honest parties compute. The round is void"
_ABORTED = "round {} was given up: nothing was opened for it, and nothing will be"
_PASSED = "a later round has begun: round {} is over"
_EVERY = 1 << 32  # more cohorts than any round has


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

    def payloads(self, number: int, first: int, last: int) -> Iterator[bytes]:
        """SP's payloads of some steps."""
        for step in range(first, last + 1):
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
        return self._memory.get("seed", number) or self._memory.reserve("seed", secret_bytes(SEED_BYTES), number)

    def reserve_part(self, number: int, part: bytes) -> bytes:
        """CSP's part of a round's sum, whose seals are drawn anew each time: the first one stands."""
        return self._memory.reserve("part", part, number)

    # The cohorts of a round.

    def cohort(self, number: int) -> tuple[int, int]:
        """The one under way, from 1 on, and the step with its manifest; 0 before the first."""
        cohort, first = map(int, (self._memory.get("cohort", number) or b"0 1").split())
        return cohort, first

    def expects_manifest(self, number: int) -> bool:
        """Whether every cohort that has come has its verdict, and there are more."""
        cohort = self.cohort(number)[0]
        is_last = cohort == int(self._memory.get("cohorts", number) or b"-1")
        return cohort == 0 or (not is_last and self._memory.get(f"verdict {cohort}", number) is not None)

    def keep_cohort(self, manifest: RoundManifest, step: int, sums: bytes) -> None:
        """Its names, and CSP's sum of those before it, whose own payloads are of no more use."""
        number, (_, before) = manifest.number, self.cohort(manifest.number)
        for done in range(before, step):
            self._memory.keep(f"heard {done}", b"", number)
        self._memory.keep("cohort", f"{manifest.cohort} {step}".encode(), number)
        self._memory.keep("cohorts", str(manifest.cohorts).encode(), number)
        self._memory.keep(f"names {manifest.cohort}", "\n".join(manifest.names).encode(), number)
        self._memory.keep("sums", sums, number)

    def sums(self, number: int) -> bytes:
        """Of the cohorts before the one under way; empty where there are none."""
        return self._memory.get("sums", number) or b""

    def keep_verdict(self, cohort: int, verdict: RoundVerdict) -> None:
        self._memory.keep(f"verdict {cohort}", verdict.to_bytes(), verdict.number)

    def tally(self, number: int, shape: SharesShape, before: int = _EVERY) -> RoundTally:
        """Of all cohorts that have come, or of those before one."""
        tally, cohorts = RoundTally(shape), int(self._memory.get("cohorts", number) or b"1")
        for cohort in range(1, min(self.cohort(number)[0] + 1, before)):
            names = (self._memory.get(f"names {cohort}", number) or b"").decode().split("\n")
            tally.begin(names, cohorts)
            verdict = self._verdict(number, cohort, shape.limits())
            if verdict is not None:
                tally.add(names, verdict)
        return tally

    def _verdict(self, number: int, cohort: int, limits: Limits) -> RoundVerdict | None:
        kept = self._memory.get(f"verdict {cohort}", number)
        return None if kept is None else RoundVerdict.from_bytes(kept, limits)

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
            self._count_unshown(number)
            self._forget(number)
        self._memory.keep("latest manifest", str(manifest.number).encode())
        if self._spent(manifest.base) not in (
            None,
            manifest.number,
        ):  # after what was reserved just now: one of two sees the other
            raise BaseSpent(_spent(manifest.number))

    # Of whom bits were shown.

    def keep_judged(self, number: int, cohort: int, names: Sequence[str]) -> None:
        self._memory.keep(f"judged {cohort}", json.dumps(names).encode(), number)

    def _count_unshown(self, number: int) -> None:
        """A cohort that showed bits, and that is in no sum that was opened: no phone sees a record that names it."""
        judged = [self._memory.get(f"judged {cohort}", number) for cohort in range(1, self.cohort(number)[0] + 1)]
        names = [who for kept in judged for who in json.loads(kept or b"[]")]
        if names:
            counts = Counter(json.loads(self._memory.get("unshown") or b"{}")) + Counter(names)
            self._memory.keep("unshown", json.dumps(counts).encode())

    def closed(self) -> set[str]:
        """In as many such rounds as a phone puts up with: an SP that lies to phones about them learns no more."""
        counts = json.loads(self._memory.get("unshown") or b"{}")
        return {who for who, count in counts.items() if count >= MOST_UNSHOWN}

    def _forget(self, number: int) -> None:
        """What was said and computed in a round that is over."""
        transcript, (cohort, first) = self.transcript(number), self.cohort(number)
        kinds = ("names", "verdict", "judged", "alignment")
        names = [f"{kind} {place}" for kind in kinds for place in range(1, cohort + 1)]
        names += [f"heard {step}" for step in range(first, transcript.step + 1 if transcript is not None else 0)]
        for name in (*names, "sums", "part"):  # the part's noise is nobody's to take off
            self._memory.keep(name, b"", number)

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

    def keep_opened(self, opened: SumOpened, record: bytes, void: Collection[int]) -> None:
        """The record names everyone but those of void cohorts."""
        self._memory.keep("last sum", opened.to_bytes())
        self._memory.keep("record", record, opened.number)
        for cohort in range(1, self.cohort(opened.number)[0] + 1):
            if cohort not in void:
                self._memory.keep(f"judged {cohort}", b"[]", opened.number)

    def last(self) -> SumOpened | None:
        kept = self._memory.get("last sum")
        return None if kept is None else SumOpened.from_bytes(kept, Limits.plain())

    def alignments(self, number: int, cohort: int) -> bytes | None:
        """Of products with references: as the last record left them (0), or those of a cohort of a round under way."""
        return self._memory.get(f"alignment {cohort}", number)

    def keep_alignments(self, kept: bytes, number: int = 0, cohort: int = 0) -> None:
        self._memory.keep(f"alignment {cohort}", kept, number)

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
