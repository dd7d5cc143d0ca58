"""Rounds of `shares` to attack: the real parties in one process, every message kept, and servers that deviate.

A server deviates by tampering with what it says. The numbers of an exchange are opened as sums, so that a server which adds
something to its own message and to the one it hears has shifted what was opened, for both alike: no more can be done to a sum.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from crowdfl.crypto.compute import default_backend
from crowdfl.crypto.long_bytes import Long, whole
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.errors import CrowdFLError
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import ParticipantKeys, TaskSpec, Tools
from crowdfl.protocols.shares.circuits.lanes import OpenLanes, coins, opened
from crowdfl.protocols.shares.dealing import rounds as dealing
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle, SharesReaderBundle, SharesSpBundle
from crowdfl.protocols.shares.profile import SharesParticipant, SharesProfile
from crowdfl.protocols.shares.round.average import SharesPublication, parse_record
from crowdfl.protocols.shares.round.csp import CspAnswer, CspRound, SharesCsp
from crowdfl.protocols.shares.round.csp_records import CspRecords
from crowdfl.protocols.shares.round.manifest import ManifestReply, RoundManifest, SpConversation, StepReply, StepRequest
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.protocols.shares.shape import SharesShape, rule_widths_of, shape_of
from crowdfl.settings import TaskSettings, to_millionths
from crowdfl.simulation.sides import BesideRecords, Parties, PlayedRound
from crowdfl_lab.audit.finding import HOLDING, SHARES, Attack, Finding, Floats, found_in
from crowdfl_lab.recorder import RoundRecorder

SIZE = 8  # parameters
PEOPLE = {"p0": 6, "p1": 9, "p2": 2, "p3": 4, "p4": 7}  # and their samples
NAMES = sorted(PEOPLE)
VICTIM, READER = "p1", "p0"  # of attacks on a sum
MOST_SAMPLES = 10
BUDGET = "9.00"
PAYMENT = to_millionths(BUDGET)
# Steps of a round in the order of their requests; those from SUM on are `distance`'s. A division takes two.
LANES, CHECK, COMMIT, BITS, SUM, OPERANDS, DISTANCES, _, FACTORS, TOTAL, _, PRODUCTS, AVERAGE = range(2, 15)

_BOUNDS: dict[str, Any] = {
    "profile": SHARES,
    "decimals": 3,
    "clip": 2.0,
    "max_norm": 3.0,
    "max_samples": MOST_SAMPLES,
    "max_participants": len(PEOPLE),
    "lanes": 128,
    "rounds": 64,
}
Updates = Mapping[str, tuple[Floats, int]]
Tamper = Callable[[int, bytes], bytes]
"""What a server makes of a message of a step: done to its own and to the other's."""


@dataclass(frozen=True)
class Said:
    """An exchange between the servers, as it went over the wire."""

    step: int
    sp: bytes = field(repr=False)
    csp: bytes = field(repr=False)


