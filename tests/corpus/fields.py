"""What the forms of this version hold: every field of every document, file and message, and what a file means without it."""

import importlib
import json
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import crowdfl
from crowdfl.documents.envelope import Document
from crowdfl.documents.forms import FILES
from crowdfl.documents.signed import _DefinitionBody
from crowdfl.protocols.messages import Message
from crowdfl.schema import SettingsTable, settable, table_of
from crowdfl.settings import (
    AskerSettings,
    ConsentSettings,
    PlanSettings,
    TaskFile,
    TaskSettings,
    TextsSettings,
    TrainingSettings,
)
from crowdfl.task_tables import OWN_SETTINGS, STEP, STEP_NAMES

FROZEN = Path(__file__).with_name("forms.json")
_TABLES: Mapping[str, type[SettingsTable]] = {
    "settings": TaskSettings,
    "plan": PlanSettings,
    "who": AskerSettings,
    "consent": ConsentSettings,
    "texts.*": TextsSettings,
}


def described() -> dict[str, Any]:
    """By kind and path: of documents nothing, but of what `training` leaves out; of files the default; of messages names."""
    for part in ("crypto", "documents", "protocols", "roles", "services"):
        package = importlib.import_module(f"crowdfl.{part}")
        for module in pkgutil.walk_packages(package.__path__, f"crowdfl.{part}."):
            if ".gpu" not in module.name and ".cluster" not in module.name:
                importlib.import_module(module.name)
    found: dict[str, Any] = {
        one.kind: {field.name: None for field in fields(one)} for one in _below(Document) if _is_own(one)
    }
    found["definition"] = dict(_definition())
    found |= {name: dict(_file(model)) for model, name in FILES.items()}
    found["messages"] = {
        str(one.kind): [field.name for field in fields(one)] for one in _below(Message) if one.kind and _is_own(one)
    }
    return json.loads(json.dumps(found, sort_keys=True, default=str))


def _definition() -> Iterator[tuple[str, Any]]:
    for name in _DefinitionBody.model_fields:
        if name not in ("settings", "plan", "who", "consent", "texts", "training"):
            yield name, None
    for table, model in _TABLES.items():
        yield from ((f"{table}.{name}", None) for name in model.model_fields)
    yield from _defaults(TrainingSettings, "training.")


def _file(model: type[SettingsTable]) -> Iterator[tuple[str, Any]]:
    if model is not TaskFile:
        yield from _defaults(model)
        return
    yield from (
        (name, value) for name, value in _defaults(model) if name not in (*_TABLES, *OWN_SETTINGS, "training", "texts")
    )
    own = {name for names in OWN_SETTINGS.values() for name in names}
    yield from (
        (name, value)
        for name, value in _defaults(TaskSettings, "settings.")
        if name.removeprefix("settings.") not in own
    )
    for profile, names in OWN_SETTINGS.items():
        for name, value in _defaults(TaskSettings):
            if name in names:
                yield f"{profile}.{f'{STEP}.{STEP_NAMES[name]}' if name in STEP_NAMES else name}", value
    for table, inner in _TABLES.items():
        if inner is not TaskSettings:
            yield from _defaults(inner, f"{table}.")
    yield from _defaults(TrainingSettings, "training.")


def _defaults(model: type[SettingsTable], inside: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in settable(model).items():
        table = table_of(field)
        if table is not None:
            yield from _defaults(table, f"{inside}{name}.")
        else:
            yield f"{inside}{name}", "required" if field.is_required() else field.default


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _is_own(kind: type[Any]) -> bool:
    return kind.__module__.startswith(f"{crowdfl.__name__}.")


def write() -> None:
    FROZEN.write_text(json.dumps(described(), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write()
