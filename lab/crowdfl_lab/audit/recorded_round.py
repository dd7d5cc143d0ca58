"""An honest round in one process, kept with everything that each attacker could have seen of it.

Four participants, one of them late. In `paper` the average is held, the late upload arrives and all are averaged once more, as
section 5.2 describes; in `hardened` the late upload extends the products and the opening runs once, after the rewards.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from crowdfl.crypto.blocks import Block, from_ints, width_of
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.compute import default_backend
from crowdfl.crypto.paillier.pctd import KeyShare, PrivateKey, PublicKey
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import AudienceKey, ReaderKey
from crowdfl.documents.signed import Definition
from crowdfl.errors import SeedReused
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.exchange import Observer, Reply
from crowdfl.protocols.hardened.manifest import HardenedUpload, ManifestRequest, manifest_of
from crowdfl.protocols.hardened.prifedavg import ModelCodec
from crowdfl.protocols.hardened.prirwd import RewardSp
from crowdfl.protocols.hardened.profile import HardenedParticipant, HardenedRequester, HardenedSp
from crowdfl.protocols.paper.profile import PaperRequester, PaperSp
from crowdfl.protocols.party import KeyedParty, View
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.roles.ports import ManualClock
from crowdfl.settings import TaskSettings, to_millionths
from crowdfl.simulation.host import Host
from crowdfl.simulation.sides import BesideRecords, Parties
from crowdfl_lab.audit.finding import PAPER, Floats

SAMPLES = {"p1": 49, "p2": 31, "p3": 20, "p4": 83}
LATE = "p4"
BUDGET = 36
PAYMENT = to_millionths(BUDGET)
_BOUNDS: dict[str, Any] = {"max_participants": 6, "max_samples": 100, "clip": 4.0, "lanes": None, "rounds": 1}

# A task small enough to be attacked message by message, and its people with their samples.
SMALL_PEOPLE = {"p0": 6, "p1": 9, "p2": 2}
SMALL_SIZE = 6  # parameters: one ciphertext, and the samples'
SMALL_WINDOW = 86400  # seconds to claim in
SMALL_BOUNDS: dict[str, Any] = {
    "max_participants": 3,
    "max_samples": 10,
    "clip": 1.0,
    "decimals": 2,
    "mask_bits": 20,
    "rounds": 2,
    "lanes": None,
}


class ShortCoins(Coins):
    """Coins whose residues modulo N are short on purpose."""

    length = 80  # bits, as the paper's masks

    def residues(self, count: int, n: int) -> Block:
        return from_ints((self.bits(self.length) for _ in range(count)), width_of(n))


class ShortMaskedSide(RewardSp):
    """PriRwd's SP with short masks on its operands."""

    length = 160  # bits: they cover any honest operand

    def _distances(
        self, a: CipherVector, b: CipherVector, deltas: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, tuple[CipherVector, CipherVector]]:
        short = ShortCoins(coins.take(SEED_BYTES))
        short.length = self.length
        return (yield from super()._distances(a, b, deltas, short))


class HardenedParties(Parties):
    """The parties of a task of `hardened`, each with a record of what it sees."""

    sp: HardenedSp
    csp: BesideRecords


@dataclass(frozen=True, eq=False, repr=False)
class RecordedRound:
    """The truth, to score attacks with, and below it what attackers hold."""

    settings: TaskSettings
    weights: dict[str, Floats]
    rewards: dict[str, float]

    context: bytes
    public: PublicKey
    csp: View
    uploads: dict[str, bytes]
    envelopes: dict[str, bytes]
    average: Floats  # what every participant reads
    sp_shares: tuple[KeyShare, ...]
    csp_share: KeyShare | None
    phone_share: KeyShare | None
    requester_key: PrivateKey | None = None
    phone_reader: ReaderKey | None = None
    audiences: tuple[AudienceKey, ...] = ()
    codec: ModelCodec | None = None  # public
    refusal: str = ""  # what SP said to a second opening

    @property
    def profile(self) -> str:
        return self.settings.profile

    @property
    def parameters(self) -> int:
        return len(self.average)

    @property
    def total(self) -> int:
        return sum(SAMPLES.values())

    @property
    def most(self) -> int:
        return self.settings.max_participants * self.settings.max_samples

    @property
    def distances(self) -> dict[str, float]:
        """d_i of Eq. 10, from the plaintexts."""
        mean = sum((n * self.weights[who] for who, n in SAMPLES.items()), np.zeros(self.parameters)) / self.total
        return {who: float(np.sum((w - mean) ** 2)) for who, w in self.weights.items()}


def divisions(csp: View) -> list[list[tuple[int, int]]]:
    """The pairs (x', y') that CSP opened, one list for every exchange of SDIV."""
    exchanges = []
    for x, y in zip(csp.of("SDIV x'"), csp.of("SDIV y'"), strict=True):
        divisors = list(y) if len(y) == len(x) else list(y) * len(x)
        exchanges.append([(int(a), int(b)) for a, b in zip(x, divisors, strict=True)])
    return exchanges


