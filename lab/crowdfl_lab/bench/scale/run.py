"""`crowdfl bench scale`: time and memory per role against parameters, participants and key size."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.sealing import AudienceKey
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.common.sdiv import DivideRequest, GuardRequest
from crowdfl.protocols.common.smul import PolynomialsRequest
from crowdfl.protocols.exchange import Silent
from crowdfl.protocols.hardened.prirwd import LanesRequest
from crowdfl.protocols.hardened.shape import ReaderBundle
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.profile import ParticipantKeys, TaskSpec, Tools, width_budget
from crowdfl.protocols.registry import PROFILES
from crowdfl.settings import TaskSettings
from crowdfl_lab.bench.scale import growth
from crowdfl_lab.bench.scale.frames import END, ChildRole
from crowdfl_lab.bench.scale.growth import ScalePoint
from crowdfl_lab.bench.scale.role import MODULE, PUBLICATION, UPLOAD
from crowdfl_lab.bench.workload import SIGMA, Say, made_up_weights, packed_model, sealed_publication
from crowdfl_lab.report.results import Figure, Result
from crowdfl_lab.timing import machine

_EVERY_ROW = 1 << 40
_FEWEST = 3  # uploads that a round needs
_WHOLE = (DivideRequest.kind, GuardRequest.kind, PolynomialsRequest.kind)  # requests for divisions: never cut


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

    @classmethod
    def quick(cls) -> "ScaleSettings":
        small = cls(parameters=(1_000, 3_000), crowds=(10, 50), crowd_parameters=200, key_parameters=1_000)
        return replace(small, rewarded=(4, 5), rewarded_lanes=(20, 40), rows=4)

    @property
    def title(self) -> str:
        insecure = ", INSECURE TEST KEY" if self.insecure_test_key else ""
        return f"`hardened`, total shown, {self.lanes:,} lanes, |N| = {self.key_bits[0]}{insecure}"

    def measurements(self) -> Iterator["_Measurement"]:
        small, most, (narrow, wide) = self.crowd_parameters, max(self.crowds), self.rewarded_lanes
        for parameters in self.parameters:
            yield _Measurement(self, "parameters", parameters, parameters)
        for crowd in self.crowds:
            yield _Measurement(self, "participants", crowd, small, crowd, max_participants=most)
        for crowd in self.rewarded:
            yield _Measurement(self, "rewarded", crowd, small, crowd, max_participants=most, lanes=narrow)
        yield _Measurement(self, "lanes", wide, small, self.rewarded[0], max_participants=most, lanes=wide)
        for bits in self.key_bits:
            yield _Measurement(self, "key", bits, self.key_parameters, key_bits=bits)


def bench_scale(settings: ScaleSettings, *, say: Say = lambda _: None) -> Result:
    """Every point, each role in a fresh process on one core, and the way to a million participants."""
    where = machine()
    return scale_result(where, settings, measure_points(settings, say=say))


def scale_result(where: Mapping[str, str | int], settings: ScaleSettings, points: Sequence[ScalePoint]) -> Result:
    sizes, plan = asdict(settings), growth.plan_table(points)
    tables = *(growth.table(points, axis, settings.title, sizes) for axis in growth.AXES), plan
    data = {
        "points": [asdict(point) for point in points],
        "exponents": {axis: growth.exponents(points, axis) for axis in growth.AXES},
        "plan": [list(row) for row in plan.rows],
    }
    notes, pictures, command = growth.notes(points), (growth.picture(points),), "crowdfl bench scale"
    return Result(
        "scale", settings.title, where, sizes, (), tables, notes, pictures=pictures, data=data, command=command
    )


def measure_points(settings: ScaleSettings, *, say: Say = lambda _: None) -> list[ScalePoint]:
    return [measurement.point(say) for measurement in settings.measurements()]


class _Measurement:
    """One point: its task, dealt here, and its roles, each in a process of its own. Rewards on the axes that say so."""

    def __init__(
        self,
        settings: ScaleSettings,
        axis: str,
        x: int,
        parameters: int,
        crowd: int = _FEWEST,
        **task: Any,  # noqa: ANN401
    ) -> None:
        self.axis, self.x, self.parameters, self.crowd = axis, x, parameters, crowd
        sizes = {"max_participants": 36, "lanes": settings.lanes, "key_bits": settings.key_bits[0]} | task
        insecure, rewards = settings.insecure_test_key, axis in ("rewarded", "lanes")
        self.spec = TaskSpec("scale", TaskSettings(**sizes), parameters)
        self.tools = Tools(Threads(), insecure_test_key=insecure, observer=Silent())
        self.profile = PROFILES["hardened"]
        self.dealing = self.profile.deal(self.spec, insecure_test_key=insecure)
        self.budget = width_budget(self.spec.settings, parameters, SIGMA)
        people = [ParticipantKeys.fresh(f"p{i:07}").identity for i in range(crowd if rewards else 0)]
        self.order: dict[str, Any] = {
            "task": sizes,
            "parameters": parameters,
            "crowd": crowd,
            "people": [(identity.who, identity.signing.hex(), identity.reading.hex()) for identity in people],
            "rows": _EVERY_ROW if rewards else settings.rows,
            "insecure_test_key": insecure,
        }

    def point(self, say: Say) -> ScalePoint:
        say(f"{self.axis}: {self.x:,}")
        with tempfile.TemporaryDirectory(prefix="crowdfl-bench-") as name:
            self.order["folder"], folder = name, Path(name)
            encrypting = self._child("participant").figures()
            figures, traffic = self._servers()
            figures["upload"] = Figure((folder / UPLOAD).stat().st_size, "B")
            if self.crowd == _FEWEST:  # a participant's own cost does not depend on how many there are
                figures |= encrypting
                figures["publication"] = Figure(self._publish(folder), "B")
                figures |= self._child("participant").figures()
        budget = self.budget
        counts = {"ciphertexts": budget.ciphertexts + 1, "buckets": budget.buckets, "slots": budget.slots}
        return ScalePoint(self.axis, self.x, self.crowd, counts | traffic, figures)

    def _publish(self, folder: Path) -> int:
        csp = self.profile.csp(self.spec, self.dealing.csp, self.tools)
        public = keyed_party(csp).public
        rows = packed_model(self.budget, public, made_up_weights(self.parameters, 2021), 1)
        audience = AudienceKey(ReaderBundle.from_bytes(self.dealing.participant, Limits.plain()).audience)
        upload = (folder / UPLOAD).read_bytes()
        publication = sealed_publication(self.spec.task(public), csp, audience, rows, upload)
        return (folder / PUBLICATION).write_bytes(publication)

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
            if Message.kind_of(request) in _WHOLE:
                traffic["division"] = max(traffic["division"], len(request))
            elif Message.kind_of(request) == LanesRequest.kind:
                traffic["lanes"] += len(reply)
        csp.send(END)
        return sp.figures() | csp.figures(), traffic

    def _child(self, role: str) -> ChildRole:
        bundle: bytes = getattr(self.dealing, role)
        return ChildRole(role, self.order | {"role": role, "bundle": bundle.hex()}, MODULE)
