"""`crowdfl bench compare`: what a user would pick instead of CrowdFL, side by side in one run on one machine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from crowdfl.crypto.compute import Backend, Threads
from crowdfl.errors import PeerUnavailable
from crowdfl.lab.bench.compare.crowdfl import (
    hardened_system,
    measure_device,
    paper_system,
    sampled_servers,
    whole_servers,
)
from crowdfl.lab.bench.compare.others import PEERS, measure_peer, peer_system, plain_system
from crowdfl.lab.bench.compare.system import COLUMNS, PAPER_COMPARE, VARIANTS, CompareSettings, System, remarks
from crowdfl.lab.bench.workload import Say
from crowdfl.lab.report.plots import Picture, panels, ranked_bars
from crowdfl.lab.report.results import Result, ResultTable
from crowdfl.lab.timing import machine

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

__all__ = ["ask_system", "bench_compare", "compare_result", "measure_systems"]

_COSTS = {
    "a participant": ("ahead", "before", "after", "upload", "download"),
    "the servers": ("sp", "csp", "servers", "dropped", "off"),
}
_WORDS = {"drop": "when 30% drop out", "reads": "who can read what", "rewards": "rewards"}
_PANELS = {
    "participant, before and after training (s)": ("before", "after"),
    "upload and download (bytes)": ("upload", "download"),
    "servers together (s)": ("servers",),
}


def bench_compare(
    settings: CompareSettings = PAPER_COMPARE,
    *,
    python: Path | None = None,
    fast: Backend | None = None,
    say: Say = lambda _: None,
) -> Result:
    """Every system, one after another. `fast`: a backend on which the servers are measured whole, beside the threads."""
    where, threads = machine(), Threads()
    versions: dict[str, str] = {}
    systems = list(measure_systems(settings, threads, python, fast, versions, say))
    return compare_result(settings, where | {"workers": threads.workers}, systems, versions)


def measure_systems(
    settings: CompareSettings,
    threads: Threads,
    python: Path | None,
    fast: Backend | None,
    versions: dict[str, str],
    say: Say,
) -> Iterator[System]:
    """Each system as it is measured; the peers' versions are filled in."""
    for variant in VARIANTS:
        say(f"{variant.name}: a participant, one core")
        device = measure_device(settings, variant)
        say(f"{variant.name}: the servers, {threads.workers} workers")
        servers = sampled_servers(settings, variant, device, threads)
        yield hardened_system(settings, variant, device, servers, "cpu")
        if fast is not None:
            say(f"{variant.name}: the servers on {fast.name}, whole")
            yield hardened_system(settings, variant, device, whole_servers(settings, variant, fast), fast.name)
    say("paper, two small rounds")
    yield paper_system(settings, threads)
    for peer in PEERS:
        say(PEERS[peer])
        system, versions[peer] = ask_system(python, peer, settings)
        yield system
    say("plain FedAvg")
    yield plain_system(settings)


def ask_system(python: Path | None, peer: str, settings: CompareSettings) -> tuple[System, str]:
    """A peer's system and version, or why there is none in place of both."""
    try:
        took = measure_peer(python, peer, settings)
    except PeerUnavailable as error:
        return System(peer, PEERS[peer], missing=str(error)), str(error)
    return peer_system(peer, took, settings), took.version


def compare_result(
    settings: CompareSettings,
    where: Mapping[str, str | int],
    systems: Sequence[System],
    versions: Mapping[str, str],
) -> Result:
    """A participant's costs, the servers', what is kept from whom; who is ahead where, and how the figures came about."""
    costs = [
        ResultTable(
            f"Costs of one round, {whose}, {settings.title}",
            ("system", *(COLUMNS[column].removeprefix("participant, ") for column in columns)),
            tuple((system.name, *system.cells(columns)) for system in systems),
        )
        for whose, columns in _COSTS.items()
    ]
    words = tuple((system.name, *(system.words.get(column, "") for column in _WORDS)) for system in systems)
    kept = ResultTable("What happens to whom", ("system", *_WORDS.values()), words)
    said = remarks(systems)
    how = [
        f"{system.name}: " + "; ".join([*system.notes, *(f"* from {sample}" for sample in system.samples)])
        for system in systems
        if system.notes or system.samples
    ]
    picture = Picture("compare", "One round of each system", lambda canvas: _draw(canvas, systems), (14, 5))
    return settings.result(
        "compare",
        where,
        tables=(*costs, kept),
        notes=(*said, *how),
        pictures=(picture,),
        versions=versions,
        data={"systems": [asdict(system) for system in systems], "remarks": list(said)},
    )


def _draw(canvas: "Canvas", systems: Sequence[System]) -> None:
    """Time of a participant, bytes, time of the servers."""
    shown = [system for system in systems if not system.missing]
    values = {
        title: [sum(system.figures[column].value for column in columns) for system in shown]
        for title, columns in _PANELS.items()
    }
    ours = [system.words["kind"] == "crowdfl" for system in shown]
    ranked_bars(panels(canvas, len(values)), [system.name for system in shown], ours, values)
