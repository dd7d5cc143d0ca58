"""Which tasks a phone's browser takes part in. The page refuses the others too (web/phone/learning/recipe.js), but late."""

from collections.abc import Mapping
from typing import Any

from crowdfl.documents.signed import Definition
from crowdfl.errors import SettingsError
from crowdfl.roles.model_size import PHONE_PARAMETERS
from crowdfl.settings import LEARNERS


def phone_obstacle(definition: Definition) -> str | None:
    """Why a phone cannot take part, as the end of "a phone cannot take part: ..."; None if it can."""
    profile = definition.settings.profile
    if profile != "shares":
        return f"a browser takes part in tasks of the profile shares only, and this one's is {profile}"
    if (parameters := definition.spec.parameters) > PHONE_PARAMETERS:
        return f"its model has {parameters:,} parameters, and a page holds {PHONE_PARAMETERS:,}"
    return _untrainable(definition.training)


def require_for_phones(definition: Definition) -> None:
    """Before anyone is invited to what a browser cannot compute."""
    why = phone_obstacle(definition)
    if why is not None:
        raise SettingsError(
            f"a phone cannot take part: {why}; leave --links and --qr out, and give out the invitation files"
        )


def _untrainable(training: Mapping[str, Any]) -> str | None:
    learner, features = training.get("learner", "network"), training.get("features", "motion")
    layers = [str(layer).split()[:1] for layer in training.get("layers", ())] if learner == "network" else []
    if learner not in LEARNERS:
        return "the task trains code of its own, which a web page does not run"
    if learner == "conv" or ["conv"] in layers or ["pool"] in layers:
        return "the task trains a convolutional network, which the page cannot"
    if training.get("target", "label") != "label":
        return "the task learns values, and the page learns labels only"
    if training.get("loss") is not None:
        return "the task names a loss, and the page knows the cross entropy only"
    if features not in ("motion", "flat", "spectral"):
        return f'the page does not know the features "{features}"'
    return None
