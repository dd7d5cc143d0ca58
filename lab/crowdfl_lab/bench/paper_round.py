"""`crowdfl bench gpu --profile paper`: one round of `paper`, Algorithms 1 to 4 as printed, in parts that a stop does not lose.

Every part leaves what the next ones need in a folder, and a line of what it took. A call does parts for as long as it is given,
and the next call goes on. The sums of squares of Algorithm 4 are a part for each person; what is computed is the same. Parts of
several people may run at a time, each in a process of its own: one's transfers and Python then go on beside another's kernels.
The folder holds the keys of a benchmark on made-up models, and nothing of anybody's.
"""

import json
import multiprocessing
import operator
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from functools import partial, reduce
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np

from crowdfl.crypto.backends import backend_named
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.compute import Backend
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.crypto.paillier.vector import CipherVector, Unchecked
from crowdfl.errors import ProtocolError, SettingsError
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.oracle import rewards as plain_rewards
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.paper.profile import PaperHeld, PaperProfile, PaperSp
from crowdfl.protocols.profile import Dealing, TaskSpec, Tools
from crowdfl.settings import MILLION
from crowdfl.simulation.sides import Parties, dealt_by
from crowdfl.storage.atomic import write_private
from crowdfl_lab.bench.workload import BenchSettings, Floats, Say, made_up_weights
from crowdfl_lab.experiments.experiment import said_of
from crowdfl_lab.recorder import RoundRecorder
from crowdfl_lab.report.results import Figure, Result, ResultTable, Row, Target
from crowdfl_lab.timing import Disturbance, busy_seconds, machine, processor_seconds, timed_call

_ROLES = ("participant", "SP", "CSP")
_TOLERATED = 3e-6  # of an average: Algorithm 1 floors at 10^-6
_REWARDS_OFF = 2e-3  # of a reward, relatively: Algorithm 4 floors weights at 10^-6


@dataclass(frozen=True, kw_only=True)
class PaperRoundSettings(BenchSettings):
    """The paper's round; there are no lanes: distances are exact."""

    @classmethod
    def quick(cls) -> "PaperRoundSettings":
        return cls(parameters=12, participants=3)


@dataclass(frozen=True)
class Part:
    """Some work: what it is called, at which stage of the round it is, and what does it; that says more for its line."""

    name: str
    stage: str
    work: Callable[[], Mapping[str, Any] | None]


