"""Tasks of `shares` for attacks on many rounds: the real roles in one process, and phones that learn."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from crowdfl.learning.models.learner import Update
from crowdfl.protocols.shares.round.average import AverageReader
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.simulation.federation import LocalFederation, RoundResult
from tests.hosts import FEW_LANES, ONE, SMALL_BOUNDS

TASK = SMALL_BOUNDS | FEW_LANES | {"min_participants": 5, "max_participants": 7, "max_samples": 20, "rounds": 4}
SIZE = 4


class Campaign:
    """Six people. Each wants weights of its own, and trains until it has them: the update follows from the model alone."""

    def __init__(self, **settings: Any) -> None:
        self.federation = LocalFederation(backend=ONE, **TASK | settings)
        rng = np.random.default_rng(3)
        names = [f"p{i}" for i in range(6)]
        self.wanted = {who: np.round(rng.uniform(-1, 1, SIZE), 2) for who in names}
        self.samples = {who: 4 + i for i, who in enumerate(names)}
        self.models = [np.zeros(SIZE)]  # what each round starts from

    def play(self, without: Collection[str] = (), **cheats: tuple[Any, int]) -> RoundResult:
        """The next round; of `cheats`, an update and a number of samples."""
        trained = {who: Update({"w": w}, self.samples[who]) for who, w in self.wanted.items() if who not in without}
        forged = {who: Update({"w": self.models[-1] + u}, count) for who, (u, count) in cheats.items()}
        result = self.federation.round(trained | forged)
        self.models.append(np.asarray(result.model[0]))
        return result

    def uploaded(self, who: str, number: int) -> Any:
        """The numbers that somebody has shared in a round."""
        unit = self.shape.widths.unit
        count = self.samples[who] if self.shape.widths.has_counts else 1
        return np.rint((self.wanted[who] - self.models[number - 1]) * unit) * count

    @property
    def shape(self) -> SharesShape:
        return SharesShape(self.host.sp.core.definition(self.federation.task).spec)

    @property
    def host(self) -> Any:
        return self.federation.host

    def pseudonym(self, who: str) -> str:
        return str(self.host.people[who].keys.who)


def watch_readers(patch: pytest.MonkeyPatch) -> dict[int, tuple[Any, int]]:
    """By round, the sum and the total that every reader computes on its way to the average."""
    read, seen = AverageReader._unmasked, {}

    def noted(self: AverageReader, message: Any, t: bytes, place: Any) -> tuple[Any, int]:
        sums, total = read(self, message, t, place)
        seen[place.number] = (sums.copy(), total)
        return sums, total

    patch.setattr(AverageReader, "_unmasked", noted)
    return seen


def error(found: Any, truth: Any) -> float:
    """Relative; whoever knows nothing says zero, and is off by one."""
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))
