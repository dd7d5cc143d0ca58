"""Memory to sum many uploads, measured in a fresh process: `python -m crowdfl.lab.bench.crypto.memory FOLDER`.

The kernel's high-water mark of this very program is read (VmHWM), not getrusage's: on Linux, ru_maxrss survives exec, so a
child of a large parent would start with the parent's peak and appear to need nothing.
"""

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from gmpy2 import mpz

from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.vector import CipherVector, RunningProduct, Unchecked

__all__ = ["MemoryUse", "current_bytes", "measure_sum", "peak_bytes", "sum_uploads", "write_uploads"]

_KEY = "key.json"
_STATUS = Path("/proc/self/status")


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

    @property
    def ratio(self) -> float:
        """Growth in uploads."""
        return self.growth_bytes / self.upload_bytes


def write_uploads(folder: Path, vectors: list[CipherVector], count: int) -> None:
    """The key and `count` uploads: these vectors in turn, further names for the same bytes on disk."""
    public = vectors[0].public
    key = {"n": str(public.n), "h_s": str(public.h_s), "insecure_test_key": public.insecure_test_key}
    (folder / _KEY).write_text(json.dumps(key))
    for number in range(count):
        path = folder / f"{number:04}.upload"
        if number < len(vectors):
            path.write_bytes(vectors[number].to_bytes())
        else:
            os.link(folder / f"{number % len(vectors):04}.upload", path)


def measure_sum(folder: Path) -> MemoryUse:
    """Sum the uploads of `folder` in a fresh process and read its memory."""
    command = [sys.executable, "-m", "crowdfl.lab.bench.crypto.memory", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 -- our own module
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


def current_bytes() -> int:
    """Resident memory now; where the system does not say, the peak so far."""
    return _status("VmRSS") or peak_bytes()


def peak_bytes() -> int:
    """The most resident memory this program has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _add(total: RunningProduct, path: Path, length: int) -> None:
    # A function of its own, so that an upload is gone before the next one is read.
    with path.open("rb") as stream:
        total.add(Unchecked.read(stream, total.public, max_count=length).validate())


def _status(name: str) -> int:
    if not _STATUS.exists():
        return 0
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _load_key(folder: Path) -> PublicKey:
    key = json.loads((folder / _KEY).read_text())
    return PublicKey(mpz(key["n"]), mpz(key["h_s"]), key["insecure_test_key"])


if __name__ == "__main__":
    _folder = Path(sys.argv[1])
    sys.stdout.write(json.dumps(asdict(sum_uploads(_folder, _load_key(_folder)))))
