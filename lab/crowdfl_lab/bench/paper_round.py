"""`crowdfl bench gpu --profile paper`: one round of `paper`, Algorithms 1 to 4 as printed, in parts that a stop does not lose.

Every part leaves what the next ones need in a folder, and a line of what it took. A call does parts for as long as it is given,
and the next call goes on. The sums of squares of Algorithm 4 are a part for each person; what is computed is the same. The
folder holds the keys of a benchmark on made-up models, and nothing of anybody's.
"""

import json
import operator
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial, reduce
from pathlib import Path
from typing import Any, cast

import numpy as np

from crowdfl.crypto.coins import Coins
from crowdfl.crypto.compute import Backend
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.errors import ProtocolError, SettingsError
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.oracle import rewards as plain_rewards
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.paper.profile import PaperHeld, PaperProfile, PaperSp
from crowdfl.protocols.profile import Dealing, TaskSpec, Tools
from crowdfl.settings import MILLION
from crowdfl.simulation.sides import Parties
from crowdfl.storage.atomic import write_private
from crowdfl_lab.bench.workload import BenchSettings, Floats, Say, made_up_weights
from crowdfl_lab.experiments.experiment import said_of
from crowdfl_lab.recorder import RoundRecorder
from crowdfl_lab.report.results import Figure, Result, ResultTable, Row, Target
from crowdfl_lab.timing import Disturbance, disturbed_call, machine

_ROLES = ("participant", "SP", "CSP")
_TOLERATED = 3e-6  # of an average: Algorithm 1 floors at 10^-6
_REWARDS_OFF = 2e-3  # of a reward, relatively: Algorithm 4 floors weights at 10^-6


@dataclass(frozen=True, kw_only=True)
class PaperRoundSettings(BenchSettings):
    """The paper's round; there are no lanes: distances are exact."""

    @classmethod
    def quick(cls) -> "PaperRoundSettings":
        return cls(parameters=12, participants=3)


class _Dealt(PaperProfile):
    """Deals what was dealt before."""

    def __init__(self, dealing: Dealing) -> None:
        self.dealing = dealing

    def deal(self, spec: TaskSpec, *, insecure_test_key: bool) -> Dealing:
        del spec, insecure_test_key
        return self.dealing


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
            yield Part(f"distance {who}", "reward", partial(self._distance, place))
        yield Part("pay", "reward", self._pay)

    def run(self, seconds: float, say: Say) -> int:
        """Parts, until the next one might not end in time; how many are missing."""
        start, longest = time.monotonic(), dict[str, float]()
        done = self.done
        for entry in done.values():
            longest[entry["stage"]] = max(longest.get(entry["stage"], 0.0), entry["seconds"])
        parts = [part for part in self.parts() if part.name not in done]
        for number, part in enumerate(parts):
            if number and time.monotonic() - start + longest.get(part.stage, 0.0) > seconds:
                return len(parts) - number
            say(f"{part.name}, {len(done) + number + 1} of {len(done) + len(parts)}")
            self.recorder.reset()
            spent, more = disturbed_call(part.work)
            laps = {role: self.recorder.seconds_of(role) for role in _ROLES}
            longest[part.stage] = max(longest.get(part.stage, 0.0), spent.seconds)
            self._keep({"part": part.name, "stage": part.stage, "laps": laps, **vars(spent), **(more or {})})
        return 0

    def _deal(self) -> None:
        spec = TaskSpec("bench", self.task, self.settings.parameters)
        tools = Tools(self.backend, insecure_test_key=self.settings.insecure_test_key)
        dealing = Parties(spec, tools, PaperProfile()).dealing
        kept = {each.name: getattr(dealing, each.name).hex() for each in fields(dealing) if getattr(dealing, each.name)}
        self._write("keys.json", json.dumps(kept).encode())

    @property
    def parties(self) -> Parties:
        """Under the keys of the first part, with the table of randomizers made."""
        if self._parties is None:
            kept = {name: bytes.fromhex(text) for name, text in json.loads(self._read("keys.json")).items()}
            tools = Tools(self.backend, insecure_test_key=self.settings.insecure_test_key, observer=self.recorder)
            spec = TaskSpec("bench", self.task, self.settings.parameters)
            self._parties = Parties(spec, tools, _Dealt(Dealing(**kept)), people=self.names)
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
        public, size = self.parties.task.public, 2 * self.settings.parameters + 1
        upload = self._read(f"upload-{self.names[place]}")
        return CipherVector.from_bytes(upload, public, max_count=size, backend=self.backend)

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


def bench_paper_round(
    settings: PaperRoundSettings, backend: Backend, folder: Path, *, seconds: float = 540.0, say: Say = lambda _: None
) -> Result | int:
    """The result; or how many parts are missing."""
    where = machine() | {"backend": backend.name}
    device = getattr(getattr(backend, "device", None), "name", None)
    where |= {"gpu": str(device)} if device else {}
    round_ = PaperRound(settings, backend, folder)
    missing = round_.run(seconds, say)
    return missing or _result(round_, where)


def _result(round_: PaperRound, where: Mapping[str, str | int]) -> Result:
    settings, done = round_.settings, list(round_.done.values())
    stages = dict.fromkeys(entry["stage"] for entry in done if entry["stage"] != "keys")
    laps = {s: {r: sum(entry["laps"][r] for entry in done if entry["stage"] == s) for r in _ROLES} for s in stages}
    total = sum(sum(roles.values()) for roles in laps.values())
    table = ResultTable(
        "seconds of the round, by stage and role",
        ("stage", *_ROLES),
        tuple((stage, *(Figure(roles[role], "s") for role in _ROLES)) for stage, roles in laps.items()),
        f"encrypt: {settings.participants} people, one after the other; read: one of them",
    )
    average, reward = (next(e["off"] for e in done if e["part"] == part) for part in ("read", "pay"))
    spent = reduce(operator.add, (Disturbance(entry["seconds"], entry["others"]) for entry in done))
    note = (
        f"{len(done)} parts, together; from encrypting to everyone's opened reward, keys and tables before; "
        f"{said_of(spent)}; the average is off by at most {average:.2g} from that in the clear, a reward by {reward:.2g} of "
        "itself"
    )
    quantity = f"a round of `paper`, {settings.participants} participants, exact distances"
    row = Row("round_paper", quantity, Figure(total, "s"), Target("< 600 s", "crowdfl", at_most=600), note=note)
    return settings.result("gpu --profile paper", where, [row], tables=(table,), data={"parts": done})
