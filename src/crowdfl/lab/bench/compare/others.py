"""The other systems' rounds: the peers in their own Python, and plain FedAvg."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.lab.bench.compare.system import GOES_ON, CompareSettings, System, figures_of
from crowdfl.lab.bench.peers.run import ask_peer
from crowdfl.lab.bench.workload import made_up_weights
from crowdfl.lab.report.results import Figure
from crowdfl.lab.timing import timed_call
from crowdfl.learning.oracle import fedavg

__all__ = ["PEERS", "PeerRound", "measure_peer", "peer_system", "plain_system"]

PEERS = {"phe": "phe, one key for all", "tenseal": "TenSEAL CKKS, one key for all", "flower": "Flower SecAgg+"}
_ONE_KEY = (
    "every participant holds the private key and reads any upload it gets; the server none, unless one of them helps"
)
_DISTINCT = 4  # models that plain FedAvg averages in turn


@dataclass(frozen=True)
class PeerRound:
    """A peer's answer: seconds of a participant and of the server, bytes of a participant."""

    version: str
    before: float
    after: float
    server: float
    server_dropped: float
    upload: float
    download: float
    off: float
    key: float | None = None  # seconds to make the one key, once per task
    sample: str = ""
    linearity: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def measure_peer(python: Path | None, peer: str, settings: CompareSettings) -> PeerRound:
    """A round by the peer; `PeerUnavailable` where there is none."""
    numbers = {
        "parameters": settings.parameters,
        "participants": settings.participants,
        "dropped": settings.dropped,
        "key-bits": 2 * settings.prime_bits,
        "sample": settings.phe_sample,
    }
    return ask_peer(PeerRound, python, "round", peer, numbers)


def peer_system(peer: str, took: PeerRound, settings: CompareSettings) -> System:
    sample, columns = took.sample, ("before", "after", "upload", "download", "off")
    servers = {"sp": took.server, "servers": took.server, "dropped": took.server_dropped}
    figures = figures_of({column: getattr(took, column) for column in columns} | servers, sample)
    words = {"kind": "peer", "drop": GOES_ON, "reads": _ONE_KEY, "rewards": "none"}
    notes = [f"version {took.version}"]
    if took.key is not None:
        notes.append(f"its key, made once, took {Figure(took.key, 's')}")
    if took.linearity is not None:
        notes.append(f"a value of {sample} costs {took.linearity:.2f} times what it does in half as many")
    if peer == "flower":
        words |= _flower_words(took, settings)
        notes.append("its own workflow and client code in one process, messages in its own form; threshold a majority")
    return System(peer, PEERS[peer], figures, words, tuple(notes))


def _flower_words(took: PeerRound, settings: CompareSettings) -> dict[str, str]:
    shares = int(took.facts["shares"])
    threshold = shares // 2 + 1
    drop = (
        f"survivors answer once more, the server rebuilds the masks of {settings.dropped}: {Figure(took.server, 's')} become "
        f"{Figure(took.server_dropped, 's')}; a neighbourhood with fewer than {threshold} of {shares} left ends the round"
    )
    others = f"{threshold} of the {shares - 1} others of someone's neighbourhood"
    reads = f"the server reads the average; together with {others}, that one's upload"
    if took.facts["seed_folded_to_32_bits"]:
        reads += "; this version folds each mask's seed to 32 bits"
    return {"drop": drop, "reads": reads}


def plain_system(settings: CompareSettings) -> System:
    """FedAvg in the clear: 32-bit floats up, 32-bit floats down."""
    models = [made_up_weights(settings.parameters, 2021 + i) for i in range(_DISTINCT)]
    bodies = [model.astype("<f4").tobytes() for model in models]

    def average(crowd: int) -> bytes:
        received = [np.frombuffer(bodies[i % _DISTINCT], dtype="<f4") for i in range(crowd)]
        return fedavg(received, [100] * crowd).astype("<f4").tobytes()

    after, upload = timed_call(lambda: models[0].astype("<f4").tobytes())
    server, result = timed_call(lambda: average(settings.participants))
    dropped, _ = timed_call(lambda: average(settings.present))
    before, read = timed_call(lambda: np.frombuffer(result, dtype="<f4").astype(np.float64))
    true = fedavg([models[i % _DISTINCT] for i in range(settings.participants)], [100] * settings.participants)
    seconds = {"before": before, "after": after, "sp": server, "servers": server, "dropped": dropped}
    sizes = {"upload": len(upload), "download": len(result), "off": float(np.abs(read - true).max())}
    words = {"kind": "peer", "drop": GOES_ON, "reads": "the server reads every upload", "rewards": "none"}
    return System("plain", "plain FedAvg", figures_of(seconds | sizes), words, ("numpy, 32-bit floats on the wire",))
