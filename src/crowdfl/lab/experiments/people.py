"""People put together and apart: everyone as one, some held out, or all windows dealt anew."""

from collections.abc import Sequence

import numpy as np

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets.data import Person, Split

__all__ = ["by_person", "dealt_at_random", "merged"]


def merged(name: str, people: Sequence[Person]) -> Person:
    """Everyone's windows as one person's, as if they had been collected."""
    if not people or any(person.label_names != people[0].label_names for person in people):
        raise DataMalformed(f"{name}: merging needs at least one person, and the same label names for all")
    windows = np.concatenate([person.windows for person in people])
    return Person(name, windows, np.concatenate([person.labels for person in people]), people[0].label_names)


def by_person(people: Sequence[Split], held_out: float, seed: int) -> Split:
    """Train on some people and test on the others, of whom nothing was seen."""
    count = round(len(people) * held_out)
    if not 0 < count < len(people):
        raise SettingsError(
            f"a share of {held_out} of {len(people)} people cannot be held out: both sides need at least one person"
        )
    order = np.random.default_rng(seed).permutation(len(people))
    train, test = ([people[i] for i in sorted(part)] for part in (order[count:], order[:count]))
    return Split(merged("train", _both_halves(train)), merged("held-out", _both_halves(test)))


def dealt_at_random(people: Sequence[Split], seed: int) -> list[Split]:
    """As many people as before, the windows dealt at random; what was held out stays held out.

    Everyone gets as many as the person in their place had. The paper does not say whose windows are whose.
    """
    order = np.random.default_rng(seed)
    train = _deal([split.train for split in people], order)
    held_out = _deal([split.held_out for split in people], order)
    return [Split(*sides) for sides in zip(train, held_out, strict=True)]


def _both_halves(people: Sequence[Split]) -> list[Person]:
    return [half for split in people for half in (split.train, split.held_out)]


def _deal(people: Sequence[Person], order: np.random.Generator) -> list[Person]:
    everyone = merged("everyone", people)
    ends = np.cumsum([len(person) for person in people])[:-1]
    hands = enumerate(np.split(order.permutation(len(everyone)), ends), start=1)
    windows, labels, names = everyone.windows, everyone.labels, everyone.label_names
    return [Person(f"dealt-{n:02}", windows[hand], labels[hand], names) for n, hand in hands]
