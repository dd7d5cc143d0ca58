"""Data for demos: made-up recordings of a phone in a pocket, and a little of the watch data, for a model of few weights."""

from collections.abc import Callable
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
        sensed = _MOVES[activity](times, generator) @ turned.T * _GRAVITY
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


def _sit(times: _Signal, generator: np.random.Generator) -> _Signal:
    """Lying on the thigh: gravity is on another axis; only breath and noise move it."""
    breath = 0.01 * np.sin(2 * np.pi * generator.uniform(0.2, 0.3) * times)
    return _sensed(generator, 0.006, sideways=0 * times, upwards=0.15 + breath, forwards=0.98 + breath)


def _walk(times: _Signal, generator: np.random.Generator) -> _Signal:
    steps = 2 * np.pi * generator.uniform(1.7, 2.1) * times
    strength = generator.uniform(0.8, 1.2)
    upwards = 1 + strength * (0.30 * np.sin(steps) + 0.12 * np.sin(2 * steps + 0.7))
    forwards = strength * 0.18 * np.sin(steps + 1.1)
    return _sensed(generator, 0.04, sideways=0.08 * np.sin(steps / 2), upwards=upwards, forwards=forwards)


def _climb(times: _Signal, generator: np.random.Generator) -> _Signal:
    """Slower, with a push at every step and the thigh going up."""
    steps = 2 * np.pi * generator.uniform(1.2, 1.5) * times
    strength = generator.uniform(0.8, 1.2)
    upwards = 0.95 + strength * (0.16 * np.sin(steps) + 0.30 * np.maximum(0, np.sin(steps)) ** 5)
    forwards = 0.25 + strength * 0.28 * np.sin(steps / 2 + 0.4)
    return _sensed(generator, 0.05, sideways=0.14 * np.sin(steps / 2), upwards=upwards, forwards=forwards)


def _sensed(generator: np.random.Generator, noise: float, **axes: _Signal) -> _Signal:
    """In units of g; x is sideways, y upwards, z forwards."""
    signal = np.column_stack([axes["sideways"], axes["upwards"], axes["forwards"]])
    noisy: _Signal = signal + generator.normal(0.0, noise, signal.shape)
    return noisy


_MOVES: dict[str, Callable[[_Signal, np.random.Generator], _Signal]] = {
    "sitting": _sit,
    "walking": _walk,
    "stairs": _climb,
}


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
