"""`crowdfl bench crypto`: what encryption, sums and decryption cost beside the peers, with the targets of issue 2.

`python -m crowdfl_lab.bench.crypto FOLDER` sums uploads from disk in a fresh process, so that the memory is its own.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gmpy2

from crowdfl.crypto.blocks import Block, to_ints
from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.budget import WidthBudget
from crowdfl.crypto.paillier.pctd import FreshRandomizers, PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, RunningProduct, Unchecked, encrypt
from crowdfl.storage.pools import RandomizerPool
from crowdfl_lab.bench.peers import answer_or_reason
from crowdfl_lab.bench.workload import BenchSettings, Replayed, Say, best_window, made_up_weights, packed_model
from crowdfl_lab.report.results import Figure, Reference, Result, Row, Target, Unit
from crowdfl_lab.timing import Timing, current_bytes, machine, peak_bytes, timed_call, turns

_BESIDE = "TenSEAL / CrowdFL"

_Peers = Mapping[str, Mapping[str, Any]]  # what each answered, by its name


@dataclass(frozen=True, kw_only=True)
class CryptoSettings(BenchSettings):
    """The paper's model, with the budgets of a task with and without rewards."""

    lanes: int = 4096
    samples: int = 100
    rounds: int = 5
    sigma: int = 40
    repetitions: int = 7
    decryptions: int = 12
    decryption_turns: int = 15  # many short turns: on a busy machine some fall into quiet moments
    uploads: int = 100
    phe_sample: int = 100

    @classmethod
    def quick(cls) -> "CryptoSettings":
        return cls(parameters=10_000, repetitions=2, decryptions=4, decryption_turns=2, uploads=5, phe_sample=5)

    def budget(self, *, rewards: bool) -> WidthBudget:
        bits, lanes, crowd = 2 * self.prime_bits, self.lanes if rewards else 0, self.participants
        return WidthBudget(
            bits, self.parameters, crowd, self.samples, rounds=self.rounds, sigma=self.sigma, lanes=lanes
        )


class _Workload:
    """A key, and a made-up model as an upload lays it out."""

    def __init__(self, settings: CryptoSettings) -> None:
        self.settings = settings
        keys = pctd.keygen(settings.prime_bits, insecure_test_key=settings.insecure_test_key)
        self.public, self.share = keys.public, keys.private.split()[0]
        self.length = settings.budget(rewards=True).ciphertexts + 1

    def plaintexts(self, *, rewards: bool) -> Block:
        weights = made_up_weights(self.settings.parameters, 2021)
        return packed_model(self.settings.budget(rewards=rewards), self.public, weights, self.settings.samples)

    def encrypt_fresh(self) -> tuple[float, int, CipherVector, Replayed]:
        """From nothing, table included, on one core, once: seconds, the table's window, the upload, its randomizers."""
        source = FreshRandomizers(self.public, best_window(self.public, self.length), Threads(1))
        making, made = timed_call(lambda: source.take(self.length))
        randomizers = Replayed(self.public, made)
        using, upload = timed_call(lambda: encrypt(randomizers, self.plaintexts(rewards=True), backend=Threads(1)))
        return making + using, source.window, upload, randomizers

    def encrypt_from_pool(self, randomizers: Replayed, folder: Path, cores: int) -> dict[str, Timing]:
        """Encode, pack, take durably from the disk, encrypt. The pool is filled beforehand, as in use."""
        pool = RandomizerPool.open(folder / "bench.pool", self.public)
        pool.fill(self.length * 2 * self.settings.repetitions, randomizers, batch=4096)

        def model(workers: int) -> Callable[[], object]:
            return lambda: encrypt(pool, self.plaintexts(rewards=True), backend=Threads(workers))

        return turns({"one_core": model(1), "all_cores": model(cores)}, self.settings.repetitions)

    def partial_decrypt(self, upload: CipherVector) -> dict[str, Timing]:
        """Some ciphertexts under one share, in turn with a bare loop over GMP's powmod and with two cores."""
        some = upload.part(0, self.settings.decryptions)
        bases, exponent, modulus = to_ints(some.block), self.share.exponent, self.public.n_squared
        one, two = Threads(1), Threads(2)
        variants: dict[str, Callable[[], object]] = {
            "one": lambda: some.partial_decrypt(self.share, backend=one),
            "bare": lambda: [gmpy2.powmod(base, exponent, modulus) for base in bases],
            "two": lambda: some.partial_decrypt(self.share, backend=two),
        }
        return turns(variants, self.settings.decryption_turns)


def bench_crypto(settings: CryptoSettings, *, python: Path | None = None, say: Say = lambda _: None) -> Result:
    """All rows. `python` is the peers' interpreter, None to leave them out; `say` hears what is being measured."""
    where = machine()  # first, so that the load is what others cause
    numbers = {"parameters": settings.parameters, "key-bits": 2 * settings.prime_bits}
    numbers |= {"sample": settings.phe_sample, "repetitions": settings.repetitions}
    say("making a key")
    work = _Workload(settings)
    say("phe, a sample")
    peers = {"phe": answer_or_reason(python, "crypto", "phe", numbers)}
    say("encrypting from nothing, one core")
    seconds, window, upload, randomizers = work.encrypt_fresh()
    say("TenSEAL, the whole model")
    peers["TenSEAL"] = answer_or_reason(python, "crypto", "tenseal", numbers)
    rows = [_fresh_row(settings, seconds, window, peers)]
    with tempfile.TemporaryDirectory(prefix="crowdfl-bench-") as folder:
        rows += _rows(work, upload, randomizers, peers, Path(folder), say)
    return settings.result("crypto", where, rows, versions={name: peer["version"] for name, peer in peers.items()})


