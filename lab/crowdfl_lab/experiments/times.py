"""Figures 5 and 6: how long training, encrypting, averaging and decrypting take.

Against the number of parameters and of participants. Every scheme computes on the same backend, with the fixed-base table of
its key made beforehand. Encrypting and decrypting are one participant's; averaging and rewards are both servers' work
together. `small` reads with lambda_p = 2, which the paper proposes and which is insecure: SP then holds all but the whole key.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.paillier.pctd import FreshRandomizers, KeyShare
from crowdfl.crypto.paillier.vector import combine
from crowdfl.learning.models.layers import with_last
from crowdfl.learning.models.learner import Training
from crowdfl.learning.models.network import NetworkLearner
from crowdfl.protocols.capabilities import FollowsModel
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.paper.profile import PaperPublication, PaperRequester
from crowdfl.protocols.profile import Average, ParticipantProtocol
from crowdfl.settings import MILLION
from crowdfl_lab.experiments.experiment import (
    FULL_PARAMETERS,
    Bench,
    Experiment,
    ExperimentPoint,
    Found,
    Part,
    Points,
    Record,
    Records,
    joined,
    number,
    remarks,
    table_of,
)
from crowdfl_lab.experiments.made_up import MadeUpSettings, MadeUpTask, made_up_models
from crowdfl_lab.experiments.ppfdl import Ppfdl
from crowdfl_lab.report.plots import Axes, Canvas, Picture, Series, lines, panels
from crowdfl_lab.timing import timed, timed_call, turns

_MARKS = {"hardened": "o", "shares": "D", "paper": "s", "PPFDL": "^"}
_FEWEST_LANES = 128  # of `shares`
_INPUTS, _LABELS, _WINDOWS = 270, 6, 49  # the paper's network, and a person's windows
_EXTRAPOLATED = "extrapolated to 277,006"
_TRAINED = {
    "hidden units": "hidden",
    "parameters": "parameters",
    "first, s": "train, first",
    "again, s": "train, again",
}
_FITTED = {
    "scheme": "scheme",
    "phase": "phase",
    "over": "fit over",
    "slope, s": "slope",
    "at 277,006 parameters, s (* extrapolated)": "starred",
}


@dataclass(frozen=True)
class ClockSettings(MadeUpSettings):
    """Sizes of the two sweeps: over parameters with `crowd` participants, and over participants with few parameters."""

    hidden: tuple[int, ...] = (50, 100, 250, 500, 1000)
    hardened: tuple[int, ...] = (1_391, 2_776, 6_931, 13_856)
    shares: tuple[int, ...] = (13_856, 69_256, 138_506, 277_006)
    paper: tuple[int, ...] = (5, 10, 20, 40)
    ppfdl: tuple[int, ...] = (1, 2, 4, 8)
    crowd: int = 5
    crowds: tuple[int, ...] = (5, 10, 20, 36)
    lanes: int = 1024
    repetitions: int = 3
    schemes: tuple[str, ...] = tuple(_MARKS)

    def parameters(self, scheme: str) -> tuple[int, ...]:
        found: tuple[int, ...] = getattr(self, scheme.lower())
        return found

    def medians(self, variants: Mapping[str, Callable[[], object]]) -> Record:
        return {name: timing.median for name, timing in turns(variants, self.repetitions).items()}


def _with_profiles(settings: ClockSettings, profiles: tuple[str, ...]) -> ClockSettings:
    """These alone; PPFDL stays beside `paper`, which it is compared with."""
    kept = (*profiles, *(["PPFDL"] if "paper" in profiles else []))
    return replace(settings, schemes=tuple(scheme for scheme in _MARKS if scheme in kept))


def clock_points(settings: ClockSettings) -> Points:
    """Both sweeps of every scheme; where they meet, one point serves both."""
    points: dict[Hashable, ExperimentPoint] = {}
    for scheme in settings.schemes:
        parameters = settings.parameters(scheme)
        sizes = [(each, settings.crowd) for each in parameters] + [(parameters[0], n) for n in settings.crowds]
        points |= {(scheme, *size): _round_point(settings, scheme, *size) for size in sizes}
    return points


def _round_point(settings: ClockSettings, scheme: str, parameters: int, participants: int) -> ExperimentPoint:
    sizes: Record = {"scheme": scheme, "parameters": parameters, "participants": participants}
    facts = settings.facts(**sizes, lanes=settings.lanes, repetitions=settings.repetitions)
    time_round = _time_ppfdl if scheme == "PPFDL" else partial(_time_profile, scheme)
    return ExperimentPoint(
        "timed round", facts, lambda bench: [facts | time_round(settings, parameters, participants, bench)]
    )


def _time_profile(profile: str, settings: ClockSettings, parameters: int, n: int, bench: Bench) -> Record:
    """Of `shares`, averaging is that of a task that pays nothing, and rewards of one that pays; each has the check of the
    uploads in it, which a round does once. What KGC dealt is there before. A reader holds the model of the round before, each
    time anew."""
    make = partial(MadeUpTask, settings, bench, n, parameters, profile=profile)
    if profile == "shares":
        lanes = max(settings.lanes, _FEWEST_LANES)
        plain, paid = make(lanes=lanes, pay="none"), make(lanes=lanes, pay="distance", budget=str(n))
        for parties in (plain.parties, paid.parties):
            for role in ("sp", "csp"):
                parties.dealt(role, 1)
    else:
        plain = paid = make(lanes=settings.lanes)
    reader, round_ = plain.parties.people["p00"], plain.parties.open(1)
    held = reader.chain() if isinstance(reader, FollowsModel) else None

    def average() -> bytes:
        for who, upload in plain.uploads.items():
            round_.collect({who: upload})
        return round_.average()

    def go_back() -> None:
        if isinstance(reader, FollowsModel):
            reader.resume(held, np.zeros(0))

    def read() -> Average:
        go_back()
        return reader.read(publication, 1)

    def encrypt() -> bytes:
        go_back()
        return reader.encrypt_update(plain.models[0], 10, 1)

    rewards: Record = {}
    if plain.parties.sp.stages[0] == "reward" and paid is plain:  # nothing is rewarded once it was opened
        round_.collect(plain.uploads)
        rewards = {"reward": timed(lambda: round_.reward(n * MILLION))}
    seconds, publication = timed_call(average)
    plain.check(read().weights)
    variants: dict[str, Callable[[], object]] = {"encrypt": encrypt, "decrypt": read}
    if isinstance(plain.parties.requester, PaperRequester):
        small = variants["decrypt, small"] = _small_reader(plain.parties.requester, reader, publication, bench)
        plain.check(small())
    found: Record = {"average": seconds, **settings.medians(variants)}
    if paid is not plain:
        round_ = paid.parties.open(1)
        round_.collect(paid.uploads)
    return found | (rewards or {"reward": timed(lambda: round_.reward(n * MILLION))})


def _small_reader(
    requester: PaperRequester, side: ParticipantProtocol, publication: bytes, bench: Bench
) -> Callable[[], list[float]]:
    """Reads with lambda_p = 2; SP's half is then eps - 2, made here from the whole key."""
    private, public = requester.private, requester.party.public
    average = PaperPublication.from_bytes(publication, keyed_party(side).limits(requester.task.parameters)).average
    other = KeyShare(public, private.lambda_ * private.u - 2)
    half = average.partial_decrypt(other, backend=bench.backend)
    small = KeyShare(public, type(private.lambda_)(2))

    def read() -> list[float]:
        opened = combine(half, average.partial_decrypt(small, backend=bench.backend), backend=bench.backend)
        return [public.signed(value) / 10**requester.task.settings.decimals for value in to_ints(opened)]

    return read