class DeviatingRound(Parties):
    """The parties of a task, and everything that they say. With a budget, it pays."""

    sp: "TamperedSp"
    csp: BesideRecords

    def __init__(self, parameters: int = SIZE, **changes: Any) -> None:  # noqa: ANN401 -- settings
        spec = TaskSpec("audit", TaskSettings.of(**_BOUNDS | changes), parameters)
        self.recorder = RoundRecorder(keep_messages=True, keep_views=True)
        super().__init__(spec, Tools(default_backend(), observer=self.recorder), TamperedProfile())

    @classmethod
    def paying(cls, parameters: int = SIZE, **changes: Any) -> "DeviatingRound":  # noqa: ANN401
        """By `distance`, whose rounds open the most. Few rounds: masks of divisions are as long as their number asks for."""
        return cls(parameters, **{"budget": BUDGET, "pay": "distance", "rounds": 16} | changes)

    @cached_property
    def shape(self) -> SharesShape:
        return SharesShape(self.spec)

    @property
    def source(self) -> bytes:
        """What KGC keeps until both servers have all their files."""
        return self.dealing.source

    def tamper(self, server: str, how: Tamper) -> None:
        """From the exchange after the manifest on."""
        if server == "SP":
            self.sp.tamper = how
        else:
            cast(TamperedCsp, self.csp.side).tamper = how

    def phone(self, who: str) -> "KnownPhone":
        return cast(KnownPhone, self.participant(who))

    def play_all(self, number: int, trained: Updates) -> PlayedRound:
        """A round that everyone reads."""
        uploads = self.encrypt(trained, number)
        return self.play(number, uploads, payment=self.shape.payment or None, readers=None)

    def integers(self, update: tuple[Floats, int]) -> Floats:
        """What an honest phone shares in the first round, which starts from zeros."""
        return np.asarray(np.rint(update[0] * self.shape.widths.unit) * update[1], dtype=np.float64)

    @property
    def conversation(self) -> list[Said]:
        """Everything that the servers have said to each other, of all rounds."""
        limits, said = self.shape.limits(self.shape.longest_payload), list[Said]()
        asked = StepRequest(0, 0, b"", b"")
        for sender, receiver, message in self.recorder.messages:
            if (sender, receiver) == ("SP", "CSP"):
                asked = StepRequest.from_bytes(message, limits)
            elif (sender, receiver) == ("CSP", "SP"):
                answer = StepReply.from_bytes(message, limits).payload
                said.append(Said(asked.step, whole(asked.payload), whole(answer)))
        return said

    def said(self, step: int) -> Said:
        """The last exchange of a step."""
        return [said for said in self.conversation if said.step == step][-1]

    @property
    def sketch(self) -> Sketch:
        """Of the round under way: both servers know it."""
        first = self.said(1)
        limits = self.shape.limits()
        widths = self.shape.widths
        digest = RoundManifest.from_bytes(first.sp, limits).digest
        seed = coins(digest, ManifestReply.from_bytes(first.csp, limits).nonce)
        return Sketch(seed, widths.parameters, widths.rows, widths.buckets)

    @property
    def open_lanes(self) -> OpenLanes:
        """What both servers saw of the lanes of the last round."""
        widths = self.shape.widths
        ring = self.shape.ring
        said = self.said(LANES)
        count = len(PEOPLE)
        length = count * widths.lanes * ring.bytes
        own, other = (ring.decode(message[:length]).reshape(count, -1) for message in (said.sp, said.csp))
        return opened(widths, list(range(count)), own, other)


class TamperedProfile(SharesProfile):
    """The profile with servers that can be made to deviate."""

    def sp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> "TamperedSp":
        return TamperedSp(tools.party("SP"), SharesShape(spec), SharesSpBundle.from_bytes(bundle, Limits.plain()))

    def csp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> "TamperedCsp":
        return TamperedCsp(tools.party("CSP"), SharesShape(spec), SharesCspBundle.from_bytes(bundle, Limits.plain()))

    def participant(self, spec: TaskSpec, bundle: bytes, keys: ParticipantKeys, tools: Tools) -> "KnownPhone":
        own = SharesReaderBundle.from_bytes(bundle, Limits.plain())
        return KnownPhone(tools.party("participant"), SharesShape(spec), own, keys)


def _as_it_is(_step: int, message: bytes) -> bytes:
    return message


class TamperedSp(SharesSp):
    """SP, whose messages after the manifest can be tampered with."""

    tamper: Tamper = staticmethod(_as_it_is)

    def _begun(self, talk: SpConversation, manifest: RoundManifest) -> Generator[Long, Reply, Any]:
        now = yield from super()._begun(talk, manifest)
        now.talk = _TamperedTalk(now.talk, self.tamper)
        return now


class _TamperedTalk(SpConversation):
    def __init__(self, talk: SpConversation, tamper: Tamper) -> None:
        super().__init__(talk._party, talk._place)
        self._said, self.heed, self._tamper = talk._said, talk.heed, tamper

    def ask(self, payload: Long, longest_answer: int) -> Generator[Long, Reply, Long]:
        step = self._said.step + 1
        reply = yield from super().ask(self._tamper(step, whole(payload)), longest_answer)
        return self._tamper(step, whole(reply))


