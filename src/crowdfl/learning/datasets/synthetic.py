"""Made-up people for tests and first tries: each swings a limb at three paces, with a strength of their own.

The label says which of the three, the value `pace` how many times a second.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdfl.learning.datasets.data import Cut, Recording, Source, Split, person_at
from crowdfl.learning.datasets.recordings import split_recordings, with_values

PACES = ("slow", "middling", "fast")
VALUES = ("pace",)
CUT = Cut(length=100, step=25, held_out=0.3, gap=100)

_HERTZ = 50.0
_SECONDS = 40


@dataclass(frozen=True)
class Synthetic(Source):
    """`count` people; the same seed makes the same ones."""

    count: int = 10
    seed: int = 0
    channels: int = 3
    cut: Cut = CUT
    label_names: ClassVar = PACES
    notes: ClassVar = ("The data is made up.",)

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(f"synthetic-{number}" for number in range(1, self.count + 1))

    def load_person(self, index: int) -> Split:
        name = person_at(self.people, index)
        generator = np.random.default_rng([self.seed, index])
        split = split_recordings(name, [self._swing(label, generator) for label in range(3)], PACES, self.cut)
        return with_values(split, VALUES)

    def _swing(self, label: int, generator: np.random.Generator) -> Recording:
        hertz = self.cut.hertz or _HERTZ
        time = np.arange(round(_SECONDS * hertz))[:, None] / hertz
        pace = 0.5 * (label + 1) * generator.uniform(0.9, 1.1)
        vigour, phase = generator.uniform(0.5, 1.5, (2, 1, self.channels)) * [[[1.0]], [[2 * np.pi]]]
        noise = 0.1 * generator.normal(size=(len(time), self.channels))
        swing = vigour * np.sin(2 * np.pi * pace * time + phase) + noise
        return Recording(np.append(swing, np.full((len(time), 1), pace), axis=1), label)
