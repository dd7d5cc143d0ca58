"""The profile `shares`, measured whole: every upload, every exchange, rounds of everyone and rounds of those who are left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.learning.oracle import fedavg
from crowdfl.settings import MILLION, TaskSettings
from crowdfl_lab.bench.compare.system import GOES_ON, CompareSettings, System, figures_of, who_reads
from crowdfl_lab.bench.workload import SERVERS, Floats, made_up_weights
from crowdfl_lab.observe import RoundRecorder
from crowdfl_lab.parties import PlayedRound
from crowdfl_lab.report.results import Figure
from crowdfl_lab.timing import timed_call

_STAGES = ("collect", "check", "reward", "average")
_DEALT_TO = ("sp", "csp")


@dataclass(frozen=True)
class _Measured:
    """One round by its recorder, in the units of the columns."""

    figures: Mapping[str, float]
    weights: Floats


class Shares:
    """One kind of `shares` task. The first round has no last sum to compare with and is not counted."""

    def __init__(self, settings: CompareSettings, *, rewards: bool) -> None:
        self.settings, self.rewards, self.recorder = settings, rewards, RoundRecorder(keep_messages=True)
        self.key = "shares_rewards" if rewards else "shares"
        self.name = f"shares, {'checks and rewards' if rewards else 'no checks, no rewards'}"
        self.task = shares_task(settings, rewards=rewards)
        self.parties = settings.parties(self.task, Threads(), self.recorder)
        self.names = [f"p{i:03}" for i in range(settings.participants)]
        for who in self.names:
            self.parties.participant(who)
        self.weights = np.zeros(settings.parameters)

    def system(self) -> System:
        numbers = iter(range(1, self.task.rounds))
        self._round(next(numbers), self.settings.participants)
        whole = [self._round(next(numbers), self.settings.participants) for _ in range(self.settings.reads)]
        fewer = [self._round(next(numbers), self.settings.present)["servers"] for _ in range(self.settings.reads)]
        figures = {column: median(played[column] for played in whole) for column in whole[0]}
        words = {
            "kind": "crowdfl",
            "drop": f"{GOES_ON}: nobody is asked again, nothing is repaired",
            "reads": who_reads("shares"),
            "rewards": "yes, each participant reads its own; uploads out of bounds are left out"
            if self.rewards
            else "off",
        }
        note = (
            f"measured whole, medians of {self.settings.reads} rounds after the first; KGC's part is not the servers'"
        )
        return System(
            self.key, self.name, figures_of(figures | {"dropped": median(fewer)}), words, (self._layout, note)
        )

    def _round(self, number: int, crowd: int) -> dict[str, float]:
        """Everyone reads, also those who sent nothing."""
        kgc, files = timed_call(lambda: {role: self.parties.dealer.dealt(role, number) for role in _DEALT_TO})
        self.parties.sp.supply(lambda _: files["sp"])
        self.parties.csp.supply(lambda _: files["csp"])
        self.recorder.reset()
        updates = {who: (self.weights + self._update(i + number), 10 + i) for i, who in enumerate(self.names[:crowd])}
        uploads = self.parties.encrypt(updates, number)
        payment = self.settings.participants * MILLION if self.rewards else None
        played = self.parties.play(number, uploads, payment=payment, readers=None)
        if crowd < len(self.names):
            self.parties.read(played.publication, number, self.names[crowd:])
        self.weights = played.average.weights
        models, samples = zip(*updates.values(), strict=True)
        found = self._figures(played, float(np.abs(self.weights - fedavg(list(models), list(samples))).max()))
        dealt = sum(map(len, files.values()))
        return found | ({"kgc": kgc, "dealt": dealt} if dealt else {})

    def _figures(self, played: PlayedRound, off: float) -> dict[str, float]:
        recorder, exchanged = self.recorder, [m for s, r, m in self.recorder.messages if {s, r} == set(SERVERS)]
        sp, csp = (recorder.seconds_of(role, *_STAGES) for role in SERVERS)
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

    def _update(self, seed: int) -> Floats:
        """Half as long as the task allows."""
        made = made_up_weights(self.settings.parameters, 2021 + seed)
        return made * (self.settings.norm / 2 / np.linalg.norm(made))

    @property
    def _layout(self) -> str:
        widths = [f"{self.upload_bytes / self.settings.parameters:.1f} bytes a parameter"]
        return "; ".join(
            widths + ([f"{self.task.lanes:,} lanes, max_norm {self.settings.norm:g}"] if self.rewards else [])
        )

    @property
    def upload_bytes(self) -> int:
        return self.parties.sp.upload_bytes()


def shares_task(settings: CompareSettings, *, rewards: bool) -> TaskSettings:
    """As many rounds as are measured, and one before and after them: nobody but the requester reads the last."""
    sizes = {"profile": "shares", "max_participants": settings.participants, "rounds": 2 * settings.reads + 2}
    if not rewards:
        return TaskSettings.of(**sizes, check="none", rule="none", lanes=0)
    pay = str(settings.participants)
    return TaskSettings.of(**sizes, lanes=settings.share_lanes, max_norm=settings.norm, budget=pay, rule="gate")


def extras(systems: Sequence[System]) -> tuple[tuple[str | Figure | None, ...], ...]:
    """What only this profile has, by row."""
    columns = ("kgc", "dealt", "exchanges", "exchanged")
    shown = [system for system in systems if "exchanges" in system.figures]
    return tuple((system.name, *(system.figures.get(column) for column in columns)) for system in shown)
