"""`crowdfl bench protocols`: what the protocols cost, in ratios taken in one run, with targets.

Averaging and reading of `hardened`: a sample of publications beside its bare partial decryptions, and a whole average. PriRwd
whole, against one averaging of the same model. Both profiles side by side, and single divisions and products of either.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from crowdfl.crypto.compute import Backend, Threads
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.budget import WidthBudget, bits
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.randomness import Coins
from crowdfl.errors import ProtocolError
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.common.sdiv import HardenedSdivSp, PaperSdivCsp, PaperSdivSp
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
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.hardened.profile import HardenedParticipant
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import Average, width_budget
from crowdfl.settings import MILLION, TaskSettings
from crowdfl_lab.bench import workload
from crowdfl_lab.bench.workload import SERVERS, SIGMA, BenchSettings, Say, made_up_models, made_up_weights
from crowdfl_lab.observe import RoundRecorder
from crowdfl_lab.parties import DivisionCsp
from crowdfl_lab.report.results import Cell, Figure, Reference, Result, ResultTable, Row, Target, Unit
from crowdfl_lab.timing import Timing, machine, timed, turns

_FEWEST = 3  # uploads that a round needs
_READ_SAMPLES = 100
_TOOLKIT = "authors' C++ toolkit"
# Published by the paper's authors for that toolkit at this key size; cited, never run here.
_CITED = {"SDIV": 4.06, "SMUL": 0.082}
_PAPER_SIGMA = 80
_LARGEST_PAYMENT = 1_000_000 * MILLION
_FACTOR_BITS = 40  # of the factors whose SMUL is timed


@dataclass(frozen=True, kw_only=True)
class ProtocolSettings(BenchSettings):
    """The paper's campaign, and smaller samples of it."""

    averaged_parameters: int = 500  # 23 ciphertexts and the total's, which divide evenly by 2 workers
    averaging_turns: int = 30  # many short turns: on a busy machine some of either kind fall into quiet moments
    reads: int = 3
    small_parameters: int = 40
    small_crowd: int = 5
    operations: int = 8
    operation_turns: int = 3

    @classmethod
    def quick(cls) -> "ProtocolSettings":
        few = cls(parameters=600, participants=5, lanes=40, averaged_parameters=60, averaging_turns=2, reads=1)
        return replace(few, small_parameters=2, small_crowd=3, operations=1, operation_turns=1)

    def task(self, profile: str = "hardened", **others: Any) -> TaskSettings:  # noqa: ANN401
        return super().task(profile=profile, mask_bits=SIGMA if profile == "hardened" else None, rounds=5, **others)

    @property
    def budget(self) -> WidthBudget:
        return width_budget(self.task(), self.parameters, SIGMA)


def bench_protocols(settings: ProtocolSettings, *, say: Say = lambda _: None) -> Result:
    where, threads = machine(), Threads()
    workers = f"{threads.workers} worker{'' if threads.workers == 1 else 's'}"
    say("publishing a sample, in turn with its partial decryptions")
    rows, publish, sample = averaging_rows(settings, threads, workers)
    campaign = BenchCampaign(settings, threads, say)
    say("reading the whole average, one core")
    rows.append(campaign.reading_row())
    say(f"PriRwd, {settings.participants} participants")
    rows.append(campaign.rewards_row(publish, sample, workers))
    rounds = {}
    for profile in ("hardened", "paper"):
        say(f"a round of {settings.small_parameters} parameters, {profile}")
        models = made_up_models(settings.small_parameters, settings.small_crowd)
        rounds[profile] = settings.play(settings.task(profile), threads, models).recorder
    say("single SDIVs and SMULs, one core")
    rows += _operation_rows(settings)
    versions = {_TOOLKIT: "cited as published, not run here"}
    tables = (_profiles_table(settings, rounds, workers),)
    return settings.result("protocols", where | {"workers": threads.workers}, rows, tables=tables, versions=versions)


