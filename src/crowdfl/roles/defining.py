"""A task from what its requester has written: its definition, what follows from the settings, and what to warn about."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.documents.forms import completed_file
from crowdfl.documents.signed import Definition
from crowdfl.documents.task_summary import plan_lines, reward_lines, text_lines
from crowdfl.effects import nothing_words, require_effect, require_training_effect
from crowdfl.errors import SettingsError
from crowdfl.learning.datasets import supplied as watch
from crowdfl.learning.models.learner import Learner
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.learning.recipe import Recipe
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.dealt import dealt_words
from crowdfl.roles.model_size import require_size, size_line
from crowdfl.settings import (
    DAY,
    LEARNERS,
    LEAST_PARTICIPANTS,
    AskerSettings,
    ConsentSettings,
    PlanSettings,
    TaskFile,
    TaskSettings,
    TextsSettings,
)
from crowdfl.task_tables import OWN_SETTINGS, flat_settings

_CLAIM_WINDOW = 7 * DAY  # where a task that pays says none: a phone that is off for some days still claims
_LARGE_RATE = 0.2  # of all steps but fedavgm: these are about as long as its rate

# What a person decides: `crowdfl task new` prints it, and the wizard asks for it first. By the section of a task file.
DECIDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "task": ("purpose", "terms", "readers"),
        "who": ("name",),
        "settings": ("min_participants", "max_participants", "rounds", "window", "budget"),
        "profile": ("weighting", "max_norm"),
        "plan": ("enrol_until",),
        "training": ("labels", "channels"),
    }
)
# What a task of the watch data says where the defaults do not do: `crowdfl task new` prints it.
WATCH_TASK: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "task": {
            "purpose": "Recognise which exercise the wearer of a watch is doing",
            "terms": "Windows of sensor data stay on your device. Only a protected model leaves it.",
            "readers": "The requester reads every average; participants read every one but the last.",
        },
        "settings": {
            "max_participants": 10,
            "weighting": "equal",
            "max_norm": 10.0,
            "min_participants": LEAST_PARTICIPANTS,  # or phones would refuse the task
            "rounds": 3,
            "budget": "36.00",
        },
        "training": {"labels": list(watch.EXERCISES)},
    }
)


def defined(
    place: object,
    found: dict[str, Any],
    learner: str | None = None,
    *,
    loss: str | None = None,
    initial: Mapping[str, npt.NDArray[np.float64]] | None = None,
) -> tuple[Definition, Weights]:
    """A task as a task file's contents define it, unsigned, and the weights it starts from. Errors name the place.

    `learner` and `loss` name code that the requester agrees to run, where the task has such. `initial` holds the arrays to
    start from; of people's functions, and of code that is not named here, they say what the model is.
    """
    task = TaskFile.parse(completed_file(TaskFile, found, place), place)
    settings, given = _settings(task, place)
    claim_window = _CLAIM_WINDOW if task.claim_window is None else task.claim_window
    if settings.budget is None and task.claim_window is not None:
        raise SettingsError(nothing_words("claim_window", "a `budget`"))
    recipe = Recipe.parse(task.training, f"{place}, [training]")
    require_training_effect(recipe, task.training)
    if recipe.learner not in LEARNERS and initial is not None and learner is None:
        shape, weights = ModelShape.of(initial), list(initial.values())
    elif recipe.takes_functions:
        raise SettingsError(
            f'{place}, [training]: learner = "{recipe.learner}" does not say what the model is: give one with --initial FILE'
        )
    else:
        shape, weights = _made(recipe.make_learner(learner, loss=loss), initial)
    texts = {
        language: TextsSettings.parse(_table(found, language), f"{place}, [texts.{language}]")
        for language, found in task.texts.items()
    }
    plan = PlanSettings.parse(task.plan, f"{place}, [plan]").require(settings)
    require_effect(settings, given, plan=plan)
    more: dict[str, Any] = {
        "plan": plan,
        "who": AskerSettings.parse(task.who, f"{place}, [who]"),
        "consent": ConsentSettings.parse(task.consent, f"{place}, [consent]"),
        "recruits": task.recruit == "open",
    }
    words = task.purpose, task.terms, task.readers
    about = 0 if settings.budget is None else math.ceil(claim_window), task.training
    return Definition(*words, shape, settings, *about, language=task.language, texts=texts, **more), weights


def _settings(task: TaskFile, place: object) -> tuple[TaskSettings, dict[str, Any]]:
    """And what was given of them."""
    tables = {name: getattr(task, name) for name in OWN_SETTINGS}
    try:
        flat = flat_settings(task.settings, tables)
    except SettingsError as wrong:
        raise SettingsError(f"{place}: {wrong}") from None
    settings = TaskSettings.parse(flat, f"{place}, [settings] and [{flat['profile']}]")
    return settings, {name: value for name, value in flat.items() if name != "profile"}


def _table(found: object, name: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise SettingsError(f"`texts.{name}` is {found!r}; expected a table, [texts.{name}]")
    return found


def _made(model: Learner, initial: Mapping[str, npt.NDArray[np.float64]] | None) -> tuple[ModelShape, Weights]:
    """A learner's shape, and its weights or those of a file that fits it."""
    if initial is None:
        return model.shape, model.weights()
    ordered = {name: initial[name] for name in model.shape.names if name in initial} | dict(initial)
    model.shape.match(ModelShape.of(ordered))
    return model.shape, list(ordered.values())


