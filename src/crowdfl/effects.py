"""Which settings of a task and of its training would do nothing, and what would make them act.

A definition names every setting, so that only what somebody has written or passed is refused: it says something that the task
does not do.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crowdfl.errors import SettingsError
from crowdfl.settings import SERVER_STEPS, PlanSettings, TaskSettings, TrainingSettings, is_code


def profiles_of(*names: str) -> str:
    """What a setting needs that only these profiles have."""
    return f"the profile {' or '.join(names)}"


@dataclass(frozen=True)
class _Rule:
    """These settings do nothing in a task that this does not hold for."""

    names: tuple[str, ...]
    acts: Callable[[TaskSettings], bool]
    needs: str


def _of_steps(name: str) -> _Rule:
    used = [f'"{step}"' for step, names in SERVER_STEPS.items() if name in names]
    return _Rule((name,), lambda task: name in SERVER_STEPS[task.server_step], f"server_step = {' or '.join(used)}")


_OF_SHARES = (
    *("pay", "weighting", "check", "max_norm", "epsilon", "reference", "server_step"),
    *SERVER_STEPS["fedadam"],
)
_RULES = (
    _Rule(_OF_SHARES, lambda task: task.profile == "shares", profiles_of("shares")),
    _Rule(("key_bits",), lambda task: task.profile != "shares", profiles_of("hardened", "paper")),
    _Rule(("total",), lambda task: task.profile == "hardened", profiles_of("hardened")),
    _Rule(("pay", "currency"), lambda task: task.budget is not None, "a `budget`"),
    _Rule(("lanes",), lambda task: task.profile != "shares" or task.check == "bounds", 'check = "bounds"'),
    _Rule(
        ("max_samples",),
        lambda task: task.profile != "shares" or task.weighting == "samples",
        'weighting = "samples"',
    ),
    *map(_of_steps, SERVER_STEPS["fedadam"]),
)


_OF_TRAINING: tuple[tuple[str, Callable[[TrainingSettings], bool], str], ...] = (
    ("layers", lambda own: own.learner == "network", 'learner = "network"'),
    (
        "loss",
        lambda own: own.learner in ("network", "conv") or is_code(own.learner),
        'learner = "network" or "conv", or a torch module',
    ),
)


def require_training_effect(training: TrainingSettings, given: Mapping[str, Any]) -> None:
    """The same of a task's [training]."""
    for name, acts, needs in _OF_TRAINING:
        if given.get(name) not in (None, "", [], ()) and not acts(training):
            raise SettingsError(nothing_words(name, needs))


def idle_training(training: TrainingSettings) -> frozenset[str]:
    """All that would do nothing in this training."""
    return frozenset(name for name, acts, _ in _OF_TRAINING if not acts(training))


def require_effect(task: TaskSettings, given: Mapping[str, Any], plan: PlanSettings | None = None) -> None:
    """Refuse, of what was given, the first setting that would do nothing."""
    for name, needs in _idle(task, [name for name, value in given.items() if value is not None]):
        raise SettingsError(nothing_words(name, needs))
    if plan is None or plan.apart is None:
        return
    if task.rounds == 1:
        raise SettingsError(nothing_words("every", "more than one of `rounds`"))
    if plan.closes == "deadline" and plan.apart <= task.window:
        raise SettingsError(nothing_words("every", 'more than `window`, or closes = "everyone"'))


def idle_settings(task: TaskSettings) -> frozenset[str]:
    """All that would do nothing in this task."""
    return frozenset(name for name, _ in _idle(task, type(task).model_fields))


def _idle(task: TaskSettings, names: Collection[str]) -> Iterable[tuple[str, str]]:
    for rule in _RULES:
        if not rule.acts(task):
            yield from ((name, rule.needs) for name in rule.names if name in names)


def nothing_words(name: str, needs: str) -> str:
    return f"`{name}` would do nothing in this task: it needs {needs}. Leave it out, or change that"
