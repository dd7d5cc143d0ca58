"""`crowdfl bench scale`: time and memory of each role, against parameters, participants and, of `hardened`, key size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from crowdfl.crypto.paillier import pctd
from crowdfl.settings import TaskSettings
from crowdfl_lab.bench.scale.points import (
    FEWEST,
    Axes,
    HardenedPoint,
    RoundPoint,
    ScalePoint,
    SharesPoint,
    exponents,
    growth_picture,
    growth_table,
)
from crowdfl_lab.bench.workload import Say
from crowdfl_lab.report.results import Result
from crowdfl_lab.timing import machine

_SERVERS_MEMORY = "SP: memory, working", "CSP: memory, working"
_MEMORY = "participant: memory, working", "participant: memory, reading", *_SERVERS_MEMORY
_PERSON = "participant: encrypt", "participant: read"
_ALL = *_PERSON, "SP: add, one upload", "SP: publish", "CSP: publish"
_SHARED = "SP: add, one upload", "SP: publish", "CSP: round"
_FIT = "Exponents are fitted by least squares of the logarithms: 1 is proportional."


@dataclass(frozen=True)
class ScaleSettings:
    """The sizes of a run of `hardened`."""

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

    name: ClassVar[str] = "scale"
    command: ClassVar[str] = "crowdfl bench scale"
    how: ClassVar[str] = (
        "Processor time of each role in a fresh process on one core; memory is what its peak (VmHWM) grew by after "
        f"everything was built. {_FIT}"
    )
    axes: ClassVar[Axes] = {
        "parameters": ("parameters, 3 uploads", (*_ALL, *_MEMORY, "upload", "publication", "SP to CSP", "CSP to SP")),
        "participants": (
            "participants, {crowd_parameters:,} parameters",
            ("SP: add", "SP: publish", "CSP: publish", *_SERVERS_MEMORY, "stored uploads"),
        ),
        "rewarded": (
            "participants with rewards, {crowd_parameters:,} parameters, {rewarded_lanes[0]} lanes",
            ("SP: reward", "CSP: reward", *_SERVERS_MEMORY, "SP to CSP", "CSP to SP"),
        ),
        "key": ("bits of N, 3 uploads, {key_parameters:,} parameters", (*_ALL, *_MEMORY, "upload", "publication")),
    }
    panels: ClassVar[Axes] = {
        "seconds of one core": ("parameters", _ALL),
        "memory (bytes)": ("parameters", _MEMORY),
        "seconds of one core, uploads": ("participants", ("SP: add", "SP: publish", "CSP: publish")),
        "seconds of one core, rewards": ("rewarded", ("SP: reward", "CSP: reward")),
    }

    @classmethod
    def quick(cls) -> "ScaleSettings":
        small = cls(parameters=(1_000, 3_000), crowds=(10, 50), crowd_parameters=200, key_parameters=1_000)
        return replace(small, rewarded=(4, 5), rewarded_lanes=(20, 40), rows=4)

    @property
    def title(self) -> str:
        insecure = ", INSECURE TEST KEY" if self.insecure_test_key else ""
        return f"`hardened`, total shown, {self.lanes:,} lanes, |N| = {self.key_bits[0]}{insecure}"

    def points(self) -> Iterator[RoundPoint]:
        small = self.crowd_parameters
        most = max(self.crowds)
        (narrow, wide) = self.rewarded_lanes
        for parameters in self.parameters:
            yield self._point("parameters", parameters, parameters)
        for crowd in self.crowds:
            yield self._point("participants", crowd, small, crowd, max_participants=most)
        for crowd in self.rewarded:
            yield self._point("rewarded", crowd, small, crowd, max_participants=most, lanes=narrow)
        yield self._point("lanes", wide, small, self.rewarded[0], max_participants=most, lanes=wide)
        for bits in self.key_bits:
            yield self._point("key", bits, self.key_parameters, key_bits=bits)

    def _point(self, axis: str, x: int, parameters: int, crowd: int = FEWEST, **task: Any) -> RoundPoint:  # noqa: ANN401
        sizes = {
            "profile": "hardened",
            "max_participants": 36,
            "lanes": self.lanes,
            "key_bits": self.key_bits[0],
        } | task
        return HardenedPoint(axis, x, parameters, crowd, self.rows, insecure_test_key=self.insecure_test_key, **sizes)


@dataclass(frozen=True)
class SharesScaleSettings:
    """The sizes of a run of `shares`."""

    parameters: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    uploads: int = 10
    crowds: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    crowd_parameters: int = 1_000
    rewarded: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    lanes: int = 256

    name: ClassVar[str] = "scale-shares"
    title: ClassVar[str] = "`shares`"
    command: ClassVar[str] = "crowdfl bench scale --profile shares"
    how: ClassVar[str] = (
        "Processor time of each server in a fresh process on one core; memory is what its peak (VmHWM) grew by after everyone "
        "was enrolled. Every upload is one: made by its own participant, of one update, and in the average. `CSP: round` is "
        f"all that CSP does in a round. {_FIT}"
    )
    axes: ClassVar[Axes] = {
        "parameters": (
            "parameters, {uploads} uploads, no checks",
            (*_PERSON, *_SHARED, *_SERVERS_MEMORY, "upload", "publication"),
        ),
        "participants": (
            "participants, {crowd_parameters:,} parameters, no checks",
            ("SP: add", "SP: publish", "CSP: round", *_SERVERS_MEMORY, "SP to CSP", "CSP to SP", "stored uploads"),
        ),
        "rewarded": (
            "participants with checks and rewards, {crowd_parameters:,} parameters, {lanes} lanes",
            ("KGC: deal", "dealt", "SP: add", "SP: reward", "CSP: round", *_SERVERS_MEMORY, "SP to CSP", "CSP to SP"),
        ),
    }
    panels: ClassVar[Axes] = {
        "seconds of one core": ("parameters", (*_PERSON, *_SHARED)),
        "seconds of one core, uploads": ("participants", ("SP: add", "SP: publish", "CSP: round")),
        "seconds of one core, rewards": ("rewarded", ("KGC: deal", "SP: reward", "CSP: round")),
        "memory (bytes)": ("rewarded", _SERVERS_MEMORY),
    }

    @classmethod
    def quick(cls) -> "SharesScaleSettings":
        return cls(parameters=(500, 2_000), uploads=4, crowds=(10, 40), crowd_parameters=200, rewarded=(5, 10))

    def points(self) -> Iterator[RoundPoint]:
        """Of those without rewards, all have the same widths."""
        few = self.uploads
        small = self.crowd_parameters
        most = max(self.crowds)
        for parameters in self.parameters:
            yield SharesPoint("parameters", parameters, parameters, few, self._task(few))
        for crowd in self.crowds:
            yield SharesPoint("participants", crowd, small, crowd, self._task(most))
        for crowd in self.rewarded:
            pay = {"lanes": self.lanes, "max_norm": 1.0, "pay": "equal", "budget": str(crowd), "check": "bounds"}
            yield SharesPoint("rewarded", crowd, small, crowd, self._task(crowd, **pay))

    def _task(self, most: int, **others: Any) -> TaskSettings:  # noqa: ANN401 -- as `TaskSettings` takes them
        bare: dict[str, Any] = {"check": "none", "pay": "none", "lanes": 0, "max_participants": most, "rounds": 2}
        return TaskSettings.of(profile="shares", **bare | others)


def bench_scale(settings: ScaleSettings | SharesScaleSettings, *, say: Say = lambda _: None) -> Result:
    """Every point, each role in a fresh process on one core."""
    where = machine()
    return scale_result(where, settings, measure_points(settings, say=say))


def measure_points(settings: ScaleSettings | SharesScaleSettings, *, say: Say = lambda _: None) -> list[ScalePoint]:
    found = []
    for point in settings.points():
        say(f"{point.axis}: {point.x:,}")
        found.append(point.measured())
    return found


def scale_result(
    where: Mapping[str, str | int], settings: ScaleSettings | SharesScaleSettings, points: Sequence[ScalePoint]
) -> Result:
    sizes, axes = asdict(settings), settings.axes
    tables = [growth_table(points, axis, settings.title, sizes, axes) for axis in axes]
    of_parts = isinstance(settings, ScaleSettings)  # of shares, samples are means
    figures = [figure for point in points if of_parts for figure in point.figures.values()]
    samples = dict.fromkeys(figure.sample for figure in figures if figure.sample)
    rest = "of each batch, the rest by proportion; everything else is done in full"
    return Result(
        settings.name,
        settings.title,
        where,
        sizes,
        tables=tuple(tables),
        notes=(settings.how, *(f"* from {sample} {rest}" for sample in samples)),
        pictures=(growth_picture(points, settings.name, settings.panels, axes),),
        data={
            "points": [asdict(point) for point in points],
            "exponents": {axis: exponents(points, axis, axes) for axis in axes},
        },
        command=settings.command,
    )
