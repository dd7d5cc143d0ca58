"""The parties of a small `shares` task, each of which can be built anew from what it kept."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from crowdfl.crypto.signing import SigningKey
from crowdfl.protocols.exchange import Ask, Reply, ask_directly
from crowdfl.protocols.profile import SpRecord, TaskSpec, Tools
from crowdfl.protocols.records import MemoryRecords
from crowdfl.protocols.shares.chain import RoundPlace, first_base
from crowdfl.protocols.shares.profile import SharesProfile, SharesRequester
from crowdfl.protocols.shares.round.sp import LeftOver, SharesSp
from crowdfl.protocols.shares.round.upload import UploadBody, make_upload, upload_statement
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings
from crowdfl.simulation.sides import Sides
from tests.hosts import FEW_LANES, SMALL_BOUNDS, test_tools
from tests.protocols.driving import Keeping

PROFILE = SharesProfile()
SETTINGS = SMALL_BOUNDS | FEW_LANES | {"rounds": 6}
PAYING = {"budget": "9.00"}  # equal parts
HIDDEN = PAYING | {"pay": "samples"}  # rewards that both servers compute
UNCHECKED = {"check": "none"}
COUNTED_ONCE = {"weighting": "equal"}
NOISY = COUNTED_ONCE | {"epsilon": 8.0, "noise": "any"}  # five people are far too few for it
PAYMENT = 9_000_000


def name_of(place: int) -> str:
    return f"{place:020x}"


@dataclass
class Played:
    publication: bytes
    envelopes: Mapping[str, bytes]
    rejected: Mapping[str, Reason]


class Parties(Sides):
    """Servers, people and the requester of a task. SP is made anew for each round, from what it kept."""

    csp: Keeping
    requester: SharesRequester

    def __init__(
        self, people_count: int = 5, parameters: int = 8, settings: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        chosen = SETTINGS | {"max_participants": people_count} | settings
        self.signing = SigningKey.fresh()  # the requester's
        spec = TaskSpec("5a" * 16, TaskSettings.of(**chosen), parameters, requester=self.signing.public)
        self.shape, self.parameters = SharesShape(spec), parameters
        self.coins: dict[int, bytes] = {}  # CSP's, by round: whoever plays CSP here draws the same ones
        self.records: dict[int, bytes] = {}  # SP's, by round; 0: of the task
        self.asked: list[bytes] = []
        self.names = [name_of(place) for place in range(people_count)]
        super().__init__(spec, test_tools(), initial=np.linspace(-1.0, 1.0, parameters), people=self.names)

    def fresh_csp(self, records: MemoryRecords | None = None, tools: Tools | None = None) -> Keeping:
        return Keeping(super().fresh_csp(tools=tools).side, records, self.coins)

    def new_sp(self, number: int) -> SharesSp:
        """Ready for a round, with what was kept of it."""
        sp = self.open(number, self.fresh_sp()).sp
        sp.record = SpRecord(self.records.get(0, b""), self.records.get(number, b""))
        return cast(SharesSp, sp)

    def place(self, number: int) -> RoundPlace:
        """Where the uploads of a round belong."""
        left = None if self.left is None else LeftOver.from_bytes(self.left, self.shape.limits())
        return self.shape.place(number, first_base(self.spec.name) if left is None else left.base)

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
        return ask_directly(self.csp.answer)(request)

    def reference(self, number: int, model: Any) -> bytes:
        return bytes(self.requester.refer(lambda _: model, number, self.signing))

    def play(
        self, number: int, uploads: Mapping[str, bytes], ask: Ask | None = None, reference: bytes | None = None
    ) -> Played:
        """A round to its end; nobody reads it yet. SP's record is kept before each request leaves."""
        sp, then = self.new_sp(number), ask or self.ask

        def kept(request: bytes) -> Reply:
            self.records |= {0: sp.record.task, number: sp.record.round}
            return then(request)

        round_ = self.current(sp, kept)
        round_.collect(uploads)
        publication, envelopes = self.finish(round_, self.shape.payment or None, reference=reference)
        return Played(publication, envelopes, round_.rejected)

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
