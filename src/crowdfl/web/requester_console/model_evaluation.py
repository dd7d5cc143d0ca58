"""What was learnt: the model as files, how well it does, and accuracy by round. Computed here, where the data lies."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdfl.errors import NotReady, SettingsError
from crowdfl.learning.evaluation import Samples, evaluated, load_samples
from crowdfl.learning.models.learner import Learner
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.recipe import Recipe
from crowdfl.protocols.profile import Audience
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.requester import Requester
from crowdfl.settings import LEARNERS
from crowdfl.storage.model_files import FORMATS, model_description, require_model_path, write_model

_MOST_DATA = 50

Progress = Callable[[int, int, str], None]
"""How much is done, of how much, and what is being done."""


@dataclass
class ModelEvaluation:
    """One requester's models. A reader keeps where it stands: one reads at a time."""

    requester: Requester
    _scores: dict[tuple[str, tuple[str, ...], int], dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reading = threading.Lock()

    def model(self, task: str) -> Weights:
        with self._reading:
            return self.requester.model(task)

    def model_file(self, task: str, form: str) -> bytes:
        """The model's arrays, or the description that goes beside them."""
        definition = self.requester.definition(task)
        if form == "json":
            return model_description(definition)
        if f".{form}" not in FORMATS:
            raise SettingsError(f"a model is written as {' or '.join(FORMATS)}, not {form!r}")
        return FORMATS[f".{form}"][0](definition.shape, self.model(task))

    def save(self, task: str, path: str) -> str:
        """Write both files into a folder of this machine; where the model is."""
        place = _place(path)
        require_model_path(place)
        write_model(place, self.requester.definition(task), self.model(task))
        return str(place.resolve())

    def evaluate(self, task: str, data: Sequence[str], progress: Progress) -> dict[str, Any]:
        """The newest model on somebody's held-out windows."""
        steps = len(data) + 2
        progress(0, steps, "opening the model")
        recipe = recipe_shown(self.requester.definition(task).training)
        arrays, newest = self.model(task), self._readable(task)[-1]
        samples = _loaded(recipe, data, lambda done, words: progress(done + 1, steps, words))
        progress(steps - 1, steps, "evaluating")
        found = _scored(recipe, recipe.make_learner(), arrays, samples)
        before = self.requester.scores(task)
        if before is None or before["data"] == list(data):  # a report has one evaluation: that by round stays
            self.requester.keep_scores(task, data, {newest: _kept(found)})
        return {**found, "labels": list(recipe.labels)}

    def by_round(self, task: str, data: Sequence[str], progress: Progress) -> dict[str, Any]:
        """Accuracy of the initial weights, which are round 0, and of the model after each round that the requester may read."""
        progress(0, 0, "looking at the rounds")
        numbers = [0, *self._readable(task)]
        recipe = recipe_shown(self.requester.definition(task).training)
        missing = [number for number in numbers if (task, tuple(data), number) not in self._scores]
        unread: list[dict[str, Any]] = []
        if missing:
            steps = len(data) + len(missing)
            samples = _loaded(recipe, data, lambda done, words: progress(done, steps, words))
            learner = recipe.make_learner()
            for done, number in enumerate(missing, start=len(data)):
                progress(done, steps, f"round {number}")
                try:
                    found = _scored(recipe, learner, self._weights(task, number), samples)
                except NotReady as why:
                    unread.append({"number": number, "why": str(why)})
                    continue
                self._scores[task, tuple(data), number] = _kept(found)
        known = [number for number in numbers if (task, tuple(data), number) in self._scores]
        self.requester.keep_scores(task, data, {number: self._scores[task, tuple(data), number] for number in known})
        states = self.requester.states(task)
        rounds = [{"number": n, "state": states.get(n), **self._scores[task, tuple(data), n]} for n in known]
        return {"rounds": rounds, "unread": unread}

    def _readable(self, task: str) -> list[int]:
        """Every round that is through and whose average is the requester's too, or the last one alone."""
        rounds = self.requester.sp.status(task)["rounds"]
        done = [entry["number"] for entry in rounds if entry["state"] == "rewarded"]
        settings = self.requester.definition(task).settings
        usual = profile_named(settings.profile).audience(final=False)
        return done if Audience.REQUESTER in usual else done[-1:]

    def _weights(self, task: str, number: int) -> Weights:
        if number == 0:
            return self.requester.initial(task)
        with self._reading:
            flat = self.requester.read(task, number).model
        return self.requester.definition(task).shape.arrays(flat)


def recipe_shown(training: Mapping[str, Any]) -> Recipe:
    """Of a task whose model this page evaluates: it runs nobody's code, and shows classes. A loss is not needed any more."""
    recipe = Recipe.of(training).changed(loss=None)
    if recipe.learns_values or recipe.learner not in LEARNERS:
        raise SettingsError(
            "this page evaluates models of its own kinds that tell labels apart: for this task use `crowdfl task fetch`, then "
            "`crowdfl evaluate`"
        )
    return recipe


def _kept(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a report shows of an evaluation."""
    return {name: found[name] for name in ("accuracy", "loss", "windows", "classes")}


def _place(path: str) -> Path:
    try:
        place = Path(path).expanduser()
    except RuntimeError:
        raise SettingsError(
            f"{path.partition('/')[0]} is nobody's home on this machine: write the whole path"
        ) from None
    if "\0" in path:
        raise SettingsError("a path has no zero byte: type it again")
    return place


def require_data(given: Sequence[str]) -> list[str]:
    """The texts that name data, one each."""
    data = [text.strip() for text in given if text.strip()]
    if not 1 <= len(data) <= _MOST_DATA or any("\0" in text for text in data):
        raise SettingsError(
            f"name some data to test on, one a line and at most {_MOST_DATA}: watch:0, csv:FOLDER or npz:FILE#7"
        )
    return list(dict.fromkeys(data))


def _loaded(recipe: Recipe, data: Sequence[str], progress: Any) -> dict[str, Samples]:  # noqa: ANN401 -- (done, words)
    found = {}
    for done, spec in enumerate(data):
        progress(done, f"reading {spec}")
        found[spec] = load_samples(spec, recipe)
    return found


def _scored(recipe: Recipe, learner: Learner, arrays: Weights, samples: dict[str, Samples]) -> dict[str, Any]:
    learner.load(arrays)
    return evaluated(recipe, learner, samples)
