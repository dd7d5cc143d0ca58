"""Data for demos: made-up recordings of a phone in a pocket, and a little of the watch data, for a model of few weights."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdfl.learning.datasets.sources import load_split

ACTIVITIES = ("sitting", "walking", "stairs")
SMALL_DATA, SMALL_LABELS = "windows.npz", ("PEN", "ROW")
_HERTZ, _SECONDS = 50.0, 45.0
_GRAVITY = 9.80665  # m/s^2
_Signal = npt.NDArray[np.float64]


def write_recordings(folder: Path, person: int) -> None:
    """One CSV file for each activity: seconds and m/s^2, as an app exports them. The same number is the same person."""
    generator = np.random.default_rng([20_260_101, person])
    turned = _turning(generator)
    folder.mkdir(parents=True, exist_ok=True)
    times = np.arange(round(_HERTZ * _SECONDS)) / _HERTZ
    for activity in ACTIVITIES:
        sensed = _move(activity, times, generator) @ turned.T * _GRAVITY
        np.savetxt(
            folder / f"{activity}.csv",
            np.column_stack([times, sensed]),
            fmt="%.5f",
            delimiter=",",
            header="time (s),x (m/s^2),y (m/s^2),z (m/s^2)",
            comments="",
        )


def _turning(generator: np.random.Generator) -> _Signal:
    """How the phone lies in the pocket: upright, and turned a little, as its owner puts it there."""
    around, forward = generator.normal(0.0, 0.25, 2)
    about_y = np.array([[np.cos(around), 0, np.sin(around)], [0, 1, 0], [-np.sin(around), 0, np.cos(around)]])
    about_x = np.array([[1, 0, 0], [0, np.cos(forward), -np.sin(forward)], [0, np.sin(forward), np.cos(forward)]])
    turned: _Signal = about_y @ about_x
    return turned


# Steps a second; of each axis where it rests, and by how much it swings: at half a step, at a step, at two.
_MOVES: Mapping[str, tuple[tuple[float, float], float, tuple[tuple[float, float, float, float], ...]]] = {
    # Lying on the thigh: gravity is on another axis; only breath and noise move it.
    "sitting": ((0.2, 0.3), 0.006, ((0, 0, 0, 0), (0.15, 0, 0.01, 0), (0.98, 0, 0.01, 0))),
    "walking": ((1.7, 2.1), 0.04, ((0, 0.08, 0, 0), (1.0, 0, 0.30, 0.12), (0, 0, 0.18, 0))),
    # Slower, with a push at every step and the thigh going up.
    "stairs": ((1.2, 1.5), 0.05, ((0, 0.14, 0, 0), (0.95, 0, 0.30, 0.15), (0.25, 0.28, 0, 0))),
}


def _move(activity: str, times: _Signal, generator: np.random.Generator) -> _Signal:
    """In units of g; x is sideways, y upwards, z forwards."""
    pace, noise, axes = _MOVES[activity]
    steps = 2 * np.pi * generator.uniform(*pace) * times
    strength = generator.uniform(0.8, 1.2)
    swings = np.column_stack([np.sin(steps / 2 + 0.4), np.sin(steps + 1.1), np.sin(2 * steps + 0.7)])
    signal = np.array([rest for rest, *_ in axes]) + strength * swings @ np.array([by for _, *by in axes]).T
    noisy: _Signal = signal + generator.normal(0.0, noise, signal.shape)
    return noisy


def write_small(path: Path, people: int) -> None:
    """Windows of the watch data in one file: two of the exercises, the first channel alone."""
    found: dict[str, list[npt.NDArray[np.generic]]] = {"windows": [], "label": [], "user": [], "train": []}
    for person in range(people):
        split = load_split(f"watch:{person}")
        for side in (split.train, split.held_out):
            wanted = [side.label_names.index(name) for name in SMALL_LABELS]
            kept = np.isin(side.labels, wanted)
            found["windows"].append(side.windows[kept][:, :, :1])
            found["label"].append(np.searchsorted(wanted, side.labels[kept]))
            found["user"].append(np.full(int(kept.sum()), person))
            found["train"].append(np.full(int(kept.sum()), side is split.train))
    np.savez(
        path,
        allow_pickle=False,
        label_names=np.array(SMALL_LABELS),
        **{name: np.concatenate(parts) for name, parts in found.items()},
    )
