"""Putting people together and apart, and one person's data on a task's terms. No window changes sides within a split."""

from collections.abc import Sequence

import numpy as np

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets.data import Person, Split

__all__ = ["by_person", "merged", "relabelled", "standardised"]

_STILL = 1e-6  # a channel that never moves is not divided by zero


def merged(name: str, people: Sequence[Person]) -> Person:
    """Everyone's windows as one person's, as if they had been handed in."""
    if not people or any(person.label_names != people[0].label_names for person in people):
        raise DataMalformed(f"{name}: people are merged if there are any and their labels mean the same")
    windows = np.concatenate([person.windows for person in people])
    return Person(name, windows, np.concatenate([person.labels for person in people]), people[0].label_names)


def by_person(people: Sequence[Split], held_out: float, seed: int) -> Split:
    """Train on some people and test on the others, of whom nothing was seen."""
    count = round(len(people) * held_out)
    if not 0 < count < len(people):
        raise SettingsError(
            f"of {len(people)} people a share of {held_out} cannot be held out: some are needed on each side"
        )
    order = np.random.default_rng(seed).permutation(len(people))
    train, test = ([people[i] for i in sorted(part)] for part in (order[count:], order[:count]))
    return Split(merged("train", _both_halves(train)), merged("held-out", _both_halves(test)))


def _both_halves(people: Sequence[Split]) -> list[Person]:
    return [half for split in people for half in (split.train, split.held_out)]


def standardised(split: Split) -> Split:
    """Every channel with mean 0 and deviation 1, as the training windows have them; the held-out ones are moved along."""
    if not len(split.train):
        raise DataMalformed(f"{split.train.name}: there are no training windows to standardise by")
    mean, deviation = split.train.windows.mean(axis=(0, 1)), split.train.windows.std(axis=(0, 1))
    scale = np.maximum(deviation, _STILL)

    def scaled(person: Person) -> Person:
        windows = ((person.windows - mean) / scale).astype(np.float32)
        return Person(person.name, windows, person.labels, person.label_names)

    return Split(scaled(split.train), scaled(split.held_out))


def relabelled(split: Split, names: Sequence[str]) -> Split:
    """With a task's labels, found by name, capitals or not. Windows with a label that the task does not have are left out."""
    places = {name.casefold(): place for place, name in enumerate(names)}
    moved = np.array([places.get(name.casefold(), -1) for name in split.train.label_names], dtype=np.int64)
    if (moved < 0).all():
        mine, wanted = ", ".join(split.train.label_names), ", ".join(names)
        raise DataMalformed(f"{split.train.name}: none of the labels {mine} is among the task's: {wanted}")

    def side(person: Person) -> Person:
        labels = moved[person.labels]
        return Person(person.name, person.windows[labels >= 0], labels[labels >= 0], tuple(names))

    return Split(side(split.train), side(split.held_out))
