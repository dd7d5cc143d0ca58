"""`crowdfl bench scale --profile shares`: to 100,000 participants, measured; to a million, on paper."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from crowdfl.settings import TaskSettings
from crowdfl_lab.bench.scale import growth, shares_plan
from crowdfl_lab.bench.scale.growth import Axes, Panels, ScalePoint
from crowdfl_lab.bench.scale.shares import SharesPoint
from crowdfl_lab.bench.workload import Say
from crowdfl_lab.report.results import Result
from crowdfl_lab.timing import machine

_SERVERS = "SP: add, one upload", "SP: publish", "CSP: round"
_MEMORY = "SP: memory, working", "CSP: memory, working"
_AXES: Axes = {
    "parameters": (
        "parameters, {uploads} uploads, no checks",
        ("participant: encrypt", "participant: read", *_SERVERS, *_MEMORY, "upload", "publication"),
    ),
    "participants": (
        "participants, {crowd_parameters:,} parameters, no checks",
        ("SP: add", "SP: publish", "CSP: round", *_MEMORY, "SP to CSP", "CSP to SP", "stored uploads"),
    ),
    "rewarded": (
        "participants with checks and rewards, {crowd_parameters:,} parameters, {lanes} lanes",
        ("KGC: deal", "dealt", "SP: add", "SP: reward", "CSP: round", *_MEMORY, "SP to CSP", "CSP to SP"),
    ),
}
_PANELS: Panels = {
    "seconds of one core": ("parameters", ("participant: encrypt", "participant: read", *_SERVERS)),
    "seconds of one core, uploads": ("participants", ("SP: add", "SP: publish", "CSP: round")),
    "seconds of one core, rewards": ("rewarded", ("KGC: deal", "SP: reward", "CSP: round")),
    "memory (bytes)": ("rewarded", _MEMORY),
}
_HOW = (
    "Processor time of each server in a fresh process on one core; memory is what its peak (VmHWM) grew by after everyone was "
    "enrolled. Every upload is one: made by its own participant, of one update, and in the average. `CSP: round` is all that "
    "CSP does in a round. Exponents are fitted by least squares of the logarithms: 1 is proportional."
)


@dataclass(frozen=True)
class SharesScaleSettings:
    """The sizes of a run."""

    parameters: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    uploads: int = 10
    crowds: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    crowd_parameters: int = 1_000
    rewarded: tuple[int, ...] = (100, 1_000, 10_000)
    lanes: int = 256

    @classmethod
    def quick(cls) -> "SharesScaleSettings":
        return cls(parameters=(500, 2_000), uploads=4, crowds=(10, 40), crowd_parameters=200, rewarded=(5, 10))

    @property
    def title(self) -> str:
        return "`shares`"

    def points(self) -> Iterator[tuple[int, SharesPoint]]:
        """Each with what it is measured against. Of those without rewards, all have the same widths."""
        most, small = max(self.crowds), self.crowd_parameters
        for parameters in self.parameters:
            yield parameters, SharesPoint("parameters", parameters, self.uploads, _bare(self.uploads))
        for crowd in self.crowds:
            yield crowd, SharesPoint("participants", small, crowd, _bare(most))
        for crowd in self.rewarded:
            yield crowd, SharesPoint("rewarded", small, crowd, _paying(crowd, self.lanes))
        longest, few = max(self.parameters), self.uploads
        yield (
            longest,
            SharesPoint("sketched", longest, few, _paying(few, self.lanes)),
        )  # what lanes of a long update take


def _bare(most: int) -> TaskSettings:
    return TaskSettings.of(profile="shares", max_participants=most, rounds=2, check="none", rule="none", lanes=0)


def _paying(most: int, lanes: int) -> TaskSettings:
    sizes = {"max_participants": most, "rounds": 2, "lanes": lanes, "max_norm": 1.0}
    return TaskSettings.of(profile="shares", **sizes, rule="gate", budget=str(most))


def bench_scale_shares(settings: SharesScaleSettings, *, say: Say = lambda _: None) -> Result:
    where = machine()
    return shares_scale_result(where, settings, measure_shares(settings, say=say))


def measure_shares(settings: SharesScaleSettings, *, say: Say = lambda _: None) -> list[ScalePoint]:
    found = []
    for x, point in settings.points():
        say(f"{point.axis}: {x:,}")
        found.append(point.measured(x))
    return found


def shares_scale_result(
    where: Mapping[str, str | int], settings: SharesScaleSettings, points: Sequence[ScalePoint]
) -> Result:
    sizes, plan = asdict(settings), shares_plan.plan_table(points)
    tables = *(growth.table(points, axis, settings.title, sizes, _AXES) for axis in _AXES), plan
    data = {
        "points": [asdict(point) for point in points],
        "exponents": {axis: growth.exponents(points, axis, _AXES) for axis in _AXES},
        "plan": [list(row) for row in plan.rows],
    }
    pictures, command = (
        (growth.picture(points, "scale-shares", _PANELS, _AXES),),
        "crowdfl bench scale --profile shares",
    )
    return Result(
        "scale-shares", settings.title, where, sizes, (), tables, (_HOW,), pictures=pictures, data=data, command=command
    )
