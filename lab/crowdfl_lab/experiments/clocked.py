"""How long a round's parts take, against the number of parameters and of participants: figures 5, 6 and 7(b).

Every scheme computes on the same backend, with the fixed-base table of its key made beforehand. Encrypting and decrypting are
one participant's; averaging and rewards are both servers' work together. `small` reads with lambda_p = 2, which the paper
proposes and which is insecure: SP then holds all but the whole key.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.paillier.pctd import FreshRandomizers, KeyShare
from crowdfl.crypto.paillier.vector import combine
from crowdfl.learning.models.learner import Training
from crowdfl.learning.models.networks import mlp
from crowdfl.learning.models.torch_learner import TorchLearner
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.paper.profile import PaperPublication, PaperRequester
from crowdfl.protocols.profile import Average, ParticipantProtocol
from crowdfl.settings import MILLION
from crowdfl_lab.experiments.experiment import Bench, ExperimentPoint
from crowdfl_lab.experiments.made_up import MadeUpSettings, MadeUpTask, made_up_models
from crowdfl_lab.experiments.ppfdl import Ppfdl
from crowdfl_lab.experiments.records import Record, Records
from crowdfl_lab.timing import timed, timed_call, turns

SCHEMES = ("hardened", "shares", "paper", "PPFDL")
_FEWEST_LANES = 128  # of `shares`
_INPUTS, _LABELS, _WINDOWS = 270, 6, 49  # the paper's network, and a person's windows


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
    schemes: tuple[str, ...] = SCHEMES

    def parameters(self, scheme: str) -> tuple[int, ...]:
        return {"hardened": self.hardened, "shares": self.shares, "paper": self.paper, "PPFDL": self.ppfdl}[scheme]


def with_profiles(settings: ClockSettings, profiles: tuple[str, ...]) -> ClockSettings:
    """These alone; PPFDL stays beside `paper`, which it is compared with."""
    kept = (*profiles, *(["PPFDL"] if "paper" in profiles else []))
    return replace(settings, schemes=tuple(scheme for scheme in SCHEMES if scheme in kept))


def with_lanes(settings: ClockSettings, lanes: int) -> ClockSettings:
    return replace(settings, lanes=lanes)


def clock_points(settings: ClockSettings) -> list[ExperimentPoint]:
    """Both sweeps of every scheme; where they meet, one point serves both."""
    sizes: dict[tuple[str, int, int], None] = {}
    for scheme in settings.schemes:
        parameters = settings.parameters(scheme)
        sizes |= dict.fromkeys((scheme, each, settings.crowd) for each in parameters)
        sizes |= dict.fromkeys((scheme, parameters[0], n) for n in settings.crowds)
    return [_round_point(settings, *size) for size in sizes]


def _round_point(settings: ClockSettings, scheme: str, parameters: int, participants: int) -> ExperimentPoint:
    sizes: Record = {"scheme": scheme, "parameters": parameters, "participants": participants}
    facts = settings.facts(**sizes, lanes=settings.lanes, repetitions=settings.repetitions)
    other = {"PPFDL": _time_ppfdl, "shares": _time_shares}
    time_round = other.get(scheme, partial(_time_profile, scheme))
    return ExperimentPoint(
        "timed round", facts, lambda bench: [facts | time_round(settings, parameters, participants, bench)]
    )


def _time_profile(profile: str, settings: ClockSettings, parameters: int, n: int, bench: Bench) -> Record:
    task = MadeUpTask(settings, bench, n, parameters, profile=profile, lanes=settings.lanes)
    parties, round_, reader = task.parties, task.parties.open(1), task.parties.people["p00"]
    start = time.perf_counter()
    for who, upload in task.uploads.items():
        round_.collect({who: upload})
    publication = round_.average()
    seconds: Record = {"average": time.perf_counter() - start}
    task.check(reader.read(publication, 1).weights)
    variants: dict[str, Callable[[], object]] = {
        "encrypt": lambda: reader.encrypt_update(task.models[0], 10, 1),
        "decrypt": lambda: reader.read(publication, 1),
    }
    if isinstance(parties.requester, PaperRequester):
        read = variants["decrypt, small"] = _small_reader(parties.requester, reader, publication, bench)
        task.check(read())
    seconds |= _medians(variants, settings)
    return seconds | {"reward": timed(lambda: round_.reward(n * MILLION))}


def _time_shares(settings: ClockSettings, parameters: int, n: int, bench: Bench) -> Record:
    """Averaging in a task that pays nothing, rewards in one that pays; each has the check of the uploads in it, which a round
    does once. What KGC dealt is there before. A reader holds the model of the round before, each time anew."""
    sizes: dict[str, Any] = {"profile": "shares", "lanes": max(settings.lanes, _FEWEST_LANES)}
    plain = MadeUpTask(settings, bench, n, parameters, **sizes, rule="none")
    paid = MadeUpTask(settings, bench, n, parameters, **sizes, rule="distance", budget=str(n))
    for task in (plain, paid):
        for side, role in ((task.parties.sp, "sp"), (task.parties.csp, "csp")):
            side.supply({1: task.parties.dealer.dealt(role, 1)}.__getitem__)
    reader = plain.parties.people["p00"]
    held = reader.chain()

    def average() -> bytes:
        round_ = plain.parties.open(1)
        for who, upload in plain.uploads.items():
            round_.collect({who: upload})
        return round_.average()

    seconds, publication = timed_call(average)

    def read() -> Average:
        reader.follow(held, np.zeros(0))
        return reader.read(publication, 1)

    plain.check(read().weights)
    variants: dict[str, Callable[[], object]] = {"encrypt": lambda: _encrypt(plain, reader, held), "decrypt": read}
    found: Record = {"average": seconds}
    round_ = paid.parties.open(1)
    round_.collect(paid.uploads)
    return found | _medians(variants, settings) | {"reward": timed(lambda: round_.reward(n * MILLION))}


def _encrypt(task: MadeUpTask, reader: ParticipantProtocol, held: bytes | None) -> bytes:
    reader.follow(held, np.zeros(0))
    return reader.encrypt_update(task.models[0], 10, 1)


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
    return {"average": seconds} | _medians(variants, settings)


def training_point(settings: ClockSettings, hidden: int) -> ExperimentPoint:
    facts: Record = {"hidden": hidden, "repetitions": settings.repetitions, "seed": settings.seed}

    def measure(bench: Bench) -> Records:
        generator = np.random.default_rng(settings.seed)
        inputs = generator.normal(size=(_WINDOWS, _INPUTS)).astype(np.float32)
        labels = generator.integers(0, _LABELS, _WINDOWS)
        training = Training(epochs=30, batch=50, rate=0.001, seed=settings.seed)
        learner = TorchLearner(_INPUTS, mlp([hidden], _LABELS), seed=settings.seed)
        average = learner.weights()

        def again() -> None:
            learner.load(average)
            learner.train(inputs, labels, training)

        learner.train(inputs, labels, training)  # the first run of all also loads libraries
        variants = {"train, first": lambda: learner.train(inputs, labels, training), "train, again": again}
        return [facts | {"parameters": learner.shape.parameters} | _medians(variants, settings)]

    return ExperimentPoint("timed training", facts, measure)


def _medians(variants: Mapping[str, Callable[[], object]], settings: ClockSettings) -> Record:
    return {name: timing.median for name, timing in turns(variants, settings.repetitions).items()}
