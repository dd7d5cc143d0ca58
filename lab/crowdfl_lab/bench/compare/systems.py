"""What `crowdfl bench compare` sets side by side: CrowdFL's own systems, the peers' and plain FedAvg.

Of CrowdFL, a participant at full size on one core; the servers of `hardened` on a slice or, on a fast backend, whole; rounds
of `shares` whole, of everyone and of those who are left when some drop out.
"""

import json
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np

from crowdfl.crypto.coins import Coins
from crowdfl.crypto.compute import Backend, Threads
from crowdfl.crypto.leaves import leaves_of
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.shares.expansion import expand
from crowdfl.crypto.shares.ring import RunningSum
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import SettingsError
from crowdfl.learning.oracle import fedavg
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.hardened.prifedavg import dither
from crowdfl.protocols.hardened.prirwd import sketch
from crowdfl.protocols.hardened.profile import HardenedParticipant
from crowdfl.protocols.party import CountingBackend
from crowdfl.protocols.profile import CspProtocol, width_budget
from crowdfl.protocols.shares.profile import SharesRequester
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.settings import MILLION, TaskSettings
from crowdfl.simulation.sides import PlayedRound
from crowdfl_lab.bench import workload
from crowdfl_lab.bench.workload import (
    SERVERS,
    SIGMA,
    BenchSettings,
    MeasuredRound,
    Replayed,
    best_window,
    made_up_models,
    made_up_weights,
)
from crowdfl_lab.recorder import RoundRecorder
from crowdfl_lab.report.results import Cell, Figure, Unit
from crowdfl_lab.timing import timed, timed_call, turns
from crowdfl_lab.uploads import ciphertexts_in

PEERS = {"phe": "phe, one key for all", "tenseal": "TenSEAL CKKS, one key for all", "flower": "Flower SecAgg+"}
NOT_INSTALLED = "not installed: make peers"
_SCRIPT = Path(__file__).with_name("peers.py")  # run by the peers' own Python; prints JSON
_TIMEOUT = 600.0
# What an answer holds at least: seconds and bytes.
_EXPECTED = {"version", "before", "after", "server", "server_dropped", "upload", "download", "off"}
_TIMED = {"key", "before", "after", "server", "server_dropped"}
_ASKED = 3  # times that a peer is run
_BYTES: dict[str, Unit] = dict.fromkeys(("upload", "download", "dealt", "exchanged"), "B")
_UNITS = _BYTES | {"off": "", "exchanges": ""}  # the others: seconds
_GOES_ON = "goes on with those who sent"
_OURS = {"kind": "crowdfl", "drop": f"{_GOES_ON}: nobody is asked again, nothing is repaired"}
_OTHERS = {"kind": "peer", "drop": _GOES_ON, "rewards": "none"}
_ONE_KEY = (
    "every participant holds the private key and reads any upload it gets; the server none, unless one of them helps"
)
_SHARES_READS = (
    "participants read the average and the total; a server alone, however it deviates, no upload, with a participant's help "
    "one sum for each base; SP and CSP together everything"
)
_PAPER_READS = (
    "SP with any one participant, or the requester's key alone: every upload; CSP reads averages and rewards off its divisions "
    "(`crowdfl audit`)"
)
_DISTINCT = 4  # models that plain FedAvg averages in turn
_SAMPLES = 2
_AVERAGING = ("check", "average")


@dataclass(frozen=True)
class SimulatedCrowd:
    """A size that all simulate, and what a person and round may cost here, in seconds."""

    parameters: int
    people: int
    drawn: int
    rounds: int
    most: float

    @property
    def title(self) -> str:
        return f"{self.parameters:,} parameters, {self.drawn} of {self.people:,} people drawn"