def _time_ppfdl(settings: ClockSettings, parameters: int, n: int, bench: Bench) -> Record:
    world = Ppfdl(n, parameters, settings.key_bits, bench.backend, settings.insecure_test_key)
    FreshRandomizers(world.public).prepare()
    models = made_up_models(n, parameters, settings.seed)
    uploads = [world.encrypt(model) for model in models]
    seconds, average = timed_call(lambda: run_exchange(world.average(uploads), ask_directly(world.answer)))
    variants = {"encrypt": lambda: world.encrypt(models[0]), "decrypt": lambda: world.decrypt(average)}
    return {"average": seconds} | settings.medians(variants)


def _training_point(settings: ClockSettings, hidden: int) -> ExperimentPoint:
    facts: Record = {"hidden": hidden, "repetitions": settings.repetitions, "seed": settings.seed}

    def measure(_bench: Bench) -> Records:
        generator = np.random.default_rng(settings.seed)
        inputs = generator.normal(size=(_WINDOWS, _INPUTS)).astype(np.float32)
        labels = generator.integers(0, _LABELS, _WINDOWS)
        training = Training(epochs=30, batch=50, rate=0.001, seed=settings.seed)
        learner = NetworkLearner(_INPUTS, with_last([hidden], _LABELS), seed=settings.seed)
        average = learner.weights()

        def again() -> None:
            learner.load(average)
            learner.train(inputs, labels, training)

        learner.train(inputs, labels, training)  # the first run of all also loads libraries
        variants = {"train, first": lambda: learner.train(inputs, labels, training), "train, again": again}
        return [facts | {"parameters": learner.shape.parameters} | settings.medians(variants)]

    return ExperimentPoint("timed training", facts, measure)