def _rows(
    work: _Workload, upload: CipherVector, randomizers: Replayed, peers: _Peers, folder: Path, say: Say
) -> list[Row]:
    settings, cores = work.settings, os.cpu_count() or 1
    say("encrypting from the pool, one core and all cores")
    pooled = work.encrypt_from_pool(randomizers, folder, cores)
    plain = encrypt(randomizers, work.plaintexts(rewards=False))
    say("summing two models, one core")
    second, one_core = upload.add(upload), Threads(1)
    summed = turns({"sum": lambda: upload.add(second, backend=one_core)}, settings.repetitions)["sum"]
    say("partial decryption beside a bare loop")
    decrypted = work.partial_decrypt(upload)
    say(f"memory to sum {settings.uploads} uploads, in a fresh process")
    memory = _memory_row(folder, [upload, second], settings.uploads)
    return [
        _pool_row("one_core", "1 core", pooled, peers),
        _pool_row("all_cores", f"all {cores} cores", pooled, peers),
        _size_row(settings, upload, peers, rewards=True),
        _size_row(settings, plain, peers, rewards=False),
        _sum_row(settings, summed, peers),
        *_decryption_rows(decrypted, settings.decryptions, cores),
        memory,
    ]


def _peer(peers: _Peers, name: str, field: str, unit: Unit, times: int = 1, sample: str = "") -> Reference:
    if "missing" in peers[name]:
        return Reference(name, missing=peers[name]["missing"])
    return Reference(name, Figure(peers[name][field] * times, unit, sample))


def _fresh_row(settings: CryptoSettings, seconds: float, window: int, peers: _Peers) -> Row:
    whole, target = (
        settings.parameters == CryptoSettings.parameters,
        Target(">= 200 times faster", "ratio", at_least=200),
    )
    each = Figure(seconds / settings.parameters, "s", "" if whole else f"{settings.parameters:,} parameters")
    quantity = "encrypt, per parameter, randomizers and table included, rewards on, 1 core"
    note = f"whole vector {seconds:.3g} s, once; table window {window} bits"
    peer = _peer(peers, "phe", "encrypt", "s", sample=f"{settings.phe_sample} values")
    return Row("encrypt_fresh", quantity, each, target, note=note).under(peer, "phe / CrowdFL")


def _pool_row(key: str, cores: str, pooled: Mapping[str, Timing], peers: _Peers) -> Row:
    quantity = f"encrypt the whole model from the pool, rewards on, {cores}"
    target, took = Target("no slower", "ratio", at_least=1), pooled[key]
    threads = peers["TenSEAL"].get("threads")
    beside = "" if threads is None else f"; TenSEAL kept {threads:.2g} cores busy"
    row = Row(f"encrypt_from_pool_{key}", quantity, Figure(took.median, "s"), target, note=f"{took}{beside}")
    return row.under(_peer(peers, "TenSEAL", "encrypt", "s"), _BESIDE)


def _size_row(settings: CryptoSettings, upload: CipherVector, peers: _Peers, *, rewards: bool) -> Row:
    """Bytes of an upload, the sample count's ciphertext and the header included."""
    limit, which = (7.5, "with") if rewards else (3, "without")
    budget, size = settings.budget(rewards=rewards), Figure(len(upload.to_bytes()), "B")
    note = f"{budget.ciphertexts} ciphertexts of {budget.slots} slots of {budget.slot_bits} bits, and the sample count"
    target = Target(f"<= {limit} MB", "crowdfl", at_most=limit * 1e6)
    row = Row(f"upload_{which}_rewards", f"upload size {which} rewards", size, target, note=note)
    theirs = _peer(peers, "phe", "bytes", "B", settings.parameters, f"{settings.phe_sample} values")
    return row.under(_peer(peers, "TenSEAL", "bytes", "B"), _BESIDE, theirs)


def _sum_row(settings: CryptoSettings, summed: Timing, peers: _Peers) -> Row:
    quantity, target = "homomorphic sum of two models, rewards on, 1 core", Target("<= 0.4 s", "crowdfl", at_most=0.4)
    row = Row("sum", quantity, Figure(summed.median, "s"), target, note=str(summed))
    theirs = _peer(peers, "phe", "add", "s", settings.parameters, f"{settings.phe_sample} values")
    return row.under(_peer(peers, "TenSEAL", "add", "s"), _BESIDE, theirs)


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
    key = json.dumps([str(public.n), str(public.h_s), public.insecure_test_key])
    command = [sys.executable, "-m", "crowdfl_lab.bench.crypto", str(folder)]
    done = subprocess.run(command, input=key, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 -- our own module
    used = json.loads(done.stdout)
    baseline, peak = Figure(used["baseline"], "B"), Figure(used["peak"], "B")
    growth, target = Figure(peak.value - baseline.value, "B"), Target("<= 4 uploads", "ratio", at_most=4)
    note = f"{baseline} before, {peak} at most, {used['seconds']:.3g} s"
    row = Row("memory", f"memory to sum {count} uploads from disk", growth, target, note=note)
    return row.over(Reference("one upload", Figure(used["upload"], "B")), "growth / one upload")


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


if __name__ == "__main__":
    _n, _h_s, _insecure = json.load(sys.stdin)
    _public = PublicKey(gmpy2.mpz(_n), gmpy2.mpz(_h_s), _insecure)
    sys.stdout.write(json.dumps(_sum_uploads(Path(sys.argv[1]), _public)))
