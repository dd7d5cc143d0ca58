"""The figures of `hardened` at full size, one function per quantity. Comparing comes later."""

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np

from crowdfl.crypto.blocks import Block, from_ints, to_ints
from crowdfl.crypto.compute import Backend, Kernel, Progress
from crowdfl.crypto.kernels import BucketProduct, Combine, MultiPow, PartialDecrypt, PowMod
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.crypto.randomness import SEED_BYTES, Coins
from crowdfl.crypto.vector import CipherVector, PartialVector
from crowdfl.errors import ProtocolError
from crowdfl.lab.bench.protocols.clock import Lap, Span, TimedBackend, exchange, seconds_by_kernel
from crowdfl.lab.bench.protocols.setting import Campaign, ProtocolSetting, made_up_weights
from crowdfl.lab.timing import Timing, timed, turns
from crowdfl.protocols.costs import CountingBackend
from crowdfl.protocols.hardened.opening import (
    CHUNK,
    PARTICIPANTS,
    MaskSeed,
    OpenReply,
    OpenRequest,
    Publication,
    mask_rows,
)
from crowdfl.protocols.hardened.prirwd import InnerRequest, LanesRequest, NonceRequest, RewardRequest
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.protocols.profile import CspProtocol, Task, Tools
from crowdfl.protocols.sdiv import SdivRequest
from crowdfl.protocols.smul import PolynomialsRequest
from crowdfl.settings import MILLION

__all__ = ["PARTS", "Averaging", "Reading", "Rewards", "average", "read_average", "reward", "sealed_publication"]

_FEWEST = 3  # uploads that a round needs
_READ_SAMPLES = 100


@dataclass(frozen=True)
class Averaging:
    """Publications of a sample, in turn with the bare partial decryptions of the same ciphertexts."""

    ciphertexts: int
    sp_decryptions: int
    csp_decryptions: int
    publish: Timing
    bare: Timing
    cpu: dict[str, float]  # processor seconds of all turns and workers: without the waiting for a core
    roles: dict[str, float]
    kernels: dict[str, float]
    table_seconds: float

    @property
    def overhead(self) -> float:
        """Time over that of the partial decryptions alone."""
        return self.publish.minimum / self.bare.minimum

    @property
    def inside(self) -> float:
        """The same, against the partial decryptions inside the exchange itself: no turn to wait for, no noise between."""
        return sum(self.kernels.values()) / self.kernels[PartialDecrypt.__name__]


def average(setting: ProtocolSetting, backend: TimedBackend) -> Averaging:
    """SP masks, rerandomises, decrypts its half, sends; CSP checks, decrypts, seals; SP makes the publication."""
    tools = Tools(backend, insecure_test_key=setting.insecure_test_key)
    dealer = setting.dealer("hardened", setting.averaged_parameters, tools)
    # Once per key and process, whatever the number of ciphertexts: told apart.
    table_seconds = timed(FreshRandomizers(dealer.task.public).prepare)
    sp, csp = dealer.sp(), dealer.csp()
    for i in range(_FEWEST):
        sp.add(
            f"p{i}", dealer.participant(f"p{i}").encrypt_update(made_up_weights(setting.averaged_parameters, i), i + 1)
        )
    requests: list[bytes] = []
    exchange(sp.publish(final=False), csp.answer, requests.append)
    decryptions = sp.party.costs.total("PDec"), csp.party.costs.total("PDec")
    limits = sp.party.limits(CHUNK)
    masked = CipherVector.concat([OpenRequest.from_bytes(request, limits).masked for request in requests])
    published: list[list[Lap]] = []
    cpu = {"publish": 0.0, "bare": 0.0}

    def publish() -> None:
        busy = time.process_time()
        published.append(exchange(sp.publish(final=False), csp.answer))
        sp.publication()
        cpu["publish"] += time.process_time() - busy

    def bare() -> None:
        busy = time.process_time()
        sp.party.partial_decrypt(masked)
        csp.party.partial_decrypt(masked)
        cpu["bare"] += time.process_time() - busy

    seconds = turns({"publish": publish, "bare": bare}, setting.averaging_turns)
    roles: defaultdict[str, float] = defaultdict(float)
    kernels: defaultdict[str, float] = defaultdict(float)
    for laps in published:
        for lap in laps:
            roles[lap.role] += lap.seconds
        for name, spent in seconds_by_kernel(backend.spans, laps).items():
            kernels[name] += spent
    publications, alone = seconds["publish"], seconds["bare"]
    spent_on = dict(roles), dict(kernels)
    return Averaging(len(masked), *decryptions, publications, alone, cpu, *spent_on, table_seconds)


@dataclass(frozen=True)
class Reading:
    """A participant's reading of the whole average."""

    parameters: int
    ciphertexts: int
    cpu: Timing
    wall: Timing


class _NoPowers:
    """CSP's backend for a publication whose opened values are known: it seals them without decrypting anything."""

    name = "no powers"

    def __init__(self, inner: Backend, opened: Block) -> None:
        self.inner, self.opened, self.place = inner, opened, 0

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        if isinstance(kernel, PartialDecrypt):
            return blocks[0]
        if isinstance(kernel, Combine):
            self.place += len(blocks[0])
            return self.opened[self.place - len(blocks[0]) : self.place]
        return self.inner.map(kernel, *blocks, out=out, progress=progress)


