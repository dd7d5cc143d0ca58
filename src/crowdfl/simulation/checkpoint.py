"""What a simulated campaign goes on from: kept in its result, and in a folder that is written after each round.

A folder holds two files. `model.safetensors` is the newest model, as other programs read it. `checkpoint.safetensors` has what
is needed to go on: weights as float64, what a server step carries, each person's own entries, and, as JSON in its header, the
history. Each is written whole or not at all, the checkpoint last. Neither can hold code.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from crowdfl.errors import FormatError, SettingsError
from crowdfl.learning.models.forms import ModelForm, container_of, entry_array, model_in, model_safetensors
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.protocols.party import Costs
from crowdfl.settings import TaskSettings
from crowdfl.simulation.history import SimulatedRound
from crowdfl.storage.atomic import alone_in, write_private

_Floats = npt.NDArray[np.float64]
_HISTORY = TypeAdapter(tuple[SimulatedRound, ...])
_MODEL, _REST = "model.safetensors", "checkpoint.safetensors"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A campaign after its last finished round.

    Attributes:
        history: The rounds so far.
        settings: The whole campaign's; a resumed one has a task of its own for the rounds that are left.
        asked: What the caller has set.
        samples: By person, how many the last training had, if there was one.
        units: What a weight of 1 is counted as.
        is_stopped: By `on_round`.
        costs: Counters by role.
        seed: Of dropouts, and of `info.seed`.
        form: The form of the model in the caller's functions.
        arrays: The model.
        moments: What the server step carries.
        own: By person, the entries that are not averaged.
    """

    history: tuple[SimulatedRound, ...]
    settings: TaskSettings
    asked: Mapping[str, Any]
    samples: Mapping[str, float | None]
    units: int
    is_stopped: bool
    costs: Mapping[str, Costs]
    seed: int
    form: ModelForm
    arrays: Weights = field(repr=False)
    moments: tuple[_Floats, ...] = field(repr=False)
    own: Mapping[str, Mapping[str, Any]] = field(repr=False)

    @property
    def model(self) -> Any:  # noqa: ANN401
        return self.form.model(self.arrays)

    def write(self, folder: Path) -> None:
        from safetensors import numpy as safetensors_numpy

        model = self.model
        people = list(self.samples)
        about = {
            "container": container_of(model),
            "personal": list(self.form.personal),
            "history": _HISTORY.dump_python(self.history, mode="json"),
            "settings": self.settings.model_dump(mode="json"),
            "asked": jsonable(self.asked),
            "samples": dict(self.samples),
            "units": self.units,
            "is_stopped": self.is_stopped,
            "costs": {role: _costs_json(one) for role, one in self.costs.items()},
            "seed": self.seed,
        }
        arrays = {f"model/{place}": array for place, array in enumerate(self.arrays)}
        arrays |= {f"moment/{place}": array for place, array in enumerate(self.moments)}
        for place, name in enumerate(people):
            arrays |= {f"own/{place}/{key}": entry_array(entry) for key, entry in self.own.get(name, {}).items()}
        rest = safetensors_numpy.save(
            {key: np.asarray(one, order="C") for key, one in arrays.items()}, {"crowdfl": json.dumps(about)}
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_private(folder / _MODEL, model_safetensors(model), overwrite=True)
            write_private(folder / _REST, rest, overwrite=True)
        except OSError as error:
            raise SettingsError(f"{folder} cannot be written: {error.strerror}") from error

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint | None":
        """None where there is none."""
        from safetensors import SafetensorError, safe_open

        _require_folder(folder)
        if not (folder / _REST).exists():
            return None
        try:
            with safe_open(folder / _REST, framework="numpy") as file:
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- no mapping
                about = json.loads(file.metadata()["crowdfl"])
            form = ModelForm.of(model_in(about["container"], (folder / _MODEL).read_bytes()), about["personal"])
            people = list(about["samples"])
            return cls(
                history=_HISTORY.validate_python(about["history"]),
                settings=TaskSettings.of(**about["settings"]),
                asked=about["asked"],
                samples=about["samples"],
                units=about["units"],
                is_stopped=about["is_stopped"],
                costs={role: _costs(one) for role, one in about["costs"].items()},
                seed=about["seed"],
                form=form,
                arrays=form.shape.check([found[f"model/{place}"] for place in range(len(form.shape.names))]),
                moments=tuple(found[f"moment/{place}"] for place in range(4) if f"moment/{place}" in found),
                own={name: form.counts_like(_below(f"own/{place}/", found)) for place, name in enumerate(people)},
            )
        except (SafetensorError, ValidationError, ValueError, KeyError, TypeError, AttributeError, OSError) as wrong:
            raise FormatError(
                f"{folder} does not hold a campaign that can be read; take another folder: {wrong}"
            ) from None

    def require_same(
        self, folder: Path, people: list[str], asked: Mapping[str, Any], seed: int, shape: ModelShape | None
    ) -> None:
        """The campaign in a folder goes on by the same call; more rounds are the same campaign."""

        def refuse(why: str) -> None:
            raise SettingsError(f"{folder} holds another campaign: {why}. Take another folder, or the same call")

        if set(people) != set(self.samples):
            refuse(f"its people are {_some(self.samples)}, not {_some(people)}")
        now = jsonable(asked) | {"seed": seed}
        before = dict(self.asked) | {"seed": self.seed}
        for name in sorted((now.keys() | before.keys()) - {"rounds"}):
            if now.get(name) != before.get(name):
                refuse(f"its `{name}` is {before.get(name)!r}, not {now.get(name)!r}")
        if shape is not None and shape != self.form.shape:
            refuse(f"its model has the arrays {_arrays(self.form.shape)}, not {_arrays(shape)}")


@contextmanager
def own_folder(folder: Path | None) -> Iterator[None]:
    """A campaign's folder, made if need be: two programs with one would overwrite each other's rounds."""
    if folder is None:
        yield
        return
    _require_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{folder} cannot be written: {error.strerror}") from error
    with alone_in(folder, "folder"):
        yield


def _require_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise SettingsError(
            f"{folder} is a file: a campaign is kept in a folder, and `initial` takes the file of a model"
        )


def jsonable(asked: Mapping[str, Any]) -> dict[str, Any]:
    """As it is read again."""
    found: dict[str, Any] = json.loads(json.dumps(dict(asked), default=str))
    return found


def added_costs(first: Mapping[str, Costs], second: Mapping[str, Costs]) -> dict[str, Costs]:
    return {
        role: Costs(
            first.get(role, Costs()).counts + one.counts,
            first.get(role, Costs()).messages + one.messages,
            first.get(role, Costs()).bytes_sent + one.bytes_sent,
        )
        for role, one in second.items()
    }


def _costs_json(costs: Costs) -> list[Any]:
    return [[[*key, times] for key, times in costs.counts.items()], costs.messages, costs.bytes_sent]


def _costs(found: list[Any]) -> Costs:
    counts, messages, sent = found
    return Costs(Counter({(scope, operation): times for scope, operation, times in counts}), messages, sent)


def _below(prefix: str, found: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): one for name, one in found.items() if name.startswith(prefix)}


def _some(names: Any) -> str:  # noqa: ANN401
    first = sorted(names)
    return ", ".join(first[:5]) + (f" and {len(first) - 5} others" if len(first) > 5 else "")


def _arrays(shape: ModelShape) -> str:
    pairs = list(zip(shape.names, shape.shapes, strict=True))
    return ", ".join(f"{name} {sides}" for name, sides in pairs[:3]) + (" ..." if len(pairs) > 3 else "")