class PaperRound:
    """The round in a folder."""

    def __init__(self, settings: PaperRoundSettings, backend: Backend, folder: Path) -> None:
        self.settings, self.backend, self.folder = settings, backend, folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        chosen = json.dumps(asdict(settings) | {"compute": backend.name})
        if self._has("settings.json") and self._read("settings.json").decode() != chosen:
            raise SettingsError(f"{folder} holds a round of other settings: name another folder, or take this one away")
        self._write("settings.json", chosen.encode())
        self.recorder = RoundRecorder()
        self.names = [f"p{place:03}" for place in range(settings.participants)]
        self.samples = [10 + place for place in range(settings.participants)]
        self.task = settings.task(profile="paper", lanes=None, rounds=2)
        self._parties: Parties | None = None

    # The folder.

    def _has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def _read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def _write(self, name: str, content: bytes) -> None:
        write_private(self.folder / name, content, overwrite=True)

    @property
    def done(self) -> dict[str, dict[str, Any]]:
        """The lines of the parts that are done; half a line, of a part that was stopped, counts for nothing."""
        found = {}
        for line in self._read("parts.jsonl").splitlines() if self._has("parts.jsonl") else ():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            found[entry["part"]] = entry
        return found

    def _keep(self, entry: Mapping[str, Any]) -> None:
        lines = [*self.done.values(), entry]
        self._write("parts.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())

    # The round.

    def models(self) -> list[Floats]:
        """Participants that agree more or less, so that distances, and rewards, differ."""
        return [self.model(place) for place in range(self.settings.participants)]

    def model(self, place: int) -> Floats:
        common, own = (made_up_weights(self.settings.parameters, seed) for seed in (2021, 3000 + place))
        return common + (0.01 + 0.002 * (place % 7)) * own

    def parts(self) -> Iterator[Part]:
        yield Part("keys", "keys", self._deal)
        for place, who in enumerate(self.names):
            yield Part(f"encrypt {who}", "encrypt", partial(self._encrypt, place))
        yield Part("average", "average", self._average)
        yield Part("read", "read", self._read_average)
        for place, who in enumerate(self.names):
            yield Part(f"distance {who}", "distances", partial(self._distance, place))
        yield Part("pay", "pay", self._pay)

    def run(self, seconds: float, say: Say, at_a_time: int = 1) -> int:
        """Parts, until the next one might not end in time; how many are missing."""
        start, longest = time.monotonic(), dict[str, float]()
        done = self.done
        for entry in done.values():
            longest[entry["stage"]] = max(longest.get(entry["stage"], 0.0), entry["seconds"])
        missing = [part for part in self.parts() if part.name not in done]
        begun = 0

        def may_begin(part: Part) -> bool:
            nonlocal begun
            if begun and time.monotonic() - start + longest.get(part.stage, 0.0) > seconds:
                return False
            begun += 1
            say(f"{part.name}, {len(done) + begun} of {len(done) + len(missing)}")
            return True

        with ExitStack() as stack:
            pool: Executor | None = None
            for _, group in groupby(missing, key=lambda part: part.stage):
                parts = list(group)
                if at_a_time > 1 and len(parts) > 1:
                    pool = pool or stack.enter_context(self._pool(at_a_time))
                    finished = self._done_by(pool, at_a_time, parts, may_begin)
                else:
                    finished = (self.do(part) for part in parts if may_begin(part))
                meter, ended = _Meter(), 0
                for entry in finished:
                    ended += 1
                    longest[entry["stage"]] = max(longest.get(entry["stage"], 0.0), entry["seconds"])
                    self._keep(entry | meter.lap())
                if ended < len(parts):
                    break
        return len(missing) - begun

    def do(self, part: Part) -> dict[str, Any]:
        """One part, and what its line says."""
        self.recorder.reset()
        took, more = timed_call(part.work)
        laps = {role: self.recorder.seconds_of(role) for role in _ROLES}
        return {"part": part.name, "stage": part.stage, "seconds": took, "laps": laps, **(more or {})}

    def _pool(self, at_a_time: int) -> Executor:
        """Processes that are warm: compiled, with the keys and the table of randomizers."""
        pool = ProcessPoolExecutor(
            at_a_time, multiprocessing.get_context("spawn"), _begin, (self.settings, self.backend.name, self.folder)
        )
        wait([pool.submit(time.sleep, 0.1) for _ in range(at_a_time)])
        return pool

    @staticmethod
    def _done_by(
        pool: Executor, at_a_time: int, parts: Sequence[Part], may_begin: Callable[[Part], bool]
    ) -> Iterator[dict[str, Any]]:
        left, running = deque(parts), set[Future[dict[str, Any]]]()
        while left or running:
            while left and len(running) < at_a_time:
                if may_begin(left[0]):
                    running.add(pool.submit(_do, left.popleft().name))
                else:
                    left.clear()
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in ended)

    def _deal(self) -> None:
        spec = TaskSpec("bench", self.task, self.settings.parameters)
        dealing = dealt_by(PaperProfile(), spec, insecure_test_key=self.settings.insecure_test_key)
        kept = {each.name: getattr(dealing, each.name).hex() for each in fields(dealing) if getattr(dealing, each.name)}
        self._write("keys.json", json.dumps(kept).encode())

    @property
    def parties(self) -> Parties:
        """Under the keys of the first part, with the table of randomizers made."""
        if self._parties is None:
            kept = {name: bytes.fromhex(text) for name, text in json.loads(self._read("keys.json")).items()}
            tools = Tools(self.backend, insecure_test_key=self.settings.insecure_test_key, observer=self.recorder)
            spec = TaskSpec("bench", self.task, self.settings.parameters)
            self._parties = Parties(spec, tools, PaperProfile(), people=self.names, dealing=Dealing(**kept))
            FreshRandomizers(self._parties.task.public, backend=self.backend).take(1)
            self.recorder.reset()
        return self._parties

    def _encrypt(self, place: int) -> None:
        who = self.names[place]
        (upload,) = self.parties.encrypt({who: (self.model(place), self.samples[place])}).values()
        self._write(f"upload-{who}", upload)

    def _average(self) -> None:
        round_ = self.parties.open(1)
        for who in self.names:
            round_.collect({who: self._read(f"upload-{who}")})
        self._write("held", round_.hold())

    def _held(self) -> CipherVector:
        """The average, encrypted, as the part before left it."""
        limits = keyed_party(self.parties.sp).limits(self.settings.parameters)
        return PaperHeld.from_bytes(self._read("held"), limits).average

    def _read_average(self) -> Mapping[str, Any]:
        """SP's half of it, and one participant reads."""
        parties, average = self.parties, self._held()
        with self.recorder.working("SP"):
            publication = cast(PaperSp, parties.sp).published(average)
        read = parties.read(publication, 1, self.names[:1])
        off = float(np.abs(read.weights - fedavg(self.models(), self.samples)).max())
        if off > _TOLERATED:
            raise ProtocolError(f"the round's average is off by {off:.2g} from that in the clear")
        return {"off": off}

    def _vector(self, place: int) -> CipherVector:
        """An upload, whose numbers SP has checked when it averaged."""
        public, size = self.parties.task.public, 2 * self.settings.parameters + 1
        return Unchecked.parse(self._read(f"upload-{self.names[place]}"), public, max_count=size).trusted()

    def _distance(self, place: int) -> None:
        """Lines 2-4 of Algorithm 4 for one person."""
        p, parties = self.settings.parameters, self.parties
        model, average = self._vector(place).part(p, 2 * p), self._held()
        side = cast(PaperSp, parties.sp).reward_side()
        step = side.distances([model], average, Coins.fresh())
        found = run_exchange(step, ask_directly(parties.csp.answer, self.recorder), self.recorder)
        self._write(f"distance-{self.names[place]}", found.to_bytes())

    def _pay(self) -> Mapping[str, Any]:
        """The rest of Algorithm 4; everyone opens its reward."""
        parties, size = self.parties, self.settings.participants
        public, p = parties.task.public, self.settings.parameters
        samples = CipherVector.concat([self._vector(place).part(2 * p) for place in range(size)])
        kept = [self._read(f"distance-{who}") for who in self.names]
        distances = CipherVector.concat([CipherVector.from_bytes(one, public, max_count=1) for one in kept])
        sp = cast(PaperSp, parties.sp)
        step = sp.reward_side().pay(distances, samples, sp.units(size * MILLION), Coins.fresh())
        mu = run_exchange(step, ask_directly(parties.csp.answer, self.recorder), self.recorder)
        with self.recorder.working("SP"):
            envelopes = sp.delivered(self.names, mu)
        paid = np.array([*parties.open_rewards(envelopes, 1).values()], dtype=np.float64)
        clear = plain_rewards(self.models(), self.samples, size * MILLION)
        off = float(np.abs(paid / clear - 1).max())
        if off > _REWARDS_OFF:
            raise ProtocolError(f"the round's rewards are off by {off:.2g} from those in the clear")
        return {"off": off}


