"""Rounds of `shares` to attack: the real parties in one process, every message kept, and servers that deviate.

A server deviates by bending what it says. The numbers of an exchange are opened as sums, so that a server which adds something
to its own message and to the one it hears has shifted what was opened, for both alike: that is all it can do to a sum.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import numpy as np

from crowdfl.crypto.compute import default_backend
from crowdfl.crypto.sealing import AudienceKey, ReaderKey, SigningKey
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import ParticipantKeys, TaskSpec, Tools
from crowdfl.protocols.shares.circuits.lanes import OpenLanes, coins, opened
from crowdfl.protocols.shares.dealing import rounds as dealing
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle, SharesReaderBundle, SharesSpBundle
from crowdfl.protocols.shares.profile import SharesParticipant, SharesProfile
from crowdfl.protocols.shares.round.average import PARTICIPANTS, REQUESTER
from crowdfl.protocols.shares.round.csp import CspAnswer, CspKeys, CspRound, SharesCsp
from crowdfl.protocols.shares.round.manifest import ManifestReply, RoundManifest, SpConversation, StepRequest
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.settings import TaskSettings, to_millionths
from crowdfl_lab.audit.finding import SHARES, Floats
from crowdfl_lab.observe import RoundRecorder
from crowdfl_lab.parties import LocalParties, PlayedRound

SIZE = 8  # parameters
PEOPLE = {"p0": 6, "p1": 9, "p2": 2, "p3": 4, "p4": 7}  # and their samples
MOST_SAMPLES = 10
BUDGET = "9.00"
PAYMENT = to_millionths(BUDGET)
# Steps of a round in the order of their requests; those from SUM on are `gate`'s.
LANES, CHECK, COMMIT, BITS, SUM, OPERANDS, COMPARE, FLIPS, TABLE, PRODUCTS, MASKS, AVERAGE = range(2, 14)

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
Bend = Callable[[int, bytes], bytes]
"""What a server makes of a message of a step: done to its own and to the other's."""


def stage(parameters: int = SIZE, **changes: Any) -> LocalParties:  # noqa: ANN401 -- settings
    """A task, and everything that its parties say."""
    settings, profile = TaskSettings.of(**_BOUNDS | changes), WatchedProfile()
    tools = Tools(default_backend(), observer=RoundRecorder(keep_messages=True, keep_views=True))
    return LocalParties(TaskSpec("audit", settings, parameters), tools, profile)


def paying(parameters: int = SIZE, **changes: Any) -> LocalParties:  # noqa: ANN401 -- settings
    return stage(parameters, budget=BUDGET, **changes)


class WatchedProfile(SharesProfile):
    """The profile with servers that can be bent; KGC's files are made once for both."""

    def dealt(self, spec: TaskSpec, source: bytes, role: str, number: int) -> bytes:
        return _files(spec, source, number)[role]

    def sp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> "BentSp":
        own = SharesSpBundle.from_bytes(bundle, Limits.plain())
        return BentSp(tools.party("SP"), SharesShape(spec), own.csp_signing, own.seed, own.fingerprint)

    def csp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> "BentCsp":
        own = SharesCspBundle.from_bytes(bundle, Limits.plain())
        audiences = {PARTICIPANTS: AudienceKey(own.participants), REQUESTER: AudienceKey(own.requester)}
        keys = CspKeys(SigningKey(own.signing), ReaderKey(own.sealing), audiences, own.seed)
        return BentCsp(tools.party("CSP"), SharesShape(spec), keys, own.fingerprint)

    def participant(self, spec: TaskSpec, bundle: bytes, keys: ParticipantKeys, tools: Tools) -> "KnownPhone":
        own = SharesReaderBundle.from_bytes(bundle, Limits.plain())
        return KnownPhone(tools.party("participant"), SharesShape(spec), own, keys)


@lru_cache(maxsize=2)
def _files(spec: TaskSpec, source: bytes, number: int) -> Mapping[str, bytes]:
    return dealing.files(SharesShape(spec), source, number)


@lru_cache(maxsize=4)
def _shape(spec: TaskSpec) -> SharesShape:
    return SharesShape(spec)


def _as_it_is(step: int, message: bytes) -> bytes:
    del step
    return message


class BentSp(SharesSp):
    """SP, whose messages after the manifest can be bent."""

    bend: Bend = staticmethod(_as_it_is)

    def _begun(self) -> Generator[bytes, Reply, Any]:
        now = yield from super()._begun()
        now.talk = _BentTalk(now.talk, self.bend)
        return now


class _BentTalk(SpConversation):
    def __init__(self, talk: SpConversation, bend: Bend) -> None:
        self._party, self._place, self._said, self._bend = talk._party, talk._place, talk._said, bend

    def ask(self, payload: bytes) -> Generator[bytes, Reply, bytes]:
        step = self._said.step + 1
        reply = yield from super().ask(self._bend(step, payload))
        return self._bend(step, reply)


class BentCsp(SharesCsp):
    """CSP, whose messages after the answer to the manifest can be bent."""

    bend: Bend = staticmethod(_as_it_is)

    def _program(self, number: int, manifest: bytes) -> CspRound:
        return cast(CspRound, _BentRound(super()._program(number, manifest), self.bend))


