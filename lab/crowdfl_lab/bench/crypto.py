"""`crowdfl bench crypto`: single operations, beside bare GMP, the paper's own forms and what the authors published.

Whole rounds, and the same operations beside other libraries, are in `crowdfl bench compare`.
"""

import itertools
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gmpy2

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.budget import WidthBudget, bits
from crowdfl.crypto.paillier.pctd import FreshRandomizers, PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, RunningProduct, Unchecked, encrypt
from crowdfl.crypto.shares.noise import discrete_gaussian
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
from crowdfl.protocols.exchange import Silent, ask_directly, run_exchange
from crowdfl.protocols.hardened.opening import CHUNK, OpenRequest
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import TaskSpec, Tools, width_budget
from crowdfl.settings import MILLION, TaskSettings
from crowdfl.simulation.sides import Parties
from crowdfl.storage.pools import RandomizerPool
from crowdfl_lab.bench.workload import (
    SERVERS,
    SIGMA,
    BenchSettings,
    Replayed,
    Say,
    best_window,
    made_up_weights,
    packed_model,
)
from crowdfl_lab.division import DivisionCsp
from crowdfl_lab.recorder import RoundRecorder
from crowdfl_lab.report.results import Figure, Reference, Result, Row, Target
from crowdfl_lab.timing import Timing, current_bytes, machine, peak_bytes, turns

_SAMPLES = 100
_FEWEST = 3  # uploads that a round needs
_TOOLKIT = "authors' C++ toolkit"
# Published by the paper's authors for that toolkit at this key size; cited, never run here.
_CITED = {"SDIV": 4.06, "SMUL": 0.082}
_PAPER_SIGMA = 80
_LARGEST_PAYMENT = 1_000_000 * MILLION
_NOISY = 5  # people in a round with noise
_FACTOR_BITS = 40  # of the factors whose SMUL is timed


@dataclass(frozen=True, kw_only=True)
class CryptoSettings(BenchSettings):
    """The paper's model with the budget of a task with rewards, and samples of what takes long."""

    lanes: int = 4096
    repetitions: int = 7
    decryptions: int = 12
    decryption_turns: int = 15  # many short turns: on a busy machine some fall into quiet moments
    uploads: int = 100
    averaged_parameters: int = 500
    averaging_turns: int = 30
    operations: int = 8
    operation_turns: int = 3

    @classmethod
    def quick(cls) -> "CryptoSettings":
        few = cls(parameters=10_000, repetitions=2, decryptions=4, decryption_turns=2, uploads=5)
        return replace(few, averaged_parameters=60, averaging_turns=2, operations=1, operation_turns=1)

    def task(self, profile: str = "hardened", **others: Any) -> TaskSettings:  # noqa: ANN401
        return super().task(profile=profile, mask_bits=SIGMA if profile == "hardened" else None, rounds=5, **others)

    @property
    def budget(self) -> WidthBudget:
        return width_budget(self.task(), self.parameters, SIGMA)


def bench_crypto(settings: CryptoSettings, *, say: Say = lambda _: None) -> Result:
    where = machine()  # first, so that the load is what others cause
    say("making a key, its table and randomizers")
    keys = pctd.keygen(settings.prime_bits, insecure_test_key=settings.insecure_test_key)
    with tempfile.TemporaryDirectory(prefix="crowdfl-bench-") as folder:
        rows = [*_model_rows(settings, keys, Path(folder), say)]
    say("publishing a sample, in turn with its partial decryptions")
    rows.append(_averaging_row(settings, Threads()))
    say("single SDIVs and SMULs, one core")
    rows += _operation_rows(settings, keys)
    say("rounds of `shares` with noise and without, one core")
    rows.append(_noise_row(settings))
    return settings.result("crypto", where, rows, versions={_TOOLKIT: "cited as published, not run here"})


