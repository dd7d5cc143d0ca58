"""A model on disk, with what is needed to use it: arrays alone do not say which network they fill."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.documents.signed import Definition
from crowdfl.errors import EncodingError, FormatError, SettingsError
from crowdfl.learning.models.forms import (
    dictionary_form,
    from_npz,
    from_safetensors,
    read_arrays,
    to_npz,
    to_safetensors,
)
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.storage.atomic import write_private

FORMATS = {".safetensors": (to_safetensors, from_safetensors), ".npz": (to_npz, from_npz)}


def require_model_path(path: Path) -> None:
    """A model can be written here: to be asked before the work, not after it."""
    if path.suffix not in FORMATS:
        raise SettingsError(f"a model is written as {' or '.join(FORMATS)}, not {path.suffix!r}")
    if not path.parent.is_dir():
        raise SettingsError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise SettingsError(f"{path} is a folder; name a file for the model")


def write_model(path: Path, definition: Definition, arrays: Sequence[npt.NDArray[np.float64]]) -> None:
    """The model, and beside it the definition."""
    require_model_path(path)
    write_private(path, FORMATS[path.suffix][0](definition.shape, arrays), overwrite=True)
    write_private(_beside(path), model_description(definition), overwrite=True)


def model_description(definition: Definition) -> bytes:
    """What is written beside a model."""
    return json.dumps({"task": definition.task, "definition": definition.body()}, indent=1).encode()


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


def read_initial(path: Path) -> dict[str, npt.NDArray[np.float64]]:
    """The arrays of a model that a task starts from, by name."""
    if path.suffix not in FORMATS:
        raise SettingsError(f"a model is read from {' or '.join(FORMATS)}, not {path.suffix!r}: write it so first")
    try:
        return read_arrays(path.read_bytes(), path.suffix)
    except FileNotFoundError:
        raise SettingsError(f"there is no model at {path}") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (FormatError, EncodingError) as wrong:
        raise type(wrong)(f"{path}: {wrong}") from None


def initial_model(initial: Any) -> Any:  # noqa: ANN401 -- any form that a model has
    """A model, or the one in a file that is named in its place."""
    if not isinstance(initial, str | os.PathLike):
        return initial
    arrays = read_initial(Path(initial))
    return dictionary_form(ModelShape.of(arrays)).model(list(arrays.values()))


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".json")