def read_average(setting: ProtocolSetting, campaign: Campaign) -> Reading:
    """Unseal, subtract the masks, unpack, divide, on one core, in processor time: seconds of a core, as the target says."""
    weights = made_up_weights(setting.parameters, 2021)
    publication = _publication(campaign, weights)
    reader = next(iter(campaign.people.values()))
    cpu, wall = [], []
    for _ in range(setting.reads):
        start, busy = time.perf_counter(), time.process_time()
        result = reader.read(publication, 1)
        cpu.append(time.process_time() - busy)
        wall.append(time.perf_counter() - start)
    # Order and signs of the packed weights are the task's own affair: but for those, they must be what went in.
    if not np.allclose(np.sort(np.abs(result.weights)), np.sort(np.abs(weights)), rtol=0, atol=1e-6):
        raise ProtocolError("the average that was read is not the one that was published")
    return Reading(setting.parameters, campaign.ciphertexts, Timing(tuple(cpu)), Timing(tuple(wall)))


def _publication(campaign: Campaign, weights: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bytes:
    budget, public = campaign.budget, campaign.dealer.task.public
    values = budget.weigh(budget.encoding.encode(weights).values, _READ_SAMPLES)
    total = from_ints([_READ_SAMPLES], public.plaintext_bytes)
    rows = np.concatenate([budget.packing(public).pack(values), total])
    return sealed_publication(campaign.dealer.task, campaign.dealer.csp(), rows, campaign.first_upload())


def sealed_publication(task: Task, csp: CspProtocol, rows: Block, stand_in: CipherVector) -> bytes:
    """A publication of these plaintexts, masked and sealed as in a round; the ciphertexts stand in for theirs.

    CSP is of no other use afterwards: it has been given a backend that decrypts nothing.
    """
    public, seed = task.public, Coins.fresh().take(SEED_BYTES)
    starts = range(0, len(rows), CHUNK)
    masks = [m for s in starts for m in to_ints(mask_rows(seed, s, min(CHUNK, len(rows) - s), public))]
    opened = from_ints(((v + m) % public.n for v, m in zip(to_ints(rows), masks, strict=True)), public.plaintext_bytes)
    csp.party.compute = CountingBackend(_NoPowers(csp.party.backend, opened), csp.party.costs)
    sealed = []
    for start in starts:
        part = stand_in.part(start, min(start + CHUNK, len(rows)))
        request = OpenRequest(task.context(1), PARTICIPANTS, start, part, PartialVector(public, part.block))
        sealed.append(OpenReply.from_bytes(csp.answer(request.to_bytes()), csp.party.limits(CHUNK)).sealed)
    return Publication(seed, len(rows), tuple(sealed)).to_bytes()


PARTS = ("sketch", "lanes", "cross terms", "polynomials", "divisions", "opening")
_SKETCH, _LANES, _CROSS, _POLYNOMIALS, _DIVISIONS, _OPENING = PARTS
_PART_OF = {
    NonceRequest.kind: _SKETCH,
    LanesRequest.kind: _LANES,
    InnerRequest.kind: _CROSS,
    PolynomialsRequest.kind: _POLYNOMIALS,
    SdivRequest.kind: _DIVISIONS,
    RewardRequest.kind: _OPENING,
}
# SP goes from one part to the next without a message between: the last run of this kernel in the lap is where.
_ENDS: dict[tuple[int, int], tuple[str, type]] = {
    (NonceRequest.kind, LanesRequest.kind): (_SKETCH, BucketProduct),
    (LanesRequest.kind, LanesRequest.kind): (_CROSS, MultiPow),
    (PolynomialsRequest.kind, SdivRequest.kind): (_POLYNOMIALS, PowMod),
}


@dataclass(frozen=True)
class Rewards:
    """PriRwd of some participants, measured whole."""

    crowd: int
    seconds: float
    cpu: float  # processor seconds of all workers
    parts: dict[tuple[str, str], float]  # by part and role
    kernels: dict[str, float]
    openings: int  # ciphertexts that CSP opened for operands of SMUL
    products: int
    paid: int  # millionths


def reward(campaign: Campaign, backend: TimedBackend, crowd: int, round_number: int) -> Rewards:
    """All of PriRwd for the first `crowd` participants, in a round of its own."""
    campaign.fill(round_number, crowd)
    sp, costs = cast(HardenedSp, campaign.sp), campaign.csp.party.costs
    # Rewards follow a publication; its seed stands for it here, the publication itself is timed elsewhere.
    sp.restore_seed("opening", MaskSeed.fresh_for(sp._products.result()))
    before = costs.counts["SMUL", "PDec"], costs.total("SMUL")
    payment = crowd * MILLION
    busy = time.process_time()
    laps = exchange(sp.reward(payment), campaign.csp.answer)
    cpu = time.process_time() - busy
    envelopes = sp.envelopes()
    paid = sum(campaign.people[who].open_reward(envelope, round_number) for who, envelope in envelopes.items())
    if not payment - 2 * crowd <= paid <= payment:
        raise ProtocolError(f"{paid} of {payment} millionths were paid out")
    return Rewards(
        crowd,
        sum(lap.seconds for lap in laps),
        cpu,
        _by_part(laps, backend.spans),
        seconds_by_kernel(backend.spans, laps),
        costs.counts["SMUL", "PDec"] - before[0],
        costs.total("SMUL") - before[1],
        paid,
    )


def _by_part(laps: Iterable[Lap], spans: Iterable[Span]) -> dict[tuple[str, str], float]:
    spans = list(spans)
    parts: dict[tuple[str, str], float] = dict.fromkeys(((part, role) for part in PARTS for role in ("SP", "CSP")), 0.0)
    for lap in laps:
        ends = _ENDS.get((lap.before, lap.after)) if lap.role == "SP" else None
        cut = lap.start
        if ends is not None:
            part, kernel = ends
            cut = max((s.end for s in spans if s.kernel is kernel and lap.start <= s.end <= lap.end), default=cut)
            parts[part, lap.role] += cut - lap.start
        parts[_PART_OF[lap.after or lap.before], lap.role] += lap.end - cut
    return parts