@dataclass(frozen=True, kw_only=True)
class CompareSettings(BenchSettings):
    """The same model and crowd for all; samples of what takes too long whole."""

    dropped: int = 11  # 30%, rounded
    slices: tuple[int, int] = (72, 144)  # ciphertexts of the servers' samples
    crowds: tuple[int, int] = (3, 6)  # participants of the rewards' samples
    paper_sizes: tuple[tuple[int, int], ...] = ((4, 3), (8, 6))  # parameters and participants
    phe_sample: int = 40
    reads: int = 6
    share_lanes: int = 4100  # of `shares`: 5 rows of 820
    norm: float = 5.0  # of its updates, at most
    memory_crowd: int = 1000  # uploads while the memory of its servers is measured, with so many lanes
    memory_lanes: int = 1024
    serves: bool = True  # rows through SP and CSP as processes, over HTTPS
    simulated: tuple[SimulatedCrowd, ...] = (
        SimulatedCrowd(10_000, 1000, 200, 6, 0.0015),
        SimulatedCrowd(277_006, 100, 36, 3, 0.012),
    )

    @classmethod
    def quick(cls) -> "CompareSettings":
        few = cls(parameters=2000, participants=6, dropped=2, lanes=40, slices=(4, 8), crowds=(3, 4), reads=1)
        few = replace(few, paper_sizes=((1, 3), (2, 3)), phe_sample=2, share_lanes=400, norm=1.0)
        return replace(few, memory_crowd=20, memory_lanes=400, simulated=(SimulatedCrowd(100, 6, 4, 3, 0.0015),))

    @property
    def present(self) -> int:
        return self.participants - self.dropped


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


def figures_of(values: Mapping[str, float], sample: str = "") -> dict[str, Figure]:
    return {column: Figure(value, _UNITS.get(column, "s"), sample) for column, value in values.items()}


class PeerUnavailable(Exception):
    """It is not installed, or failed."""


def ask_peer(python: Path, peer: str, numbers: Mapping[str, int]) -> dict[str, Any]:
    """The peer's answer; `PeerUnavailable` with its error output when it fails."""
    options = [f"--{name}={number}" for name, number in numbers.items()]
    return ask_script(python, [str(_SCRIPT), peer, *options], _EXPECTED, NOT_INSTALLED)


def ask_script(python: Path, script: Sequence[str], expected: Collection[str], not_installed: str) -> dict[str, Any]:
    """What a script says of the peer that is its first argument; `PeerUnavailable` with its error output when it fails."""
    if not python.is_file():
        raise PeerUnavailable(not_installed)
    peer = script[1]
    # Isolated: the script's folder stays off the path, where our module names could shadow the peers'.
    command = [str(python), "-I", *script]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)  # noqa: S603
        answer = json.loads(done.stdout) if not done.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"{peer} did not run: {error}") from error
    except json.JSONDecodeError as error:
        raise PeerUnavailable(f"{peer} printed no JSON: {error}") from error
    if done.returncode:
        raise PeerUnavailable(f"{peer} failed with exit code {done.returncode}: {done.stderr.strip()}")
    if not isinstance(answer, dict) or (missing := set(expected) - answer.keys()):
        lacks = ", ".join(sorted(missing)) if isinstance(answer, dict) else "all of it"
        raise PeerUnavailable(f"the answer of {peer} does not fit: it lacks {lacks}")
    return answer


def ask_system(python: Path, peer: str, settings: CompareSettings) -> System:
    numbers = {name: getattr(settings, name) for name in ("parameters", "participants", "dropped")}
    numbers |= {"key-bits": 2 * settings.prime_bits, "sample": settings.phe_sample}
    try:
        answers = [ask_peer(python, peer, numbers) for _ in range(min(_ASKED, settings.reads))]
        return peer_system(peer, least_of(answers), settings)
    except PeerUnavailable as error:
        return System(peer, PEERS[peer], missing=str(error), version=str(error))