@dataclass(frozen=True)
class Sweeps:
    """Timed rounds over `parameters` and over `participants`, and straight lines through some of their phases."""

    settings: ClockSettings
    rows: Records
    phases: tuple[str, ...]

    def of(self, scheme: str, over: str) -> Records:
        mine = [row for row in self.rows if row["scheme"] == scheme]
        if over == "parameters":
            chosen = [row for row in mine if row["participants"] == self.settings.crowd]
        else:
            fewest, crowds = self.settings.parameters(scheme)[0], self.settings.crowds
            chosen = [row for row in mine if row["parameters"] == fewest and row["participants"] in crowds]
        return sorted(chosen, key=lambda row: number(row, over))

    def line(self, scheme: str, phase: str, over: str) -> tuple[list[float], list[float], float, float] | None:
        """x, y, and the intercept and slope of the line through them by least squares; one point makes no line."""
        sweep = [row for row in self.of(scheme, over) if row.get(phase) is not None]
        if len(sweep) < 2:
            return None
        x, y = ([number(row, name) for row in sweep] for name in (over, phase))
        slope, intercept = np.polyfit(x, y, 1)
        return x, y, float(intercept), float(slope)

    def fits(self) -> Records:
        """Seconds per parameter and per participant, and the extrapolation to the paper's model."""
        found: Records = []
        for phase, scheme, over in product(self.phases, self.settings.schemes, ("parameters", "participants")):
            line = self.line(scheme, phase, over)
            if line is not None:
                x, _, start, slope = line
                fit: Record = {"scheme": scheme, "phase": phase, "fit over": over, "intercept": start, "slope": slope}
                # A line that falls is noise, or a cost that does not depend on the size: it leads nowhere.
                leads = over == "parameters" and slope > 0 and max(x) < FULL_PARAMETERS
                found.append(fit | {_EXTRAPOLATED: start + slope * FULL_PARAMETERS if leads else None})
        return found

    def times(self, above: Sequence[tuple[str, str]], below: tuple[str, str]) -> str:
        """How many times as long some phases take together as another, by seconds per parameter; each is scheme and phase."""
        known = {(f["scheme"], f["phase"]): number(f, "slope") for f in self.fits() if f["fit over"] == "parameters"}
        slopes = [known.get(each, 0.0) for each in (*above, below)]
        if min(slopes) <= 0:
            return "an unknown number of times (one of the lines falls, or is not there)"
        return f"{sum(slopes[:-1]) / slopes[-1]:.3g} times"

    def part(self, name: str, picture: Picture, **found: object) -> Part:
        """A figure's part; `found` is for its remarks."""
        sizes = {name: name for name in ("scheme", "parameters", "participants")}
        fits = self.fits()
        starred = [fit | {"starred": f"{whole:.3g} *"} if (whole := fit[_EXTRAPOLATED]) else fit for fit in fits]
        tables = (
            table_of("Measured", self.rows, sizes | {f"{phase}, s": phase for phase in self.phases}),
            table_of("Straight lines by least squares", starred, _FITTED),
        )
        key = "INSECURE test keys of" if self.settings.insecure_test_key else "keys of"
        said = remarks(name, self.settings, **found) + remarks("sweeps", self.settings, key=key)
        return Part([*self.rows, *fits], tables, (picture,), said)

    def draw(self, axes: Axes, phase: str, over: str = "parameters", title: str = "") -> None:
        """Points, fitted lines and, over parameters, the extrapolation."""
        series = [(scheme, phase, _MARKS[scheme], scheme) for scheme in self.settings.schemes]
        if phase == "decrypt":
            series.append(("paper", "decrypt, small", "v", "INSECURE: paper, small share"))
        for scheme, name, mark, label in series:
            line = self.line(scheme, name, over)
            if line is None:
                continue
            x, y, start, slope = line
            (drawn,) = axes.plot(x, y, mark, label=label)
            along = np.geomspace(x[0], FULL_PARAMETERS if over == "parameters" else x[-1], 50)
            heights = start + slope * along
            if heights.min() > 0:  # noise may tilt a short line below zero, which a logarithm does not show
                axes.plot(along, heights, "--", color=drawn.get_color(), linewidth=1)
                if over == "parameters" and x[-1] < FULL_PARAMETERS:
                    axes.plot(along[-1:], heights[-1:], _MARKS[scheme], color=drawn.get_color(), fillstyle="none")
        axes.set(xlabel=over, ylabel=f"{phase}, s", yscale="log", title=title)
        if over == "parameters":
            axes.set_xscale("log")
        axes.legend()


