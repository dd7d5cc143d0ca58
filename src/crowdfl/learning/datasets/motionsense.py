"""MotionSense as one raw stream: 24 people, six activities, a phone in the pocket, acceleration in g at 50 Hz."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from crowdfl.errors import DataMalformed
from crowdfl.learning.datasets.data import Cut, Recording, Source, Split, person_at
from crowdfl.learning.datasets.npz import Arrays, read_arrays, require
from crowdfl.learning.datasets.recordings import runs_of, split_recordings, timed

__all__ = ["CUT", "HERTZ", "MotionSense"]

HERTZ = 50.0

# Two seconds, half of it new, and two unused seconds between training and held-out samples.
CUT = Cut(length=100, step=50, held_out=0.3, gap=100)

# WISDM's names, so that a task can take people of both sets.
_NAMES = {
    "dws": "Downstairs",
    "ups": "Upstairs",
    "sit": "Sitting",
    "std": "Standing",
    "wlk": "Walking",
    "jog": "Jogging",
}


@dataclass(frozen=True)
class MotionSense(Source):
    """The people are the subjects, in the order of their numbers."""

    path: Path
    cut: Cut = CUT

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(str(subject) for subject in np.unique(self._arrays["subject"]))

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(_NAMES.get(str(name), str(name)) for name in self._arrays["activity_names"])

    def load_person(self, index: int) -> Split:
        """In g. Every trial is a recording of its own."""
        name, arrays = person_at(self.people, index), self._arrays
        mine = np.flatnonzero(arrays["subject"] == int(name))
        signal, activity, trial = (arrays[key][mine] for key in ("acc", "activity", "trial"))
        place = mine - np.arange(len(mine))  # changes where samples of someone else lie between
        recordings = [Recording(signal[run], int(activity[run.start])) for run in runs_of(activity, trial, place)]
        recordings = [timed(recording, HERTZ, self.cut.hertz) for recording in recordings]
        return split_recordings(name, recordings, self.label_names, self.cut)

    @cached_property
    def _arrays(self) -> Arrays:
        arrays = read_arrays(self.path)
        require(self.path, arrays, "acc", "subject", "activity", "trial")
        if "activity_names" not in arrays or arrays["acc"].ndim != 2:
            raise DataMalformed(f"{self.path} needs `activity_names`, and `acc` with the axes (samples, channels)")
        return arrays
