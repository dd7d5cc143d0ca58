"""`crowdfl bench scale`: time and memory per role against parameters, participants and key size."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.crypto import pctd
from crowdfl.crypto.blocks import from_ints
from crowdfl.crypto.compute import Threads
from crowdfl.crypto.vector import CipherVector
from crowdfl.errors import ProtocolError
from crowdfl.lab.bench.protocols.measure import sealed_publication
from crowdfl.lab.bench.protocols.setting import SIGMA, made_up_weights
from crowdfl.lab.bench.rows import Figure
from crowdfl.lab.bench.scale.point import Point
from crowdfl.lab.bench.scale.report import Growth
from crowdfl.lab.bench.scale.role import END, UPLOAD, read_frame, write_frame
from crowdfl.lab.timing import machine
from crowdfl.protocols.exchange import Silent
from crowdfl.protocols.hardened.prirwd import LanesRequest
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import Dealing, ParticipantKeys, TaskSpec, Tools, width_budget
from crowdfl.protocols.registry import PROFILES
from crowdfl.protocols.sdiv import SdivRequest
from crowdfl.settings import TaskSettings

__all__ = ["PAPER_SCALE", "QUICK_SCALE", "ScaleSetting", "bench_scale"]

_EVERY_ROW = 1 << 40
_FEWEST = 3  # uploads that a round needs


@dataclass(frozen=True)
class ScaleSetting:
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
        """One line for people."""
        insecure = ", INSECURE TEST KEY" if self.insecure_test_key else ""
        return f"`hardened`, total shown, {self.lanes:,} lanes, |N| = {self.key_bits[0]}{insecure}"

    def task(self, crowd: int, lanes: int, key_bits: int) -> TaskSettings:
        """The settings of a task of such a size."""
        return TaskSettings(max_participants=crowd, lanes=lanes, key_bits=key_bits)


PAPER_SCALE = ScaleSetting()
QUICK_SCALE = ScaleSetting(
    parameters=(1_000, 3_000),
    crowds=(10, 50),
    crowd_parameters=200,
    rewarded=(4, 5),
    rewarded_lanes=(20, 40),
    key_parameters=1_000,
    rows=4,
)


def bench_scale(setting: ScaleSetting = PAPER_SCALE, *, say: Callable[[str], None] = lambda _: None) -> Growth:
    """Every point, each role in a fresh process on one core."""
    where = machine()
    points = []
    key = setting.key_bits[0]
    for parameters in setting.parameters:
        say(f"{parameters:,} parameters")
        points.append(_point(setting, "parameters", parameters, setting.task(36, setting.lanes, key), parameters))
    for crowd in setting.crowds:
        say(f"{crowd:,} participants")
        task = setting.task(max(setting.crowds), setting.lanes, key)
        points.append(_point(setting, "participants", crowd, task, setting.crowd_parameters, crowd=crowd))
    for crowd in setting.rewarded:
        say(f"rewards of {crowd}")
        task = setting.task(max(setting.crowds), setting.rewarded_lanes[0], key)
        points.append(_point(setting, "rewarded", crowd, task, setting.crowd_parameters, crowd=crowd, rewards=True))
    more, fewest = setting.rewarded_lanes[1], setting.rewarded[0]
    say(f"rewards of {fewest} with {more} lanes")
    task = setting.task(max(setting.crowds), more, key)
    points.append(_point(setting, "lanes", more, task, setting.crowd_parameters, crowd=fewest, rewards=True))
    for bits in setting.key_bits:
        say(f"a key of {bits} bits")
        points.append(_point(setting, "key", bits, setting.task(36, setting.lanes, bits), setting.key_parameters))
    return Growth(setting.title, where, asdict(setting), tuple(points))


def _point(
    setting: ScaleSetting,
    axis: str,
    x: int,
    task: TaskSettings,
    parameters: int,
    *,
    crowd: int = 3,
    rewards: bool = False,
) -> Point:
    about = TaskSpec("scale", task, parameters)
    dealing = PROFILES["hardened"].deal(about, insecure_test_key=setting.insecure_test_key)
    keys = [ParticipantKeys.fresh(f"p{i:07}").identity for i in range(crowd if rewards else 0)]
    budget = width_budget(task, parameters, SIGMA)
    with tempfile.TemporaryDirectory(prefix="crowdfl-bench-") as folder:
        order = {
            "task": task.model_dump(),
            "parameters": parameters,
            "crowd": crowd,
            "people": [(identity.who, identity.signing.hex(), identity.reading.hex()) for identity in keys],
            "rows": _EVERY_ROW if rewards else setting.rows,
            "insecure_test_key": setting.insecure_test_key,
            "folder": folder,
        }
        # A participant's own cost does not depend on how many there are.
        figures = _alone(order, dealing) if crowd == _FEWEST else _upload(about, dealing, Path(folder), setting)
        servers, traffic = _together(order, dealing)
        figures |= servers
        figures["upload"] = Figure((Path(folder) / UPLOAD).stat().st_size, "B")
        if crowd == _FEWEST:
            figures["publication"] = Figure(_publish(about, dealing, Path(folder), setting), "B")
            figures |= _alone(order, dealing)
    counts = {"ciphertexts": budget.ciphertexts + 1, "buckets": budget.buckets, "slots": budget.slots}
    return Point(axis, x, crowd, counts | traffic, figures)


def _upload(about: TaskSpec, dealing: Dealing, folder: Path, setting: ScaleSetting) -> dict[str, Figure]:
    """An upload for the servers to work on, made off the clock."""
    tools = Tools(Threads(), insecure_test_key=setting.insecure_test_key, observer=Silent())
    side = PROFILES["hardened"].participant(about, dealing.participant, ParticipantKeys.fresh("p"), tools)
    (folder / UPLOAD).write_bytes(side.encrypt_update(made_up_weights(about.parameters, 2021), 1))
    return {}


def _publish(about: TaskSpec, dealing: Dealing, folder: Path, setting: ScaleSetting) -> int:
    """A publication of known values for a reader to read; its bytes."""
    task = about.task(dealing.public)
    budget, public = width_budget(about.settings, about.parameters, SIGMA), dealing.public
    weights = made_up_weights(about.parameters, 2021)
    values = budget.weigh(budget.encoding.encode(weights).values, 1)
    rows = np.concatenate([budget.packing(public).pack(values), from_ints([1], public.plaintext_bytes)])
    tools = Tools(Threads(), insecure_test_key=setting.insecure_test_key, observer=Silent())
    csp = PROFILES["hardened"].csp(about, dealing.csp, tools)
    upload = CipherVector.from_bytes((folder / UPLOAD).read_bytes(), public, max_count=len(rows))
    publication = sealed_publication(task, csp, rows, upload)
    (folder / "publication").write_bytes(publication)
    return len(publication)


def _alone(order: dict[str, Any], dealing: Dealing) -> dict[str, Figure]:
    """A participant encrypts, or reads where a publication lies in the folder."""
    return _Child(order | {"role": "participant", "bundle": dealing.participant.hex()}).figures("participant")


def _together(order: dict[str, Any], dealing: Dealing) -> tuple[dict[str, Figure], dict[str, int]]:
    """SP and CSP, their messages carried from one to the other and counted."""
    sp = _Child(order | {"role": "sp", "bundle": dealing.sp.hex()})
    csp = _Child(order | {"role": "csp", "bundle": dealing.csp.hex()})
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
    return sp.figures("SP") | csp.figures("CSP"), traffic


class _Child:
    """A role in a fresh process."""

    def __init__(self, order: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "crowdfl.lab.bench.scale.role"]
        self.process = subprocess.Popen(  # noqa: S603 -- our own module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.sample = f"{order['rows']} powers"
        self.send(json.dumps(order).encode())

    def send(self, frame: bytes) -> None:
        """To the role; one that has died will be asked for its figures and found out."""
        assert self.process.stdin is not None  # noqa: S101 -- a pipe was asked for
        with suppress(BrokenPipeError):
            write_frame(self.process.stdin, frame)

    def receive(self) -> bytes:
        """From the role."""
        assert self.process.stdout is not None  # noqa: S101
        return read_frame(self.process.stdout)

    def figures(self, role: str) -> dict[str, Figure]:
        """What it measured, once it is done."""
        said = self.receive()
        self.process.communicate()
        if self.process.returncode or not said:
            raise ProtocolError(f"{role} ended with exit code {self.process.returncode}; what it said is above")
        measured = json.loads(said)
        found = {
            f"{role}: {name}": Figure(seconds, "s", self.sample if name in measured["sampled"] else "")
            for name, seconds in measured["seconds"].items()
        }
        what = "reading" if "read" in measured["seconds"] else "working"
        return found | {f"{role}: memory, {what}": Figure(measured["memory"], "B")}
