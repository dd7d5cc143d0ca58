"""`crowdfl bench compare`: what a user would pick instead of CrowdFL, side by side in one run on one machine.

The rows with targets are what the profile `shares` promises beside Flower's SecAgg+, plain FedAvg and itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from crowdfl.crypto.compute import Backend, Threads
from crowdfl_lab.bench.compare.served import served_system
from crowdfl_lab.bench.compare.simulators import Simulator, measure_simulators, simulator_rows, simulator_table
from crowdfl_lab.bench.compare.systems import (
    PEERS,
    CompareSettings,
    Hardened,
    Shares,
    System,
    ask_system,
    paper_system,
    plain_system,
    shares_task,
)
from crowdfl_lab.bench.scale.points import SharesPoint
from crowdfl_lab.bench.workload import SERVERS, Say
from crowdfl_lab.report.plots import Canvas, Picture, panels, ranked_bars
from crowdfl_lab.report.results import Figure, Reference, Result, ResultTable, Row, Target
from crowdfl_lab.timing import machine

_COLUMNS = {
    "ahead": "participant, ahead of time",
    "before": "participant, before training",
    "after": "participant, after training",
    "upload": "upload",
    "download": "download",
    "sp": "SP, or the one server",
    "csp": "CSP",
    "servers": "servers together",
    "dropped": "servers, 30% dropped",
    "off": "average off by",
}
_COSTS = {"a participant": list(_COLUMNS)[:5], "the servers": list(_COLUMNS)[5:]}
_WORDS = {"drop": "when 30% drop out", "reads": "who can read what", "rewards": "rewards"}
_SHARED = {  # what only `shares` has
    "kgc": "KGC deals, a round",
    "dealt": "dealt",
    "exchanges": "requests of SP to CSP",
    "exchanged": "exchanged between them",
}
_PANELS = {
    "participant, before and after training (s)": ("before", "after"),
    "upload and download (bytes)": ("upload", "download"),
    "servers together (s)": ("servers",),
}
_SLACK = 64 * 10**6  # bytes that a server may grow by beside four models
_NUMBER = 8  # bytes of a parameter where it is computed with
_BESIDE_FLOWER = {  # column of which system: what it is, and the most of SecAgg+'s
    ("servers", "shares"): ("both servers, average", 0.06),
    ("servers", "shares_rewards"): ("both servers, average, checks and rewards", 0.16),
    ("before", "shares_rewards"): ("participant before training", 0.12),
    ("after", "shares_rewards"): ("participant after training", 0.12),
    ("upload", "shares"): ("upload without checks", 0.65),
    ("upload", "shares_rewards"): ("upload with checks and rewards", 0.9),
}


@dataclass(frozen=True)
class MemoryOfServers:
    """What each server's memory grew by, in a process of its own, while a round of so many uploads was computed."""

    name: str
    parameters: int
    crowd: int
    grown: Mapping[str, Figure]


def bench_compare(
    settings: CompareSettings,
    *,
    python: Path,
    pfl: Path | None = None,
    fast: Backend | None = None,
    paper: Path | None = None,
    say: Say = lambda _: None,
) -> Result:
    """Every system, one after another. `fast`: a backend on which the servers are measured whole, beside the threads; `paper`:
    what `bench gpu` wrote of a whole round of that profile."""
    where, threads = machine(), Threads()
    systems = list(measure_systems(settings, threads, python, fast, say, paper))
    memory = [memory_of_servers(settings, say, rewards=rewards) for rewards in (False, True)]
    say("simulators")
    simulators = list(measure_simulators({"flower": python, "pfl": pfl or Path("nowhere")}, settings.simulated))
    return compare_result(settings, where | {"workers": threads.workers}, systems, memory, simulators)