def _model_rows(settings: CryptoSettings, keys: pctd.KeyPair, folder: Path, say: Say) -> Iterator[Row]:
    """Of an upload of the whole model."""
    public = keys.public
    share = keys.private.split()[0]
    one = Threads(1)
    length = settings.budget.ciphertexts + 1
    randomizers = Replayed(public, FreshRandomizers(public, best_window(public, length)).take(length))
    say("encrypting from the pool, one core")
    pool = RandomizerPool.open(folder / "bench.pool", public)
    pool.fill(length * settings.repetitions, randomizers, batch=4096)
    weights, made = made_up_weights(settings.parameters, 2021), list[CipherVector]()

    def from_pool() -> None:
        """Encode, pack, take durably from the disk, encrypt. The pool is filled beforehand, as in use."""
        made[:] = [encrypt(pool, packed_model(settings.budget, public, weights, _SAMPLES), backend=one)]

    took = turns({"pool": from_pool}, settings.repetitions)["pool"]
    yield Row(
        "encrypt", "encrypt the model from the pool, rewards on, 1 core", Figure(took.median, "s"), note=str(took)
    )
    say("summing two models, one core")
    upload, second = made[0], made[0].add(made[0])
    took = turns({"sum": lambda: upload.add(second, backend=one)}, settings.repetitions)["sum"]
    target = Target("<= 0.4 s", "crowdfl", at_most=0.4)
    yield Row("sum", "sum of two models, rewards on, 1 core", Figure(took.median, "s"), target, note=str(took))
    say("partial decryption beside a bare loop")
    some, two = upload.part(0, settings.decryptions), Threads(2)
    bases = to_ints(some.block)
    exponent = share.exponent
    modulus = public.n_squared
    variants: dict[str, Callable[[], object]] = {
        "one": lambda: some.partial_decrypt(share, backend=one),
        "bare": lambda: [gmpy2.powmod(base, exponent, modulus) for base in bases],
        "two": lambda: some.partial_decrypt(share, backend=two),
    }
    yield from _decryption_rows(turns(variants, settings.decryption_turns), settings.decryptions, os.cpu_count() or 1)
    say(f"memory to sum {settings.uploads} uploads, in a fresh process")
    yield _memory_row(folder, [upload, second], settings.uploads)


def _averaging_row(settings: CryptoSettings, backend: Threads) -> Row:
    """Publications of a sample, in turn with the bare partial decryptions of the same ciphertexts.

    SP masks, rerandomises, decrypts its half, sends; CSP checks, decrypts, seals; SP makes the publication.
    """
    recorder = RoundRecorder(keep_messages=True)
    parties = settings.parties(settings.task(), backend, recorder, settings.averaged_parameters)
    FreshRandomizers(parties.task.public).prepare()  # once per key, whatever the number of ciphertexts
    updates = {f"p{i}": (made_up_weights(settings.averaged_parameters, i), i + 1) for i in range(_FEWEST)}
    round_ = parties.open(1)
    round_.collect(parties.encrypt(updates))
    round_.average()
    sp, csp = keyed_party(parties.sp), keyed_party(parties.csp)
    sent = [message for *ends, message in recorder.messages if tuple(ends) == SERVERS]
    requests = [message for message in sent if Message.kind_of(message) == OpenRequest.kind]
    masked = CipherVector.concat([OpenRequest.from_bytes(request, sp.limits(CHUNK)).masked for request in requests])
    recorder.keep_messages = False

    def bare() -> None:
        sp.partial_decrypt(masked)
        csp.partial_decrypt(masked)

    took = turns({"publish": round_.average, "bare": bare}, settings.averaging_turns)
    publish, alone = took.values()
    sample = f"{settings.averaging_turns} publications of {len(masked)} ciphertexts"
    ours, theirs = (Figure(timing.minimum / len(masked), "s", sample) for timing in (publish, alone))
    quantity = f"averaging, total shown: the whole publication per ciphertext, {backend.workers} workers"
    note = f"least of {settings.averaging_turns} turns; by medians {publish.median / alone.median:.3f}"
    row = Row("averaging", quantity, ours, Target("<= 1.10", "ratio", at_most=1.10), note=note)
    return row.over(Reference("its partial decryptions alone", theirs), "whole / bare")


def _decryption_rows(took: Mapping[str, Timing], count: int, cores: int) -> tuple[Row, Row]:
    """What partial decryption costs over GMP itself, and what a second core gives."""
    each = {name: Figure(timing.minimum / count, "s", f"{count} ciphertexts") for name, timing in took.items()}
    medians = {name: took["one"].median / timing.median for name, timing in took.items()}
    quantity, least = "partial decryption, per ciphertext", f"least of {len(took['bare'].seconds)} turns; by medians"
    near, faster = Target("within 5%", "ratio", at_most=1.05), Target(">= 1.8 times", "ratio", at_least=1.8)
    one = Row("partial_decryption", f"{quantity}, 1 core", each["one"], near, note=f"{least} {medians['bare']:.3f}")
    two = replace(one, key="partial_decryption_two_cores", quantity=f"{quantity}, 2 cores", crowdfl=each["two"])
    two = replace(two, target=faster, judged=cores >= 2, note=f"{least} {medians['two']:.3f}")
    one = one.over(Reference("bare gmpy2.powmod loop", each["bare"]), "CrowdFL / bare loop")
    return one, two.under(Reference("CrowdFL on 1 core", each["one"]), "1 core / 2 cores")


