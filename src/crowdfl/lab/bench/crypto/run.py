"""`crowdfl bench crypto`: every measurement, one after another, beside the peers', with the targets of issue 2."""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.vector import encrypt
from crowdfl.errors import PeerUnavailable
from crowdfl.lab.bench.crypto import measure
from crowdfl.lab.bench.crypto.measure import (
    PAPER,
    CryptoSettings,
    FreshEncryption,
    Workload,
)
from crowdfl.lab.bench.crypto.memory import MemoryUse, measure_sum
from crowdfl.lab.bench.peers import run as peers
from crowdfl.lab.bench.peers.run import Phe, TenSeal
from crowdfl.lab.bench.workload import Say
from crowdfl.lab.report.results import Figure, Reference, Result, Row, Target, Unit
from crowdfl.lab.timing import Timing, machine, turns

__all__ = ["bench_crypto"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Asked(Generic[_T]):
    """A peer's answer, or why there is none."""

    answer: _T | None
    missing: str = ""

    @property
    def version(self) -> str:
        return str(getattr(self.answer, "version", self.missing))

    def figure(self, name: str, of: Callable[[_T], Figure]) -> Reference:
        return Reference(name, missing=self.missing) if self.answer is None else Reference(name, of(self.answer))


def bench_crypto(settings: CryptoSettings = PAPER, *, python: Path | None = None, say: Say = lambda _: None) -> Result:
    """All rows. `python` is the peers' interpreter, None to leave them out; `say` hears what is being measured."""
    where = machine()  # first, so that the load is what others cause
    work = Workload(settings)
    say("making a key")
    _ = work.keys, work.share
    say("phe, a sample")
    phe = _ask(peers.measure_phe, python, settings)
    say("encrypting from nothing, one core")
    fresh = measure.encrypt_fresh(work)
    say("TenSEAL, the whole model")
    tenseal = _ask(peers.measure_tenseal, python, settings)
    with tempfile.TemporaryDirectory(prefix="crowdfl-bench-") as folder:
        rows = _rows(work, fresh, phe, tenseal, Path(folder), say)
    return settings.result("crypto", where, rows, versions={"phe": phe.version, "TenSEAL": tenseal.version})


def _ask(
    measure_peer: Callable[[Path | None, CryptoSettings], _T], python: Path | None, settings: CryptoSettings
) -> _Asked[_T]:
    try:
        return _Asked(measure_peer(python, settings))
    except PeerUnavailable as error:
        return _Asked(None, str(error))


def _rows(
    work: Workload, fresh: FreshEncryption, phe: _Asked[Phe], tenseal: _Asked[TenSeal], folder: Path, say: Say
) -> tuple[Row, ...]:
    settings = work.settings
    say("encrypting from the pool, one core and all cores")
    cores = os.cpu_count() or 1
    pooled = measure.encrypt_from_pool(work, fresh.randomizers, folder, cores)
    plain = encrypt(fresh.randomizers, work.plaintexts(rewards=False))
    say("summing two models, one core")
    second, one_core = fresh.upload.add(fresh.upload), Threads(1)
    summed = turns({"sum": lambda: fresh.upload.add(second, backend=one_core)}, settings.repetitions)["sum"]
    say("partial decryption beside a bare loop")
    decrypted = measure.partial_decrypt(work, fresh.upload)
    say(f"memory to sum {settings.uploads} uploads, in a fresh process")
    used = measure_sum(folder, [fresh.upload, second], settings.uploads)
    return (
        _fresh_row(settings, fresh, phe),
        _pool_row("one_core", "1 core", pooled[1], tenseal),
        _pool_row("all_cores", f"all {cores} cores", pooled[cores], tenseal),
        _size_row(settings, len(fresh.upload.to_bytes()), phe, tenseal, rewards=True),
        _size_row(settings, len(plain.to_bytes()), phe, tenseal, rewards=False),
        _sum_row(settings, summed, phe, tenseal),
        *_decryption_rows(decrypted, settings.decryptions, cores),
        _memory_row(used),
    )


def _fresh_row(settings: CryptoSettings, fresh: FreshEncryption, phe: _Asked[Phe]) -> Row:
    part = "" if settings.parameters == PAPER.parameters else f"{settings.parameters:,} parameters"
    peer = phe.figure("phe", lambda it: Figure(it.encrypt_seconds, "s", f"{settings.phe_sample} values"))
    return Row(
        "encrypt_fresh",
        "encrypt, per parameter, randomizers and table included, rewards on, 1 core",
        Figure(fresh.seconds / settings.parameters, "s", part),
        Target(">= 200 times faster", "ratio", at_least=200),
        note=f"whole vector {fresh.seconds:.3g} s, once; table window {fresh.window} bits",
    ).under(peer, "phe / CrowdFL")


def _pool_row(key: str, cores: str, took: Timing, tenseal: _Asked[TenSeal]) -> Row:
    quantity = f"encrypt the whole model from the pool, rewards on, {cores}"
    target = Target("no slower", "ratio", at_least=1)
    beside = f"; TenSEAL kept {tenseal.answer.encrypt_threads:.2g} cores busy" if tenseal.answer else ""
    row = Row(f"encrypt_from_pool_{key}", quantity, Figure(took.median, "s"), target, note=f"{took}{beside}")
    return row.under(tenseal.figure("TenSEAL", lambda it: Figure(it.encrypt_seconds, "s")), "TenSEAL / CrowdFL")


def _size_row(settings: CryptoSettings, size: int, phe: _Asked[Phe], tenseal: _Asked[TenSeal], *, rewards: bool) -> Row:
    """Bytes of an upload, the sample count's ciphertext and the header included."""
    limit, which = (7.5, "with") if rewards else (3, "without")
    budget = settings.budget(rewards=rewards)
    note = f"{budget.ciphertexts} ciphertexts of {budget.slots} slots of {budget.slot_bits} bits, and the sample count"
    target = Target(f"<= {limit} MB", "crowdfl", at_most=limit * 1e6)
    row = Row(f"upload_{which}_rewards", f"upload size {which} rewards", Figure(size, "B"), target, note=note)
    theirs = phe.figure("phe", lambda it: _whole(settings, it.ciphertext_bytes, "B"))
    return row.under(tenseal.figure("TenSEAL", lambda it: Figure(it.upload_bytes, "B")), "TenSEAL / CrowdFL", theirs)


def _sum_row(settings: CryptoSettings, summed: Timing, phe: _Asked[Phe], tenseal: _Asked[TenSeal]) -> Row:
    quantity, target = "homomorphic sum of two models, rewards on, 1 core", Target("<= 0.4 s", "crowdfl", at_most=0.4)
    row = Row("sum", quantity, Figure(summed.median, "s"), target, note=str(summed))
    theirs = phe.figure("phe", lambda it: _whole(settings, it.add_seconds, "s"))
    return row.under(tenseal.figure("TenSEAL", lambda it: Figure(it.add_seconds, "s")), "TenSEAL / CrowdFL", theirs)


def _decryption_rows(took: Mapping[str, Timing], count: int, cores: int) -> tuple[Row, Row]:
    """What partial decryption costs over GMP itself, and what a second core gives."""
    each = {name: Figure(timing.minimum / count, "s", f"{count} ciphertexts") for name, timing in took.items()}
    medians = {name: took["one"].median / timing.median for name, timing in took.items()}
    turns = f"least of {len(took['bare'].seconds)} turns; by medians"
    one = Row(
        "partial_decryption",
        "partial decryption, per ciphertext, 1 core",
        each["one"],
        Target("within 5%", "ratio", at_most=1.05),
        note=f"{turns} {medians['bare']:.3f}",
    )
    two = Row(
        "partial_decryption_two_cores",
        "partial decryption, per ciphertext, 2 cores",
        each["two"],
        Target(">= 1.8 times", "ratio", at_least=1.8),
        judged=cores >= 2,
        note=f"{turns} {medians['two']:.3f}",
    )
    bare = Reference("bare gmpy2.powmod loop", each["bare"])
    return one.over(bare, "CrowdFL / bare loop"), two.under(
        Reference("CrowdFL on 1 core", each["one"]), "1 core / 2 cores"
    )


def _memory_row(used: MemoryUse) -> Row:
    return Row(
        "memory",
        f"memory to sum {used.uploads} uploads from disk",
        Figure(used.growth_bytes, "B"),
        Target("<= 4 uploads", "ratio", at_most=4),
        note=f"{Figure(used.baseline_bytes, 'B')} before, {Figure(used.peak_bytes, 'B')} at most, {used.seconds:.3g} s",
    ).over(Reference("one upload", Figure(used.upload_bytes, "B")), "growth / one upload")


def _whole(settings: CryptoSettings, each: float, unit: Unit) -> Figure:
    """A figure of one parameter, extrapolated to the model."""
    return Figure(each * settings.parameters, unit, f"{settings.phe_sample} values")
