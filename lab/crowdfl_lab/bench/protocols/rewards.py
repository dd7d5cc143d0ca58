"""PriRwd of `hardened` measured whole: by part and role, its openings, and against one averaging of the same model."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from crowdfl.crypto.paillier.kernels import BucketProduct, MultiPow, PowMod
from crowdfl.errors import ProtocolError
from crowdfl.protocols.common.sdiv import DivideRequest, GuardRequest
from crowdfl.protocols.common.smul import PolynomialsRequest
from crowdfl.protocols.hardened.prirwd import InnerRequest, LanesRequest, NonceRequest, RewardRequest
from crowdfl.settings import MILLION
from crowdfl_lab.bench.protocols.averaging import BenchCampaign, kernel_shares
from crowdfl_lab.bench.workload import SERVERS
from crowdfl_lab.observe import Lap, Span, seconds_by_kernel
from crowdfl_lab.report.results import Figure, Reference, ResultTable, Row, Target
from crowdfl_lab.timing import Timing

_PART_OF = {
    NonceRequest.kind: "sketch",
    LanesRequest.kind: "lanes",
    InnerRequest.kind: "cross terms",
    PolynomialsRequest.kind: "polynomials",
    GuardRequest.kind: "divisions",
    DivideRequest.kind: "divisions",
    RewardRequest.kind: "opening",
}
PARTS = tuple(dict.fromkeys(_PART_OF.values()))
# SP goes from one part to the next without a message between: the last run of this kernel in the lap is where.
_ENDS: dict[tuple[int, int], tuple[str, type]] = {
    (NonceRequest.kind, LanesRequest.kind): ("sketch", BucketProduct),
    (LanesRequest.kind, LanesRequest.kind): ("cross terms", MultiPow),
    (PolynomialsRequest.kind, GuardRequest.kind): ("polynomials", PowMod),
}


@dataclass(frozen=True)
class Rewards:
    """PriRwd of some participants."""

    crowd: int
    seconds: float
    cpu: float  # processor seconds of all workers
    parts: dict[tuple[str, str], float]  # by part and role
    kernels: dict[str, float]
    openings: int  # ciphertexts that CSP opened for operands of SMUL
    products: int


def measure_rewards(campaign: BenchCampaign, crowd: int, round_number: int) -> Rewards:
    """All of PriRwd for the first `crowd` participants, in a round of its own."""
    parties, recorder, costs = campaign.parties, campaign.recorder, campaign.parties.csp.party.costs
    round_ = parties.open(round_number)
    for who in list(campaign.uploads)[:crowd]:
        round_.collect({who: campaign.uploads[who]})
    openings, products = costs.counts["SMUL", "PDec"], costs.total("SMUL")
    payment = crowd * MILLION
    recorder.reset()
    busy = time.process_time()
    envelopes = round_.reward(payment)
    cpu, spans = time.process_time() - busy, campaign.backend.spans
    laps = [lap for lap in recorder.laps if lap.stage == "reward"]
    paid = sum(parties.open_rewards(envelopes, round_number).values())
    if not payment - 2 * crowd <= paid <= payment:
        raise ProtocolError(f"{paid} of {payment} millionths were paid out")
    seconds, kernels = sum(lap.seconds for lap in laps), seconds_by_kernel(spans, laps)
    openings, products = costs.counts["SMUL", "PDec"] - openings, costs.total("SMUL") - products
    return Rewards(crowd, seconds, cpu, _by_part(laps, spans), kernels, openings, products)


def _by_part(laps: Iterable[Lap], spans: Iterable[Span]) -> dict[tuple[str, str], float]:
    spans = list(spans)
    parts: dict[tuple[str, str], float] = dict.fromkeys(((part, role) for part in PARTS for role in SERVERS), 0.0)
    dividing = False  # from the first guard on: polynomials are then the guards' squares
    for lap in laps:
        cut, dividing = lap.start, dividing or GuardRequest.kind == lap.before
        if lap.role == "SP" and (lap.before, lap.after) in _ENDS:
            part, kernel = _ENDS[lap.before, lap.after]
            cut = max((s.end for s in spans if s.kernel is kernel and lap.start <= s.end <= lap.end), default=cut)
            parts[part, lap.role] += cut - lap.start
        kind = lap.after or lap.before
        of_division = dividing and kind == PolynomialsRequest.kind
        parts["divisions" if of_division else _PART_OF[kind], lap.role] += lap.end - cut
    return parts


def opening_row(rewards: Rewards) -> Row:
    n = rewards.crowd
    bound = (3 * n + 2) + (3 * n + 1)  # each operand on its own, masked modulo N; a square for each number under guard
    quantity = f"PriRwd: ciphertexts opened for operands of SMUL, n = {n}"
    target = Target(f"<= {bound}, 6n+3", "crowdfl", at_most=bound)
    note = f"counted; {rewards.products} products from {3 * n + 2} operands and {3 * n + 1} guards"
    row = Row(f"smul_openings_{n}", quantity, Figure(rewards.openings, ""), target, note=note)
    return row.over(Reference("one by one, 14n", Figure(14 * n, "")), "CrowdFL / 14n")


def rewards_row(campaign: BenchCampaign, rewards: Rewards, publish: Timing, sample: str, workers: str) -> Row:
    """`publish`: the time of a publication per ciphertext, and what it was taken from."""
    count, target = campaign.ciphertexts, Target("< 0.5", "ratio", at_most=0.5)
    averaging = Figure(publish.median * count, "s", f"{sample}, median")
    by_cpu = rewards.cpu / (sum(publish.cpu) / len(publish.cpu) * count)
    quantity = f"PriRwd, {campaign.settings.lanes:,} lanes, {rewards.crowd} participants, {workers}"
    how = f"whole, once, uploads derived from two; by processor time {by_cpu:.3f}"
    note = f"{how}; of it {kernel_shares(rewards.kernels)}"
    row = Row("rewards", quantity, Figure(rewards.seconds, "s"), target, note=note)
    return row.over(Reference(f"averaging {count:,} ciphertexts", averaging), "PriRwd / averaging")


def parts_table(rewards: Rewards) -> ResultTable:
    def cells(name: str, *parts: str) -> tuple[str | Figure, ...]:
        sp, csp = (sum(rewards.parts[part, role] for part in parts) for role in SERVERS)
        share = Figure(100 * (sp + csp) / rewards.seconds, "%")
        return name, Figure(sp, "s"), Figure(csp, "s"), Figure(sp + csp, "s"), share

    rows = (*(cells(part, part) for part in PARTS), cells("whole", *PARTS))
    return ResultTable(f"PriRwd by part, {rewards.crowd} participants", ("part", *SERVERS, "both", "share"), rows)
