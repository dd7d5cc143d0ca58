"""CSP's records of a `shares` task, of its rounds and of their cohorts, with the rules that follow from them alone.

One manifest for each cohort, one request for each step, one sum for a base: each is a comparison with a record here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum

from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.errors import BaseSpent, OutOfTurn, ProtocolError, RoundEnded, WrongBase
from crowdfl.protocols.messages import Message
from crowdfl.protocols.records import Look
from crowdfl.protocols.shares.chain import RoundPlace, first_base
from crowdfl.protocols.shares.reference import RunningSums
from crowdfl.protocols.shares.round.bonus import KeptVoid
from crowdfl.protocols.shares.round.ends import RoundEnd
from crowdfl.protocols.shares.round.manifest import RoundManifest, RoundTally, RoundVerdict, StepRequest, Transcript
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.reasons import Reason

MOST_UNSHOWN = 3
"""Rounds that took an upload of a participant's and that no record shows: after so many it takes no further part."""


class Phase(StrEnum):
    """Where a round stands. It leaves `UNDER_WAY` once, and no step is answered after."""

    UNDER_WAY = "under way"
    OPENED = "opened"  # its sum was
    VOID = "void"  # nothing was opened, as CSP's signed word says
    ENDED = "ended"  # something was not as honest parties compute it
    PASSED = "passed"  # a later round has begun, or SP has given it up


_OVER = {
    Phase.OPENED: "CSP has opened the sum of round {}: there is no further step",
    Phase.VOID: "round {} was given up: nothing was opened for it, and nothing will be",
    Phase.ENDED: "CSP has ended round {}: what was computed is not what honest parties compute. The round is void",
    Phase.PASSED: "a later round has begun, or this one was given up: round {} is over",
}


def over(number: int, phase: Phase) -> RoundEnded:
    return RoundEnded(_OVER[phase].format(number))


class KeptTask(Message, kind=80):
    """Of a task: how far it has come, whose base is spent, and of whom bits were shown in rounds that no record names."""

    latest: int  # the last round that has a manifest; 0 before the first
    base: bytes  # that the next sum starts from
    spent: tuple[bytes, ...]  # bases whose one sum was opened
    unshown: tuple[str, ...]
    counts: tuple[int, ...]  # in how many rounds

    def require_unspent(self, manifest: RoundManifest) -> None:
        """The manifest starts from the model that the last opened sum gives, and no sum of uploads to that was opened."""
        if manifest.base in self.spent:
            raise BaseSpent(
                f"round {manifest.number} starts from a model that a sum was opened for before: it needs uploads to the new one"
            )
        if manifest.base != self.base:
            raise WrongBase(
                f"the manifest of round {manifest.number} does not start from the last model that was opened"
            )

    @property
    def closed(self) -> Collection[str]:
        """In as many unshown rounds as a phone puts up with: an SP that lies to phones about them learns no more."""
        counted = zip(self.unshown, self.counts, strict=True)
        return {who for who, count in counted if count >= MOST_UNSHOWN}

    def counting(self, names: Iterable[str]) -> "KeptTask":
        counts = Counter(dict(zip(self.unshown, self.counts, strict=True))) + Counter(names)
        return replace(self, unshown=tuple(counts), counts=tuple(counts.values()))


class KeptRound(Message, kind=81, repr=False):
    """Of a round: its phase, what was said, and what is computed with while it is under way."""

    phase: str
    seed: bytes  # all of CSP's coins of this round come from it
    step: int  # steps that were answered
    said: bytes  # the hash of all of them
    asked: bytes  # the hash of the request that takes the next step; empty before there is one
    cohort: int  # the one under way, from 1 on
    cohorts: int
    first: int  # the step with its manifest
    heard: tuple[str, ...]  # the files with SP's payloads of its steps so far
    sums: str  # the file with CSP's sums over the cohorts before it; empty: there are none
    record: bytes  # CSP's signed one, of a round whose sum was opened
    end: bytes  # what CSP says of a round that is over without one, a `RoundEnd`
    reference: bytes = b""  # the hash of the one that everyone is compared with, in all cohorts; empty: there is none

    @property
    def transcript(self) -> Transcript:
        return Transcript(self.step, self.said)

    @property
    def is_over(self) -> bool:
        return self.phase != Phase.UNDER_WAY


