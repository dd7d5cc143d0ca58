"""`crowdfl bench scale`: time and memory per role against parameters, participants and key size."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crowdfl.crypto import pctd
from crowdfl.crypto.compute import Threads
from crowdfl.crypto.vector import CipherVector
from crowdfl.errors import ProtocolError
from crowdfl.lab.bench.scale.growth import Growth, ScalePoint
from crowdfl.lab.bench.scale.plan import plan_table
from crowdfl.lab.bench.scale.role import END, PUBLICATION, UPLOAD, read_frame, write_frame
from crowdfl.lab.bench.workload import SIGMA, Say, made_up_weights, packed_model, sealed_publication
from crowdfl.lab.report.results import Figure, Result
from crowdfl.lab.timing import machine
from crowdfl.protocols.exchange import Silent
from crowdfl.protocols.hardened.prirwd import LanesRequest
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import Dealing, ParticipantKeys, TaskSpec, Tools, width_budget
from crowdfl.protocols.registry import PROFILES
from crowdfl.protocols.sdiv import SdivRequest
from crowdfl.settings import TaskSettings

__all__ = ["PAPER_SCALE", "QUICK_SCALE", "ChildRole", "ScaleSettings", "bench_scale", "measure_growth", "scale_result"]

_EVERY_ROW = 1 << 40
_FEWEST = 3  # uploads that a round needs


@dataclass(frozen=True)
class ScaleSettings:
    """The sizes of a run."""

    parameters: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    crowds: tuple[int, ...] = (10, 100, 1_000, 10_000)
    crowd_parameters: int = 1_000
    rewarded: tuple[int, ...] = (5, 10, 20)
    rewarded_lanes: tuple[int, int] = (64, 256)  # the second with the smallest crowd alone
    key_bits: tuple[int, ...] = (2 * pctd.SECURE_PRIME_BITS, 3 * pctd.SECURE_PRIME_BITS)
    key_parameters: int = 10_000
    lanes: int = 1024
    rows: int = 64  # powers that are computed of each batch
    insecure_test_key: bool = False

    @property
    def title(self) -> str:
        insecure = ", INSECURE TEST KEY" if self.insecure_test_key else ""
        return f"`hardened`, total shown, {self.lanes:,} lanes, |N| = {self.key_bits[0]}{insecure}"

    def sizes(self) -> list["_Size"]:
        """Every point, axis by axis."""
        key, small, most = self.key_bits[0], self.crowd_parameters, max(self.crowds)
        narrow, wide = self.rewarded_lanes
        return [
            *(_Size("parameters", p, p, _task(36, self.lanes, key)) for p in self.parameters),
            *(_Size("participants", n, small, _task(most, self.lanes, key), n) for n in self.crowds),
            *(_Size("rewarded", n, small, _task(most, narrow, key), n, rewards=True) for n in self.rewarded),
            _Size("lanes", wide, small, _task(most, wide, key), self.rewarded[0], rewards=True),
            *(_Size("key", bits, self.key_parameters, _task(36, self.lanes, bits)) for bits in self.key_bits),
        ]


PAPER_SCALE = ScaleSettings()
QUICK_SCALE = ScaleSettings(
    parameters=(1_000, 3_000),
    crowds=(10, 50),
    crowd_parameters=200,
    rewarded=(4, 5),
    rewarded_lanes=(20, 40),
    key_parameters=1_000,
    rows=4,
)


@dataclass(frozen=True)
class _Size:
    """A point to be measured."""

    axis: str
    x: int
    parameters: int
    task: dict[str, Any]  # as `TaskSettings` takes them
    crowd: int = _FEWEST
    rewards: bool = False


def _task(most: int, lanes: int, key_bits: int) -> dict[str, Any]:
    return {"max_participants": most, "lanes": lanes, "key_bits": key_bits}


def bench_scale(settings: ScaleSettings = PAPER_SCALE, *, say: Say = lambda _: None) -> Result:
    """Every point, each role in a fresh process on one core, and the way to a million participants."""
    where = machine()
    return scale_result(where, measure_growth(settings, say=say))


def scale_result(where: Mapping[str, str | int], growth: Growth) -> Result:
    plan = plan_table(growth.points)
    return Result(
        "scale",
        growth.title,
        where,
        growth.settings,
        tables=(*growth.tables(), plan),
        notes=growth.notes,
        pictures=(growth.picture,),
        data=growth.to_dict() | {"plan": [list(row) for row in plan.rows]},
        command="crowdfl bench scale",
    )


def measure_growth(settings: ScaleSettings, *, say: Say = lambda _: None) -> Growth:
    points = []
    for size in settings.sizes():
        say(f"{size.axis}: {size.x:,}")
        points.append(_Measurement(settings, size).point())
    return Growth(tuple(points), settings.title, asdict(settings))


class _Measurement:
    """One point: its task, dealt here, and its roles, each in a process of its own."""

    def __init__(self, settings: ScaleSettings, size: _Size) -> None:
        self.size = size
        self.spec = TaskSpec("scale", TaskSettings(**size.task), size.parameters)
        self.tools = Tools(Threads(), insecure_test_key=settings.insecure_test_key, observer=Silent())
        self.profile = PROFILES["hardened"]
        self.dealing: Dealing = self.profile.deal(self.spec, insecure_test_key=settings.insecure_test_key)
        self.budget = width_budget(self.spec.settings, size.parameters, SIGMA)
        keys = [ParticipantKeys.fresh(f"p{i:07}").identity for i in range(size.crowd if size.rewards else 0)]
        self.order: dict[str, Any] = {
            "task": size.task,
            "parameters": size.parameters,
            "crowd": size.crowd,
            "people": [(identity.who, identity.signing.hex(), identity.reading.hex()) for identity in keys],
            "rows": _EVERY_ROW if size.rewards else settings.rows,
            "insecure_test_key": settings.insecure_test_key,
        }

    def point(self) -> ScalePoint:
        with tempfile.TemporaryDirectory(prefix="crowdfl-bench-") as name:
            self.order["folder"], folder = name, Path(name)
            encrypting = self._child("participant").figures()
            figures, traffic = self._servers()
            figures["upload"] = Figure((folder / UPLOAD).stat().st_size, "B")
            if self.size.crowd == _FEWEST:  # a participant's own cost does not depend on how many there are
                figures |= encrypting
                figures["publication"] = Figure(self._publish(folder), "B")
                figures |= self._child("participant").figures()
        budget = self.budget
        counts = {"ciphertexts": budget.ciphertexts + 1, "buckets": budget.buckets, "slots": budget.slots}
        return ScalePoint(self.size.axis, self.size.x, self.size.crowd, counts | traffic, figures)

    def _publish(self, folder: Path) -> int:
        """A publication of known values for a reader to read; its bytes."""
        public = self.dealing.public
        rows = packed_model(self.budget, public, made_up_weights(self.size.parameters, 2021), 1)
        csp = self.profile.csp(self.spec, self.dealing.csp, self.tools)
        upload = CipherVector.from_bytes((folder / UPLOAD).read_bytes(), public, max_count=len(rows))
        publication = sealed_publication(self.spec.task(public), csp, rows, upload)
        (folder / PUBLICATION).write_bytes(publication)
        return len(publication)

    def _servers(self) -> tuple[dict[str, Figure], dict[str, int]]:
        """SP and CSP, their messages carried from one to the other and counted."""
        sp, csp = self._child("sp"), self._child("csp")
        traffic = {"to_csp": 0, "to_sp": 0, "division": 0, "lanes": 0}
        while request := sp.receive():
            csp.send(request)
            reply = csp.receive()
            sp.send(reply)
            traffic["to_csp"] += len(request)
            traffic["to_sp"] += len(reply)
            if Message.kind_of(request) == SdivRequest.kind:
                traffic["division"] = max(traffic["division"], len(request))
            elif Message.kind_of(request) == LanesRequest.kind:
                traffic["lanes"] += len(reply)
        csp.send(END)
        return sp.figures() | csp.figures(), traffic

    def _child(self, role: str) -> "ChildRole":
        bundle: bytes = getattr(self.dealing, role)
        return ChildRole(role, self.order | {"role": role, "bundle": bundle.hex()})


class ChildRole:
    """A role in a fresh process."""

    def __init__(self, role: str, order: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "crowdfl.lab.bench.scale.role"]
        self.process = subprocess.Popen(  # noqa: S603 -- our own module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.name = role if role == "participant" else role.upper()
        self.sample = f"{order['rows']} powers"
        self.send(json.dumps(order).encode())

    def send(self, frame: bytes) -> None:
        """To the role; one that has died is found out when it is asked for its figures."""
        assert self.process.stdin is not None  # noqa: S101 -- a pipe was asked for
        with suppress(BrokenPipeError):
            write_frame(self.process.stdin, frame)

    def receive(self) -> bytes:
        assert self.process.stdout is not None  # noqa: S101
        return read_frame(self.process.stdout)

    def figures(self) -> dict[str, Figure]:
        """What it measured, once it is done."""
        said = self.receive()
        self.process.communicate()
        if self.process.returncode or not said:
            raise ProtocolError(
                f"{self.name} ended with exit code {self.process.returncode}; its error output is above"
            )
        measured = json.loads(said)
        found = {
            f"{self.name}: {name}": Figure(seconds, "s", self.sample if name in measured["sampled"] else "")
            for name, seconds in measured["seconds"].items()
        }
        what = "reading" if "read" in measured["seconds"] else "working"
        return found | {f"{self.name}: memory, {what}": Figure(measured["memory"], "B")}