def _memory_row(folder: Path, vectors: list[CipherVector], count: int) -> Row:
    """Uploads summed from disk in a fresh process: these vectors in turn, under further names for the same bytes."""
    for number in range(count):
        path = folder / f"{number:04}.upload"
        if number < len(vectors):
            path.write_bytes(vectors[number].to_bytes())
        else:
            os.link(folder / f"{number % len(vectors):04}.upload", path)
    public = vectors[0].public
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # so that the memory is its own
        used = fresh.submit(_sum_uploads, folder, public).result()
    baseline, peak = Figure(used["baseline"], "B"), Figure(used["peak"], "B")
    growth = Figure(peak.value - baseline.value, "B")
    target = Target("<= 4 uploads", "ratio", at_most=4)
    note = f"{baseline} before, {peak} at most, {used['seconds']:.3g} s"
    row = Row("memory", f"memory to sum {count} uploads from disk", growth, target, note=note)
    return row.over(Reference("one upload", Figure(used["upload"], "B")), "growth / one upload")


def _noise_row(settings: CryptoSettings) -> Row:
    """Whole rounds in turn: with noise they may take two draws more. In processor time, for other programs run as well."""
    private = {"epsilon": 8.0, "noise": "any"}
    variants: dict[str, Callable[[], object]] = {
        "with": _rounds(settings, private),
        "without": _rounds(settings, {"decimals": 4}),
        "draw": lambda: discrete_gaussian(secrets.token_bytes(32), b"bench", 1 << 16, settings.parameters),
    }
    timings = {name: took.cpu for name, took in turns(variants, settings.repetitions).items()}
    one, bare, draw = (statistics.median(timings[name]) for name in variants)
    allowed = Reference("a round without, and two draws", Figure(bare + 2 * draw, "s"))
    note = (
        f"medians of {settings.repetitions}; {_NOISY} people train nothing, upload and read; a draw takes {draw:.3f} s"
    )
    target = Target("<= 1.10", "ratio", at_most=1.10)
    return Row("noise", "a round of `shares` with noise, 1 core", Figure(one, "s"), target, note=note).over(
        allowed, "with / without and two draws"
    )


def _rounds(settings: CryptoSettings, chosen: Mapping[str, Any]) -> Callable[[], object]:
    """A task without checks; each call plays its next round."""
    task = TaskSettings.of(
        weighting="equal",
        max_norm=1.0,
        check="none",
        rounds=settings.repetitions + 1,
        max_participants=_NOISY,
        **chosen,
    )
    parties = Parties(TaskSpec("noise", task, settings.parameters), Tools(Threads(1), observer=Silent()))
    numbers, weights = itertools.count(1), made_up_weights(settings.parameters, 7)

    def play() -> object:
        number = next(numbers)
        uploads = parties.encrypt({f"p{place}": (weights, 1) for place in range(_NOISY)}, number)
        return parties.play(number, uploads, readers=None)

    return play


def _sum_uploads(folder: Path, public: PublicKey) -> dict[str, float]:
    """As SP does it, each upload read, checked, multiplied in and let go; seconds and bytes of memory."""
    paths = sorted(folder.glob("*.upload"))
    size = paths[0].stat().st_size
    length = size // public.ciphertext_bytes  # the header is shorter than one ciphertext
    start, baseline = time.perf_counter(), current_bytes()
    total = RunningProduct(public, length, len(paths))
    for path in paths:
        # No name for an upload: it is gone before the next one is read.
        total.add(Unchecked.parse(path.read_bytes(), public, max_count=length).validate())
    total.result()
    seconds, peak = time.perf_counter() - start, peak_bytes()
    return {"baseline": baseline, "peak": peak, "upload": size, "seconds": seconds}


def _operation_rows(settings: CryptoSettings, keys: pctd.KeyPair) -> Iterator[Row]:
    """SP's and CSP's work together, `hardened` and `paper` in turn, beside what the authors published; results checked once."""
    count = settings.operations
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
    settings: CryptoSettings, sp: KeyedParty, csp: KeyedParty, x: CipherVector, y: CipherVector
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
