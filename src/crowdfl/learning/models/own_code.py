"""Code that a user names as `package.module:Name`: found in the current folder or among what is installed, and never sent.

A task may name the code that it is about. Each participant installs it, reads it, and names it again; only then is it run. A
learner of the user's own stands behind checks: docs/learning.md says what the class needs. It is written by whoever runs it,
so that this guards against mistakes, not malice.
"""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import CrowdFLError, OwnCodeError, SettingsError
from crowdfl.learning.features import Inputs
from crowdfl.learning.models.learner import AnyScores, ModelScores, Training, ValueScores, scored
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.settings import is_code

_LONGEST = 300  # characters of another's error that a message repeats
_NEEDED = ("weights", "load", "train", "predict")
_NEAR = 1e-3  # how far probabilities may be from a sum of 1: float16 and rounding
_INSTALLED = {"site-packages", "dist-packages"}  # folders of libraries, one of which may be outside of Python's own
_ROWS = 2  # that `predict` is tried on


def load_code(name: str, kind: str = "Class") -> Any:  # noqa: ANN401 -- whatever the user's module holds
    """What the name stands for; the current folder is looked in first, as Python does for a script."""
    if not is_code(name):
        raise SettingsError(f"code is written package.module:{kind}, not {name!r}")
    place, _, attribute = name.partition(":")
    try:
        with _current_folder_first():
            module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        remedy = "install it, or go to the folder that has it"
        if place.endswith(".py"):
            remedy = f"a module is named without its ending, {place.removesuffix('.py')}:{attribute}"
        raise SettingsError(f"{name}: {error.name!r} is not installed, and not in {Path.cwd()}: {remedy}") from error
    except SystemExit as error:
        raise SettingsError(
            f"{name} cannot be loaded: the module ends the program; put that under `if __name__ == '__main__':`"
        ) from error
    except (Exception, RecursionError) as error:  # a module may fail in any way while it is imported
        raise SettingsError(f"{name} cannot be loaded: {described(error)}") from error
    if not hasattr(module, attribute):  # perhaps another module of that name, which was loaded first
        raise SettingsError(f"{name} cannot be loaded: {getattr(module, '__file__', place)} has no {attribute!r}")
    return getattr(module, attribute)


def code_file(name: str) -> str:
    """Where the code was found, for its user to see."""
    found = load_code(name)
    module = sys.modules[name.partition(":")[0]]
    try:
        return inspect.getsourcefile(inspect.unwrap(found)) or str(module.__file__)
    except (TypeError, AttributeError):  # neither a class nor a function, or without source
        return str(getattr(module, "__file__", None) or "a module without a file")


def constructed(name: str, found: Callable[..., Any], offered: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- as above
    """Made from those of the offered arguments that the constructor names."""
    words = ", ".join(offered)
    try:
        wanted = inspect.signature(found).parameters.values()
    except (TypeError, ValueError) as error:
        raise OwnCodeError(f"{name} has no constructor that can be read: it may ask for {words}") from error
    named = {one.name for one in wanted if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    loose = {one.name for one in wanted if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    needed = {one.name for one in wanted if one.default is one.empty} - loose
    if unknown := sorted(needed - (named & offered.keys())):
        raise OwnCodeError(f"{name} asks for {', '.join(unknown)}; its constructor may ask for {words} by name")
    with guarded(f"{name}()"):
        return found(**{key: value for key, value in offered.items() if key in named})


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """What a user's code raises becomes an error that says which call it was, and where in the code."""
    try:
        yield
    except CrowdFLError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise OwnCodeError(f"{what} failed: {described(error)}") from error


def described(error: BaseException) -> str:
    """In a line: the kind of error, its words, and the innermost place in the user's own files, or else at all."""
    every = traceback.extract_tb(error.__traceback__)
    libraries = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]), "<")
    frames = [
        one for one in every if not one.filename.startswith(libraries) and not _INSTALLED & {*Path(one.filename).parts}
    ]
    frames = frames or every
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    words = " ".join(str(error).split())[:_LONGEST]
    return f"{type(error).__name__}: {words}{place}"


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """For one import: afterwards the path is what it was."""
    before = list(sys.path)
    folder = str(Path.cwd())
    importlib.invalidate_caches()  # the file may have been written a moment ago
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path[:] = before


