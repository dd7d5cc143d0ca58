"""What the profile `shares` promises beside Flower's SecAgg+, plain FedAvg and itself, as rows with targets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from crowdfl_lab.bench.compare.shares import shares_task
from crowdfl_lab.bench.compare.system import PEERS, CompareSettings, System
from crowdfl_lab.bench.scale.shares import SharesPoint
from crowdfl_lab.bench.workload import Say
from crowdfl_lab.report.results import Figure, Reference, Row, Target

_SLACK = 64 * 10**6  # bytes that a server may grow by beside four models
_NUMBER = 8  # bytes of a parameter where it is computed with
_BESIDE_FLOWER = {  # column of which system: what it is, and the most of SecAgg+'s
    ("servers", "shares"): ("both servers, average", 0.12),
    ("servers", "shares_rewards"): ("both servers, average, checks and rewards", 0.4),
    ("before", "shares_rewards"): ("participant before training", 0.2),
    ("after", "shares_rewards"): ("participant after training", 0.2),
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


def memory_of_servers(settings: CompareSettings, say: Say) -> list[MemoryOfServers]:
    found = []
    for rewards in (False, True):
        sizes = replace(settings, participants=settings.memory_crowd, share_lanes=settings.memory_lanes)
        task, name = shares_task(sizes, rewards=rewards), "with checks and rewards" if rewards else "without checks"
        say(f"memory of the servers {name}, {settings.memory_crowd:,} uploads")
        point = SharesPoint("memory", settings.parameters, settings.memory_crowd, task)
        figures = point.measured().figures
        grown = {role: figures[f"{role}: memory, working"] for role in ("SP", "CSP")}
        found.append(MemoryOfServers(name, settings.parameters, settings.memory_crowd, grown))
    return found


def target_rows(systems: Sequence[System], memory: Sequence[MemoryOfServers]) -> list[Row]:
    known = {system.key: system for system in systems}
    if "shares" not in known:
        return []
    return [*_beside_flower(known), *_beside_plain(known), *_dropped(known), *_exchanges(known), *_memory(memory)]


def _beside_flower(known: Mapping[str, System]) -> Iterator[Row]:
    flower = known.get("flower", System("flower", PEERS["flower"], missing="not measured"))
    for (column, key), (quantity, most) in _BESIDE_FLOWER.items():
        peer = Reference("SecAgg+", flower.figures.get(column), flower.missing)
        target = Target(f"at most {most:g}", "ratio", at_most=most)
        row = Row(f"{key}_{column}", quantity, known[key].figures[column], target, note=known[key].name)
        yield row.over(peer, "shares / SecAgg+")


def _beside_plain(known: Mapping[str, System]) -> Iterator[Row]:
    row = Row("shares_plain", "both servers, average", known["shares"].figures["servers"], note="aimed at: 4 times")
    plain = known.get("plain")
    if plain is not None:
        yield row.over(Reference("plain FedAvg", plain.figures["servers"]), "shares / plain")


def _dropped(known: Mapping[str, System]) -> Iterator[Row]:
    for key in ("shares", "shares_rewards"):
        figures, name = known[key].figures, known[key].name
        target = Target("no extra time", "ratio", at_most=1.05)
        row = Row(f"{key}_dropped", "both servers, 30% dropped", figures["dropped"], target, note=name)
        yield row.over(Reference("nobody dropped", figures["servers"]), "dropped / whole")


def _exchanges(known: Mapping[str, System]) -> Iterator[Row]:
    for key in ("shares", "shares_rewards"):
        figures, name = known[key].figures, known[key].name
        target = Target("at most 15", "crowdfl", at_most=15)
        yield Row(f"{key}_exchanges", "requests of SP to CSP, a round", figures["exchanges"], target, note=name)


def _memory(memory: Sequence[MemoryOfServers]) -> Iterator[Row]:
    for measured in memory:
        bound = Figure(4 * _NUMBER * measured.parameters + _SLACK, "B")
        for role, grown in measured.grown.items():
            quantity = f"{role}'s memory, {measured.crowd:,} uploads, {measured.name}"
            target = Target("at most 4 models + 64 MB", "ratio", at_most=1.0)
            note = "growth of the peak of a fresh process after everything was built"
            row = Row(f"memory_{role.lower()}_{measured.name.replace(' ', '_')}", quantity, grown, target, note=note)
            yield row.over(Reference("4 models + 64 MB", bound), "growth / bound")
