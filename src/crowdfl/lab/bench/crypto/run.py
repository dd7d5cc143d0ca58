"""`crowdfl bench crypto`: runs every measurement, one after another, and sets the figures beside the peers'."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from crowdfl.errors import PeerUnavailable
from crowdfl.lab.bench.crypto import measure, memory
from crowdfl.lab.bench.crypto import rows as compare
from crowdfl.lab.bench.crypto.rows import Asked
from crowdfl.lab.bench.crypto.setting import PAPER, Setting, Workload
from crowdfl.lab.bench.peers import run as peers
from crowdfl.lab.bench.rows import Report, Row
from crowdfl.lab.timing import machine

__all__ = ["LEFT_OUT", "bench_crypto"]

LEFT_OUT = "left out: --no-peers"
_T = TypeVar("_T")


def bench_crypto(
    setting: Setting = PAPER, *, python: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> Report:
    """All rows. `python` is the peers' interpreter, None to leave them out; `say` hears what is being measured."""
    where = machine()  # first, so that the load is what others cause
    work = Workload(setting)
    say("making a key")
    _ = work.keys, work.share, work.weights
    say("phe, a sample")
    phe = _ask(peers.measure_phe, python, setting)
    say("encrypting from nothing, one core")
    fresh = measure.encrypt_fresh(work)
    say("TenSEAL, the whole model")
    tenseal = _ask(peers.measure_tenseal, python, setting)
    with tempfile.TemporaryDirectory(prefix="crowdfl-bench-") as folder:
        rows = _rows(work, fresh, phe, tenseal, Path(folder), say)
    versions = {"phe": phe.version, "TenSEAL": tenseal.version}
    return Report(setting.title, where, setting.to_dict(), versions, rows)


def _rows(
    work: Workload,
    fresh: measure.FreshEncryption,
    phe: Asked[peers.Phe],
    tenseal: Asked[peers.TenSeal],
    folder: Path,
    say: Callable[[str], None],
) -> tuple[Row, ...]:
    say("encrypting from the pool, one core and all cores")
    pooled = measure.encrypt_from_pool(work, fresh.randomizers, folder)
    plain = measure.encrypt_without_rewards(work, fresh.randomizers)
    say("summing two models, one core")
    second = fresh.upload.add(fresh.upload)
    summed = measure.sum_two(work, fresh.upload, second)
    say("partial decryption beside a bare loop")
    decrypted = measure.partial_decrypt(work, fresh.upload)
    say(f"memory to sum {work.setting.uploads} uploads, in a fresh process")
    memory.write_uploads(folder, [fresh.upload, second], work.setting.uploads)
    used = memory.measure_sum(folder)
    return (
        compare.fresh_row(work.setting, fresh, phe),
        *compare.pool_rows(work.setting, pooled, tenseal),
        compare.size_row(work.setting, len(fresh.upload.to_bytes()), phe, tenseal, rewards=True),
        compare.size_row(work.setting, len(plain.to_bytes()), phe, tenseal, rewards=False),
        compare.sum_row(work.setting, summed, phe, tenseal),
        *compare.decryption_rows(work.setting, decrypted),
        compare.memory_row(work.setting, used),
    )


def _ask(measure_peer: Callable[[Path, Setting], _T], python: Path | None, setting: Setting) -> Asked[_T]:
    if python is None:
        return Asked(None, LEFT_OUT)
    try:
        return Asked(measure_peer(python, setting))
    except PeerUnavailable as error:
        return Asked(None, str(error))
