"""Tasks on made-up models, for what is counted or timed and not learned."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.errors import ProtocolError
from crowdfl.protocols.exchange import Observer, Silent
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.settings import TaskSettings
from crowdfl.simulation.sides import Parties
from crowdfl_lab.experiments.experiment import Bench, Record, Value

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MadeUpSettings:
    """The key and the seed that such tasks have in common."""

    key_bits: int = 2048
    insecure_test_key: bool = False
    seed: int = 2021

    def facts(self, **more: Value) -> Record:
        return {**more, "key_bits": self.key_bits, "seed": self.seed}


def made_up_models(count: int, parameters: int, seed: int) -> list[_Floats]:
    """Weights like a trained network's, all different, the same for the same seed."""
    generator = np.random.default_rng(seed)
    return [generator.normal(0, 0.5, parameters) for _ in range(count)]


class MadeUpTask:
    """Every party of a task, the fixed-base table of its key, and everyone's upload; participant i has 10 + i samples."""

    def __init__(
        self,
        settings: MadeUpSettings,
        bench: Bench,
        participants: int,
        parameters: int,
        observer: Observer | None = None,
        **task: Any,  # noqa: ANN401 -- whatever TaskSettings takes
    ) -> None:
        spec = TaskSettings(max_participants=participants, key_bits=settings.key_bits, **task)
        tools = Tools(bench.backend, insecure_test_key=settings.insecure_test_key, observer=observer or Silent())
        self.parties = Parties(TaskSpec("made-up", spec, parameters), tools)
        if spec.profile != "shares":
            FreshRandomizers(self.parties.task.public).prepare()
        self.models = made_up_models(participants, parameters, settings.seed)
        self.samples = [10 + i for i in range(participants)]
        updates = zip(self.models, self.samples, strict=True)
        self.uploads = self.parties.encrypt({f"p{i:02}": update for i, update in enumerate(updates)})

    def check(self, average: npt.ArrayLike) -> None:
        if not np.allclose(average, np.average(self.models, axis=0, weights=self.samples), atol=2e-6):
            raise ProtocolError("a measured average came out wrong")