def measure_systems(
    settings: CompareSettings,
    threads: Threads,
    python: Path,
    fast: Backend | None,
    say: Say,
    paper: Path | None = None,
) -> Iterator[System]:
    for hidden, rewards in product((False, True), repeat=2):
        variant = Hardened(settings, hidden=hidden, rewards=rewards)
        say(f"{variant.name}: a participant, one core")
        device = variant.device()
        say(f"{variant.name}: the servers, {threads.workers} workers")
        yield variant.system(device, *variant.sampled_servers(threads))
        if fast is not None:
            say(f"{variant.name}: the servers on {fast.name}, whole")
            yield variant.system(device, *variant.whole_servers(fast), fast.name)
    for rewards, reference in ((False, False), (True, False), (True, True)):
        shares = Shares(settings, rewards=rewards, reference=reference)
        say(f"{shares.name}: whole rounds")
        yield shares.system()
        if settings.serves and not reference:
            say(f"{shares.name}: the same, served")
            yield served_system(settings, shares, say)
    say("paper, two small rounds")
    yield paper_system(settings, threads, paper)
    for peer, name in PEERS.items():
        say(name)
        yield ask_system(python, peer, settings)
    say("plain FedAvg")
    yield plain_system(settings)


def memory_of_servers(settings: CompareSettings, say: Say, *, rewards: bool) -> MemoryOfServers:
    crowd = settings.memory_crowd
    name = "with checks and rewards" if rewards else "without checks"
    say(f"memory of the servers {name}, {crowd:,} uploads")
    task = shares_task(replace(settings, participants=crowd, share_lanes=settings.memory_lanes), rewards=rewards)
    figures = SharesPoint("memory", crowd, settings.parameters, crowd, task).measured().figures
    grown = {role: figures[f"{role}: memory, working"] for role in SERVERS}
    return MemoryOfServers(name, settings.parameters, crowd, grown)


def compare_result(
    settings: CompareSettings,
    where: Mapping[str, str | int],
    systems: Sequence[System],
    memory: Sequence[MemoryOfServers] = (),
    simulators: Sequence[Simulator] = (),
) -> Result:
    """A participant's costs, the servers', what is kept from whom, and how the figures came about."""
    tables = [
        ResultTable(
            f"Costs of one round, {whose}, {settings.title}",
            ("system", *(_COLUMNS[column].removeprefix("participant, ") for column in columns)),
            tuple((system.name, *system.cells(columns)) for system in systems),
        )
        for whose, columns in _COSTS.items()
    ]
    shared = tuple((system.name, *system.cells(_SHARED)) for system in systems if "exchanges" in system.figures)
    tables.append(ResultTable("What else a round of `shares` takes", ("system", *_SHARED.values()), shared))
    rows = target_rows(systems, memory)
    if simulators:
        tables.append(simulator_table(simulators, settings.simulated))
        rows += simulator_rows(simulators, settings.simulated)
    words = tuple((system.name, *(system.words.get(column, "") for column in _WORDS)) for system in systems)
    tables.append(ResultTable("What happens to whom", ("system", *_WORDS.values()), words))
    how = [(system.name, [*system.notes, *(f"* from {sample}" for sample in system.samples)]) for system in systems]
    return settings.result(
        "compare",
        where,
        rows,
        tables=tuple(tables),
        notes=tuple(f"{name}: {'; '.join(lines)}" for name, lines in how if lines),
        pictures=(Picture("compare", "One round of each system", lambda canvas: _draw(canvas, systems), (14, 5)),),
        versions={system.key: system.version for system in systems if system.version} | _versions(simulators),
        data={"systems": [asdict(system) for system in systems], "simulators": [asdict(one) for one in simulators]},
    )


def _versions(simulators: Sequence[Simulator]) -> dict[str, str]:
    """Apart from the systems': Flower is measured twice."""
    return {f"simulation_{one.key}": one.version for one in simulators if one.version}


def target_rows(systems: Sequence[System], memory: Sequence[MemoryOfServers]) -> list[Row]:
    known = {system.key: system for system in systems}
    if "shares" not in known:
        return []
    return [*_beside_others(known), *_beside_itself(known), *_beside_checks(known), *_memory(memory)]


