"""The points of a `bench scale` run: a round of so many people, dealt here, its roles each in a process of its own.

And what was measured at them, and how each cost grows: tables, exponents, a picture.
"""

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.sealing import AudienceKey
from crowdfl.errors import ProtocolError
from crowdfl.protocols.capabilities import DealsFiles
from crowdfl.protocols.exchange import Silent
from crowdfl.protocols.hardened.bundles import ReaderBundle
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import CspProtocol, TaskSpec, Tools, width_budget
from crowdfl.settings import MILLION, TaskSettings, to_millionths
from crowdfl.simulation.sides import Sides
from crowdfl_lab.bench.scale.role import END, PUBLICATION, UPLOADS, play_role
from crowdfl_lab.bench.workload import SIGMA, made_up_weights, packed_model, sealed_publication
from crowdfl_lab.report.plots import Canvas, Picture, Series, lines, panels
from crowdfl_lab.report.results import Cell, Figure, ResultTable
from crowdfl_lab.timing import timed_call

Axes = Mapping[str, tuple[str, tuple[str, ...]]]  # by name: what grows, and the quantities
_BYTES = {"SP to CSP": "to_csp", "CSP to SP": "to_sp"}


@dataclass(frozen=True)
class ScalePoint:
    """What was measured at `x` of an axis, with so many uploads."""

    axis: str
    x: int
    crowd: int
    counts: Mapping[str, int]
    figures: Mapping[str, Figure]

    def figure(self, name: str) -> Figure:
        if name in _BYTES:
            return Figure(self.counts[_BYTES[name]], "B")
        if name == "SP: add, one upload":
            whole = self.figures["SP: add"]
            return Figure(whole.value / self.crowd, "s", whole.sample)
        if name == "stored uploads":
            return Figure(self.crowd * self.figures["upload"].value, "B")
        return self.figures[name]


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """b of y = a x^b, by least squares of the logarithms: 1 is proportional, 0 does not grow."""
    slope, _ = np.polyfit(np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64)), 1)
    return float(slope)


def exponents(points: Iterable[ScalePoint], axis: str, axes: Axes) -> dict[str, float]:
    """Of every quantity on an axis that is positive everywhere."""
    series = _series(points, axis, axes[axis][1])
    return {name: exponent(s.x, s.y) for name, s in series.items() if min(s.y) > 0 and len(s.y) > 1}


def _series(points: Iterable[ScalePoint], axis: str, names: Iterable[str]) -> dict[str, Series]:
    on = [point for point in points if point.axis == axis]
    return {name: Series([float(p.x) for p in on], [p.figure(name).value for p in on]) for name in names}


def growth_table(
    points: Sequence[ScalePoint], axis: str, title: str, settings: Mapping[str, Any], axes: Axes
) -> ResultTable:
    label, names = axes[axis]
    on = [point for point in points if point.axis == axis]
    found = exponents(points, axis, axes)

    def row(name: str) -> tuple[Cell, ...]:
        return name, *(point.figure(name) for point in on), f"{found[name]:.2f}" if name in found else None

    columns = ("one core", *(f"{point.x:,}" for point in on), "exponent")
    return ResultTable(f"Against {label.format(**settings)}; {title}", columns, tuple(map(row, names)))


def growth_picture(points: Sequence[ScalePoint], name: str, shown: Axes, axes: Axes) -> Picture:
    """`shown`: by title, an axis and the quantities."""

    def draw(canvas: Canvas) -> None:
        for panel, (title, (axis, names)) in zip(panels(canvas, len(shown)), shown.items(), strict=True):
            lines(panel, _series(points, axis, names), log=True, title=title, xlabel=axes[axis][0].partition(",")[0])

    return Picture(name, "Time and memory of each role against parameters and participants", draw, (14, 5))


FEWEST = 3  # uploads that a round needs
_EVERY_ROW = 1 << 40


