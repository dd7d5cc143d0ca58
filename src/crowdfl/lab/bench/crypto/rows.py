"""From measurements to rows: CrowdFL's figure, the peers', their ratio, and the target of issue 2."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from crowdfl.lab.bench.crypto.measure import FreshEncryption, FromPool, PartialDecryption
from crowdfl.lab.bench.crypto.memory import MemoryUse
from crowdfl.lab.bench.crypto.setting import PAPER, Setting
from crowdfl.lab.bench.peers.run import Phe, TenSeal
from crowdfl.lab.bench.rows import Figure, Peer, Row, Target
from crowdfl.lab.timing import Timing

__all__ = ["Asked", "decryption_rows", "fresh_row", "memory_row", "pool_rows", "size_row", "sum_row"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Asked(Generic[_T]):
    """A peer's answer, or why there is none."""

    answer: _T | None
    missing: str = ""

    @property
    def version(self) -> str:
        """The peer's version, or why there is none."""
        return str(getattr(self.answer, "version", self.missing))

    def peer(self, name: str, figure: Callable[[_T], Figure]) -> Peer:
        """The peer's figure for a row."""
        return Peer(name, missing=self.missing) if self.answer is None else Peer(name, figure(self.answer))


def fresh_row(setting: Setting, fresh: FreshEncryption, phe: Asked[Phe]) -> Row:
    """Encryption from nothing, per parameter."""
    part = "" if setting.parameters == PAPER.parameters else f"{setting.parameters:,} parameters"
    ours = Figure(fresh.seconds / setting.parameters, "s", part)
    peer = phe.peer("phe", lambda it: Figure(it.encrypt_seconds, "s", f"{setting.phe_sample} values"))
    return Row(
        "encrypt_fresh",
        "encrypt, per parameter, randomizers and table included, rewards on, 1 core",
        ours,
        Target(">= 200 times faster", "ratio", at_least=200),
        (peer,),
        _over(peer.figure, ours),
        "phe / CrowdFL",
        setting.judged,
        f"whole vector {fresh.seconds:.3g} s, once; table window {fresh.window} bits",
    )


def pool_rows(setting: Setting, pooled: FromPool, tenseal: Asked[TenSeal]) -> tuple[Row, Row]:
    """Encryption of the whole model with a filled pool, on one core and on all."""
    peer = tenseal.peer("TenSEAL", lambda it: Figure(it.encrypt_seconds, "s"))
    beside = f"; TenSEAL kept {tenseal.answer.encrypt_threads:.2g} cores busy" if tenseal.answer else ""

    def row(key: str, cores: str, timing: Timing) -> Row:
        ours = Figure(timing.median, "s")
        return Row(
            key,
            f"encrypt the whole model from the pool, rewards on, {cores}",
            ours,
            Target("no slower", "ratio", at_least=1),
            (peer,),
            _over(peer.figure, ours),
            "TenSEAL / CrowdFL",
            setting.judged,
            f"{timing}{beside}",
        )

    return (
        row("encrypt_from_pool_one_core", "1 core", pooled.one_core),
        row("encrypt_from_pool_all_cores", f"all {pooled.cores} cores", pooled.all_cores),
    )


def size_row(setting: Setting, size: int, phe: Asked[Phe], tenseal: Asked[TenSeal], *, rewards: bool) -> Row:
    """Bytes of an upload, the sample count's ciphertext and the header included."""
    limit = 7.5 if rewards else 3
    budget = setting.budget(rewards=rewards)
    ours, peer = Figure(size, "B"), tenseal.peer("TenSEAL", lambda it: Figure(it.upload_bytes, "B"))
    return Row(
        f"upload_{'with' if rewards else 'without'}_rewards",
        f"upload size {'with' if rewards else 'without'} rewards",
        ours,
        Target(f"<= {limit} MB", "crowdfl", at_most=limit * 1e6),
        (phe.peer("phe", lambda it: _whole(setting, it.ciphertext_bytes, "B")), peer),
        _over(peer.figure, ours),
        "TenSEAL / CrowdFL",
        setting.judged,
        f"{budget.ciphertexts} ciphertexts of {budget.slots} slots of {budget.slot_bits} bits, and the sample count",
    )


def sum_row(setting: Setting, summed: Timing, phe: Asked[Phe], tenseal: Asked[TenSeal]) -> Row:
    """The homomorphic sum of two models."""
    ours, peer = Figure(summed.median, "s"), tenseal.peer("TenSEAL", lambda it: Figure(it.add_seconds, "s"))
    return Row(
        "sum",
        "homomorphic sum of two models, rewards on, 1 core",
        ours,
        Target("<= 0.4 s", "crowdfl", at_most=0.4),
        (peer, phe.peer("phe", lambda it: _whole(setting, it.add_seconds, "s"))),
        _over(peer.figure, ours),
        "TenSEAL / CrowdFL",
        setting.judged,
        str(summed),
    )


def decryption_rows(setting: Setting, decrypted: PartialDecryption) -> tuple[Row, Row]:
    """Partial decryption: what it costs over GMP itself, and what a second core gives."""
    sample = f"{decrypted.count} ciphertexts"
    one, bare, two = (
        Figure(timing.minimum / decrypted.count, "s", sample)
        for timing in (decrypted.one_core, decrypted.bare, decrypted.two_cores)
    )
    turns = f"least of {len(decrypted.bare.seconds)} turns"
    medians = decrypted.one_core.median / decrypted.bare.median, decrypted.one_core.median / decrypted.two_cores.median
    return (
        Row(
            "partial_decryption",
            "partial decryption, per ciphertext, 1 core",
            one,
            Target("within 5%", "ratio", at_most=1.05),
            (Peer("bare gmpy2.powmod loop", bare),),
            decrypted.overhead,
            "CrowdFL / bare loop",
            setting.judged,
            f"{turns}; by medians {medians[0]:.3f}",
        ),
        Row(
            "partial_decryption_two_cores",
            "partial decryption, per ciphertext, 2 cores",
            two,
            Target(">= 1.8 times", "ratio", at_least=1.8),
            (Peer("CrowdFL on 1 core", one),),
            decrypted.speedup,
            "1 core / 2 cores",
            setting.judged and decrypted.cores >= 2,
            f"{turns}; by medians {medians[1]:.3f}",
        ),
    )


def memory_row(setting: Setting, used: MemoryUse) -> Row:
    """Memory on top of the loaded program while uploads are summed."""
    return Row(
        "memory",
        f"memory to sum {used.uploads} uploads from disk",
        Figure(used.growth_bytes, "B"),
        Target("<= 4 uploads", "ratio", at_most=4),
        (Peer("one upload", Figure(used.upload_bytes, "B")),),
        used.ratio,
        "growth / one upload",
        setting.judged,
        f"{Figure(used.baseline_bytes, 'B')} before, {Figure(used.peak_bytes, 'B')} at most, {used.seconds:.3g} s",
    )


def _whole(setting: Setting, each: float, unit: Literal["s", "B"]) -> Figure:
    """A figure of one parameter, extrapolated to the model."""
    return Figure(each * setting.parameters, unit, f"{setting.phe_sample} values")


def _over(peer: Figure | None, ours: Figure) -> float | None:
    return peer.value / ours.value if peer else None
