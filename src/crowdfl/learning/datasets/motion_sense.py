"""MotionSense as one raw stream: 24 people, six activities, a phone in the pocket, acceleration in g at 50 Hz."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed
from crowdfl.learning.datasets.data import (
    Cut,
    Recording,
    Source,
    Split,
    person_at,
    runs_of,
    split_recordings,
    timed,
)
from crowdfl.learning.datasets.npz_files import read_arrays

# Two seconds, half of it new, and two unused seconds between training and held-out samples.
MOTIONSENSE_CUT = Cut(length=100, step=50, held_out=0.3, gap=100)

# WISDM's names, so that a task can take people of both sets.
_NAMES = {
    "dws": "Downstairs",
    "ups": "Upstairs",
    "sit": "Sitting",
    "std": "Standing",
    "wlk": "Walking",
    "jog": "Jogging",
}
_MOTIONSENSE_HERTZ = 50.0
_Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class MotionSense(Source):
    """The people are the subjects, in the order of their numbers."""

    path: Path
    cut: Cut = MOTIONSENSE_CUT

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(str(subject) for subject in np.unique(self._arrays["subject"]))

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(_NAMES.get(str(name), str(name)) for name in self._arrays["activity_names"])

    def load_person(self, index: int) -> Split:
        """In g. Every trial is a recording of its own."""
        name = person_at(self.people, index)
        arrays = self._arrays
        mine = np.flatnonzero(arrays["subject"] == int(name))
        signal, activity, trial = (arrays[key][mine] for key in ("acc", "activity", "trial"))
        place = mine - np.arange(len(mine))  # changes where samples of someone else lie between
        recordings = [Recording(signal[run], int(activity[run.start])) for run in runs_of(activity, trial, place)]
        recordings = [timed(recording, _MOTIONSENSE_HERTZ, self.cut.hertz) for recording in recordings]
        return split_recordings(name, recordings, self.label_names, self.cut)

    @cached_property
    def _arrays(self) -> _Arrays:
        arrays = read_arrays(self.path)
        _require(self.path, arrays, "acc", "subject", "activity", "trial")
        if "activity_names" not in arrays or arrays["acc"].ndim != 2:
            raise DataMalformed(f"{self.path} needs `activity_names`, and `acc` with the axes (samples, channels)")
        return arrays


def _require(path: Path, arrays: _Arrays, *names: str) -> None:
    """Check that these arrays are there, hold numbers, and are all as long as the first."""
    for name in names:
        if name not in arrays:
            raise DataMalformed(f"{path} lacks the array {name!r}; it has {', '.join(sorted(arrays)) or 'none'}")
        if arrays[name].dtype.kind not in "fiub" or arrays[name].shape[:1] != arrays[names[0]].shape[:1]:
            found = f"{arrays[name].dtype} of shape {arrays[name].shape}"
            raise DataMalformed(f"{path}: {name!r} is {found}; expected as many numbers as {names[0]!r} has")