class ChildRole:
    """A role in a fresh process, as the parent sees it."""

    def __init__(self, order: dict[str, Any]) -> None:
        spawned = get_context("spawn")
        self.pipe, theirs = spawned.Pipe()
        self.process = spawned.Process(target=play_role, args=(order, theirs))
        self.process.start()
        theirs.close()
        self.name = order["role"] if order["role"] == "participant" else order["role"].upper()
        self.sample = f"{order.get('rows')} powers"

    def send(self, frame: bytes) -> None:
        """To the role; one that has died is found out when it is asked for its figures."""
        with suppress(BrokenPipeError):
            self.pipe.send_bytes(frame)

    def receive(self) -> bytes:
        with suppress(EOFError):
            return self.pipe.recv_bytes()
        return END

    def figures(self) -> dict[str, Figure]:
        measured = None
        with suppress(EOFError):
            measured = self.pipe.recv()
        self.process.join()
        if not measured:
            code = self.process.exitcode
            raise ProtocolError(f"{self.name} ended with exit code {code}; its error output is above")
        seconds, sampled = measured["seconds"], measured["sampled"]
        found = {stage: Figure(s, "s", self.sample if stage in sampled else "") for stage, s in seconds.items()}
        found["memory, reading" if "read" in seconds else "memory, working"] = Figure(measured["memory"], "B")
        return {f"{self.name}: {name}": figure for name, figure in found.items()}


class RoundPoint:
    """One round of `crowd` people, measured at `x` of an axis."""

    def __init__(self, axis: str, x: int, crowd: int, spec: TaskSpec, *, enrolled: int, **order: Any) -> None:  # noqa: ANN401
        self.axis, self.x, self.crowd, self.spec, self.order = axis, x, crowd, spec, order
        tools = Tools(Threads(1), insecure_test_key=order["insecure_test_key"], observer=Silent())
        self.sides = Sides(spec, tools)
        self.people = [self.sides.enrol(f"p{i:07}").identity for i in range(enrolled)]

    def measured(self) -> ScalePoint:
        with tempfile.TemporaryDirectory(prefix="crowdfl-bench-") as name:
            figures = self.prepare(Path(name))
            servers, counts = self._servers(Path(name))
            figures |= servers | self.read(Path(name))
        return ScalePoint(self.axis, self.x, self.crowd, counts, figures)

    def prepare(self, folder: Path) -> dict[str, Figure]:
        """Uploads, and what is dealt."""
        raise NotImplementedError

    def read(self, folder: Path) -> dict[str, Figure]:
        """What a reader's part costs."""
        raise NotImplementedError

    def child(self, role: str, folder: Path) -> ChildRole:
        bundle: bytes = getattr(self.sides.dealing, role)
        order = {"role": role, "folder": str(folder), "bundle": bundle, "people": self.people, "crowd": self.crowd}
        if role == "sp":
            order |= {"signing": {who: keys.signing.private for who, keys in self.sides.keys.items()}}
        task = self.spec.settings.model_dump(mode="json")
        return ChildRole(order | {"task": task, "parameters": self.spec.parameters} | self.order)

    def _servers(self, folder: Path) -> tuple[dict[str, Figure], dict[str, int]]:
        """SP and CSP, their messages carried from one to the other and counted."""
        sp, csp = self.child("sp", folder), self.child("csp", folder)
        counts = {"to_csp": 0, "to_sp": 0, "requests": 0}
        while request := sp.receive():
            csp.send(request)
            reply = csp.receive()
            sp.send(reply)
            counts["to_csp"] += len(request)
            counts["to_sp"] += len(reply)
            counts["requests"] += 1
        csp.send(END)
        return sp.figures() | csp.figures(), counts