def averaging_rows(settings: ProtocolSettings, backend: Backend, workers: str) -> tuple[list[Row], Timing, str]:
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
    requests = [message for *ends, message in recorder.messages if tuple(ends) == SERVERS]
    masked = CipherVector.concat([OpenRequest.from_bytes(request, sp.limits(CHUNK)).masked for request in requests])
    count = len(masked)
    halves = {role: Figure(recorder.total(role, "PDec") / count, "") for role in SERVERS}
    recorder.keep_messages = False
    recorder.reset()

    def bare() -> None:
        sp.partial_decrypt(masked)
        csp.partial_decrypt(masked)

    took = turns({"publish": round_.average, "bare": bare}, settings.averaging_turns)
    publish, alone = (
        Timing(tuple(s / count for s in timing.seconds), tuple(s / count for s in timing.cpu))
        for timing in took.values()
    )
    counted = Row(
        "averaging_decryptions",
        "averaging, total shown: partial decryptions per ciphertext",
        Figure(sum(half.value for half in halves.values()), ""),
        Target("exactly 2", "crowdfl", at_least=2, at_most=2),
        tuple(map(Reference, halves, halves.values())),
        note=f"counted in one publication of {count} ciphertexts",
    )
    sample = f"{settings.averaging_turns} publications of {count} ciphertexts"
    roles = {role: Figure(recorder.seconds_of(role) / settings.averaging_turns / count, "s") for role in SERVERS}
    note = (
        f"least of {len(publish.seconds)} turns; by medians {publish.median / alone.median:.3f}, by processor time "
        f"{sum(publish.cpu) / sum(alone.cpu):.3f}; {', '.join(f'{role} {figure}' for role, figure in roles.items())}; {table}"
    )
    quantity = f"averaging, total shown: the whole publication per ciphertext, {workers}"
    ours, theirs = (Figure(timing.minimum, "s", sample) for timing in (publish, alone))
    row = Row("averaging_time", quantity, ours, Target("<= 1.10", "ratio", at_most=1.10), note=note)
    return [counted, row.over(Reference("its partial decryptions alone", theirs), "whole / bare")], publish, sample


class BenchCampaign:
    """A `hardened` task at full size with an upload from everyone."""

    def __init__(self, settings: ProtocolSettings, backend: Backend, say: Say) -> None:
        say(f"dealing a task of {settings.parameters:,} parameters")
        self.settings, self.recorder = settings, RoundRecorder()
        self.parties = settings.parties(settings.task(), backend, self.recorder)
        self.ciphertexts = settings.budget.ciphertexts + 1
        say(f"deriving {settings.participants} uploads from two")
        self.uploads = workload.full_uploads(self.parties, self.ciphertexts, settings.participants)
        FreshRandomizers(self.parties.dealer.task.public).prepare()

    def reading_row(self) -> Row:
        """Unseal, subtract the masks, unpack, divide, on one core; in processor time, as the target says."""
        settings, dealer = self.settings, self.parties.dealer
        weights, public = made_up_weights(settings.parameters, 2021), dealer.task.public
        rows = workload.packed_model(settings.budget, public, weights, _READ_SAMPLES)
        reader, results = next(iter(self.parties.people.values())), list[Average]()
        audience = cast(HardenedParticipant, reader).audience
        publication = workload.sealed_publication(dealer.task, dealer.csp(), audience, rows, self.uploads["p000"])
        wall = turns({"read": lambda: results.append(reader.read(publication, 1))}, settings.reads)["read"]
        # Order and signs of the packed weights are the task's own affair: but for those, they must be what went in.
        if not np.allclose(np.sort(np.abs(results[0].weights)), np.sort(np.abs(weights)), rtol=0, atol=1e-6):
            raise ProtocolError("the average that was read is not the one that was published")
        cpu, target = Timing(wall.cpu), Target("< 2 s", "crowdfl", at_most=2)
        quantity = f"a participant reads the average of {settings.parameters:,} parameters, rewards on, 1 core"
        how = f"processor time, {cpu}; on the wall clock {wall.median:.3g} s"
        note = f"{how}; {self.ciphertexts:,} ciphertexts, sealed beforehand from known values"
        return Row("reading", quantity, Figure(cpu.median, "s"), target, note=note)

    def rewards_row(self, publish: Timing, sample: str, workers: str) -> Row:
        """All of PriRwd. `publish`: the time of a publication per ciphertext, and what it was taken from."""
        crowd, costs, count = self.settings.participants, self.parties.csp.party.costs, self.ciphertexts
        round_, payment = self.parties.open(1), crowd * MILLION
        for who, upload in self.uploads.items():
            round_.collect({who: upload})
        self.recorder.reset()
        opened, busy = costs.counts["SMUL", "PDec"], time.process_time()
        envelopes = round_.reward(payment)
        cpu, opened = time.process_time() - busy, costs.counts["SMUL", "PDec"] - opened
        seconds = sum(lap.seconds for lap in self.recorder.laps if lap.stage == "reward")
        paid = sum(self.parties.open_rewards(envelopes, 1).values())
        if not payment - 2 * crowd <= paid <= payment:
            raise ProtocolError(f"{paid} of {payment} millionths were paid out")
        averaging = Figure(publish.median * count, "s", f"{sample}, median")
        by_cpu = cpu / (sum(publish.cpu) / len(publish.cpu) * count)
        quantity = f"PriRwd, {self.settings.lanes:,} lanes, {crowd} participants, {workers}"
        how = f"whole, once, uploads derived from two; by processor time {by_cpu:.3f}"
        note = f"{how}; CSP opened {opened} operands and guards of SMUL"
        row = Row("rewards", quantity, Figure(seconds, "s"), Target("< 0.5", "ratio", at_most=0.5), note=note)
        return row.over(Reference(f"averaging {count:,} ciphertexts", averaging), "PriRwd / averaging")


