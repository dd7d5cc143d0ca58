"""The files of a task: the one that defines it, and the model with what is needed to use it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.cli.settings_file import template_text
from crowdfl.errors import FormatError, SettingsError
from crowdfl.learning.datasets import watch_data as watch
from crowdfl.learning.models.files import from_npz, from_safetensors, to_npz, to_safetensors
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.documents import Definition
from crowdfl.roles.participant import LEAST_PARTICIPANTS
from crowdfl.schema import SettingsTable, settable
from crowdfl.settings import TaskFile, TaskSettings, TrainingSettings, require_claim_window
from crowdfl.storage.atomic import write_private

FORMATS = {".safetensors": (to_safetensors, from_safetensors), ".npz": (to_npz, from_npz)}

_PURPOSE = {
    "purpose": "Recognise which exercise the wearer of a watch is doing",
    "terms": "Windows of sensor data stay on your device. Only an encrypted model leaves it.",
    "readers": "The requester reads the last average; every participant reads the others.",
    "claim_window": 604800.0,
}
_SETTINGS = {
    "max_participants": 10,
    "max_samples": 1000,
    "strategy": "retransmit",
    "min_participants": LEAST_PARTICIPANTS,  # or phones would refuse the task
    "rounds": 3,
    "budget": "36.00",
}
_TRAINING = {"labels": list(watch.EXERCISES)}
_NOT_AT_FIRST = {"layers", "module", "channels", "standardise", "window", "held_out", "hertz"}  # the watch's will do


def _task_text() -> str:
    """A task file to start from, with every setting."""
    chosen = _start(TaskSettings) | _SETTINGS
    training = {
        name: value for name, value in _start(TrainingSettings).items() if name not in _NOT_AT_FIRST
    } | _TRAINING
    return (
        f"# A task: every setting, with a value to start from.\n{template_text(TaskFile, _PURPOSE)}"
        f"\n[settings]\n{template_text(TaskSettings, chosen)}\n[training]\n{template_text(TrainingSettings, training)}"
    )


def _start(model: type[SettingsTable]) -> dict[str, Any]:
    return {name: field.default for name, field in settable(model).items() if field.default is not None}


template = _task_text()


def defined(
    file: Path, found: dict[str, Any], module: str | None = None, min_claim_window: float = 0.0
) -> tuple[Definition, Weights]:
    """A task as a task file's contents define it, unsigned, and the weights it starts from."""
    task = TaskFile.parse(found, file)
    settings = TaskSettings.parse(task.settings, f"{file}, [settings]")
    if settings.budget is not None:
        require_claim_window(task.claim_window, min_claim_window)
    learner = Recipe.parse(task.training, f"{file}, [training]").make_learner(module)
    definition = Definition(
        purpose=task.purpose,
        terms=task.terms,
        readers=task.readers,
        shape=learner.shape,
        initial="",
        settings=settings,
        claim_window=float(task.claim_window),
        requester=b"",
        training=task.training,
    )
    return definition, learner.weights()


def warnings(definition: Definition) -> list[str]:
    """What a requester should know before people are asked to take part."""
    settings, training = definition.settings, definition.training
    if settings.profile != "shares":
        return []
    found = []
    if settings.check == "none":
        found.append('check = "none": one upload out of bounds spoils the average, and nobody notices')
    elif settings.max_norm is None:
        found.append("no norm bound: `crowdfl train` suggests a `max_norm` from a trial")
    raw = training.get("features") == "flat" or training.get("learner") == "conv"
    if raw and settings.budget is not None and settings.rule in (None, "gate", "agreement"):
        found.append(
            "on raw windows the updates of honest people have little direction in common: in our trials about half or more "
            'of them went unpaid under this rule; take features = "motion" (docs/incentives.md)'
        )
    return found


def require_model_path(path: Path) -> None:
    """A model can be written here: to be asked before the work, not after it."""
    if path.suffix not in FORMATS:
        raise SettingsError(f"a model is written as {' or '.join(FORMATS)}, not {path.suffix!r}")
    if not path.parent.is_dir():
        raise SettingsError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise SettingsError(f"{path} is a folder; name a file for the model")


def write_model(path: Path, definition: Definition, arrays: Sequence[npt.NDArray[np.float64]]) -> None:
    """The model, and beside it the definition: arrays alone do not say which network they fill."""
    require_model_path(path)
    write_private(path, FORMATS[path.suffix][0](definition.shape, arrays), overwrite=True)
    about = {"task": definition.task, "definition": definition.body()}
    write_private(_beside(path), json.dumps(about, indent=1).encode(), overwrite=True)


def read_model(path: Path) -> tuple[Definition, Weights]:
    if path.suffix not in FORMATS:
        raise SettingsError(f"a model is read from {' or '.join(FORMATS)}, not {path.suffix!r}")
    try:
        about, data = json.loads(_beside(path).read_bytes()), path.read_bytes()
        definition = Definition.from_body(about["definition"])
    except FileNotFoundError as missing:
        raise SettingsError(f"there is no {missing.filename}: `crowdfl task fetch` writes both files") from None
    except (ValueError, KeyError, TypeError) as wrong:
        raise FormatError(f"{_beside(path)} does not describe a model: {wrong}") from None
    return definition, FORMATS[path.suffix][1](definition.shape, data)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".json")