def least_of(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first answer, with the least of what each timed: others' work on the machine only adds."""
    timed_there = _TIMED & answers[0].keys()
    return answers[0] | {name: min(answer[name] for answer in answers) for name in timed_there}


def peer_system(peer: str, took: Mapping[str, Any], settings: CompareSettings) -> System:
    """From a peer's answer: seconds of a participant and of the server, bytes of a participant."""
    sample = took.get("sample", "")
    figures = {column: took[column] for column in ("before", "after", "upload", "download", "off")}
    figures |= {"sp": took["server"], "servers": took["server"], "dropped": took["server_dropped"]}
    words, notes = _OTHERS | {"reads": _ONE_KEY}, [f"version {took['version']}"]
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
    threshold = shares // 2 + 1
    whole = Figure(took["server"], "s")
    short = Figure(took["server_dropped"], "s")
    drop = (
        f"survivors answer once more, the server rebuilds the masks of {settings.dropped}: {whole} become {short}; "
        f"a neighbourhood with fewer than {threshold} of {shares} left ends the round"
    )
    others = f"{threshold} of the {shares - 1} others of someone's neighbourhood"
    folded = "; this version folds each mask's seed to 32 bits" * took["facts"]["seed_folded_to_32_bits"]
    return {"drop": drop, "reads": f"the server reads the average; together with {others}, that one's upload{folded}"}


def plain_average(models: Sequence[workload.Floats]) -> Callable[[int], bytes]:
    """What plain FedAvg's server makes of so many uploads."""
    bodies = [model.astype("<f4").tobytes() for model in models]

    def average(crowd: int) -> bytes:
        received = [np.frombuffer(bodies[i % _DISTINCT], dtype="<f4") for i in range(crowd)]
        return fedavg(received, [100] * crowd).astype("<f4").tobytes()

    return average


def plain_models(settings: CompareSettings) -> list[workload.Floats]:
    return [made_up_weights(settings.parameters, 2021 + i) for i in range(_DISTINCT)]


def plain_system(settings: CompareSettings) -> System:
    """FedAvg in the clear: 32-bit floats up, 32-bit floats down."""
    models = plain_models(settings)
    average = plain_average(models)
    after, upload = timed_call(lambda: models[0].astype("<f4").tobytes())
    result, crowds = average(settings.participants), (settings.participants, settings.present)  # the rest is timed warm
    taken = turns({crowd: partial(average, crowd) for crowd in crowds}, settings.reads)
    server, dropped = (min(taken[crowd].cpu) for crowd in crowds)
    before, read = timed_call(lambda: np.frombuffer(result, dtype="<f4").astype(np.float64))
    true = fedavg([models[i % _DISTINCT] for i in range(settings.participants)], [100] * settings.participants)
    seconds = {"before": before, "after": after, "sp": server, "servers": server, "dropped": dropped}
    sizes = {"upload": len(upload), "download": len(result), "off": float(np.abs(read - true).max())}
    words = _OTHERS | {"reads": "the server reads every upload"}
    return System("plain", "plain FedAvg", figures_of(seconds | sizes), words, ("numpy, 32-bit floats on the wire",))


class Hardened:
    """One kind of `hardened` task, and what is measured of it."""

    def __init__(self, settings: CompareSettings, *, hidden: bool, rewards: bool) -> None:
        total = "hidden" if hidden else "shown"
        self.settings, self.hidden, self.rewards = settings, hidden, rewards
        self.key = total + ("_rewards" if rewards else "")
        self.name = f"hardened, total {total}, rewards {'on' if rewards else 'off'}"
        self.task = settings.task(total=total, lanes=settings.lanes if rewards else 0)
        self.budget = width_budget(self.task, settings.parameters, SIGMA)
        self.length = self.budget.ciphertexts + 1
        self.parties = settings.parties(self.task, Threads(1), RoundRecorder())
        self.window = best_window(self.parties.task.public, self.length)
        self.upload = b""

    def device(self) -> dict[str, Figure]:
        """Encrypt an update with randomizers at hand (they are made whenever the device is idle), read an average."""
        side = cast(HardenedParticipant, self.parties.participant("p000"))
        task = self.parties.task
        public = task.public
        source = FreshRandomizers(public, self.window, Threads(1))
        ahead, made = timed_call(lambda: source.take(side.upload_randomizers()))
        keyed_party(side).randomizers = Replayed(public, made)  # each taken once, from the first on
        weights = made_up_weights(self.settings.parameters, 2021)
        after, self.upload = timed_call(lambda: side.encrypt_update(weights, _SAMPLES, 1))
        # Plaintexts such as a round opens; reading does not depend on their values.
        if self.hidden:
            opened = dither(Coins.fresh(), self.budget.ciphertexts, self.budget, self.budget.packing(public))
        else:
            opened = workload.packed_model(self.budget, public, weights, _SAMPLES)
        audience = side.audience
        publication = workload.sealed_publication(
            task, cast(CspProtocol, self.parties.fresh_csp().side), audience, opened, self.upload
        )
        before = turns({"read": lambda: side.read(publication, 1)}, self.settings.reads)["read"].median
        sizes = {"upload": len(self.upload), "download": len(publication)}
        return figures_of({"ahead": ahead, "before": before, "after": after} | sizes)

    def sampled_servers(self, backend: Backend) -> tuple[dict[str, Figure], str]:
        """Adding and sketching at full size; averaging and rewarding on two slices, extrapolated from the larger."""
        settings = self.settings
        sizes = zip(((rows - 1) * self.budget.slots for rows in settings.slices), settings.crowds, strict=True)
        small, large = (settings.play(self.task, backend, made_up_models(size, crowd)) for size, crowd in sizes)
        fewer, more = (width_budget(self.task, s.parameters, SIGMA).ciphertexts + 1 for s in (small, large))
        few, crowd = settings.crowds
        times = _times(small, large, _AVERAGING, fewer, more)
        note = f"a ciphertext of the larger slice costs {times:.2f} times the smaller's"
        sample = f"averaging of {more} ciphertexts"
        if self.rewards:
            times = _times(small, large, ("reward",), few, crowd)
            note += f"; a participant's reward among {crowd} {times:.2f} times that among {few}"
            sample += f" and rewards of {crowd}"
        spent = large.recorder.seconds_of
        shared = {role: spent(role, *_AVERAGING) * self.length / more for role in SERVERS}
        each = {role: spent(role, "reward") / crowd for role in SERVERS}
        each["SP"] += self._per_upload(backend)
        figures = _server_figures(settings, shared, each, f"{sample}; one upload added at full size")
        return figures | figures_of({"off": large.off}, f"the average of {crowd} small models"), note

    def _per_upload(self, backend: Backend) -> float:
        """Seconds to check and add one upload and, with rewards, to sketch it."""
        sp, party = self.parties.sp, keyed_party(self.parties.sp)
        party.compute = CountingBackend(backend, party.costs)
        sp.open_round(1)
        vector = CipherVector.from_bytes(ciphertexts_in(self.upload), party.public, max_count=self.length)
        another = cast(HardenedParticipant, self.parties.participant("p001")).sign_upload(vector, 1)
        sp.add_all({"p000": self.upload})  # the second is multiplied in, the first only kept
        seconds = timed(lambda: sp.add_all({"p001": another}))
        if not self.rewards:
            return seconds
        return seconds + timed(lambda: sketch(vector.part(0, -1), bytes(32), self.budget, party))

    def whole_servers(self, backend: Backend) -> tuple[dict[str, Figure], str]:
        recorder, crowd = RoundRecorder(), self.settings.participants
        parties = self.settings.parties(self.task, backend, recorder)
        uploads = workload.full_uploads(parties, self.length, crowd)
        round_ = parties.open(1)
        for who, upload in uploads.items():
            round_.collect({who: upload})
        if self.rewards:
            round_.reward(crowd * MILLION)
        round_.average()
        shared = {role: recorder.seconds_of(role, *_AVERAGING) for role in SERVERS}
        each = {role: recorder.seconds_of(role, "collect", "reward") / crowd for role in SERVERS}
        return _server_figures(self.settings, shared, each, ""), "measured whole; uploads are sums of two"

    def system(self, device: dict[str, Figure], servers: dict[str, Figure], note: str, where: str = "") -> System:
        """A row; `where` the servers compute, if not on this machine's cores."""
        total = "" if self.hidden else " and the total"
        words = _OURS | {
            "reads": f"participants read the average{total}; a server alone, with participants or without, nothing else; "
            "SP and CSP together everything",
            "rewards": "yes, each participant reads its own" if self.rewards else "off",
        }
        layout = f"{self.length:,} ciphertexts of {self.budget.slots} slots; table window {self.window} bits"
        key, name = (f"{self.key}_{where}", f"{self.name}, servers on {where}") if where else (self.key, self.name)
        return System(key, name, device | servers, words, (layout, note))


def paper_system(settings: CompareSettings, backend: Backend, whole: Path | None = None) -> System:
    """The profile `paper`, rewards on: two small rounds, whose sizes lie on a line and whose times are extrapolated; or, with
    its JSON, the times of a round that `bench gpu` measured whole."""
    task = TaskSettings(profile="paper", max_participants=settings.participants, key_bits=2 * settings.prime_bits)
    small, large = (settings.play(task, backend, made_up_models(size, crowd)) for size, crowd in settings.paper_sizes)
    up = settings.parameters / large.parameters
    crowd = len(large.samples)
    spent = large.recorder.seconds_of
    words = _OURS | {"reads": _PAPER_READS, "rewards": "yes, CSP can read them"}
    sizes = figures_of(_sent_at(settings.parameters, small, large))
    if whole is not None:
        figures, name, note = _measured_whole(settings, whole)
        return System("paper", f"paper, rewards on, {name}", figures | sizes, words, (note,))
    shared = {role: up * spent(role, *_AVERAGING) for role in SERVERS}
    each = {role: up * spent(role, "collect", "reward") / crowd for role in SERVERS}
    sample = f"a round of {large.parameters} parameters and {crowd} participants"
    times = f"{_times(small, large, _AVERAGING, small.parameters, large.parameters):.2f} times the smaller's"
    note = f"an averaged parameter of the larger sample costs {times}; times include randomizers"
    device = {
        "before": up * spent("participant", "read") / crowd,
        "after": up * spent("participant", "encrypt") / crowd,
        "off": large.off,
    }
    figures = figures_of(device, sample) | _server_figures(settings, shared, each, sample)
    return System("paper", "paper, rewards on", figures | sizes, words, (note,))


def _sent_at(parameters: int, small: MeasuredRound, large: MeasuredRound) -> dict[str, float]:
    """What one participant sends and fetches: a fixed part, and as much for each parameter."""

    def sent(of: MeasuredRound) -> dict[str, int]:
        upload, envelope = (next(iter(found.values())) for found in (of.played.uploads, of.played.envelopes))
        return {"upload": len(upload), "download": len(of.played.publication) + len(envelope)}

    begin, end = sent(small), sent(large)
    more = (parameters - small.parameters) / (large.parameters - small.parameters)
    return {column: begin[column] + more * (end[column] - begin[column]) for column in begin}


def _measured_whole(settings: CompareSettings, path: Path) -> tuple[dict[str, Figure], str, str]:
    """Of a round that `bench gpu --profile paper` wrote: its times, the machine, and how they are to be read."""
    found = json.loads(path.read_text(encoding="utf-8"))
    wrong = [
        name
        for name in ("parameters", "participants", "prime_bits")
        if found["settings"][name] != getattr(settings, name)
    ]
    if wrong:
        raise SettingsError(f"{path.name} holds a round of other sizes ({', '.join(wrong)}): measure it at these")
    seconds = dict.fromkeys(("encrypt", "read", "servers"), 0.0)
    for entry in found["parts"]:
        laps, stage = entry["laps"], entry["stage"]
        if stage == "encrypt":
            seconds["encrypt"] += laps["participant"] / settings.participants
        elif stage == "read":
            seconds["read"] += laps["participant"]
            seconds["servers"] += laps["SP"]
        elif stage != "keys":
            seconds["servers"] += entry["wall"] - laps["participant"]
    off = next(entry["off"] for entry in found["parts"] if entry["part"] == "read")
    device = {"before": seconds["read"], "after": seconds["encrypt"], "off": off}
    where = found["machine"].get("gpu", found["machine"]["backend"])
    note = f"a round measured whole, all parties on {where}; servers by the clock, rounds with dropouts not measured"
    return figures_of(device | {"servers": seconds["servers"]}), f"one {where}", note


def _times(small: MeasuredRound, large: MeasuredRound, stages: tuple[str, ...], fewer: int, more: int) -> float:
    """Seconds of the servers per unit in the larger sample over those in the smaller."""
    spent = [sum(sample.recorder.seconds_of(role, *stages) for role in SERVERS) for sample in (small, large)]
    return (spent[1] / more) / (spent[0] / fewer)


def _server_figures(
    settings: CompareSettings, shared: dict[str, float], each: dict[str, float], sample: str
) -> dict[str, Figure]:
    """At full size, from seconds by role: of a round, whatever the crowd, and of each participant in it."""
    sp, csp = (shared[role] + settings.participants * each[role] for role in SERVERS)
    left = sum(shared[role] + settings.present * each[role] for role in SERVERS)
    fewer = sample or f"the same parts, for {settings.present} uploads"
    return figures_of({"sp": sp, "csp": csp, "servers": sp + csp}, sample) | figures_of({"dropped": left}, fewer)


def shares_task(settings: CompareSettings, *, rewards: bool, reference: bool = False) -> TaskSettings:
    """As many rounds as are measured, and one before and after them: nobody but the requester reads the last."""
    sizes = {"profile": "shares", "max_participants": settings.participants, "rounds": 2 * settings.reads + 2}
    if not rewards:
        return TaskSettings.of(**sizes, check="none", pay="none", lanes=0)
    pay: dict[str, Any] = {"budget": str(settings.participants), "pay": "equal"}
    lanes = settings.share_lanes
    if reference:
        pay |= {"reference": True, "weighting": "equal"}
        lanes = max(lanes, 1024)  # the fewest that it takes
    return TaskSettings.of(**sizes, **pay, lanes=lanes, max_norm=settings.norm)


class Shares:
    """One kind of `shares` task. The first round warms up and is not counted."""

    def __init__(self, settings: CompareSettings, *, rewards: bool, reference: bool = False) -> None:
        self.settings = settings
        self.rewards = rewards
        self.recorder = RoundRecorder(keep_messages=True, clock=time.process_time)
        self.key = "shares_reference" if reference else "shares_rewards" if rewards else "shares"
        self.name = (
            f"shares, {'checks and rewards' if rewards else 'no checks, no rewards'}" + ", a reference" * reference
        )
        self.task = shares_task(settings, rewards=rewards, reference=reference)
        self.signing = SigningKey.fresh()
        self.parties = settings.parties(self.task, Threads(1), self.recorder, requester=self.signing.public)
        self.names = [f"p{i:03}" for i in range(settings.participants)]
        for who in self.names:
            self.parties.participant(who)
        self.weights = np.zeros(settings.parameters)

    def system(self) -> System:
        settings, numbers = self.settings, iter(range(1, self.task.rounds))
        self._round(next(numbers), settings.participants)
        beside = self._beside()
        whole = [self._round(next(numbers), settings.participants) | beside() for _ in range(settings.reads)]
        fewer = [self._round(next(numbers), settings.present)["servers"] for _ in range(settings.reads)]
        figures = {column: min(played[column] for played in whole) for column in whole[0]}
        layout = f"{self.parties.sp.upload_bytes() / settings.parameters:.1f} bytes a parameter"
        reads, pays = _SHARES_READS + "; but one phone that cheats can spoil the average", "off"
        if self.rewards:
            layout += f"; {self.task.lanes:,} lanes, max_norm {settings.norm:g}"
            reads = _SHARES_READS + "; of each person a deviating server may learn a few bits"
            pays = "yes, each participant reads its own; uploads out of bounds are left out"
        note = f"measured whole, the least of {settings.reads} rounds after the first; KGC's part is not the servers'"
        words = _OURS | {"reads": reads, "rewards": pays}
        return System(self.key, self.name, figures_of(figures | {"dropped": min(fewer)}), words, (layout, note))

    def _round(self, number: int, crowd: int) -> dict[str, float]:
        """One round by its recorder, in the units of the columns. Everyone reads, also those who sent nothing."""
        kgc, files = timed_call(lambda: [self.parties.dealt(role, number) for role in ("sp", "csp")])
        self.recorder.reset()
        updates = {who: (self.weights + self._update(i + number), 10 + i) for i, who in enumerate(self.names[:crowd])}
        if self.task.reference:  # everyone in line with it, and counts once
            updates = {who: ((model + self._common(number)) / 2, 1) for who, (model, _) in updates.items()}
        uploads = self.parties.encrypt(updates, number)
        payment = self.settings.participants * MILLION if self.rewards else None
        played = self.parties.play(number, uploads, payment=payment, readers=None, reference=self._reference(number))
        if self.task.reference:
            self.parties.requester.read(played.publication, number)  # what the next reference starts from
        if crowd < len(self.names):
            self.parties.read(played.publication, number, self.names[crowd:])
        self.weights = played.average.weights
        models, samples = zip(*updates.values(), strict=True)
        found = self._figures(played, float(np.abs(self.weights - fedavg(list(models), list(samples))).max()))
        dealt = sum(map(len, files))
        return found | ({"kgc": kgc, "dealt": dealt} if dealt else {})

    def _figures(self, played: PlayedRound, off: float) -> dict[str, float]:
        recorder = self.recorder
        exchanged = [m for s, r, m in self.recorder.messages if {s, r} == set(SERVERS)]
        sp, csp = (recorder.seconds_of(role, "collect", "check", "reward", "average") for role in SERVERS)
        reward = len(next(iter(played.envelopes.values()))) if played.envelopes else 0
        return {
            "before": self._each("read") + (self._each("open") if self.rewards else 0.0),
            "after": self._each("encrypt"),
            "upload": len(next(iter(played.uploads.values()))),
            "download": len(played.publication) + reward,
            "sp": sp,
            "csp": csp,
            "servers": sp + csp,
            "off": off,
            "exchanges": recorder.sent["SP", "CSP"],
            "exchanged": sum(map(len, exchanged)),
        }

    def _each(self, stage: str) -> float:
        """Seconds of a participant."""
        return median(lap.seconds for lap in self.recorder.laps if (lap.role, lap.stage) == ("participant", stage))

    def _beside(self) -> Callable[[], dict[str, float]]:
        """What is measured in turn with rounds, at the machine's speed of that moment: plain FedAvg's server, and the floor of
        both servers, where SP hashes and adds everyone's share, and CSP expands it from its seed and adds that."""
        crowd, average = self.settings.participants, plain_average(plain_models(self.settings))
        shape = SharesShape(self.parties.spec)
        share = bytes(shape.share_bytes)
        sums = RunningSum(shape.ring, shape.spec.parameters)

        def floor() -> None:
            for _ in range(crowd):
                leaves_of(share)
                sums.add(share)
                sums.add(expand(bytes(SEED_BYTES), b"floor", len(share)))

        variants: dict[str, Callable[[], object]] = {"plain": partial(average, crowd), "floor": floor}
        turns(variants, 1)  # they warm up
        return lambda: {name: timing.cpu[0] for name, timing in turns(variants, 1).items()}

    def _common(self, number: int) -> workload.Floats:
        return self.weights + self._update(10**6 + number)

    def _reference(self, number: int) -> bytes | None:
        if not self.task.reference:
            return None
        return cast(SharesRequester, self.parties.requester).refer(lambda _: self._common(number), number, self.signing)

    def _update(self, seed: int) -> workload.Floats:
        """Half as long as the task allows."""
        made = made_up_weights(self.settings.parameters, 2021 + seed)
        return made * (self.settings.norm / 2 / np.linalg.norm(made))