class TamperedCsp(SharesCsp):
    """CSP, whose messages after the answer to the manifest can be tampered with."""

    tamper: Tamper = staticmethod(_as_it_is)

    def _program(self, state: CspRecords) -> CspRound:
        return cast(CspRound, _TamperedProgram(super()._program(state), self.tamper))


class _TamperedProgram:
    """CSP's half of a round: both messages of each exchange are tampered with."""

    def __init__(self, run: CspRound, tamper: Tamper) -> None:
        self._run, self._tamper, self._step = run, tamper, 1

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- the rest is that of the round
        return getattr(self._run, name)

    def answer(self, payload: bytes) -> CspAnswer:
        self._step += 1
        answer = self._run.answer(self._tamper(self._step, payload))
        answer.payload = self._tamper(self._step, answer.payload)
        return answer


class KnownPhone(SharesParticipant):
    """A phone that lends its keys to an attacker."""

    @property
    def boxes(self) -> list[ReaderKey]:
        """What it can open sealed things with."""
        return [self.reader, ReaderKey(self.bundle.reading)]

    def sum_in(self, publication: bytes, number: int) -> tuple[Floats, int]:
        """The sum and the total that a publication holds for readers, whatever it leads to."""
        message = SharesPublication.from_bytes(publication, self._shape.limits())
        record = parse_record(message.record, self._shape, self.bundle.csp_signing)
        place = self._shape.place(number, record.base)
        sums, total = self._reader._unmasked(message, self._reader._open_seeds(message, record, place), place)
        return sums.astype(np.float64), total

    def base(self) -> bytes:
        return self._followed().base

    def weights(self) -> Floats:
        """The model that it holds."""
        return np.asarray(self._followed().weights / self._shape.widths.unit, dtype=np.float64)


def updates(seed: int = 7, parameters: int = SIZE) -> dict[str, tuple[Floats, int]]:
    """Models that go the same way, so that everyone is within the bounds and paid."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=parameters) * 0.4
    return {who: (np.round(common + rng.normal(size=parameters) * 0.1, 3), samples) for who, samples in PEOPLE.items()}


def added_to(message: bytes, place: int, bits: int, number: int) -> bytes:
    """A message in which something was added, modulo 2^bits, to the number that begins at this byte."""
    end = place + bits // 8
    value = (int.from_bytes(message[place:end], "little") + number) % (1 << bits)
    return message[:place] + value.to_bytes(bits // 8, "little") + message[end:]


def _forget_sizes() -> None:
    for kept in (rule_widths_of, shape_of, dealing.file_bytes):
        kept.cache_clear()


@contextmanager
def switched(owner: object, name: str, value: Any) -> Iterator[None]:  # noqa: ANN401 -- any mechanism
    """A mechanism replaced on purpose, for as long as a demonstration takes; widths that were kept are computed anew."""
    built = getattr(owner, name) if not isinstance(owner, type) else owner.__dict__[name]
    setattr(owner, name, value)
    _forget_sizes()
    try:
        yield
    finally:
        setattr(owner, name, built)
        _forget_sizes()


@contextmanager
def weakened(subject: str, *switches: tuple[object, str, Any]) -> Iterator[None]:
    """These mechanisms replaced, unless the subject is a profile as built."""
    with ExitStack() as stack:
        for switch in () if subject in HOLDING else switches:
            stack.enter_context(switched(*switch))
        yield


Go = Callable[[DeviatingRound], Floats]


def attempt(
    attack: Attack[Floats], subject: str, round_: DeviatingRound, go: Go, *switches: tuple[object, str, Any]
) -> Finding:
    """One way to the victim's update, with what stands against it switched off unless the subject is as built."""
    truth = round_.integers(updates()[VICTIM])
    guess = None
    note = "it is done"
    with weakened(subject, *switches):
        try:
            guess = go(round_)
        except CrowdFLError as refusal:
            note = f"refused: {type(refusal).__name__}"
    return attack.score(subject, guess, np.zeros(len(truth)), truth, found_in(guess, truth), note)
