"""Averaging and reading of `hardened`: a sample of publications beside its bare partial decryptions, and a whole average.

PriRwd of `hardened` measured whole: by part and role, its openings, and against one averaging of the same model.

`crowdfl bench protocols`: what the protocols cost, in ratios taken in one run, with the targets of issue 3.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.budget import WidthBudget, bits
from crowdfl.crypto.paillier.kernels import BucketProduct, MultiPow, PartialDecrypt, PowMod
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.randomness import Coins
from crowdfl.errors import ProtocolError
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.common.sdiv import DivideRequest, GuardRequest, HardenedSdivSp, PaperSdivCsp, PaperSdivSp
from crowdfl.protocols.common.smul import (
    PaperSmulCsp,
    PaperSmulSp,
    Polynomial,
    PolynomialsCsp,
    PolynomialsRequest,
    PolynomialsSp,
    products_in,
)
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.hardened.opening import CHUNK, OpenRequest
from crowdfl.protocols.hardened.prirwd import InnerRequest, LanesRequest, NonceRequest, RewardRequest, RewardWidths
from crowdfl.protocols.hardened.profile import HardenedParticipant
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import Average, width_budget
from crowdfl.settings import MILLION, TaskSettings
from crowdfl_lab.bench import workload
from crowdfl_lab.bench.workload import SERVERS, SIGMA, BenchSettings, Say, made_up_models, made_up_weights
from crowdfl_lab.observe import Lap, RoundRecorder, Span, TimedBackend, seconds_by_kernel
from crowdfl_lab.parties import DivisionCsp
from crowdfl_lab.report.results import Cell, Figure, Reference, Result, ResultTable, Row, Target, Unit
from crowdfl_lab.timing import Timing, machine, timed, turns

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

    @classmethod
    def quick(cls) -> "ProtocolSettings":
        few = cls(parameters=600, participants=5, lanes=40, crowds=(3,), averaged_parameters=60, averaging_turns=2)
        return replace(few, reads=1, small_parameters=2, small_crowd=3, operations=1, operation_turns=1)

    def task(self, profile: str = "hardened", **others: Any) -> TaskSettings:  # noqa: ANN401
        sigma = SIGMA if profile == "hardened" else None
        return super().task(profile=profile, sigma=sigma, rounds=max(5, len(self.crowds) + 1), **others)

    @property
    def budget(self) -> WidthBudget:
        return width_budget(self.task(), self.parameters, SIGMA)


def averaging_rows(settings: ProtocolSettings, backend: TimedBackend, workers: str) -> tuple[list[Row], Timing, str]:
    """Publications of a sample, in turn with the bare partial decryptions of the same ciphertexts.

    SP masks, rerandomises, decrypts its half, sends; CSP checks, decrypts, seals; SP makes the publication. The rows, the
    time of a publication per ciphertext, and what it was taken from.
    """
    recorder = RoundRecorder(keep_messages=True)
    parties = settings.parties(settings.task(), backend, recorder, settings.averaged_parameters)
    # Once per key and process, whatever the number of ciphertexts: told apart.
    prepare = FreshRandomizers(parties.dealer.task.public).prepare
    table = f"the randomizers' table, once per key: {Figure(timed(prepare), 's')}"
    updates = {f"p{i}": (made_up_weights(settings.averaged_parameters, i), i + 1) for i in range(_FEWEST)}
    round_ = parties.open(1)
    round_.collect(parties.encrypt(updates))
    round_.average()
    sp, csp = keyed_party(parties.sp), keyed_party(parties.csp)
    requests = [message for sender, receiver, message in recorder.messages if (sender, receiver) == SERVERS]
    masked = CipherVector.concat([OpenRequest.from_bytes(request, sp.limits(CHUNK)).masked for request in requests])
    count = len(masked)
    counted = _counted_row(recorder, count)
    recorder.keep_messages = False
    recorder.reset()

    def bare() -> None:
        sp.partial_decrypt(masked)
        csp.partial_decrypt(masked)

    took = turns({"publish": round_.average, "bare": bare}, settings.averaging_turns)
    each = {name: _divided(timing, count) for name, timing in took.items()}
    sample = f"{settings.averaging_turns} publications of {count} ciphertexts"
    roles = {role: Figure(recorder.seconds_of(role) / settings.averaging_turns / count, "s") for role in SERVERS}
    kernels = seconds_by_kernel(backend.spans, recorder.laps)
    note = f"{', '.join(f'{role} {figure}' for role, figure in roles.items())}; of it {kernel_shares(kernels)}"
    return [counted, _time_row(each, sample, kernels, f"{note}; {table}", workers)], each["publish"], sample


def _counted_row(recorder: RoundRecorder, count: int) -> Row:
    halves = {role: Figure(recorder.total(role, "PDec") / count, "") for role in SERVERS}
    quantity, both = "averaging, total shown: partial decryptions per ciphertext", sum(h.value for h in halves.values())
    target = Target("exactly 2", "crowdfl", at_least=2, at_most=2)
    peers, note = tuple(map(Reference, halves, halves.values())), f"counted in one publication of {count} ciphertexts"
    return Row("averaging_decryptions", quantity, Figure(both, ""), target, peers, note=note)


def _time_row(each: Mapping[str, Timing], sample: str, kernels: Mapping[str, float], note: str, workers: str) -> Row:
    publish, bare = each["publish"], each["bare"]
    # Against the partial decryptions inside the exchange itself: no turn to wait for, no noise between.
    inside = sum(kernels.values()) / kernels[PartialDecrypt.__name__]
    ours, alone = (Figure(timing.minimum, "s", sample) for timing in (publish, bare))
    quantity = f"averaging, total shown: the whole publication per ciphertext, {workers}"
    how = (
        f"least of {len(publish.seconds)} turns; by medians {publish.median / bare.median:.3f}, by processor time "
        f"{sum(publish.cpu) / sum(bare.cpu):.3f}, against the decryptions inside the exchange {inside:.3f}; {note}"
    )
    row = Row("averaging_time", quantity, ours, Target("<= 1.10", "ratio", at_most=1.10), note=how)
    return row.over(Reference("its partial decryptions alone", alone), "whole / bare")


def _divided(timing: Timing, count: int) -> Timing:
    return Timing(tuple(s / count for s in timing.seconds), tuple(s / count for s in timing.cpu))


def kernel_shares(kernels: Mapping[str, float]) -> str:
    whole = sum(kernels.values())
    largest = sorted(kernels.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {spent / whole:.1%}" for name, spent in largest if spent / whole >= 0.001)


class BenchCampaign:
    """A `hardened` task at full size with an upload from everyone."""

    def __init__(self, settings: ProtocolSettings, backend: TimedBackend, say: Say) -> None:
        say(f"dealing a task of {settings.parameters:,} parameters")
        self.settings, self.backend, self.recorder = settings, backend, RoundRecorder()
        self.parties = settings.parties(settings.task(), backend, self.recorder)
        self.ciphertexts = settings.budget.ciphertexts + 1
        say(f"deriving {settings.participants} uploads from two")
        self.uploads = workload.full_uploads(self.parties, self.ciphertexts, settings.participants)
        FreshRandomizers(self.parties.dealer.task.public).prepare()


def reading_row(campaign: BenchCampaign) -> Row:
    """Unseal, subtract the masks, unpack, divide, on one core; in processor time, as the target says."""
    settings, dealer = campaign.settings, campaign.parties.dealer
    weights, public = made_up_weights(settings.parameters, 2021), dealer.task.public
    rows = workload.packed_model(settings.budget, public, weights, _READ_SAMPLES)
    reader, results = next(iter(campaign.parties.people.values())), list[Average]()
    audience, upload = cast(HardenedParticipant, reader).audience, campaign.uploads["p000"]
    publication = workload.sealed_publication(dealer.task, dealer.csp(), audience, rows, upload)
    wall = turns({"read": lambda: results.append(reader.read(publication, 1))}, settings.reads)["read"]
    # Order and signs of the packed weights are the task's own affair: but for those, they must be what went in.
    if not np.allclose(np.sort(np.abs(results[0].weights)), np.sort(np.abs(weights)), rtol=0, atol=1e-6):
        raise ProtocolError("the average that was read is not the one that was published")
    cpu, target = Timing(wall.cpu), Target("< 2 s", "crowdfl", at_most=2)
    quantity = f"a participant reads the average of {settings.parameters:,} parameters, rewards on, 1 core"
    how = f"processor time, {cpu}; on the wall clock {wall.median:.3g} s"
    note = f"{how}; {campaign.ciphertexts:,} ciphertexts, sealed beforehand from known values"
    return Row("reading", quantity, Figure(cpu.median, "s"), target, note=note)


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


_TOOLKIT = "authors' C++ toolkit"
# Published by the paper's authors for that toolkit at this key size; cited, never run here.
_CITED = {"SDIV": 4.06, "SMUL": 0.082}
_PAPER_SIGMA = 80
_LARGEST_PAYMENT = 1_000_000 * MILLION
_FACTOR_BITS = 40  # of the factors whose SMUL is timed
_OPERATIONS = ("Enc", "PDec", "PAdd", "PMul", "SMUL", "SDIV", "randomizer")  # the last: also rerandomisations


def bench_protocols(settings: ProtocolSettings, *, say: Say = lambda _: None) -> Result:
    where, threads = machine(), Threads()
    workers = f"{threads.workers} worker{'' if threads.workers == 1 else 's'}"
    backend = TimedBackend(threads)
    say("publishing a sample, in turn with its partial decryptions")
    rows, publish, sample = averaging_rows(settings, backend, workers)
    campaign = BenchCampaign(settings, backend, say)
    say("reading the whole average, one core")
    rows.append(reading_row(campaign))
    rewards = []
    for round_number, crowd in enumerate((*settings.crowds, settings.participants), start=1):
        say(f"PriRwd, {crowd} participants")
        rewards.append(measure_rewards(campaign, crowd, round_number))
    rows += [*map(opening_row, rewards), rewards_row(campaign, rewards[-1], publish, sample, workers)]
    rounds = {}
    for profile in ("hardened", "paper"):
        say(f"a round of {settings.small_parameters} parameters, {profile}")
        models = made_up_models(settings.small_parameters, settings.small_crowd)
        rounds[profile] = settings.play(settings.task(profile), backend, models).recorder
    say("single SDIVs and SMULs, one core")
    rows += _operation_rows(settings)
    tables = parts_table(rewards[-1]), _profiles_table(settings, rounds, workers)
    versions = {_TOOLKIT: "cited as published, not run here"}
    return settings.result("protocols", where | {"workers": threads.workers}, rows, tables=tables, versions=versions)


def _profiles_table(settings: ProtocolSettings, rounds: Mapping[str, RoundRecorder], workers: str) -> ResultTable:
    """A round of both profiles, per parameter and role; the participant's figures are the mean over those who took part."""
    size, crowd = settings.small_parameters, settings.small_crowd
    heads = dict.fromkeys(SERVERS, 1) | {"participant": crowd}

    def row(name: str, unit: Unit, of: Callable[[RoundRecorder, str], float]) -> tuple[Cell, ...]:
        found = (of(recorder, role) / heads[role] / size for role in heads for recorder in rounds.values())
        return name, *(Figure(value, unit) for value in found)

    def operations(name: str) -> tuple[Cell, ...]:
        return row(name, "", lambda recorder, role: recorder.total(role, name))

    def sent(recorder: RoundRecorder, role: str) -> int:
        return sum(costs.bytes_sent for costs in recorder.costs_by_role[role])

    rows = row("time", "s", RoundRecorder.seconds_of), row("bytes sent", "B", sent), *map(operations, _OPERATIONS)
    title = f"Per parameter and role: {size} parameters, {crowd} participants, rewards on, {workers}"
    return ResultTable(title, ("", *(f"{role}, {profile}" for role in heads for profile in rounds)), rows)


