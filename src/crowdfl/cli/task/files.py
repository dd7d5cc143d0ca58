"""The files of a task: the one that defines it, and the model with what is needed to use it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import FormatError, SettingsError
from crowdfl.learning.datasets import watch_data as watch
from crowdfl.learning.models.files import from_npz, from_safetensors, to_npz, to_safetensors
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.documents import Definition, ModelArray
from crowdfl.roles.participant import Arrays
from crowdfl.settings import TaskSettings
from crowdfl.storage.atomic import write_private

__all__ = ["FORMATS", "defined", "read_model", "require_model_path", "template", "write_model"]

FORMATS = (".safetensors", ".npz")
_WRITERS = {".safetensors": to_safetensors, ".npz": to_npz}
_READERS = {".safetensors": from_safetensors, ".npz": from_npz}

template = f"""# A task: every setting, with a value to start from.
purpose = "Recognise which exercise the wearer of a watch is doing"
terms = "Windows of sensor data stay on your device. Only an encrypted model leaves it."
readers = "The requester reads the last average; every participant reads the others."
claim_window = 604800.0   # seconds after the end in which rewards can be claimed; then what is unclaimed returns

[settings]
profile = "hardened"      # or "paper": the algorithms as printed, which leak
total = "shown"           # or "hidden": readers do not learn how many samples there are
max_participants = 10     # the next one is refused
max_samples = 1000        # of one participant in one round
clip = 16.0               # weights beyond are clipped, and the participant is told how many
decimals = 6              # kept of each weight
lanes = 1024              # of the distance sketch that rewards rest on: more is more exact and slower; 0: no rewards
strategy = "retransmit"   # or "discard": what happens to uploads after the window
window = 3600.0           # seconds in which a round takes uploads; it closes early once everyone has sent one
grace = 600.0             # seconds after the window in which "retransmit" still takes them
min_participants = 3      # below, a round waits one more window, then it is given up and its budget returns
rounds = 3
budget = "36.00"          # per round, prepaid
key_bits = 2048           # shorter ones are for tests
# sigma = 40              # bits by which masks hide what they cover, over the whole task; 80 in "paper"
# epsilon = 0.000001      # added to each distance, so that nobody's is zero

[training]                # what every participant's device does; the platform does not look inside
learner = "network"       # or "conv", "softmax", "module": docs/learning.md says what each takes
hidden = [32]             # sizes of the network's hidden layers
features = "motion"       # or "flat": the samples as they are
labels = {json.dumps(list(watch.EXERCISES))}
epochs = 20
batch = 32
rate = 0.005
seed = 0                  # the initial weights follow from it
"""


def defined(file: Path, found: dict[str, Any], module: str | None = None) -> tuple[Definition, Arrays]:
    """A task as a task file's contents define it, unsigned, and the weights it starts from."""
    try:
        learner = Recipe.of(found["training"]).make_learner(module)
        shape = learner.shape
        definition = Definition(
            purpose=found["purpose"],
            terms=found["terms"],
            readers=found["readers"],
            arrays=tuple(ModelArray(n, tuple(s)) for n, s in zip(shape.names, shape.shapes, strict=True)),
            initial="",
            settings=TaskSettings.of(**found["settings"]),
            claim_window=float(found["claim_window"]),
            requester=b"",
            training=found["training"],
        )
    except (KeyError, TypeError, ValueError) as wrong:
        raise SettingsError(f"{file}: a setting is missing or wrong: {wrong}") from None
    return definition, learner.weights()


def require_model_path(path: Path) -> None:
    """A model can be written here: to be asked before the work, not after it."""
    if path.suffix not in _WRITERS:
        raise SettingsError(f"a model is written as {' or '.join(_WRITERS)}, not {path.suffix!r}")
    if not path.parent.is_dir():
        raise SettingsError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise SettingsError(f"{path} is a folder; name a file for the model")


def write_model(path: Path, definition: Definition, arrays: Sequence[npt.NDArray[np.float64]]) -> None:
    """The model, and beside it the definition: arrays alone do not say which network they fill."""
    require_model_path(path)
    write_private(path, _WRITERS[path.suffix](definition.shape, arrays), overwrite=True)
    about = {"task": definition.task, "definition": definition.body()}
    write_private(_beside(path), json.dumps(about, indent=1).encode(), overwrite=True)


def read_model(path: Path) -> tuple[Definition, Arrays]:
    """A model as `write_model` left it."""
    if path.suffix not in _READERS:
        raise SettingsError(f"a model is read from {' or '.join(_READERS)}, not {path.suffix!r}")
    try:
        about, data = json.loads(_beside(path).read_bytes()), path.read_bytes()
        definition = Definition.from_body(about["definition"])
    except FileNotFoundError as missing:
        raise SettingsError(f"there is no {missing.filename}: `crowdfl task fetch` writes both files") from None
    except (ValueError, KeyError, TypeError) as wrong:
        raise FormatError(f"{_beside(path)} does not describe a model: {wrong}") from None
    return definition, _READERS[path.suffix](definition.shape, data)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".json")
