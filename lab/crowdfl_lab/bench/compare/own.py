"""CrowdFL's own systems: a participant at full size on one core; the servers on a slice or, on a fast backend, whole.

The profile `shares`, measured whole: every upload, every exchange, rounds of everyone and rounds of those who are left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import cast

import numpy as np

from crowdfl.crypto.compute import Backend, Threads
from crowdfl.crypto.paillier.randomizers import FreshRandomizers
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.randomness import Coins
from crowdfl.learning.oracle import fedavg
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.costs import CountingBackend
from crowdfl.protocols.hardened.prifedavg import dither
from crowdfl.protocols.hardened.prirwd import sketch
from crowdfl.protocols.hardened.profile import HardenedParticipant
from crowdfl.protocols.profile import width_budget
from crowdfl.settings import MILLION, TaskSettings
from crowdfl_lab.bench import workload
from crowdfl_lab.bench.compare.system import GOES_ON, CompareSettings, System, figures_of, who_reads
from crowdfl_lab.bench.workload import (
    SERVERS,
    SIGMA,
    Floats,
    MeasuredRound,
    Replayed,
    best_window,
    made_up_models,
    made_up_weights,
)
from crowdfl_lab.observe import RoundRecorder
from crowdfl_lab.parties import PlayedRound
from crowdfl_lab.report.results import Figure
from crowdfl_lab.timing import timed, timed_call, turns

_SAMPLES = 2
_AVERAGING = ("check", "average")
_WORDS = {"kind": "crowdfl", "drop": f"{GOES_ON}: nobody is asked again, nothing is repaired"}


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
        self.window = best_window(self.parties.dealer.task.public, self.length)
        self.upload = b""

    def device(self) -> dict[str, Figure]:
        """Encrypt an update with randomizers at hand (they are made whenever the device is idle), read an average."""
        dealer, side = self.parties.dealer, self.parties.participant("p000")
        public = dealer.task.public
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
        audience = cast(HardenedParticipant, side).audience
        publication = workload.sealed_publication(dealer.task, dealer.csp(), audience, opened, self.upload)
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
        sp.add("p000", self.upload)  # the second is multiplied in, the first only kept
        seconds = timed(lambda: sp.add("p001", self.upload))
        if not self.rewards:
            return seconds
        vector = CipherVector.from_bytes(self.upload, party.public, max_count=self.length)
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
        words = _WORDS | {
            "reads": who_reads("hardened"),
            "rewards": "yes, each participant reads its own" if self.rewards else "off",
        }
        layout = f"{self.length:,} ciphertexts of {self.budget.slots} slots; table window {self.window} bits"
        key, name = (f"{self.key}_{where}", f"{self.name}, servers on {where}") if where else (self.key, self.name)
        return System(key, name, device | servers, words, (layout, note))


def paper_system(settings: CompareSettings, backend: Backend) -> System:
    """The profile `paper`, rewards on: two small rounds, extrapolated from the larger."""
    task = TaskSettings(profile="paper", max_participants=settings.participants, key_bits=2 * settings.prime_bits)
    small, large = (settings.play(task, backend, made_up_models(size, crowd)) for size, crowd in settings.paper_sizes)
    up, crowd, played = settings.parameters / large.parameters, len(large.samples), large.played
    spent = large.recorder.seconds_of
    shared = {role: up * spent(role, *_AVERAGING) for role in SERVERS}
    each = {role: up * spent(role, "collect", "reward") / crowd for role in SERVERS}
    sample = f"a round of {large.parameters} parameters and {crowd} participants"
    times = _times(small, large, _AVERAGING, small.parameters, large.parameters)
    note = (
        f"an averaged parameter of the larger sample costs {times:.2f} times the smaller's; times include randomizers"
    )
    upload, envelope = (next(iter(sent.values())) for sent in (played.uploads, played.envelopes))
    device = {
        "before": up * spent("participant", "read") / crowd,
        "after": up * spent("participant", "encrypt") / crowd,
        "upload": up * len(upload),
        "download": up * (len(played.publication) + len(envelope)),
        "off": large.off,
    }
    words = _WORDS | {
        "reads": who_reads("paper"),
        "rewards": "yes, CSP can read them",
    }
    figures = figures_of(device, sample) | _server_figures(settings, shared, each, sample)
    return System("paper", "paper, rewards on", figures, words, (note,))


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
        self.parties.sp.set_dealt_loader(lambda _: files["sp"])
        self.parties.csp.set_dealt_loader(lambda _: files["csp"])
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