def deal(parameters: int, observer: Observer | None = None, **bounds: Any) -> HardenedParties:  # noqa: ANN401 -- settings
    settings = TaskSettings.of(**{"profile": "hardened"} | bounds)
    tools = Tools(default_backend(), insecure_test_key=settings.key_bits < 2048, observer=observer or Observer())
    return HardenedParties(TaskSpec("audit", settings, parameters), tools)


def updates(parameters: int, seed: int, low: float = -0.45, high: float = 0.45) -> dict[str, tuple[Floats, int]]:
    rng = np.random.default_rng(seed)
    return {who: (np.round(rng.uniform(low, high, parameters), 6), samples) for who, samples in SAMPLES.items()}


def small_parties(key_bits: int, **others: Any) -> HardenedParties:  # noqa: ANN401 -- settings
    return deal(SMALL_SIZE, key_bits=key_bits, **SMALL_BOUNDS | others)


def small_host(key_bits: int, parameters: int = SMALL_SIZE) -> tuple[Host, str]:
    """The small task among the roles themselves, with its people and the money for all rounds; its first round is open."""
    tools = Tools(default_backend(), insecure_test_key=True)
    host = Host(tools, clock=ManualClock(1000.0))
    settings = TaskSettings.of(profile="hardened", key_bits=key_bits, budget=str(BUDGET), **SMALL_BOUNDS)
    shape, words = ModelShape(("w",), ((parameters,),)), "a task of the audit"
    definition = Definition(words, words, words, shape, settings, SMALL_WINDOW, {})
    task = host.create(definition, [np.zeros(parameters)])
    for who in SMALL_PEOPLE:
        host.join(task, who)
    host.requester.fund(task, settings.rounds * PAYMENT, "all")
    host.run()
    return host, task


def send_updates(host: Host, number: int, updates: Mapping[str, tuple[Floats, int]]) -> None:
    for who, (weights, samples) in updates.items():
        host.people[who].encrypt(number, [weights], samples)
        host.people[who].send(number)


def small_updates() -> dict[str, tuple[Floats, int]]:
    rng = np.random.default_rng(17)
    return {who: (np.round(rng.uniform(-1, 1, SMALL_SIZE), 2), samples) for who, samples in SMALL_PEOPLE.items()}


def signed_manifest(number: int, uploads: Mapping[str, bytes], payment: int = PAYMENT) -> ManifestRequest:
    """What SP shows CSP of these uploads, as their owners have signed them for a round."""
    opened = {who: HardenedUpload.parse(upload) for who, upload in uploads.items()}
    return manifest_of(number, payment, {who: (one.digest, one.signature) for who, one in opened.items()})


def record_round(profile: str, *, key_bits: int, parameters: int, seed: int = 7) -> RecordedRound:
    trained = updates(parameters, seed)
    parties: Parties = deal(parameters, key_bits=key_bits, profile=profile, budget=str(BUDGET), **_BOUNDS)
    uploads = parties.encrypt(trained)
    round_ = parties.open(1)
    round_.collect({who: upload for who, upload in uploads.items() if who != LATE})
    if profile == PAPER:
        round_.hold()
    round_.collect({LATE: uploads[LATE]})
    publication, envelopes = parties.finish(round_, PAYMENT)
    average = parties.read(publication, 1, [LATE]).weights
    rewards = {who: millionths / 1e6 for who, millionths in parties.open_rewards(envelopes, 1).items()}
    return RecordedRound(
        settings=parties.spec.settings,
        weights={who: weights for who, (weights, _) in trained.items()},
        rewards=rewards,
        context=parties.task.context(1),
        public=parties.task.public,
        csp=parties.csp.party.view,
        uploads=uploads,
        envelopes=envelopes,
        average=average,
        csp_share=cast(KeyedParty, parties.csp.party).share,
        phone_share=cast(KeyedParty, parties.people["p2"].party).share,
        **(_held_in_paper(parties) if profile == PAPER else _held_in_hardened(parties, trained[LATE][0])),
    )


def _held_in_paper(parties: Parties) -> dict[str, Any]:
    sp, requester = cast(PaperSp, parties.sp), cast(PaperRequester, parties.requester)
    shares = (sp.party.share, sp.delivery.share)
    return {"sp_shares": tuple(share for share in shares if share), "requester_key": requester.private}


def _held_in_hardened(parties: Parties, weights: Floats) -> dict[str, Any]:
    """And what comes of one more upload after the end, and an opening of the new sum: SP must refuse, CSP must see nothing."""
    sp, phone = cast(HardenedSp, parties.sp), cast(HardenedParticipant, parties.people["p2"])
    view, refusal = parties.csp.party.view, ""
    round_, seen = parties.current(), len(view.entries)
    round_.collect(parties.encrypt({"p5": (weights, 1)}))
    try:
        round_.average()
    except SeedReused as refused:
        refusal = str(refused) if len(view.entries) == seen else ""
    return {
        "sp_shares": (sp.party.share,),
        "phone_reader": phone.reader,
        "audiences": (phone.audience, cast(HardenedRequester, parties.requester).audience),
        "codec": sp.codec,
        "refusal": refusal,
    }