class _BentRound:
    """CSP's half of a round, of which both messages of each exchange are bent."""

    def __init__(self, run: CspRound, bend: Bend) -> None:
        self._run, self._bend, self._step = run, bend, 1

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- the rest is that of the round
        return getattr(self._run, name)

    def answer(self, payload: bytes) -> CspAnswer:
        self._step += 1
        answer = self._run.answer(self._bend(self._step, payload))
        answer.payload = self._bend(self._step, answer.payload)
        return answer


class KnownPhone(SharesParticipant):
    """A phone that lends its keys to an attacker."""

    @property
    def boxes(self) -> list[ReaderKey | AudienceKey]:
        """What it can open sealed things with."""
        return [self.reader, AudienceKey(self.bundle.audience)]

    def base(self) -> bytes:
        return self._followed().base

    def weights(self) -> Floats:
        """The model that it holds."""
        return np.asarray(self._followed().weights / self._shape.widths.unit, dtype=np.float64)


def source_of(parties: LocalParties) -> bytes:
    """What KGC keeps until both servers have all their files."""
    return parties.dealer.dealing.source


def server_sp(parties: LocalParties) -> BentSp:
    return cast(BentSp, parties.sp)


def server_csp(parties: LocalParties) -> BentCsp:
    return cast(BentCsp, parties.csp)


def phone(parties: LocalParties, who: str) -> KnownPhone:
    return cast(KnownPhone, parties.participant(who))


def shape_of(parties: LocalParties) -> SharesShape:
    return _shape(parties.dealer.spec)


def bend_server(parties: LocalParties, server: str, bend: Bend) -> None:
    """From the exchange after the manifest on."""
    if server == "SP":
        server_sp(parties).bend = bend
    else:
        server_csp(parties).bend = bend


def updates(seed: int = 7, parameters: int = SIZE) -> dict[str, tuple[Floats, int]]:
    """Models that go the same way, so that everyone is within the bounds and paid."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=parameters) * 0.4
    return {who: (np.round(common + rng.normal(size=parameters) * 0.1, 3), samples) for who, samples in PEOPLE.items()}


def integers(parties: LocalParties, update: tuple[Floats, int]) -> Floats:
    """What an honest phone shares in the first round, which starts from zeros."""
    return np.asarray(np.rint(update[0] * shape_of(parties).widths.unit) * update[1], dtype=np.float64)


def played(parties: LocalParties, number: int, trained: Mapping[str, tuple[Floats, int]]) -> PlayedRound:
    """A round that everyone reads."""
    payment = shape_of(parties).payment or None
    return parties.play(number, parties.encrypt(trained, number), payment=payment, readers=None)


@dataclass(frozen=True)
class Said:
    """An exchange between the servers, as it went over the wire."""

    step: int
    sp: bytes = field(repr=False)
    csp: bytes = field(repr=False)


def conversation(parties: LocalParties) -> list[Said]:
    """Everything that the servers have said to each other, of all rounds."""
    limits = shape_of(parties).limits(shape_of(parties).longest_payload)
    said, asked = [], StepRequest(0, 0, b"", b"")
    for sender, receiver, message in cast(RoundRecorder, parties.observer).messages:
        if (sender, receiver) == ("SP", "CSP"):
            asked = StepRequest.from_bytes(message, limits)
        elif (sender, receiver) == ("CSP", "SP"):
            said.append(Said(asked.step, asked.payload, message))
    return said


def added_to(message: bytes, place: int, bits: int, number: int) -> bytes:
    """A message in which something was added, modulo 2^bits, to the number that begins at this byte."""
    end = place + bits // 8
    value = (int.from_bytes(message[place:end], "little") + number) % (1 << bits)
    return message[:place] + value.to_bytes(bits // 8, "little") + message[end:]


def _forget() -> None:
    _files.cache_clear()
    _shape.cache_clear()


@contextmanager
def switched(owner: object, name: str, value: Any) -> Iterator[None]:  # noqa: ANN401 -- any mechanism
    """A mechanism replaced on purpose, for as long as a demonstration takes."""
    built = getattr(owner, name) if not isinstance(owner, type) else owner.__dict__[name]
    setattr(owner, name, value)
    _forget()
    try:
        yield
    finally:
        setattr(owner, name, built)
        _forget()


def coins_of(parties: LocalParties) -> bytes:
    """What the sketch of the round under way is drawn from: both servers know it."""
    first = [said for said in conversation(parties) if said.step == 1][-1]
    limits = shape_of(parties).limits()
    digest = RoundManifest.from_bytes(first.sp, limits).digest
    return coins(digest, ManifestReply.from_bytes(first.csp, limits).nonce)


def sketch_of(parties: LocalParties) -> Sketch:
    widths = shape_of(parties).widths
    return Sketch(coins_of(parties), widths.parameters, widths.rows, widths.buckets)


def lanes_opened(parties: LocalParties, slots: list[int]) -> OpenLanes:
    """What both servers saw of the lanes of the last round, by slots."""
    widths, ring = shape_of(parties).widths, shape_of(parties).ring
    said = [said for said in conversation(parties) if said.step == LANES][-1]
    length = len(slots) * widths.lanes * ring.bytes
    own, other = (ring.decode(message[:length]).reshape(len(slots), -1) for message in (said.sp, said.csp))
    return opened(widths, slots, own, other)
