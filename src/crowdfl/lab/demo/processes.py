"""The processes of a demo: this very program, started once for each role, and what they say on standard output."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdfl.errors import ServiceUnavailable

__all__ = ["Processes"]

_PROGRAM = (sys.executable, "-m", "crowdfl")


@dataclass
class Processes:
    """Every process by its name; what each logs goes to a file of that name."""

    folder: Path
    _running: dict[str, subprocess.Popen[str]] = field(default_factory=dict, repr=False)
    _events: "queue.Queue[tuple[str, dict[str, Any]]]" = field(default_factory=queue.Queue, repr=False)

    def start(self, name: str, *command: str) -> int:
        """Start one; its process id."""
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with self._log(name).open("a") as log:
            process = subprocess.Popen(  # noqa: S603 -- this very program
                [*_PROGRAM, *command], stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        self._running[name] = process
        threading.Thread(target=self._listen, args=(name, process), daemon=True).start()
        return process.pid

    def run(self, *command: str) -> None:
        """Run one to its end."""
        done = subprocess.run([*_PROGRAM, *command], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise ServiceUnavailable(f"crowdfl {' '.join(command)}: {done.stderr.strip()}")

    def next_event(self, seconds: float = 0.25) -> tuple[str, dict[str, Any]] | None:
        """What some process said, if any did in time."""
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None

    def require_alive(self, *names: str) -> None:
        """Or say how one of them ended, as it said itself."""
        for name in names:
            process = self._running.get(name)
            if process is not None and process.poll() not in (None, 0):
                last = self._log(name).read_text().strip().splitlines()[-1:]
                raise ServiceUnavailable(f"{name} has ended with {process.returncode}: {' '.join(last)}")

    def kill(self, name: str) -> None:
        """As a phone that is gone: no goodbye."""
        self._running[name].send_signal(signal.SIGKILL)
        self._running[name].wait()

    def stop(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        for process in self._running.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.log"

    def _listen(self, name: str, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                self._events.put((name, event))