class KeptCohort(Message, kind=82, repr=False):
    """Of a cohort: whom its manifest names, whose bits CSP has shown, and the verdict once there is one."""

    names: tuple[str, ...]
    judged: tuple[str, ...] = ()
    verdict: bytes = b""


class CspRecords:
    """A request's look at the records of one task and one round of it."""

    def __init__(self, look: Look, shape: SharesShape, number: int) -> None:
        self.look, self._shape, self.number = look, shape, number
        base = first_base(shape.spec.name)
        self.task = look.get(KeptTask) or KeptTask(0, base, (), (), ())
        self.round = look.get(KeptRound, number)

    @property
    def now(self) -> KeptRound:
        """The round, which has begun."""
        if self.round is None:
            raise OutOfTurn(f"round {self.number} has no manifest yet")
        return self.round

    def require_under_way(self) -> None:
        if self.round is not None and self.round.is_over:
            raise over(self.number, Phase(self.round.phase))
        if self.number < self.task.latest:
            raise over(self.number, Phase.PASSED)

    def is_next(self, message: StepRequest, asked: bytes) -> bool:
        """Whether the next step is this request's, which follows from everything that was said. It may be nobody's yet."""
        if message.step != self.now.step + 1:
            raise OutOfTurn(f"step {message.step} of round {self.number} is not the next one")
        if message.transcript != self.now.said:
            raise OutOfTurn(f"step {message.step} of round {self.number} does not follow from what was said before")
        if self.now.asked not in (b"", asked):
            raise OutOfTurn(f"step {message.step} of round {self.number} was asked for with other contents")
        return bool(self.now.asked)

    @property
    def expects_manifest(self) -> bool:
        """Whether every cohort that has come has its verdict, and there are more."""
        now = self.round
        if now is None or now.cohort == 0:
            return True
        return now.cohort < now.cohorts and bool(self.cohort(now.cohort).verdict)

    def cohort(self, cohort: int) -> KeptCohort:
        return self.look.get(KeptCohort, self.number, part=cohort) or KeptCohort(())

    def tally(self, before: int) -> RoundTally:
        """Of the cohorts before this one."""
        tally = RoundTally(self._shape)
        for cohort in range(1, before):
            kept = self.cohort(cohort)
            tally.begin(kept.names, self.now.cohorts)
            if kept.verdict:
                tally.add(kept.names, RoundVerdict.from_bytes(kept.verdict, self._shape.limits()))
        return tally

    def payloads(self) -> Iterator[bytes]:
        """SP's, of the cohort under way."""
        return (self.look.file(self.number, name) for name in self.now.heard)

    def alignments(self, number: int = 0, cohort: int = 0) -> dict[str, int]:
        """Shares of sums of products with references: as the last record left them, or those of a cohort."""
        kept = self.look.get(RunningSums, number, part=cohort)
        most = self._shape.spec.settings.most_devices
        return {} if kept is None else RunningSums.read(kept.to_bytes(), self._shape.widths.R, most)

    # What a request changes.

    def begin(self, manifest: RoundManifest) -> None:
        """A first manifest that is in order ends the round before it, if that is not through."""
        self.come()
        start = Transcript.start(manifest.place)
        seed = self.look.fresh(SEED_BYTES)
        self.round = KeptRound(
            Phase.UNDER_WAY, seed, start.step, start.digest, b"", 0, manifest.cohorts, 1, (), "", b"", b""
        )
        self.round = replace(self.round, reference=manifest.reference_digest)

    def come(self) -> None:
        """To this round: the one before it is over."""
        before = self.look.get(KeptRound, self.task.latest) if self.task.latest else None
        if self.number > self.task.latest and before is not None and not before.is_over:
            earlier = CspRecords(self.look, self._shape, self.task.latest)
            earlier.finish(Phase.PASSED)
            self.task = earlier.task
        self.task = replace(self.task, latest=max(self.task.latest, self.number))
        self.look.put(self.task)

    def give_up(self) -> KeptRound:
        """As SP says: no step of this round is answered from now on, and none can begin it."""
        if self.round is None:
            self.come()
            end = RoundEnd.of(self._shape.spec.name, self.number, (), {}).to_bytes()
            self.round = KeptRound(Phase.PASSED, b"", 0, b"", b"", 0, 0, 1, (), "", b"", end)
            self.look.put(self.round, self.number)
        elif not self.round.is_over:
            self.finish(Phase.PASSED)
        return self.now

    def require_reference(self, manifest: RoundManifest) -> None:
        """One for a round: another in each cohort would ask everyone a question of its own."""
        if self.round is not None and manifest.reference_digest != self.round.reference:
            raise ProtocolError(f"round {self.number} has another reference: all cohorts are compared with one")

    def reserve(self, asked: bytes) -> None:
        """The next step is this request's, whatever becomes of it."""
        self.round = replace(self.now, asked=asked)
        self.look.put(self.round, self.number)

    def begin_cohort(self, manifest: RoundManifest, sums: bytes) -> None:
        """The next one: the payloads of the one before are of no more use."""
        kept = self.look.keep(self.number, sums) if sums else ""
        self.round = replace(self.now, cohort=manifest.cohort, first=self.now.step + 1, heard=(), sums=kept)
        self.look.put(KeptCohort(manifest.names), self.number, part=manifest.cohort)

    def answered(self, payload: bytes, said: Transcript) -> None:
        """One more step of a round that goes on."""
        heard = (*self.now.heard, self.look.keep(self.number, payload))
        self.round = replace(self.now, step=said.step, said=said.digest, asked=b"", heard=heard)
        self.look.put(self.round, self.number)

    def open_sum(self, place: RoundPlace, following: bytes, record: bytes, void: Collection[int]) -> None:
        """The round's one sum, with this answer: the record names everyone but those of void cohorts."""
        self.task = replace(self.task, base=following, spent=(*self.task.spent, place.base))
        self.finish(Phase.OPENED, record, void)

    def finish(self, phase: Phase, record: bytes = b"", unshown: Collection[int] | None = None) -> None:
        """The round is over. Whoever was judged in a cohort of which no phone sees a record is counted; all else is erased."""
        now = self.now
        shown: list[str] = []
        rejected: dict[str, Reason] = {}
        void: list[str] = []
        for cohort in range(1, now.cohort + 1):
            kept = self.cohort(cohort)
            shown += kept.judged
            void += kept.names if unshown is None or cohort in unshown else ()
            if kept.verdict:
                verdict = RoundVerdict.from_bytes(kept.verdict, self._shape.limits())
                rejected |= zip(verdict.rejected, verdict.reasons, strict=True)
            if unshown is None or cohort in unshown:
                self.task = self.task.counting(kept.judged)
            self.look.erase(KeptCohort, self.number, part=cohort)
            self.look.erase(RunningSums, self.number, part=cohort)
        if self._shape.bonus and void:
            self.look.put(KeptVoid(tuple(void), int(now.cohort == now.cohorts)), self.number)
        self.look.files.clear()  # nobody reads SP's payload of this step again
        end = b"" if record else RoundEnd.of(self._shape.spec.name, self.number, shown, rejected).to_bytes()
        self.round = replace(now, phase=phase, seed=b"", asked=b"", heard=(), sums="", record=record, end=end)
        self.look.put(self.round, self.number)
        self.look.put(self.task)


def spent_rounds(look: Look) -> range:
    """Rounds in which nothing will be computed any more."""
    task = look.get(KeptTask)
    if task is None:
        return range(0)
    last = look.get(KeptRound, task.latest)
    return range(1, task.latest + (last is not None and last.is_over))
