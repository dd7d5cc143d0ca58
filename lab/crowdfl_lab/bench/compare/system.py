"""What `crowdfl bench compare` sets side by side: its sizes, a system, the peers' systems and plain FedAvg."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.disclosures import learnt_in
from crowdfl.learning.oracle import fedavg
from crowdfl_lab.bench.peers.ask import answer_or_reason
from crowdfl_lab.bench.workload import BenchSettings, made_up_weights
from crowdfl_lab.report.results import Cell, Figure, Unit
from crowdfl_lab.timing import timed_call, turns

GOES_ON = "goes on with those who sent"
_BYTES: dict[str, Unit] = dict.fromkeys(("upload", "download", "dealt", "exchanged"), "B")
_UNITS = _BYTES | {"off": "", "exchanges": ""}  # the others: seconds
PEERS = {"phe": "phe, one key for all", "tenseal": "TenSEAL CKKS, one key for all", "flower": "Flower SecAgg+"}
_ONE_KEY = (
    "every participant holds the private key and reads any upload it gets; the server none, unless one of them helps"
)
_WORDS = {"kind": "peer", "drop": GOES_ON, "rewards": "none"}
_DISTINCT = 4  # models that plain FedAvg averages in turn


@dataclass(frozen=True, kw_only=True)
class CompareSettings(BenchSettings):
    """The same model and crowd for all; samples of what takes too long whole."""

    dropped: int = 11  # 30%, rounded
    slices: tuple[int, int] = (72, 144)  # ciphertexts of the servers' samples
    crowds: tuple[int, int] = (3, 6)  # participants of the rewards' samples
    paper_sizes: tuple[tuple[int, int], ...] = ((4, 3), (8, 6))  # parameters and participants
    phe_sample: int = 40
    reads: int = 3
    share_lanes: int = 4100  # of `shares`: 5 rows of 820
    norm: float = 5.0  # of its updates, at most
    memory_crowd: int = 1000  # uploads while the memory of its servers is measured, with so many lanes
    memory_lanes: int = 1024

    @classmethod
    def quick(cls) -> "CompareSettings":
        few = cls(parameters=2000, participants=6, dropped=2, lanes=40, slices=(4, 8), crowds=(3, 4))
        return replace(
            few,
            paper_sizes=((1, 3), (2, 3)),
            phe_sample=2,
            reads=1,
            share_lanes=400,
            norm=1.0,
            memory_crowd=20,
            memory_lanes=400,
        )

    @property
    def present(self) -> int:
        return self.participants - self.dropped


def who_reads(profile: str) -> str:
    """As SECURITY.md has it; what is known to be weak is there too."""
    learnt = {row.party: row.learns for row in learnt_in(profile)}
    told = "; ".join(f"{party}: {learnt[party]}" for party in ("participant", "SP", "CSP", "SP and CSP together"))
    return f"{told} (SECURITY.md has the rest)"


def figures_of(values: Mapping[str, float], sample: str = "") -> dict[str, Figure]:
    return {column: Figure(value, _UNITS.get(column, "s"), sample) for column, value in values.items()}


@dataclass(frozen=True)
class System:
    """One way to average models: figures and words by column, or why there are none."""

    key: str
    name: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    missing: str = ""
    version: str = ""  # of a peer

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(figure.sample for figure in self.figures.values() if figure.sample))

    def cells(self, columns: Collection[str]) -> tuple[Cell, ...]:
        """The figures; a system that did not run says why in the first cell."""
        if self.missing:
            return self.missing.rpartition("\n")[2], *[""] * (len(columns) - 1)
        return tuple(self.figures.get(column) for column in columns)


def ask_system(python: Path | None, peer: str, settings: CompareSettings) -> System:
    numbers = {name: getattr(settings, name) for name in ("parameters", "participants", "dropped")}
    numbers |= {"key-bits": 2 * settings.prime_bits, "sample": settings.phe_sample}
    took = answer_or_reason(python, "round", peer, numbers)
    if "missing" in took:
        return System(peer, PEERS[peer], missing=took["missing"], version=took["version"])
    return peer_system(peer, took, settings)


def peer_system(peer: str, took: Mapping[str, Any], settings: CompareSettings) -> System:
    """From a peer's answer: seconds of a participant and of the server, bytes of a participant."""
    sample = took.get("sample", "")
    figures = {column: took[column] for column in ("before", "after", "upload", "download", "off")}
    figures |= {"sp": took["server"], "servers": took["server"], "dropped": took["server_dropped"]}
    words, notes = _WORDS | {"reads": _ONE_KEY}, [f"version {took['version']}"]
    if "key" in took:
        notes.append(f"its key, made once, took {Figure(took['key'], 's')}")
    if "linearity" in took:
        notes.append(f"a value of {sample} costs {took['linearity']:.2f} times what it does in half as many")
    if peer == "flower":
        words |= _flower_words(took, settings)
        notes.append("its own workflow and client code in one process, messages in its own form; threshold a majority")
    return System(peer, PEERS[peer], figures_of(figures, sample), words, tuple(notes), version=took["version"])


def _flower_words(took: Mapping[str, Any], settings: CompareSettings) -> dict[str, str]:
    shares = int(took["facts"]["shares"])
    threshold, whole, short = shares // 2 + 1, Figure(took["server"], "s"), Figure(took["server_dropped"], "s")
    drop = (
        f"survivors answer once more, the server rebuilds the masks of {settings.dropped}: {whole} become {short}; "
        f"a neighbourhood with fewer than {threshold} of {shares} left ends the round"
    )
    others = f"{threshold} of the {shares - 1} others of someone's neighbourhood"
    reads = f"the server reads the average; together with {others}, that one's upload"
    if took["facts"]["seed_folded_to_32_bits"]:
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
    result = average(settings.participants)  # what follows is timed warm
    taken = turns(
        {crowd: partial(average, crowd) for crowd in (settings.participants, settings.present)}, settings.reads
    )
    server, dropped = (taken[crowd].median for crowd in (settings.participants, settings.present))
    before, read = timed_call(lambda: np.frombuffer(result, dtype="<f4").astype(np.float64))
    true = fedavg([models[i % _DISTINCT] for i in range(settings.participants)], [100] * settings.participants)
    seconds = {"before": before, "after": after, "sp": server, "servers": server, "dropped": dropped}
    sizes = {"upload": len(upload), "download": len(result), "off": float(np.abs(read - true).max())}
    words = _WORDS | {"reads": "the server reads every upload"}
    return System("plain", "plain FedAvg", figures_of(seconds | sizes), words, ("numpy, 32-bit floats on the wire",))