class HardenedPoint(RoundPoint):
    """Everyone sends the same upload. `rows` powers of each batch are computed, or all where rewards are measured."""

    def __init__(
        self,
        axis: str,
        x: int,
        parameters: int,
        crowd: int,
        rows: int,
        *,
        insecure_test_key: bool,
        **task: Any,  # noqa: ANN401
    ) -> None:
        rewards = axis in ("rewarded", "lanes")
        self.budget = width_budget(TaskSettings(**task), parameters, SIGMA)
        order = {"rows": _EVERY_ROW if rewards else rows, "uploads": 1, "insecure_test_key": insecure_test_key}
        spec = TaskSpec("scale", TaskSettings(**task), parameters)
        payment = crowd * MILLION if rewards else 0
        super().__init__(axis, x, crowd, spec, enrolled=crowd, payment=payment, **order)

    def prepare(self, folder: Path) -> dict[str, Figure]:
        """A participant's own cost does not depend on how many there are."""
        encrypting = self.child("participant", folder).figures()
        upload = {"upload": Figure((folder / UPLOADS).stat().st_size, "B")}
        return upload | (encrypting if self.crowd == FEWEST else {})

    def read(self, folder: Path) -> dict[str, Figure]:
        """Of a publication whose values are known: that of sampled servers is worth nothing."""
        if self.crowd != FEWEST:
            return {}
        csp = cast(CspProtocol, self.sides.fresh_csp(tools=replace(self.sides.tools, backend=Threads())).side)
        task = self.sides.task
        bundle = ReaderBundle.from_bytes(self.sides.dealing.participant, Limits.plain())
        rows = packed_model(self.budget, task.public, made_up_weights(self.spec.parameters, 2021), 1)
        upload = (folder / UPLOADS).read_bytes()
        publication = sealed_publication(task, csp, AudienceKey(bundle.audience), rows, upload)
        size = (folder / PUBLICATION).write_bytes(publication)
        return {"publication": Figure(size, "B")} | self.child("participant", folder).figures()


class SharesPoint(RoundPoint):
    """Everyone's upload is real, made here of one update with a fresh seed each, one after another into one file."""

    def __init__(self, axis: str, x: int, parameters: int, crowd: int, task: TaskSettings) -> None:
        order = {"rows": _EVERY_ROW, "uploads": crowd, "insecure_test_key": False}
        payment = 0 if task.budget is None else to_millionths(task.budget)
        spec = TaskSpec("scale", task, parameters)
        super().__init__(axis, x, crowd, spec, enrolled=crowd, payment=payment, **order)

    def prepare(self, folder: Path) -> dict[str, Figure]:
        """A participant's figure is the mean of all; KGC's where a round has files."""
        task, parameters, spent = self.spec.settings, self.spec.parameters, 0.0
        update = made_up_weights(parameters, 2021)
        update *= (task.max_norm or 1.0) / 2 / np.linalg.norm(update)
        with (folder / UPLOADS).open("wb") as file:
            for identity in self.people:
                side = self.sides.fresh_person(identity.who)
                start = time.process_time()
                upload = side.encrypt_update(update, 1, 1)
                spent += time.process_time() - start
                file.write(upload)
        each = Figure(spent / self.crowd, "s", f"the mean of {self.crowd:,}")
        found = {"participant: encrypt": each, "upload": Figure(len(upload), "B")}
        profile = self.sides.profile
        if isinstance(profile, DealsFiles) and profile.dealt_bytes(task, parameters):
            spent, size = 0.0, 0
            for number in range(1, task.most_cohorts + 1):  # of the first round
                for role in ("sp", "csp"):
                    start = time.process_time()
                    with (folder / f"{role}.dealt.{number}").open("wb") as out:
                        out.writelines(profile.dealt(self.spec, self.sides.dealing.source, role, number))
                        size += out.tell()
                    spent += time.process_time() - start
            found |= {"KGC: deal": Figure(spent, "s"), "dealt": Figure(size, "B")}
        return found

    def read(self, folder: Path) -> dict[str, Figure]:
        publication = (folder / PUBLICATION).read_bytes()
        seconds, average = timed_call(lambda: self.sides.fresh_person(self.people[0].who).read(publication, 1))
        if average.total != self.crowd:
            raise ProtocolError(f"{average.total} of {self.crowd} uploads are in the average")
        return {"participant: read": Figure(seconds, "s"), "publication": Figure(len(publication), "B")}
