"""The bounds of a simulated task, as far as nobody has set them: they follow from everyone's first training."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import SettingsError, TooFewParticipants, WidthBudgetExceeded
from crowdfl.learning.bounds import rounded_up
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.protocols.registry import profile_named
from crowdfl.settings import TaskSettings

_Floats = npt.NDArray[np.float64]
_FEWEST = 3
_LEAST_NORM = 1.0  # of a bound on updates: the first may be small
_HEADROOM = 4  # of bounds, over what the first training needed
_LARGEST = 1e9  # of a bound: with six decimals, doubles count in ones up to here
_MORE_SAMPLES = 2  # of later rounds, over the first
_USUAL = int(TaskSettings.model_fields["decimals"].default)
_DECIMALS = range(9, _USUAL - 1, -1)  # the most that fit: nine are more than float32 has


def require_enough(people: Sequence[str]) -> None:
    if len(people) < _FEWEST:
        raise TooFewParticipants(
            f"{len(people)} people; a simulation needs at least {_FEWEST}: with two, each could work out the other's model. "
            "Each entry of `data` is one person's data"
        )


def settings_for(
    asked: Mapping[str, Any],
    shape: ModelShape,
    initial: Weights,
    trained: Sequence[Weights],
    samples: Sequence[int],
    people: int,
) -> TaskSettings:
    """The task's settings, checked: they fit the model.

    Args:
        asked: What the caller has set; it is taken as it is.
        shape: The model's.
        initial: What everyone starts from.
        trained: The models after the first training.
        samples: Everyone's number of samples, as far as it is known.
        people: How many there are.
    """
    start = shape.flat(initial)
    usual: dict[str, Any] = {
        "max_participants": max(_FEWEST, people),
        "max_samples": _MORE_SAMPLES * max(samples),
    }
    if asked.get("profile") == "shares":
        usual |= _bounds_of_changes(start, map(shape.flat, trained))
    else:
        usual |= _bounds_of_weights(itertools.chain([start], map(shape.flat, trained)))
        usual |= {} if asked.get("budget") is not None else {"lanes": 0}  # more room for weights
    tried = [{"decimals": count} for count in (_DECIMALS if asked.get("profile") == "shares" else [_USUAL])]
    if "decimals" in asked or asked.get("epsilon") is not None:  # which leaves room for some, and says how many
        tried = [{}]
    for chosen in tried:
        try:
            settings = TaskSettings.of(**usual | dict(asked) | chosen)
            profile_named(settings.profile).check(settings, shape.parameters)
        except (SettingsError, WidthBudgetExceeded) as wrong:
            refusal = wrong
        else:
            return settings
    if isinstance(refusal, SettingsError):
        raise refusal
    raise WidthBudgetExceeded(f"{_chosen_words(usual, asked)}{refusal}") from None


def _chosen_words(usual: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """What nobody has set, and may therefore not know. With own `decimals` they may be what is too much."""
    found = {name: usual[name] for name in ("max_norm", "clip", "max_samples") if name in usual.keys() - asked.keys()}
    words = ", ".join(f"{name} = {value}" for name, value in found.items())
    if words and asked.get("decimals", 0) > _USUAL:
        return f"with decimals = {asked['decimals']} and what the first training suggests ({words}): "
    return (
        f"the first training suggests {words}: too much together. Is the learning rate too large? In detail: "
        if words
        else ""
    )


def _bounds_of_changes(start: _Floats, models: Iterable[_Floats]) -> dict[str, float]:
    """Within the norm, no single weight can change by more than it."""
    # Without BLAS, whose threads may cost more than they do on a machine that has other work.
    norm = max((float(np.sqrt(np.sum(np.square(model - start)))) for model in models), default=0.0)
    bound = max(_LEAST_NORM, _bound(_HEADROOM * norm))
    return {"max_norm": bound, "clip": bound}


def _bounds_of_weights(models: Iterable[_Floats]) -> dict[str, float]:
    """A model that starts near zero grows: no less than the usual bound."""
    usual = float(TaskSettings.model_fields["clip"].default)
    return {"clip": max(usual, _bound(_HEADROOM * max(float(np.abs(model).max()) for model in models)))}


def _bound(value: float) -> float:
    """To two digits; 0 stays 0."""
    if value <= 0:
        return 0.0
    if value > _LARGEST:
        raise SettingsError(
            f"the first training needs room for {value:.2g}, and bounds end at {_LARGEST:.0g}: lower its learning rate, or "
            "scale the model"
        )
    return rounded_up(value)
