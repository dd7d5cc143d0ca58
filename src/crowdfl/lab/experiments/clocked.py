"""How long a round's parts take, against the number of parameters and of participants: figures 5, 6 and 7(b).

Every scheme computes on the same backend, with the fixed-base table of its key made beforehand. Encrypting and decrypting are
one participant's; averaging and rewards are both servers' work together. `small` reads with lambda_p = 2, which the paper
proposes and which is insecure: SP then holds all but the whole key.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.pctd import KeyShare
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.crypto.vector import combine
from crowdfl.errors import ProtocolError
from crowdfl.lab.experiments.counted import made_up_models
from crowdfl.lab.experiments.experiment import Bench, ExperimentPoint, Record, Records
from crowdfl.lab.experiments.ppfdl import Ppfdl
from crowdfl.lab.parties import LocalParties
from crowdfl.lab.timing import Timing, timed, turns
from crowdfl.learning.models.learner import Training
from crowdfl.learning.models.networks import mlp
from crowdfl.learning.models.torch_learner import TorchLearner
from crowdfl.protocols.exchange import Silent, ask_directly, run_exchange
from crowdfl.protocols.paper.profile import PaperPublication, PaperRequester
from crowdfl.protocols.profile import ParticipantProtocol, TaskSpec, Tools
from crowdfl.settings import MILLION, TaskSettings

__all__ = ["SCHEMES", "ClockSettings", "clock_points", "training_points"]

SCHEMES = ("hardened", "paper", "PPFDL")
_INPUTS, _LABELS, _WINDOWS = 270, 6, 49  # the paper's network, and a person's windows


@dataclass(frozen=True)
class ClockSettings:
    """Sizes of the two sweeps: over parameters with `crowd` participants, and over participants with few parameters."""

    hidden: tuple[int, ...] = (50, 100, 250, 500, 1000)
    hardened: tuple[int, ...] = (1_391, 2_776, 6_931, 13_856)
    paper: tuple[int, ...] = (5, 10, 20, 40)
    ppfdl: tuple[int, ...] = (1, 2, 4, 8)
    crowd: int = 5
    crowds: tuple[int, ...] = (5, 10, 20, 36)
    lanes: int = 1024
    repetitions: int = 3
    key_bits: int = 2048
    insecure_test_key: bool = False
    seed: int = 2021

    def parameters(self, scheme: str) -> tuple[int, ...]:
        return {"hardened": self.hardened, "paper": self.paper, "PPFDL": self.ppfdl}[scheme]


def clock_points(settings: ClockSettings) -> list[ExperimentPoint]:
    """Both sweeps of every scheme; where they meet, one point serves both."""
    sizes = {
        (scheme, parameters, n): None
        for scheme in SCHEMES
        for parameters, n in (
            *((p, settings.crowd) for p in settings.parameters(scheme)),
            *((settings.parameters(scheme)[0], n) for n in settings.crowds),
        )
    }
    return [_round_point(settings, *size) for size in sizes]


def training_points(settings: ClockSettings) -> list[ExperimentPoint]:
    """A person's training, for networks of several sizes."""
    return [_training_point(settings, hidden) for hidden in settings.hidden]


def _round_point(settings: ClockSettings, scheme: str, parameters: int, participants: int) -> ExperimentPoint:
    facts: Record = {
        "scheme": scheme,
        "parameters": parameters,
        "participants": participants,
        "lanes": settings.lanes,
        "repetitions": settings.repetitions,
        "key_bits": settings.key_bits,
        "seed": settings.seed,
    }

    def measure(bench: Bench) -> Records:
        time_round = _time_ppfdl if scheme == "PPFDL" else partial(_time_profile, scheme)
        return [facts | time_round(settings, parameters, participants, bench)]

    return ExperimentPoint("timed round", facts, measure)


def _time_profile(profile: str, settings: ClockSettings, parameters: int, n: int, bench: Bench) -> Record:
    task = TaskSettings(profile=profile, max_participants=n, lanes=settings.lanes, key_bits=settings.key_bits)
    tools = Tools(bench.backend, insecure_test_key=settings.insecure_test_key, observer=Silent())
    parties = LocalParties(TaskSpec("clocked", task, parameters), tools)
    FreshRandomizers(parties.dealer.task.public).prepare()
    models = made_up_models(n, parameters, settings.seed)
    uploads = parties.encrypt({f"p{i:02}": (model, 10 + i) for i, model in enumerate(models)})
    round_, reader, start = parties.open(1), parties.people["p00"], time.perf_counter()
    for who, upload in uploads.items():
        round_.collect({who: upload})
    publication = round_.average()
    seconds: Record = {"average": time.perf_counter() - start}
    found = reader.read(publication, 1).weights
    _expect(found, np.average(models, axis=0, weights=[10 + i for i in range(n)]))
    variants: dict[str, Callable[[], object]] = {
        "encrypt": lambda: reader.encrypt_update(models[0], 10),
        "decrypt": lambda: reader.read(publication, 1),
    }
    if isinstance(parties.requester, PaperRequester):
        variants["decrypt, small"] = _small_reader(parties.requester, reader, publication, found, bench)
    seconds |= _medians(turns(variants, settings.repetitions))
    return seconds | {"reward": timed(lambda: round_.reward(n * MILLION))}


def _small_reader(
    requester: PaperRequester, side: ParticipantProtocol, publication: bytes, expected: object, bench: Bench
) -> Callable[[], object]:
    """Reads with lambda_p = 2; SP's half is then eps - 2, made here from the whole key."""
    private, public = requester.private, requester.party.public
    message = PaperPublication.from_bytes(publication, side.party.limits(requester.task.parameters))
    other = KeyShare(public, private.lambda_ * private.u - 2)
    half = message.average.partial_decrypt(other, backend=bench.backend)
    small = KeyShare(public, type(private.lambda_)(2))

    def read() -> list[float]:
        opened = combine(half, message.average.partial_decrypt(small, backend=bench.backend), backend=bench.backend)
        return [public.signed(value) / 10**requester.task.settings.decimals for value in to_ints(opened)]

    _expect(read(), expected)
    return read


def _time_ppfdl(settings: ClockSettings, parameters: int, n: int, bench: Bench) -> Record:
    world = Ppfdl(n, parameters, settings.key_bits, bench.backend, settings.insecure_test_key)
    FreshRandomizers(world.public).prepare()
    models = made_up_models(n, parameters, settings.seed)
    uploads, start = [world.encrypt(model) for model in models], time.perf_counter()
    average = run_exchange(world.average(uploads), ask_directly(world.answer))
    seconds: Record = {"average": time.perf_counter() - start}
    variants = {"encrypt": lambda: world.encrypt(models[0]), "decrypt": lambda: world.decrypt(average)}
    return seconds | _medians(turns(variants, settings.repetitions))


def _training_point(settings: ClockSettings, hidden: int) -> ExperimentPoint:
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
        row = facts | {"parameters": learner.shape.parameters}
        return [row | _medians(turns(variants, settings.repetitions))]

    return ExperimentPoint("timed training", facts, measure)


def _medians(timings: Mapping[str, Timing]) -> Record:
    return {name: timing.median for name, timing in timings.items()}


def _expect(found: object, wanted: object) -> None:
    if not np.allclose(np.asarray(found), np.asarray(wanted), atol=2e-6):
        raise ProtocolError("a timed average came out wrong")