def _beside_others(known: Mapping[str, System]) -> Iterator[Row]:
    flower = known.get("flower", System("flower", PEERS["flower"], missing="not measured"))
    for (column, key), (quantity, most) in _BESIDE_FLOWER.items():
        peer = Reference("SecAgg+", flower.figures.get(column), flower.missing)
        target = Target(f"at most {most:g}", "ratio", at_most=most)
        row = Row(f"{key}_{column}", quantity, known[key].figures[column], target, note=known[key].name)
        yield row.over(peer, "shares / SecAgg+")
    for key, most in {"shares": 3, "shares_rewards": 10}.items():
        servers, name = known[key].figures["servers"], known[key].name
        target = Target(f"at most {most}", "ratio", at_most=most)
        plain = Reference("plain FedAvg, in turn", known[key].figures["plain"])
        yield Row(f"{key}_plain", "both servers", servers, target, note=name).over(plain, "shares / plain")
        floor = Reference("each upload hashed, expanded and added once", known[key].figures["floor"])
        yield Row(f"{key}_floor", "both servers", servers, note=name).over(floor, "shares / floor")


def _beside_itself(known: Mapping[str, System]) -> Iterator[Row]:
    own = [known[key] for key in ("shares", "shares_rewards")]
    for one in own:
        if (served := known.get(f"{one.key}_served")) is not None:
            target = Target("at most 1.5", "ratio", at_most=1.5)
            row = Row(served.key, "both servers, served", served.figures["servers"], target, note=one.name)
            bare = Reference("a bare FastAPI route takes the same uploads, TLS, write, fsync", served.figures["bare"])
            yield row.over(Reference("the protocol alone", one.figures["servers"]), "served / protocol", bare)
    for one in own:
        target = Target("no extra time", "ratio", at_most=1.05)
        row = Row(f"{one.key}_dropped", "both servers, 30% dropped", one.figures["dropped"], target, note=one.name)
        yield row.over(Reference("nobody dropped", one.figures["servers"]), "dropped / whole")
    for one in own:
        target = Target("at most 15", "crowdfl", at_most=15)
        quantity = "requests of SP to CSP, a round"
        yield Row(f"{one.key}_exchanges", quantity, one.figures["exchanges"], target, note=one.name)


_PUBLISHED = (  # theirs, on their machines
    Reference("RoFL, norms alone, 48 people, 62,006 parameters, on its machines", Figure(110, "s")),
    Reference("ELSA, norms, on its machines", missing="states up to 305 times the speed of RoFL"),
)


def _beside_checks(known: Mapping[str, System]) -> Iterator[Row]:
    if (one := known.get("shares_reference")) is not None:
        alone = known["shares_rewards"].figures
        target = Target("at most 2", "ratio", at_most=2)
        row = Row("shares_reference_servers", "both servers, with a reference", one.figures["servers"], target)
        yield row.over(Reference("checks and rewards alone", alone["servers"]), "with / without", *_PUBLISHED)
        for column, quantity in (("kgc", "KGC deals a round with a reference"), ("dealt", "dealt with a reference")):
            row = Row(f"shares_reference_{column}", quantity, one.figures[column])
            yield row.over(Reference("without", alone[column]), "with / without")


def _memory(memory: Sequence[MemoryOfServers]) -> Iterator[Row]:
    for measured in memory:
        bound = Figure(4 * _NUMBER * measured.parameters + _SLACK, "B")
        for role, grown in measured.grown.items():
            key = f"memory_{role.lower()}_{measured.name.replace(' ', '_')}"
            quantity = f"{role}'s memory, {measured.crowd:,} uploads, {measured.name}"
            target = Target("at most 4 models + 64 MB", "ratio", at_most=1.0)
            note = "growth of the peak of a fresh process after everything was built"
            yield Row(key, quantity, grown, target, note=note).over(
                Reference("4 models + 64 MB", bound), "growth / bound"
            )


def _draw(canvas: Canvas, systems: Sequence[System]) -> None:
    shown = [system for system in systems if "upload" in system.figures]
    values = {
        title: [sum(system.figures[column].value for column in columns) for system in shown]
        for title, columns in _PANELS.items()
    }
    ours = [system.words["kind"] == "crowdfl" for system in shown]
    ranked_bars(panels(canvas, len(values)), [system.name for system in shown], ours, values)