@dataclass(frozen=True)
class Explanation:
    """What a task's settings lead to, for people."""

    profile: str
    parameters: int
    widths: str
    dealt: str
    plan: list[str]
    texts: list[str]
    warnings: list[str]


def explained(definition: Definition) -> Explanation:
    """Before anything is made; a task that could overflow is refused, with the numbers."""
    settings, parameters = definition.settings, definition.spec.parameters
    profile = profile_named(settings.profile)
    profile.check(settings, parameters)
    require_size(definition)
    widths = "\n".join([profile.explain(settings, parameters), size_line(definition)])
    dealt = dealt_words(definition)
    plan, texts = [*plan_lines(definition), *reward_lines(definition)], text_lines(definition)
    return Explanation(settings.profile, parameters, widths, dealt, plan, texts, warnings(definition))


def warnings(definition: Definition) -> list[str]:
    """What a requester should know before people are asked to take part."""
    settings = definition.settings
    found = recruiting_warnings(definition)
    if settings.profile != "shares":
        return found
    if settings.check == "none":
        found.append('check = "none": one upload out of bounds spoils the average, and nobody notices')
    elif settings.max_norm is None:
        found.append("no norm bound: `--try DATA` suggests a `max_norm` from a trial")
    if settings.server_step not in ("none", "fedavgm") and settings.server_rate > _LARGE_RATE:
        found.append(
            f"server_rate = {settings.server_rate}: {settings.server_step} moves most weights by about that much in a round, "
            "whatever was learnt; 0.01 to 0.1 is usual"
        )
    return found


def recruiting_warnings(definition: Definition) -> list[str]:
    """Of a task that SP lists: whoever joins is told the same."""
    if not definition.recruits:
        return []
    found = [
        'recruit = "open": the platform can be a reader and everybody else in the task, so that `min_participants` protects '
        "nobody against it"
    ]
    if definition.settings.epsilon is None:
        found.append('recruit = "open" without `epsilon`: people must take part "all the same", or they do not join')
    if definition.settings.profile == "paper":
        found.append('recruit = "open" in the profile paper is for trials: the platform then reads every upload')
    return found


def invitation_warning(definition: Definition, invited: int) -> str:
    """Of a trial that many are invited to: it does not wait for them."""
    plan, least = definition.plan, definition.settings.min_participants
    if invited <= least or plan.start_at or plan.start_with or plan.closes == "deadline":
        return ""
    return (
        f"this task has no plan: its rounds run as soon as {least} people have joined and sent, and whoever joins later may "
        "find it over. `start_with`, `start_at` and `closes` of [plan] wait for people"
    )