def _profiles_table(settings: ProtocolSettings, rounds: Mapping[str, RoundRecorder], workers: str) -> ResultTable:
    """A round of both profiles, per parameter and role; the participant's figures are the mean over those who took part."""
    size, crowd = settings.small_parameters, settings.small_crowd
    heads = dict.fromkeys(SERVERS, 1) | {"participant": crowd}

    def row(name: str, unit: Unit, of: Callable[[RoundRecorder, str], float]) -> tuple[Cell, ...]:
        found = (of(recorder, role) / heads[role] / size for role in heads for recorder in rounds.values())
        return name, *(Figure(value, unit) for value in found)

    def sent(recorder: RoundRecorder, role: str) -> int:
        return sum(costs.bytes_sent for costs in recorder.costs_by_role[role])

    rows = row("time", "s", RoundRecorder.seconds_of), row("bytes sent", "B", sent)
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
    widths = RewardWidths(settings.budget, settings.task().floor_units, _LARGEST_PAYMENT).weights
    sdiv = PaperSdivSp(sp, kappa=kappa, sigma=_PAPER_SIGMA, decimals=paper.decimals)
    smul = PaperSmulSp(sp, mask_bits=_FACTOR_BITS + _PAPER_SIGMA)
    smul_hardened = PolynomialsSp(sp, 1, "bench")
    products: list[Polynomial] = [{(i, count + i): 1} for i in range(count)]

    def run(sp_half: Any, csp_half: Any) -> CipherVector:  # noqa: ANN401 -- both halves of a printed protocol
        result: CipherVector = run_exchange(sp_half.run(x, y, Coins.fresh()), ask_directly(csp_half.answer))
        return result

    def polynomials() -> CipherVector:
        return run_exchange(
            smul_hardened.run(CipherVector.concat([x, y]), products, Coins.fresh()), ask_directly(answer)
        )

    def answer(request: bytes) -> bytes:
        message = PolynomialsRequest.from_bytes(request, csp.limits(2 * count))
        return csp.send(PolynomialsCsp(csp).answer(message, products_in(products)))

    def division() -> CipherVector:
        asked = ask_directly(DivisionCsp(csp, widths, count, count).answer)
        return run_exchange(HardenedSdivSp(sp, widths, 1, "bench").run(x, y, Coins.fresh()), asked)

    return {
        ("SDIV", "paper"): lambda: run(sdiv, PaperSdivCsp(csp, decimals=paper.decimals, max_count=count)),
        ("SDIV", "hardened"): division,
        ("SMUL", "paper"): lambda: run(smul, PaperSmulCsp(csp, max_count=count)),
        ("SMUL", "hardened"): polynomials,
    }
