"""The file that defines a task, as `crowdfl task new` prints it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdfl.documents.links import link_of
from crowdfl.errors import PackageMissing
from crowdfl.roles.defining import WATCH_TASK
from crowdfl.schema import SettingsTable, settable
from crowdfl.settings import TaskFile, TaskSettings, TrainingSettings
from crowdfl.storage.atomic import write_private
from crowdfl.storage.settings_file import template_text

_FOR_OTHERS = {"module", "form", "scale_inputs", "target", "proximal"}  # for code, values and people of other kinds
_NOT_AT_FIRST = _FOR_OTHERS | {"layers", "standardise", "held_out"}  # at their defaults, as comments

_HEAD = """\
# A task: every setting. A line that begins with "# name =" shows what holds if it is left out.
"""
_ABOUT_DATA = """\
# `labels`, `channels`, `window` and `hertz` say which data people need: these are the watch data's (watch:0 to watch:9).
# `crowdfl data show DATA` prints them for your data; `crowdfl task create --try DATA` checks it before anyone is asked.
"""


def _task_text() -> str:
    """A task file to start from, with every setting."""
    chosen = _start(TaskSettings) | dict(WATCH_TASK["settings"])
    training = {name: value for name, value in _start(TrainingSettings).items() if name not in _NOT_AT_FIRST} | dict(
        WATCH_TASK["training"]
    )
    return (
        f"{_HEAD}{template_text(TaskFile, WATCH_TASK['task'])}"
        f"\n[settings]\n{template_text(TaskSettings, chosen)}"
        f"\n[training]\n{_ABOUT_DATA}{template_text(TrainingSettings, training)}"
    )


def _start(model: type[SettingsTable]) -> dict[str, Any]:
    return {name: field.default for name, field in settable(model).items() if field.default is not None}


template = _task_text()


def write_links(invitations: Iterable[Path], page: str) -> list[Path]:
    """invitation-3.txt beside invitation-3.json, and so on."""
    return [_write(path.with_suffix(".txt"), f"{link_of(path, page)}\n".encode()) for path in invitations]


def write_codes(invitations: Iterable[Path], page: str) -> list[Path]:
    """The same as pictures, invitation-3.svg."""
    with _drawing():
        from crowdfl.web.qr import qr_svg
    return [_write(path.with_suffix(".svg"), qr_svg(link_of(path, page))) for path in invitations]


def code_in_letters(link: str) -> str:
    with _drawing():
        from crowdfl.web.qr import qr_terminal
    return qr_terminal(link)


def _write(path: Path, data: bytes) -> Path:
    write_private(path, data, overwrite=True)
    return path


@contextmanager
def _drawing() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as missing:
        raise PackageMissing(f"QR codes need {missing.name}: `pip install segno`") from None