class OwnLearner:
    """A class that trains itself, tried when it is made: mistakes show before anyone joins.

    `inputs` is the shape of one sample. `outputs` counts labels, or values."""

    def __init__(self, name: str, learner: Any, inputs: Sequence[int], outputs: int, *, values: bool) -> None:  # noqa: ANN401
        self._name = name
        self._learner = learner
        self._outputs = outputs
        self._values = values
        missing = [one for one in _NEEDED if not callable(getattr(learner, one, None))]
        if missing:
            needed = ", ".join(f"{one}()" for one in missing)
            raise OwnCodeError(f"{name} is no torch.nn.Module, and no learner either: it has no {needed}")
        self._shape = self._found_shape()
        self._check_loading()
        self.predict(np.zeros((_ROWS, *inputs), dtype=np.float32))

    @property
    def shape(self) -> ModelShape:
        return self._shape

    def weights(self) -> Weights:
        """Copies, whatever the class hands out."""
        with guarded(f"{self._name}.weights()"):
            return [array.copy() for array in self._checked(self._learner.weights())]

    def load(self, weights: Sequence[npt.ArrayLike]) -> None:
        arrays = [array.copy() for array in self._shape.check(weights)]
        with guarded(f"{self._name}.load()"):
            self._learner.load(arrays)

    def train(self, inputs: Inputs, labels: npt.NDArray[Any], training: Training) -> int:
        with guarded(f"{self._name}.train()"):
            used = self._learner.train(inputs.copy(), labels.copy(), training)  # the next round needs them as they are
        if used is None:
            return len(labels)
        if isinstance(used, bool) or not isinstance(used, int | np.integer) or not 0 <= used <= len(labels):
            raise OwnCodeError(
                f"{self._name}.train() returns {used!r:.60}; expected how many of the {len(labels)} samples it used, or None"
            )
        return int(used)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        wanted = (len(inputs), self._outputs)
        with guarded(f"{self._name}.predict()"):
            found = np.asarray(self._learner.predict(inputs.copy()), dtype=np.float64)
        if self._values and found.shape == wanted[:1] and self._outputs == 1:
            found = found[:, None]  # one value each, as most libraries return it
        if found.shape != wanted:
            raise OwnCodeError(
                f"{self._name}.predict() returns the shape {found.shape} for {len(inputs)} samples; expected {wanted}"
            )
        if not np.isfinite(found).all():
            raise OwnCodeError(f"{self._name}.predict() returns NaN or infinity")
        if not self._values and ((found < 0).any() or (abs(found.sum(axis=1) - 1) > _NEAR).any()):
            raise OwnCodeError(
                f"{self._name}.predict() must return the probability of each label: numbers from 0 to 1 that add up to 1"
            )
        return found

    def evaluate(self, inputs: Inputs, labels: npt.NDArray[Any]) -> AnyScores:
        """By the class's own `evaluate` if it has one, else from its predictions."""
        if not callable(own := getattr(self._learner, "evaluate", None)):
            return scored(self.predict(inputs), labels)
        with guarded(f"{self._name}.evaluate()"):
            found = own(inputs.copy(), labels.copy())
        wanted = ValueScores if self._values else ModelScores
        if not isinstance(found, wanted):
            raise OwnCodeError(
                f"{self._name}.evaluate() returns {type(found).__name__}; expected {wanted.__name__}, or leave it out"
            )
        return found

    def _found_shape(self) -> ModelShape:
        """As the class says, or by the arrays that it has: `array 0`, `array 1` and so on."""
        with guarded(f"{self._name}.shape"):
            said = getattr(self._learner, "shape", None)
            if said is not None and not isinstance(said, ModelShape):
                raise OwnCodeError(
                    f"{self._name}.shape is {type(said).__name__}; expected a ModelShape, or leave it out"
                )
            if said is not None:
                return said
        with guarded(f"{self._name}.weights()"):
            arrays = self._arrays(self._learner.weights())
        return ModelShape.of({f"array {place}": array for place, array in enumerate(arrays)})

    def _check_loading(self) -> None:
        """What was loaded must come back, but for float32's rounding."""
        start = self.weights()
        other = [array + 0.25 for array in start]
        self.load(other)
        back = self.weights()
        self.load(start)
        for name, loaded, found in zip(self._shape.names, other, back, strict=True):
            if not np.allclose(loaded, found, rtol=1e-3, atol=1e-3):
                raise OwnCodeError(
                    f"{self._name}: weights() does not return what load() was given, of the array {name!r}"
                )

    def _checked(self, found: object) -> Weights:
        try:
            return self._shape.check(self._arrays(found))
        except OwnCodeError:
            raise
        except CrowdFLError as error:
            raise OwnCodeError(f"{self._name}.weights() does not fit its shape: {error}") from error

    def _arrays(self, found: object) -> Weights:
        if not isinstance(found, list | tuple) or not found:
            raise OwnCodeError(
                f"{self._name}.weights() returns {type(found).__name__}; expected a list of arrays, at least one"
            )
        arrays = [np.asarray(array) for array in found]
        for place, array in enumerate(arrays):
            if array.dtype.kind not in "fiu":
                raise OwnCodeError(
                    f"{self._name}.weights() has {array.dtype} at place {place}; expected an array of numbers"
                )
        return [array.astype(np.float64) for array in arrays]
