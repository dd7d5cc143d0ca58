"""A task's recipe, tried on a sample of data before anyone is asked to take part."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from crowdfl.documents.signed import Definition
from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.bounds import suggested_bound
from crowdfl.learning.datasets.data import Person, Split
from crowdfl.learning.datasets.sources import open_person
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.recipe import Recipe
from crowdfl.learning.training import LocalTrainer

_MUCH_LONGER = 2
NOT_TRIED = "the task was not tried on any data: `--try DATA`, such as --try npz:FILE#USER, finds what does not fit"


@dataclass(frozen=True)
class RecipeTrial:
    """What one person's data was to a task: windows by label, and how one pass over them went.

    Of a task of `shares`, how training as in a round went, and how long the update is that comes of it.
    """

    data: str
    person: str
    window: tuple[int, ...]
    train: Mapping[str, int]
    held_out: Mapping[str, int]
    scores: Mapping[str, float]
    warnings: list[str]
    length: float | None = None

    @property
    def told(self) -> str:
        length, channels = self.window
        counts = ", ".join(f"{name} {count} + {self.held_out[name]}" for name, count in self.train.items())
        after = ", ".join(f"{name} {value:.3g}" for name, value in self.scores.items() if name != "windows")
        trained = "after one pass" if self.length is None else f"an update of length {self.length:.3g} after one round"
        return f"tried on {self.data}: windows of {length} x {channels}, to train on + held out: {counts}" + (
            f"; {trained}" + (f": {after}" if after else "") if after or self.length is not None else ""
        )


def try_recipe(
    definition: Definition,
    initial: Weights,
    data: str,
    learner: str | None = None,
    *,
    loss: str | None = None,
) -> RecipeTrial:
    """Do with the data what a participant would; raises what would fail on every device.

    With one pass over it; where updates have a largest length, with as many as in a round, to measure it.
    """
    measured = definition.settings.profile == "shares"
    passes = {} if measured else {"epochs": 1}
    trainer = LocalTrainer(data, {**definition.training, **passes}, learner, loss=loss)
    recipe = trainer.recipe
    source, index = open_person(data, recipe.cut, recipe.value_names, recipe.beside)
    whole = source.load_person(index)
    _require_fit(recipe, data, whole.train)
    split = trainer.split
    weights, samples = trainer.train(initial, {}, 1)
    _require_room(definition, data, samples)
    flat = definition.shape.flat(weights)
    if not np.isfinite(flat).all():
        raise DataMalformed(
            f"{data}: training gives numbers that are not finite: lower `rate` in the task's [training]"
        )
    scores = trainer.evaluate(weights)
    count = partial(_counts, recipe)
    found = [*source.notes, *_warnings(recipe, split, whole)]
    shape = tuple(split.train.windows.shape[1:])
    length = float(np.linalg.norm(flat - definition.shape.flat(initial))) if measured else None
    return RecipeTrial(data, split.train.name, shape, count(split.train), count(split.held_out), scores, found, length)


def norm_advice(trials: Sequence[RecipeTrial], definition: Definition) -> str | None:
    """Of a task whose updates have a largest length: which `max_norm` these trials suggest."""
    lengths = [one.length for one in trials if one.length is not None]
    bound = definition.settings.max_norm
    suggested = suggested_bound(lengths)
    if suggested is None:
        return None
    advice = f"updates are up to {max(lengths):.3g} long: max_norm = {suggested:g} would do"
    if bound is None:
        return f"{advice}; longer ones are scaled down"
    if bound < max(lengths):
        return f"{advice}; with max_norm = {bound:g} these are scaled down"
    if bound > _MUCH_LONGER * suggested:
        return f"{advice}; with max_norm = {bound:g} one person can do as much as {bound / suggested:.0f}"
    return f"updates are up to {max(lengths):.3g} long: max_norm = {bound:g} is enough"


def _require_fit(recipe: Recipe, data: str, person: Person) -> None:
    """All that differs at once, and what to write instead."""
    length, channels = person.windows.shape[1:]
    write: dict[str, Any] = {"window_samples": length} if length != recipe.window_samples else {}
    write |= {"channels": channels} if channels != recipe.width else {}
    known = {label.casefold() for label in recipe.labels}
    if not recipe.learns_values and known.isdisjoint(map(str.casefold, person.label_names)):
        write["labels"] = list(person.label_names)
    if write:
        lines = ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in write.items())
        raise DataMalformed(
            f"the task does not fit {data}, which has windows of {length} x {channels} (samples x channels) and the labels "
            f"{', '.join(person.label_names)}: say {lines} in the task's [training], or take other data"
        )


def _require_room(definition: Definition, data: str, samples: int) -> None:
    most = definition.settings.max_samples
    if definition.settings.weighting == "samples" and samples > most:
        raise SettingsError(
            f"{data} has {samples} windows to train on, and the task takes {most} of a participant: such a device could not "
            f"take part; say max_samples = {-(-2 * samples // 100) * 100} or more in the task's [settings]"
        )


def _counts(recipe: Recipe, person: Person) -> dict[str, int]:
    if recipe.learns_values:
        return {"windows": len(person)}
    return dict(zip(recipe.labels, np.bincount(person.labels, minlength=len(recipe.labels)).tolist(), strict=True))


def _warnings(recipe: Recipe, split: Split, whole: Split) -> list[str]:
    """What fits, and may still not be meant."""
    found = []
    if not len(split.held_out):
        found.append("no window is held out: nobody could see how well the model does on this data")
    if recipe.learns_values:
        return found
    known = {label.casefold() for label in recipe.labels}
    labels = np.concatenate([whole.train.labels, whole.held_out.labels])
    counts = np.bincount(labels, minlength=len(whole.train.label_names)).tolist()
    mine = dict(zip(whole.train.label_names, counts, strict=True))
    if others := {label: count for label, count in mine.items() if count and label.casefold() not in known}:
        words = ", ".join(f"{label} ({count})" for label, count in others.items())
        found.append(f"windows with labels that the task does not have are left out: {words}")
    if missing := [label for label, count in _counts(recipe, split.train).items() if not count]:
        found.append(f"nothing to train on for {', '.join(missing)}: somebody else's data must have it")
    return found
