"""One run, and at each chosen point of it a copy of this process in which something happens there before the run goes on."""

import gc
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from crowdfl.simulation.faults import Crash, Plan, Point

__all__ = ["Forks"]

_AT_ONCE = 2
_ENOUGH = 20  # failures: the rest would say the same


def _dies(_point: Point) -> None:
    raise Crash


@dataclass
class Forks:
    """`run` plays the undisturbed run here. What fails in a copy is told with its point. By default somebody dies there: the
    process whose point it is."""

    chosen: Callable[[Point], bool]
    happens: Plan = _dies
    points: list[Point] = field(default_factory=list)
    cut: list[Point] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _running: dict[int, tuple[Point, int]] = field(default_factory=dict)
    _report: int | None = None  # of a copy: where it writes how it went

    def run(self, play: Callable[[Plan], None]) -> None:
        gc.collect()
        gc.freeze()  # copies share what is there already
        try:
            play(self._at)
        except BaseException:
            if self._report is None:
                self._end_all()
                raise
            os.write(self._report, traceback.format_exc()[-8000:].encode())
            os._exit(1)
        finally:
            gc.unfreeze()
        if self._report is not None:
            os._exit(0)
        while self._running:
            self._wait()

    def _at(self, point: Point) -> None:
        if self._report is not None:
            return
        self.points.append(point)
        if not self.chosen(point) or len(self.failures) >= _ENOUGH:
            return
        while len(self._running) >= _AT_ONCE:
            self._wait()
        self.cut.append(point)
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(out)
            self._report = into
            self.happens(point)
            return
        os.close(into)
        self._running[child] = point, out

    def _wait(self) -> None:
        child, status = os.waitpid(next(iter(self._running)), 0)
        point, out = self._running.pop(child)
        with os.fdopen(out, "rb") as told:
            words = told.read().decode(errors="replace")
        if status:
            self.failures.append(f"{point} ({point.about}): {words or f'it ended with status {status}'}")

    def _end_all(self) -> None:
        for child in self._running:
            os.kill(child, signal.SIGKILL)
        while self._running:
            self._wait()
