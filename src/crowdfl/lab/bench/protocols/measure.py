"""The figures of `hardened` at full size, one function per quantity. Comparing comes later."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from crowdfl.crypto.budget import WidthBudget
from crowdfl.crypto.kernels import BucketProduct, MultiPow, PowMod
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.crypto.vector import CipherVector
from crowdfl.errors import ProtocolError
from crowdfl.lab.bench.workload import (
    SERVERS,
    SIGMA,
    BenchSettings,
    Floats,
    Say,
    full_uploads,
    made_up_weights,
    packed_model,
    sealed_publication,
)
from crowdfl.lab.observe import Lap, RoundRecorder, Span, TimedBackend, seconds_by_kernel
from crowdfl.lab.timing import Timing, timed, turns
from crowdfl.protocols.hardened.opening import CHUNK, MaskSeed, OpenRequest
from crowdfl.protocols.hardened.prirwd import InnerRequest, LanesRequest, NonceRequest, RewardRequest
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.protocols.profile import Average, width_budget
from crowdfl.protocols.sdiv import SdivRequest
from crowdfl.protocols.smul import PolynomialsRequest
from crowdfl.settings import MILLION, TaskSettings

__all__ = [
    "PAPER_PROTOCOLS",
    "PARTS",
    "QUICK_PROTOCOLS",
    "Averaging",
    "BenchCampaign",
    "ProtocolSettings",
    "Rewards",
    "average",
    "read_average",
    "reward",
]

_FEWEST = 3  # uploads that a round needs
_READ_SAMPLES = 100


@dataclass(frozen=True, kw_only=True)
class ProtocolSettings(BenchSettings):
    """The paper's campaign, and smaller samples of it."""

    averaged_parameters: int = 500  # 23 ciphertexts and the total's, which divide evenly by 2 workers
    averaging_turns: int = 30  # many short turns: on a busy machine some of either kind fall into quiet moments
    reads: int = 3
    crowds: tuple[int, ...] = (5, 10)  # beside `participants`, for the count of openings
    small_parameters: int = 40
    small_crowd: int = 5
    operations: int = 8
    operation_turns: int = 3

    def task(self, profile: str = "hardened", **others: Any) -> TaskSettings:  # noqa: ANN401
        """Of every task of a run: rewards on, total shown."""
        sigma = SIGMA if profile == "hardened" else None
        return super().task(profile=profile, sigma=sigma, rounds=max(5, len(self.crowds) + 1), **others)

    @property
    def budget(self) -> WidthBudget:
        """Of the campaign."""
        return width_budget(self.task(), self.parameters, SIGMA)


PAPER_PROTOCOLS = ProtocolSettings()
QUICK_PROTOCOLS = ProtocolSettings(
    parameters=600,
    participants=5,
    lanes=40,
    averaged_parameters=60,
    averaging_turns=2,
    reads=1,
    crowds=(3,),
    small_parameters=2,
    small_crowd=3,
    operations=1,
    operation_turns=1,
)


@dataclass(frozen=True)
class Averaging:
    """Publications of a sample, in turn with the bare partial decryptions of the same ciphertexts."""

    ciphertexts: int
    decryptions: dict[str, int]  # of one publication, by server
    publish: Timing
    bare: Timing
    roles: dict[str, float]
    kernels: dict[str, float]
    table_seconds: float


def average(settings: ProtocolSettings, backend: TimedBackend) -> Averaging:
    """SP masks, rerandomises, decrypts its half, sends; CSP checks, decrypts, seals; SP makes the publication."""
    recorder = RoundRecorder(keep_messages=True)
    parties = settings.parties(settings.task(), backend, recorder, settings.averaged_parameters)
    # Once per key and process, whatever the number of ciphertexts: told apart.
    table_seconds = timed(FreshRandomizers(parties.dealer.task.public).prepare)
    updates = {f"p{i}": (made_up_weights(settings.averaged_parameters, i), i + 1) for i in range(_FEWEST)}
    round_ = parties.open(1)
    round_.collect(parties.encrypt(updates))
    round_.average()
    decryptions = {role: recorder.total(role, "PDec") for role in SERVERS}
    sp, csp = parties.sp.party, parties.csp.party
    requests = [message for sender, receiver, message in recorder.messages if (sender, receiver) == SERVERS]
    masked = CipherVector.concat([OpenRequest.from_bytes(request, sp.limits(CHUNK)).masked for request in requests])
    recorder.keep_messages = False
    recorder.reset()

    def bare() -> None:
        sp.partial_decrypt(masked)
        csp.partial_decrypt(masked)

    took = turns({"publish": round_.average, "bare": bare}, settings.averaging_turns)
    roles = {role: recorder.seconds_of(role) for role in SERVERS}
    kernels = seconds_by_kernel(backend.spans, recorder.laps)
    return Averaging(len(masked), decryptions, took["publish"], took["bare"], roles, kernels, table_seconds)