class _Meter:
    """What passes between the ends of parts: by the clock, and in processor seconds of other programs."""

    def __init__(self) -> None:
        self._last = self._now()

    @staticmethod
    def _now() -> tuple[float, float | None, float]:
        return time.perf_counter(), busy_seconds(), processor_seconds(os.getpid())

    def lap(self) -> dict[str, float | None]:
        (clock, busy, own), before = self._now(), self._last
        self._last = clock, busy, own
        others = None if busy is None or before[1] is None else max(0.0, busy - before[1] - (own - before[2]))
        return {"wall": clock - before[0], "others": others}


_OWN: dict[str, PaperRound] = {}  # of a process that does parts


def _begin(settings: PaperRoundSettings, backend: str, folder: Path) -> None:
    _OWN["round"] = round_ = PaperRound(settings, backend_named(backend), folder)
    _ = round_.parties


def _do(name: str) -> dict[str, Any]:
    own = _OWN["round"]
    return own.do(next(part for part in own.parts() if part.name == name))


def bench_paper_round(
    settings: PaperRoundSettings,
    backend: Backend,
    folder: Path,
    *,
    seconds: float = 540.0,
    at_a_time: int = 1,
    say: Say = lambda _: None,
) -> Result | int:
    """The result; or how many parts are missing."""
    where = machine() | {"backend": backend.name}
    device = getattr(getattr(backend, "device", None), "name", None)
    where |= {"gpu": str(device)} if device else {}
    round_ = PaperRound(settings, backend, folder)
    missing = round_.run(seconds, say, at_a_time)
    return missing or _result(round_, where)


def _result(round_: PaperRound, where: Mapping[str, str | int]) -> Result:
    settings, done = round_.settings, list(round_.done.values())
    entries = [entry for entry in done if entry["stage"] != "keys"]
    cells = []
    for stage in dict.fromkeys(entry["stage"] for entry in entries):
        own = [entry for entry in entries if entry["stage"] == stage]
        work = (Figure(sum(entry["laps"][role] for entry in own), "s") for role in _ROLES)
        cells.append((stage, *work, Figure(sum(entry["wall"] for entry in own), "s")))
    table = ResultTable(
        "seconds of the round, by stage: of each role, added up, and by the clock",
        ("stage", *_ROLES, "by the clock"),
        tuple(cells),
        f"encrypt: {settings.participants} people; read: one of them. Where parts of several people ran at a time, a role's "
        "seconds have its waiting for the other's kernels in them",
    )
    average, reward = (next(e["off"] for e in done if e["part"] == part) for part in ("read", "pay"))
    spent = reduce(operator.add, (Disturbance(entry["wall"], entry["others"]) for entry in entries))
    note = (
        f"{len(entries)} parts, by the clock; from encrypting to everyone's opened reward, keys and tables before; "
        f"{said_of(spent)}; the average is off by at most {average:.2g} from that in the clear, a reward by {reward:.2g} of "
        "itself"
    )
    quantity = f"a round of `paper`, {settings.participants} participants, exact distances"
    row = Row("round_paper", quantity, Figure(spent.seconds, "s"), Target("< 600 s", "crowdfl", at_most=600), note=note)
    return settings.result("gpu --profile paper", where, [row], tables=(table,), data={"parts": done})
