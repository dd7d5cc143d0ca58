"""`crowdfl bench protocols`: what the protocols cost, in ratios taken in one run, with the targets of issue 3."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.budget import bits
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.randomness import Coins
from crowdfl.errors import ProtocolError
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
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.party import KeyedParty
from crowdfl.settings import MILLION
from crowdfl_lab.bench.protocols.averaging import BenchCampaign, ProtocolSettings, averaging_rows, reading_row
from crowdfl_lab.bench.protocols.rewards import measure_rewards, opening_row, parts_table, rewards_row
from crowdfl_lab.bench.workload import SERVERS, Say, made_up_models
from crowdfl_lab.division import DivisionCsp
from crowdfl_lab.observe import RoundRecorder, TimedBackend
from crowdfl_lab.report.results import Cell, Figure, Reference, Result, ResultTable, Row, Unit
from crowdfl_lab.timing import machine, turns

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