class BenchCampaign:
    """A `hardened` task at full size with an upload from everyone, of which only two were encrypted parameter by parameter."""

    def __init__(self, settings: ProtocolSettings, backend: TimedBackend, say: Say) -> None:
        say(f"dealing a task of {settings.parameters:,} parameters")
        self.settings, self.recorder = settings, RoundRecorder()
        self.parties = settings.parties(settings.task(), backend, self.recorder)
        self.task, self.ciphertexts = self.parties.dealer.task, settings.budget.ciphertexts + 1
        say(f"deriving {settings.participants} uploads from two")
        self.uploads = full_uploads(self.parties, self.ciphertexts, settings.participants)

    def publication(self, weights: Floats) -> bytes:
        """Of these weights, sealed from known values; a real upload stands in for its ciphertexts."""
        rows = packed_model(self.settings.budget, self.task.public, weights, _READ_SAMPLES)
        upload = next(iter(self.uploads.values()))
        stand_in = CipherVector.from_bytes(upload, self.task.public, max_count=self.ciphertexts)
        return sealed_publication(self.task, self.parties.dealer.csp(), rows, stand_in)


def read_average(campaign: BenchCampaign) -> Timing:
    """Unseal, subtract the masks, unpack, divide, on one core."""
    weights = made_up_weights(campaign.settings.parameters, 2021)
    publication = campaign.publication(weights)
    reader = next(iter(campaign.parties.people.values()))
    results: list[Average] = []
    took = turns({"read": lambda: results.append(reader.read(publication, 1))}, campaign.settings.reads)
    # Order and signs of the packed weights are the task's own affair: but for those, they must be what went in.
    if not np.allclose(np.sort(np.abs(results[0].weights)), np.sort(np.abs(weights)), rtol=0, atol=1e-6):
        raise ProtocolError("the average that was read is not the one that was published")
    return took["read"]


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


def reward(campaign: BenchCampaign, backend: TimedBackend, crowd: int, round_number: int) -> Rewards:
    """All of PriRwd for the first `crowd` participants, in a round of its own."""
    parties, recorder, costs = campaign.parties, campaign.recorder, campaign.parties.csp.party.costs
    round_ = parties.open(round_number)
    for who in list(campaign.uploads)[:crowd]:
        round_.collect({who: campaign.uploads[who]})
    # Rewards follow a publication; its seed stands for it here, the publication itself is timed elsewhere.
    sp = cast(HardenedSp, parties.sp)
    sp.restore_seed("opening", MaskSeed.fresh_for(sp.sums()))
    before = costs.counts["SMUL", "PDec"], costs.total("SMUL")
    payment = crowd * MILLION
    recorder.reset()
    busy = time.process_time()
    envelopes = round_.reward(payment)
    cpu, laps = time.process_time() - busy, list(recorder.laps)
    paid = sum(parties.open_rewards(envelopes, round_number).values())
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
    )


def _by_part(laps: Iterable[Lap], spans: Iterable[Span]) -> dict[tuple[str, str], float]:
    spans = list(spans)
    parts: dict[tuple[str, str], float] = dict.fromkeys(((part, role) for part in PARTS for role in SERVERS), 0.0)
    for lap in laps:
        ends = _ENDS.get((lap.before, lap.after)) if lap.role == "SP" else None
        cut = lap.start
        if ends is not None:
            part, kernel = ends
            cut = max((s.end for s in spans if s.kernel is kernel and lap.start <= s.end <= lap.end), default=cut)
            parts[part, lap.role] += cut - lap.start
        parts[_PART_OF[lap.after or lap.before], lap.role] += lap.end - cut
    return parts
