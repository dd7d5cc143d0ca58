"""A role's cluster as its operator starts it: `dask scheduler` and `dask worker` processes, TLS on loopback, the preload."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crowdfl.services.cluster.worker import KEYS
from crowdfl.services.http.tls import make_cluster_certificate
from crowdfl.settings import ClusterSettings
from tests import subprocesses

PATIENCE = 120.0  # seconds for a process to start on a busy machine


@dataclass
class Processes:
    folder: Path
    keys: Path
    settings: ClusterSettings = field(init=False)
    scheduler: subprocess.Popen[bytes] = field(init=False)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        self.folder.mkdir(mode=0o700)
        self.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = make_cluster_certificate(self.folder)
        self._tls = ["--tls-ca-file", files.certificate, "--tls-cert", files.certificate, "--tls-key", files.key]
        where = ["--host", "127.0.0.1", "--port", "0", "--protocol", "tls", "--scheduler-file", self._file]
        self.scheduler = self._dask("scheduler", *where)
        self._certificate = files

    def ready(self) -> None:
        wait_for(lambda: self._file.exists() and self._file.stat().st_size > 0, self.scheduler)
        address = json.loads(self._file.read_text())["address"]
        files = self._certificate
        self.settings = ClusterSettings(
            scheduler=address, ca=files.certificate, certificate=files.certificate, key=files.key, patience=PATIENCE
        )

    def restart(self) -> None:
        """A new scheduler in the place of one that was killed."""
        self.scheduler.wait()
        port = self.settings.scheduler.rpartition(":")[2]
        self.scheduler = self._dask("scheduler", "--host", "127.0.0.1", "--port", port, "--protocol", "tls")

    def add_worker(self) -> subprocess.Popen[bytes]:
        room = ["--nthreads", "1", "--no-nanny", "--local-directory", self.folder / "scratch", "--host", "127.0.0.1"]
        preload = ["--preload", "crowdfl.services.cluster.worker"]
        worker = self._dask("worker", self.settings.scheduler, *room, *preload)
        self.workers.append(worker)
        return worker

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    @property
    def _file(self) -> Path:
        return self.folder / "scheduler.json"

    def _dask(self, what: str, *arguments: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", what, *map(str, arguments), *map(str, self._tls), "--no-dashboard"]
        environment = os.environ | {KEYS: str(self.keys), "DASK_LOGGING__DISTRIBUTED": "debug"}
        with open(self.folder / f"{what}{len(self.workers)}.log", "wb") as log:
            return subprocesses.start(command, stdout=log, stderr=log, env=environment, cwd=self.folder)


def wait_for(condition, process: subprocess.Popen[bytes] | None = None) -> None:
    """Until it holds; an ended process, or a long time, is a failure."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert process is None or process.poll() is None, f"the process ended with {process.returncode}"
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.05)


@contextlib.contextmanager
def clusters(folder: Path, keys: dict[str, Path]) -> Iterator[dict[str, Processes]]:
    """One for each role, started at the same time."""
    found = {role: Processes(folder / role, where) for role, where in keys.items()}
    try:
        for one in found.values():
            one.start()
        for one in found.values():
            one.ready()
        yield found
    finally:
        for one in found.values():
            one.stop()
