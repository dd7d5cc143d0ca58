"""`crowdfl bench compare`: what a user would pick instead of CrowdFL, side by side in one run on one machine."""

from collections.abc import Callable
from pathlib import Path

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
from crowdfl.lab.bench.compare.rows import Comparison, System
from crowdfl.lab.bench.compare.setting import PAPER_COMPARE, VARIANTS, CompareSetting
from crowdfl.lab.timing import machine

__all__ = ["bench_compare"]


def bench_compare(
    setting: CompareSetting = PAPER_COMPARE,
    *,
    python: Path | None = None,
    fast: Backend | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Every system, one after another. `fast`: a backend on which the servers are measured whole, beside the threads."""
    where, threads = machine(), Threads()
    where |= {"workers": threads.workers}
    systems: list[System] = []
    for variant in VARIANTS:
        say(f"{variant.name}: a participant, one core")
        device = measure_device(setting, variant)
        say(f"{variant.name}: the servers, {threads.workers} workers")
        servers = sampled_servers(setting, variant, device, threads)
        systems.append(hardened_system(setting, variant, device, servers, "cpu"))
        if fast is not None:
            say(f"{variant.name}: the servers on {fast.name}, whole")
            systems.append(hardened_system(setting, variant, device, whole_servers(setting, variant, fast), fast.name))
    say("paper, two small rounds")
    systems.append(paper_system(setting, threads))
    versions = {}
    for peer in PEERS:
        say(PEERS[peer])
        system, versions[peer] = _peer(python, peer, setting)
        systems.append(system)
    say("plain FedAvg")
    systems.append(plain_system(setting))
    return Comparison(setting.title, where, setting.to_dict(), versions, tuple(systems))


def _peer(python: Path | None, peer: str, setting: CompareSetting) -> tuple[System, str]:
    try:
        took = measure_peer(python, peer, setting)
    except PeerUnavailable as error:
        return System(peer, PEERS[peer], missing=str(error)), str(error)
    return peer_system(peer, took, setting), took.version
