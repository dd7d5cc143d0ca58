"""The parties of a small `shares` task in one process, each of which can be built anew from what it kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from crowdfl.crypto.sealing import SigningKey
from crowdfl.protocols.exchange import Reply, ask_directly, run_exchange
from crowdfl.protocols.profile import ParticipantKeys, SpRecord, TaskSpec, Tools
from crowdfl.protocols.records import MemoryRecords
from crowdfl.protocols.shares.chain import RoundPlace, first_base
from crowdfl.protocols.shares.profile import SharesProfile
from crowdfl.protocols.shares.round.csp import SharesCsp
from crowdfl.protocols.shares.round.sp import LeftOver, SharesSp
from crowdfl.protocols.shares.round.upload import UploadBody, make_upload, upload_statement
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings
from tests.protocols.driving import ONE, Keeping

PROFILE = SharesProfile()
SETTINGS: dict[str, Any] = {
    "profile": "shares",
    "decimals": 3,
    "clip": 2.0,
    "max_norm": 3.0,
    "max_samples": 10,
    "lanes": 128,
    "rounds": 6,
}
PAYING = {"budget": "9.00"}  # equal parts
HIDDEN = PAYING | {"pay": "samples"}  # rewards that both servers compute
UNCHECKED = {"check": "none"}
COUNTED_ONCE = {"weighting": "equal"}
NOISY = COUNTED_ONCE | {"epsilon": 8.0, "noise": "any"}  # five people are far too few for it
PAYMENT = 9_000_000
_TASK = "5a" * 16


def name_of(place: int) -> str:
    return f"{place:020x}"


@dataclass
class Played:
    publication: bytes
    envelopes: Mapping[str, bytes]
    rejected: Mapping[str, Reason]


@dataclass
class Parties:
    """Servers, people and the requester of a task; what is durable is here, and outlives `restart`."""

    people_count: int = 5
    parameters: int = 8
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chosen = SETTINGS | {"max_participants": self.people_count} | dict(self.settings)
        self.signing = SigningKey.fresh()  # the requester's
        self.spec = TaskSpec(_TASK, TaskSettings.of(**chosen), self.parameters, requester=self.signing.public)
        self.shape = SharesShape(self.spec)
        self.dealing = PROFILE.deal(self.spec, insecure_test_key=True)
        self.tools = Tools(ONE)
        self.files: dict[tuple[str, int], bytes] = {}
        self.keys = {name_of(i): ParticipantKeys.fresh(name_of(i)) for i in range(self.people_count)}
        self.initial = np.linspace(-1.0, 1.0, self.parameters)
        self.people = {who: self.new_person(who) for who in self.keys}
        self.requester = PROFILE.requester(self.spec, self.dealing.requester, self.tools)
        self.requester.resume(None, self.initial)
        self.coins: dict[int, bytes] = {}  # CSP's, by round: whoever plays CSP here draws the same ones
        self.keeping = self.fresh_csp()
        self.records: dict[int, bytes] = {}  # SP's, by round; 0: of the task
        self.left: bytes | None = None
        self.asked: list[bytes] = []

    @property
    def names(self) -> list[str]:
        return list(self.keys)

    def new_person(self, who: str) -> Any:
        person = PROFILE.participant(self.spec, self.dealing.participant, self.keys[who], self.tools)
        person.resume(None, self.initial)
        return person

    def dealt(self, role: str, number: int) -> bytes:
        """A file of KGC's; made once, since making it takes longer than using it."""
        if (role, number) not in self.files:
            self.files[role, number] = b"".join(PROFILE.dealt(self.spec, self.dealing.source, role, number))
        return self.files[role, number]

    def new_csp(self) -> SharesCsp:
        csp = PROFILE.csp(self.spec, self.dealing.csp, self.tools)
        csp.set_dealt_loader(lambda number: self.dealt("csp", number))
        for keys in self.keys.values():
            csp.enrol(keys.identity)
        return csp

    def fresh_csp(self, records: MemoryRecords | None = None) -> Keeping:
        """A process of CSP that has these records, or none."""
        return Keeping(self.new_csp(), records, self.coins)

    def new_sp(self, number: int) -> SharesSp:
        """Ready for a round, with what was kept of it."""
        sp = PROFILE.sp(self.spec, self.dealing.sp, self.tools)
        sp.open_round(number)
        sp.load_previous(self.left)
        sp.set_dealt_loader(lambda n: self.dealt("sp", n))
        sp.record = SpRecord(self.records.get(0, b""), self.records.get(number, b""))
        for keys in self.keys.values():
            sp.enrol(keys.identity)
        return sp

    def place(self, number: int) -> RoundPlace:
        """Where the uploads of a round belong."""
        left = None if self.left is None else LeftOver.from_bytes(self.left, self.shape.limits())
        return self.shape.place(number, first_base(_TASK) if left is None else left.base)

    def models(self, seed: int = 0) -> dict[str, Any]:
        """Trained models: a direction that all share, and something of each one's own."""
        rng = np.random.default_rng(seed)
        common = rng.normal(size=self.parameters) * 0.3
        return {who: self.initial + common + rng.normal(size=self.parameters) * 0.1 for who in self.names}

    def samples(self) -> dict[str, int]:
        return {who: 1 + i % 10 for i, who in enumerate(self.names)}

    def encrypt(
        self, number: int, models: Mapping[str, Any], samples: Mapping[str, int] | None = None
    ) -> dict[str, bytes]:
        counts = samples or self.samples()
        return {who: self.people[who].encrypt_update(model, counts[who], number) for who, model in models.items()}

    def crafted(self, number: int, who: str, update: Any, samples: int, **other: Any) -> UploadBody:
        """The upload of a phone that somebody has altered: any integers, any number of samples."""
        place, signing = self.place(number), other.get("signing", self.keys[who].signing)
        sealing = other.get("sealing", self.people[who].bundle.csp_sealing)
        return make_upload(self.shape, place, who, signing, sealing, np.asarray(update, dtype=np.int64), samples)

    def signed(self, body: UploadBody) -> UploadBody:
        """As its own participant would sign it."""
        statement = upload_statement(body.place, body.who, body.digest, body.sealed)
        return replace(body, signature=self.keys[body.who].signing.sign(statement))

    def ask(self, request: bytes) -> Reply:
        self.asked.append(request)
        return ask_directly(self.keeping.answer)(request)

    def reference(self, number: int, model: Any) -> bytes:
        return bytes(self.requester.refer(lambda _: model, number, self.signing))

    def play(
        self,
        number: int,
        uploads: Mapping[str, bytes],
        ask: Callable[[bytes], Reply] | None = None,
        reference: bytes | None = None,
    ) -> Played:
        """A round to its end; nobody reads it yet. SP's record is kept before each request leaves."""
        sp, then = self.new_sp(number), ask or self.ask

        def kept(request: bytes) -> Reply:
            self.records |= {0: sp.record.task, number: sp.record.round}
            return then(request)

        sp.add_all(uploads)
        if reference is not None:
            sp.take_reference(reference)
        if self.shape.payment:
            run_exchange(sp.reward(self.shape.payment), kept)
        envelopes = sp.envelopes()
        run_exchange(sp.publish(final=False), kept)
        self.left = sp.carry_over()
        return Played(sp.publication(), envelopes, sp.rejected())

    def read(self, number: int, played: Played) -> Any:
        average = self.requester.read(played.publication, number)
        if number < self.spec.settings.rounds:
            for person in self.people.values():
                assert np.array_equal(person.read(played.publication, number).weights, average.weights)
        return average

    def rewards(self, number: int, played: Played) -> dict[str, int]:
        return {who: self.people[who].open_reward(envelope, number) for who, envelope in played.envelopes.items()}


def integers_of(parties: Parties, base: Any, model: Any) -> list[int]:
    """The change of one sample that an honest phone shares, in units; `max_norm` and `clip` are not reached."""
    unit = parties.shape.widths.unit
    return [int(x) for x in np.rint((np.asarray(model) - np.asarray(base) / unit) * unit)]


def expected(parties: Parties, base: list[int], models: Mapping[str, Any], samples: Mapping[str, int]) -> list[int]:
    """The next model by whole numbers alone."""
    if not parties.shape.widths.has_counts:
        samples = dict.fromkeys(models, 1)
    total = sum(samples[who] for who in models)
    changes = {who: integers_of(parties, base, model) for who, model in models.items()}
    sums = [sum(samples[who] * changes[who][j] for who in models) for j in range(parties.parameters)]
    return [b + round(Fraction(s, total)) for b, s in zip(base, sums, strict=True)]


def initial_units(parties: Parties) -> list[int]:
    return [int(x) for x in np.rint(parties.initial * parties.shape.widths.unit)]


def in_units(parties: Parties, average: Any) -> list[int]:
    return [round(x) for x in average.weights * parties.shape.widths.unit]