def _operation_rows(settings: ProtocolSettings) -> Iterator[Row]:
    """SP's and CSP's work together, both profiles in turn, beside what the authors published; results checked once."""
    keys, count = pctd.keygen(settings.prime_bits, insecure_test_key=settings.insecure_test_key), settings.operations
    shares = zip(SERVERS, keys.private.split(), strict=True)
    sp, csp = (KeyedParty(name, keys.public, share, backend=Threads(1)) for name, share in shares)
    y = [int(Coins.fresh().below(1 << 31)) + (1 << 31) for _ in range(count)]
    x = [7 * divisor + 5 for divisor in y]
    operations = _operations(settings, sp, csp, sp.encrypt(x), sp.encrypt(y))
    scales = {"paper": 10 ** settings.task("paper").decimals, "hardened": 1}
    for (name, profile), run in operations.items():
        result, division = run(), name == "SDIV"  # warms the table up as well
        for i, (a, b) in enumerate(zip(x, y, strict=True)):
            off = keys.private.decrypt(result[i]) - (a * scales[profile] // b if division else a * b)
            if not 0 <= off <= int(division and profile == "hardened"):  # that quotient may be one above
                raise ProtocolError(f"{name} of {profile} gave a wrong result")
    timings = turns(operations, settings.operation_turns)
    for name, cited in _CITED.items():
        both = {p: Figure(timings[name, p].median / count, "s", f"a batch of {count}") for p in scales}
        note = f"batches of {count} in turn, {timings[name, 'hardened']}; other hardware, cited for scale only"
        row = Row(name.lower(), f"one {name}, SP and CSP together, 1 core", both["hardened"], note=note)
        published = Reference(f"{_TOOLKIT}, cited", Figure(cited, "s"))
        yield row.under(published, "cited / hardened", Reference("paper", both["paper"]))


def _operations(
    settings: ProtocolSettings, sp: KeyedParty, csp: KeyedParty, x: CipherVector, y: CipherVector
) -> dict[tuple[str, str], Callable[[], CipherVector]]:
    """By name and profile: kappa as in the averaging of a task, widths as PriRwd divides for its weights."""
    count, paper = len(x), settings.task("paper")
    kappa = bits(paper.max_participants * paper.max_samples * round(paper.clip) * 10**paper.decimals)
    widths = RewardWidths(settings.budget, settings.task().epsilon_units, _LARGEST_PAYMENT).weights
    sdiv = PaperSdivSp(sp, kappa=kappa, sigma=_PAPER_SIGMA, decimals=paper.decimals)
    smul = PaperSmulSp(sp, mask_bits=_FACTOR_BITS + _PAPER_SIGMA)
    smul_hardened = PolynomialsSp(sp, 1, "bench")
    products: list[Polynomial] = [{(i, count + i): 1} for i in range(count)]

    def run(sp_half: Any, csp_half: Any) -> CipherVector:  # noqa: ANN401 -- both halves of a printed protocol
        pending, request = sp_half.begin(x, y, Coins.fresh())
        result: CipherVector = sp_half.finish(pending, csp_half.answer(request))
        return result

    def polynomials() -> CipherVector:
        pending, request = smul_hardened.begin(CipherVector.concat([x, y]), products, Coins.fresh())
        message = PolynomialsRequest.from_bytes(request, csp.limits(2 * count))
        reply = PolynomialsCsp(csp).answer(message, products_in(products))
        return smul_hardened.finish(pending, csp.send(reply))

    def division() -> CipherVector:
        asked = ask_directly(DivisionCsp(csp, widths, count, count).answer)
        return run_exchange(HardenedSdivSp(sp, widths, 1, "bench").run(x, y, Coins.fresh()), asked)

    return {
        ("SDIV", "paper"): lambda: run(sdiv, PaperSdivCsp(csp, decimals=paper.decimals, max_count=count)),
        ("SDIV", "hardened"): division,
        ("SMUL", "paper"): lambda: run(smul, PaperSmulCsp(csp, max_count=count)),
        ("SMUL", "hardened"): polynomials,
    }
