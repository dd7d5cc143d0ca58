"""The other systems' rounds: the peers in their own Python, and plain FedAvg."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.errors import PeerUnavailable
from crowdfl.lab.bench.compare.rows import System
from crowdfl.lab.bench.compare.setting import CompareSetting
from crowdfl.lab.bench.peers.run import ask_script, read_answer
from crowdfl.lab.bench.protocols.setting import made_up_weights
from crowdfl.lab.bench.rows import Figure
from crowdfl.learning.fedavg import fedavg

__all__ = ["LEFT_OUT", "PEERS", "PeerRound", "measure_peer", "peer_system", "plain_system"]

LEFT_OUT = "left out: --no-peers"
PEERS = {"phe": "phe, one key for all", "tenseal": "TenSEAL CKKS, one key for all", "flower": "Flower SecAgg+"}
_SCRIPT = Path(__file__).parent.with_name("peers") / "round_main.py"
_GOES_ON = "goes on with those who sent"
_ONE_KEY = (
    "every participant holds the private key and reads any upload it gets; the server none, unless one of them helps"
)
_DISTINCT = 4  # models that plain FedAvg averages in turn


@dataclass(frozen=True)
class PeerRound:
    """A peer's answer: seconds of a participant and of the server, bytes of a participant."""

    version: str
    key: float | None  # seconds to make the one key, once per task
    before: float
    after: float
    server: float
    server_dropped: float
    upload: float
    download: float
    off: float
    sample: str
    linearity: float | None
    facts: dict[str, Any]


def measure_peer(python: Path | None, peer: str, setting: CompareSetting) -> PeerRound:
    """A round by the peer; `PeerUnavailable` where there is none."""
    if python is None:
        raise PeerUnavailable(LEFT_OUT)
    numbers = {
        "parameters": setting.parameters,
        "participants": setting.participants,
        "dropped": setting.dropped,
        "key-bits": 2 * setting.prime_bits,
        "sample": setting.phe_sample,
    }
    return read_answer(PeerRound, ask_script(python, _SCRIPT, peer, numbers))


def peer_system(peer: str, took: PeerRound, setting: CompareSetting) -> System:
    """Its row."""
    sample = took.sample
    figures = {
        "before": Figure(took.before, "s", sample),
        "after": Figure(took.after, "s", sample),
        "upload": Figure(took.upload, "B", sample),
        "download": Figure(took.download, "B", sample),
        "sp": Figure(took.server, "s", sample),
        "servers": Figure(took.server, "s", sample),
        "dropped": Figure(took.server_dropped, "s", sample),
        "off": Figure(took.off, "", sample),
    }
    words = {"kind": "peer", "drop": _GOES_ON, "reads": _ONE_KEY, "rewards": "none"}
    notes = [f"version {took.version}"]
    if took.key is not None:
        notes.append(f"its key, made once, took {Figure(took.key, 's')}")
    if took.linearity is not None:
        notes.append(f"a value of {sample} costs {took.linearity:.2f} times what it does in half as many")
    if peer == "flower":
        words |= _flower_words(took, setting)
        notes.append("its own workflow and client code in one process, messages in its own form; threshold a majority")
    return System(peer, PEERS[peer], figures, words, tuple(notes))


def _flower_words(took: PeerRound, setting: CompareSetting) -> dict[str, str]:
    shares = int(took.facts["shares"])
    threshold = shares // 2 + 1
    drop = (
        f"survivors answer once more, the server rebuilds the masks of {setting.dropped}: {Figure(took.server, 's')} become "
        f"{Figure(took.server_dropped, 's')}; a neighbourhood with fewer than {threshold} of {shares} left ends the round"
    )
    others = f"{threshold} of the {shares - 1} others of someone's neighbourhood"
    reads = f"the server reads the average; together with {others}, that one's upload"
    if took.facts["seed_folded_to_32_bits"]:
        reads += "; this version folds each mask's seed to 32 bits"
    return {"drop": drop, "reads": reads}


def plain_system(setting: CompareSetting) -> System:
    """FedAvg in the clear: 32-bit floats up, 32-bit floats down."""
    models = [made_up_weights(setting.parameters, 2021 + i) for i in range(_DISTINCT)]
    start = time.perf_counter()
    upload = models[0].astype("<f4").tobytes()
    after = time.perf_counter() - start
    bodies = [upload, *(model.astype("<f4").tobytes() for model in models[1:])]

    def average(crowd: int) -> tuple[float, bytes]:
        start = time.perf_counter()
        received = [np.frombuffer(bodies[i % _DISTINCT], dtype="<f4") for i in range(crowd)]
        result = fedavg(received, [100] * crowd).astype("<f4").tobytes()
        return time.perf_counter() - start, result

    server, result = average(setting.participants)
    dropped, _ = average(setting.present)
    start = time.perf_counter()
    read = np.frombuffer(result, dtype="<f4").astype(np.float64)
    before = time.perf_counter() - start
    true = fedavg([models[i % _DISTINCT] for i in range(setting.participants)], [100] * setting.participants)
    figures = {
        "before": Figure(before, "s"),
        "after": Figure(after, "s"),
        "upload": Figure(len(upload), "B"),
        "download": Figure(len(result), "B"),
        "sp": Figure(server, "s"),
        "servers": Figure(server, "s"),
        "dropped": Figure(dropped, "s"),
        "off": Figure(float(np.abs(read - true).max()), ""),
    }
    words = {"kind": "peer", "drop": _GOES_ON, "reads": "the server reads every upload", "rewards": "none"}
    return System("plain", "plain FedAvg", figures, words, ("numpy, 32-bit floats on the wire",))