def _fig5_points(settings: ClockSettings) -> Points:
    return {hidden: _training_point(settings, hidden) for hidden in settings.hidden} | dict(clock_points(settings))


def clocked(settings: ClockSettings, found: Found) -> Records:
    return joined(found[key] for key in clock_points(settings))


def _present_fig5(settings: ClockSettings, found: Found) -> Part:
    trained = joined(found[hidden] for hidden in settings.hidden)
    sweeps = Sweeps(settings, clocked(settings, found), ("encrypt",))

    def draw(canvas: Canvas) -> None:
        left, right = panels(canvas, 2)
        sizes = [number(row, "parameters") for row in trained]
        series = {
            name: Series(sizes, [number(row, f"train, {name}") for row in trained], style=mark)
            for name, mark in (("first", "o-"), ("again", "s--"))
        }
        lines(left, series, xlabel="parameters", ylabel="training, s", title="(a) training a model")
        sweeps.draw(right, "encrypt", title="(b) encrypting a model")

    table = table_of("Training one round of 49 windows, 30 epochs, one core", trained, _TRAINED)
    slower = sum(number(r, "train, again") > number(r, "train, first") for r in trained)
    picture = Picture("fig5", "Training time and encrypting time", draw)
    return Part(trained, (table,)) + sweeps.part("fig5", picture, slower=slower, sizes=len(trained))


def _present_fig6(settings: ClockSettings, found: Found) -> Part:
    sweeps = Sweeps(settings, clocked(settings, found), ("average", "decrypt", "decrypt, small"))

    def draw(canvas: Canvas) -> None:
        left, middle, right = panels(canvas, 3)
        sweeps.draw(left, "average", title=f"(a) averaging, {settings.crowd} participants")
        sweeps.draw(middle, "average", "participants", "(a) averaging, few parameters")
        sweeps.draw(right, "decrypt", title="(b) decrypting")

    picture = Picture("fig6", "Averaging time and decrypting time", draw, inches=(13.0, 4.2))
    ratios = {
        "averaging": sweeps.times([("PPFDL", "average")], ("paper", "average")),
        "reading": sweeps.times([("paper", "decrypt")], ("PPFDL", "decrypt")),
        "small": sweeps.times([("paper", "decrypt, small")], ("PPFDL", "decrypt")),
    }
    return sweeps.part("fig6", picture, **ratios)


_FULL = ClockSettings()
_QUICK = ClockSettings(
    hidden=(10, 50), hardened=(566, 2_776), shares=(2_776, 13_856), paper=(2, 5), ppfdl=(1, 2), crowds=(5, 10)
)
_TIMED: dict[str, Callable[[ClockSettings, Any], ClockSettings]] = {
    "lanes": lambda settings, lanes: replace(settings, lanes=lanes),
    "profile": _with_profiles,
}
FIG_5 = Experiment(
    "fig5", "Figure 5: training and encrypting", _fig5_points, _present_fig5, _FULL, _QUICK, options=_TIMED
)
FIG_6 = Experiment(
    "fig6", "Figure 6: averaging and decrypting", clock_points, _present_fig6, _FULL, _QUICK, options=_TIMED
)
