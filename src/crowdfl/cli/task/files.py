"""The file that defines a task, as `crowdfl task new` prints it."""

from typing import Any

from crowdfl.cli.settings_file import template_text
from crowdfl.roles.defining import WATCH_TASK
from crowdfl.schema import SettingsTable, settable
from crowdfl.settings import TaskFile, TaskSettings, TrainingSettings

_FOR_OTHERS = {"module", "form", "scale_inputs", "target", "proximal"}  # for code, values and people of other kinds
_NOT_AT_FIRST = _FOR_OTHERS | {
    "layers",
    "channels",
    "standardise",
    "window",
    "held_out",
    "hertz",
}  # the watch's will do


def _task_text() -> str:
    """A task file to start from, with every setting."""
    chosen = _start(TaskSettings) | dict(WATCH_TASK["settings"])
    training = {name: value for name, value in _start(TrainingSettings).items() if name not in _NOT_AT_FIRST} | dict(
        WATCH_TASK["training"]
    )
    return (
        f"# A task: every setting, with a value to start from.\n{template_text(TaskFile, WATCH_TASK['task'])}"
        f"\n[settings]\n{template_text(TaskSettings, chosen)}\n[training]\n{template_text(TrainingSettings, training)}"
    )


def _start(model: type[SettingsTable]) -> dict[str, Any]:
    return {name: field.default for name, field in settable(model).items() if field.default is not None}


template = _task_text()
