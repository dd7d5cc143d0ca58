"""Memory to sum many uploads, measured in a fresh process: `python -m crowdfl.lab.bench.crypto.memory FOLDER`."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from gmpy2 import mpz

from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.vector import CipherVector, RunningProduct, Unchecked
from crowdfl.lab.process import current_bytes, peak_bytes

__all__ = ["MemoryUse", "measure_sum", "sum_uploads"]


@dataclass(frozen=True)
class MemoryUse:
    """Resident memory before the first upload and at its highest, and what was summed."""

    baseline_bytes: int
    peak_bytes: int
    upload_bytes: int
    uploads: int
    seconds: float

    @property
    def growth_bytes(self) -> int:
        """What summing took on top of the loaded program."""
        return self.peak_bytes - self.baseline_bytes


def measure_sum(folder: Path, vectors: list[CipherVector], count: int) -> MemoryUse:
    """Sum `count` uploads from disk in a fresh process: these vectors in turn, under further names for the same bytes."""
    for number in range(count):
        path = folder / f"{number:04}.upload"
        if number < len(vectors):
            path.write_bytes(vectors[number].to_bytes())
        else:
            os.link(folder / f"{number % len(vectors):04}.upload", path)
    public = vectors[0].public
    key = json.dumps([str(public.n), str(public.h_s), public.insecure_test_key])
    command = [sys.executable, "-m", "crowdfl.lab.bench.crypto.memory", str(folder)]
    done = subprocess.run(command, input=key, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 -- our own module
    return MemoryUse(**json.loads(done.stdout))


def sum_uploads(folder: Path, public: PublicKey) -> MemoryUse:
    """As SP does it: each upload read, checked, multiplied in and let go."""
    paths = sorted(folder.glob("*.upload"))
    upload_bytes = paths[0].stat().st_size
    length = upload_bytes // public.ciphertext_bytes  # the header is shorter than one ciphertext
    start, baseline = time.perf_counter(), current_bytes()
    total = RunningProduct(public, length, len(paths))
    for path in paths:
        _add(total, path, length)
    total.result()
    return MemoryUse(baseline, peak_bytes(), upload_bytes, len(paths), time.perf_counter() - start)


def _add(total: RunningProduct, path: Path, length: int) -> None:
    # A function of its own, so that an upload is gone before the next one is read.
    with path.open("rb") as stream:
        total.add(Unchecked.read(stream, total.public, max_count=length).validate())


if __name__ == "__main__":
    _n, _h_s, _insecure = json.load(sys.stdin)
    _public = PublicKey(mpz(_n), mpz(_h_s), _insecure)
    sys.stdout.write(json.dumps(asdict(sum_uploads(Path(sys.argv[1]), _public))))
