"""Both servers of a crowd in one process: the profile's own halves, over updates that nobody had to share, seal, sign or store.

SP's share of an update is the update itself, and CSP's is zero. Every sum, lane and opened number is what it is of any other
shares, so that all that follows is the servers' own: what KGC deals, both programs of the checks and of the rewards, verdicts,
masks, noise, CSP's signed record. One reader opens it for everyone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Backend
from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.randomness import SEED_BYTES, secret_bytes, secret_hex
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.errors import RewardOutOfRange, RoundEnded
from crowdfl.protocols import claims
from crowdfl.protocols.claims import RewardEnvelope
from crowdfl.protocols.exchange import ask_directly
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.party import Party
from crowdfl.protocols.profile import Average, TaskSpec, Tools, whole_samples
from crowdfl.protocols.round import AggregationRound
from crowdfl.protocols.shares.chain import HASH_BYTES, ROUND_BYTES, Integers, ModelChain, sha256
from crowdfl.protocols.shares.circuits.lanes import LaneMaker
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle, SharesReaderBundle, SharesSpBundle, deal_keys
from crowdfl.protocols.shares.dealing.rounds import DealtRound
from crowdfl.protocols.shares.profile import SharesRequester
from crowdfl.protocols.shares.reference import REQUESTER_NAME, RunningSums, added
from crowdfl.protocols.shares.round.average import RoundRecord, ShareSums
from crowdfl.protocols.shares.round.csp import CspAnswer, CspCohort, CspInputs, CspKeys, CspRound
from crowdfl.protocols.shares.round.manifest import ManifestEntry, RoundManifest, RoundTally, StepReply, StepRequest
from crowdfl.protocols.shares.round.rewards import open_part
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.protocols.shares.round.steps import NAME_BYTES, SEALED_BYTES, SIGNATURE_BYTES
from crowdfl.protocols.shares.round.upload import UpdateEncoder, UploadBody, upload_bytes
from crowdfl.protocols.shares.round.work import Findings, Sown, Stored
from crowdfl.protocols.shares.server_optimizers import Moments
from crowdfl.protocols.shares.shape import SharesShape, shape_of
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings
from crowdfl.simulation.crowd_dealing import dealt_together

_TOGETHER = 8  # uploads that are sketched at once: what is worked on stays in the cache
NOTHING = ManifestEntry(bytes(HASH_BYTES + SEALED_BYTES + SIGNATURE_BYTES))


@dataclass(frozen=True)
class Handed:
    """What every run has of its own: with another run's, both are the same to the byte."""

    task: str = field(default_factory=lambda: secret_hex(HASH_BYTES))
    name: Callable[[str], str] = lambda _person: secret_hex(NAME_BYTES // 2)  # that servers know a person by
    entry: Callable[[int, str], ManifestEntry] = lambda _number, _who: NOTHING  # of an upload in a round's manifest
    seed: Callable[[int], bytes] = lambda _number: secret_bytes(SEED_BYTES)  # that CSP's coins of a round come from


@dataclass
class _Updates:
    """Those of one round, whole, by the name that servers know; the requester's is what others are compared with."""

    rows: dict[str, Integers] = field(default_factory=dict, repr=False)  # not yet times the samples
    samples: dict[str, int] = field(default_factory=dict)
    entries: dict[str, ManifestEntry] = field(default_factory=dict)

    def findings(self, shape: SharesShape, names: Sequence[str], coins: bytes) -> Findings:
        """What a server's work on its shares of these comes to."""
        counted = [who for who in names if who != REQUESTER_NAME]
        found = Findings(ShareSums(shape), [self.samples[who] for who in counted])
        found.entries = {who: self.entries[who] for who in counted}
        if not coins:
            row = np.empty(shape.spec.parameters, dtype=np.int64)
            for who in counted:
                np.multiply(self.rows[who], self._times(who), out=row)
                found.sums.add_row(row.view(np.uint64), self.samples[who])
            return found
        maker = LaneMaker(shape, coins)
        found.lanes = np.empty((len(names), shape.widths.lanes), dtype=np.uint64)
        for start in range(0, len(names), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            found.lanes[part] = maker.of_whole(
                [self.rows[who] for who in names[part]], [self._times(who) for who in names[part]]
            )
        return found

    def _times(self, who: str) -> int:
        """Where everyone counts once, no number of samples is here."""
        return self.samples[who] or 1


@dataclass
class _Dealer:
    """KGC: what both servers get for a cohort, made once."""

    shape: SharesShape
    source: bytes = field(repr=False)
    _last: tuple[int, tuple[DealtRound, DealtRound]] | None = field(default=None, repr=False)

    def of(self, file: int) -> tuple[DealtRound, DealtRound]:
        if self._last is None or self._last[0] != file:
            self._last = None  # the room of the one before
            self._last = file, dealt_together(self.shape, self.source, file)
        return self._last[1]


class _WholeSp(SharesSp):
    """Its share of an update is the update."""

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesSpBundle, dealer: _Dealer) -> None:
        super().__init__(party, shape, bundle)
        self._dealer, self._updates = dealer, _Updates()

    def hold(self, updates: _Updates) -> None:
        self._updates = updates
        if (entry := updates.entries.get(REQUESTER_NAME)) is not None:
            place = self._place.task, self._place.number.to_bytes(ROUND_BYTES, "big"), self._place.base
            signed = entry.digest, entry.sealed, entry.signature
            self._reference = UploadBody(*place, REQUESTER_NAME, *signed, b"", b"", b"", b"")
        self._count({who: who for who in updates.rows if who != REQUESTER_NAME})

    def drop(self) -> None:
        """A round that is over is never computed again."""
        self._updates = _Updates()

    def _work(self, uploads: Sequence[Stored], coins: bytes = b"", onto: ShareSums | None = None) -> Findings:
        del onto
        return self._updates.findings(self._shape, [one.who for one in uploads], coins)

    def _dealt(self, file: int) -> DealtRound:
        return self._dealer.of(file)[0]


class _EmptyCohort(CspCohort):
    """CSP's shares are zero, and there is no seal that does not open."""

    def _opened_seals(self) -> dict[str, bytes]:
        requester = [REQUESTER_NAME] if self.manifest.reference else []
        return dict.fromkeys([*self.manifest.names, *requester], bytes(SEED_BYTES))

    def _work(self, seeds: Sequence[Sown], coins: bytes = b"", backend: Backend | None = None) -> Findings:
        del backend
        counted = sum(one.who != REQUESTER_NAME for one in seeds)
        lanes = np.zeros((len(seeds) if coins else 0, self._shape.widths.lanes), dtype=np.uint64)
        return Findings(ShareSums(self._shape), [0] * counted, {}, lanes)


class _EmptyRound(CspRound):
    plays = _EmptyCohort


class _Csp:
    """CSP's end of one round. Nobody else sends anything, so that what comes is the next step."""

    def __init__(self, party: Party, shape: SharesShape, keys: CspKeys, inputs: CspInputs) -> None:
        self._party, self._shape = party, shape
        self._round = _EmptyRound(shape, keys, inputs, RoundTally(shape), ShareSums(shape))
        self._awaits_manifest = True
        self.products: dict[str, int] = {}  # its shares of products with the reference, of those who are in

    def answer(self, request: bytes) -> bytes:
        message = StepRequest.from_bytes(request, self._shape.limits(len(request)))
        answer = self._answered(message.payload)
        if answer.verdict is not None:
            cohort = self._round.cohort
            self._awaits_manifest = cohort.manifest.cohort < cohort.manifest.cohorts
            self.products |= {} if cohort.members.void else answer.products
        return self._party.send(StepReply(sha256(request), answer.payload, b""))

    def _answered(self, payload: Long) -> CspAnswer:
        if not self._awaits_manifest:
            return self._round.answer(payload)
        self._awaits_manifest = False
        self._round.close()
        return self._round.begin(RoundManifest.from_bytes(payload, self._shape.limits()))


class _Everyone(dict[str, bytes]):
    """One key for all: a hidden reward is sealed as it is for its owner, and opened here."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key

    def __missing__(self, who: str) -> bytes:
        return self._key


@dataclass
class Served:
    """What the servers made of a round, by the names of people."""

    accepted: frozenset[str] = frozenset()
    rejected: Mapping[str, Reason] = field(default_factory=dict)
    paid: Mapping[str, int] = field(default_factory=dict)  # millionths
    average: Average | None = None  # None: the servers have given the round up
    publication: int = 0  # bytes that each reader fetches
    envelopes: Mapping[str, int] = field(default_factory=dict)  # bytes that each person fetches


class CrowdServers:
    """A task of the profile `shares`, round by round. Who takes part, and when, is the caller's."""

    def __init__(
        self,
        settings: TaskSettings,
        initial: npt.NDArray[np.float64],
        moments: Moments,
        tools: Tools,
        handed: Handed | None = None,
    ) -> None:
        self._handed = handed = handed or Handed()
        self._spec = TaskSpec(handed.task, settings, len(initial))
        self._shape = shape = shape_of(self._spec)
        dealing, limits = deal_keys(shape.widths.k), Limits.plain()
        self._dealer = _Dealer(shape, dealing.source)
        self._sp = _WholeSp(tools.party("SP"), shape, SharesSpBundle.from_bytes(dealing.sp, limits), self._dealer)
        self._csp, self._people = tools.party("CSP"), tools.party("participant")
        self._keys = CspKeys.of(SharesCspBundle.from_bytes(dealing.csp, limits))
        self._requester = tools.party("requester")
        bundle = SharesReaderBundle.from_bytes(dealing.requester, limits)
        self._reader = SharesRequester(self._requester, shape, bundle)
        self._encoder = UpdateEncoder(shape, keeps_room=True)
        start = ModelChain.start(self._spec.name, initial, shape.widths.unit, shape.step)
        self._chain = replace(start, moments=moments) if moments else start
        self._reader.resume(self._chain.to_bytes(), initial)
        self._names: dict[str, str] = {}  # of people, as servers know them
        self._opener: ReaderKey | None = None
        self._observer = tools.observer
        self._left: bytes | None = None  # by SP, for the next round
        self._sums: dict[str, int] = {}  # CSP's shares of products with references, over all rounds
        self._updates = _Updates()
        self._number = 0
        self.upload_bytes = upload_bytes(shape)  # of everyone, the same

    @property
    def moments(self) -> Moments:
        """What the server step carries."""
        return self._chain.moments

    def open(self, number: int) -> None:
        self._number, self._updates = number, _Updates()

    def refer(self, train: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> None:
        """The requester's own update of the round, which the others are compared with."""
        update = self._encoder.encode_once(train(self._chain.weights / self._shape.widths.unit), self._chain, 1)
        self._take(REQUESTER_NAME, update, 1)
        self._sent(self._requester)

    def take(self, person: str, weights: npt.NDArray[np.float64], samples: int) -> dict[str, float]:
        """Somebody's update, from the trained model; what its device would tell of it."""
        update = self._encoder.encode_once(weights, self._chain, samples := whole_samples(samples))
        self._take(self._name(person), update, samples if self._shape.widths.has_counts else 0)
        self._sent(self._people)
        details: dict[str, float] = {"samples": samples, "clipped": self._encoder.clipped}
        details |= {} if self._encoder.scaled is None else {"scaled": round(self._encoder.scaled, 4)}
        return details | ({} if self._spec.settings.epsilon is None else {"length": self._encoder.length})

    def _take(self, who: str, row: Integers, samples: int) -> None:
        self._updates.rows[who], self._updates.samples[who] = row, samples
        self._updates.entries[who] = self._handed.entry(self._number, who)

    def _sent(self, party: Party) -> None:
        party.costs.messages += 1
        party.costs.bytes_sent += self.upload_bytes

    def _name(self, person: str) -> str:
        if person not in self._names:
            self._names[person] = self._handed.name(person)
        return self._names[person]

    def close(self) -> Served:
        """Check, pay and average what was taken, as both servers do."""
        number, sp = self._number, self._sp
        people = {self._names[person]: person for person in self._names}
        csp = self._csp_of(number)
        sp.open_round(number)
        sp.load_previous(self._left)
        sp.hold(self._updates)
        round_ = AggregationRound(sp, ask_directly(csp.answer, self._observer), self._observer)
        try:
            envelopes = round_.reward(self._shape.payment) if self._shape.payment else {}
            publication = round_.average()
        except RoundEnded as ended:
            return Served(rejected={people[who]: Reason(why) for who, why in ended.rejected.items()})
        finally:  # the largest things there are
            self._updates = _Updates()
            sp.drop()
        self._left = round_.carry_over()
        self._keep_products(csp.products)
        average = self._reader.read(publication, number)
        self._chain = ModelChain.from_bytes(self._reader.chain() or b"", self._spec.parameters, self._shape.step)
        record = RoundRecord.from_bytes(average.record, self._shape.limits())
        return Served(
            accepted=frozenset(people[who] for who in record.accepted),
            rejected={people[who]: why for who, why in round_.rejected.items()},
            paid={people[who]: amount for who, amount in self._paid(record, envelopes).items()},
            average=average,
            publication=len(publication),
            envelopes={people[who]: len(envelope) for who, envelope in self._fetched(envelopes).items()},
        )

    def _csp_of(self, number: int) -> _Csp:
        def dealt(cohort: int) -> DealtRound:
            return self._dealer.of(self._shape.file_number(number, cohort))[1]

        if self._opener is None and self._shape.is_reward_hidden:
            self._opener = ReaderKey.fresh()
        reading = _Everyone(b"" if self._opener is None else self._opener.public)
        view, backend = self._csp.view, self._csp.backend
        inputs = CspInputs(self._handed.seed(number), dealt, reading, view, backend, (), self._sums)
        return _Csp(self._csp, self._shape, self._keys, inputs)

    def _keep_products(self, products: Mapping[str, int]) -> None:
        if self._shape.widths.has_reference:
            bits = self._shape.widths.R
            kept = added(self._sums, products, bits).to_bytes()
            self._sums = RunningSums.read(kept, bits, self._spec.settings.most_devices)

    def _fetched(self, envelopes: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Equal parts follow from the record, which everyone reads anyway."""
        return envelopes if self._shape.is_reward_hidden else {}

    def _paid(self, record: RoundRecord, envelopes: Mapping[str, bytes]) -> dict[str, int]:
        if not self._shape.payment:
            return {}
        if self._opener is None:
            part = open_part(self._shape, record, record.accepted[0]) or 0
            return dict.fromkeys(record.accepted, part)
        found = {}
        for who in record.accepted:
            try:
                found[who] = self._opened(self._opener, who, envelopes[who])
            except RewardOutOfRange:  # no claim of it would be paid
                continue
        return found

    def _opened(self, opener: ReaderKey, who: str, envelope: bytes) -> int:
        form, context = self._shape.reward_form, self._spec.context(self._number)
        message = RewardEnvelope.from_bytes(envelope, Limits.plain())
        opened = claims.open_reward(message, opener, self._keys.signing.public, context, who, form)
        return form.payable(opened, form.largest)
