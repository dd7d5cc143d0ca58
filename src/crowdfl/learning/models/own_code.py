"""Code that a user names as `package.module:Name`: found in the current folder or among what is installed, and never sent.

A task may name the code that it is about. Each participant installs it, reads it, and names it again; only then is it run.
"""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdfl.errors import CrowdFLError, OwnCodeError, SettingsError
from crowdfl.settings import is_code

_LONGEST = 300  # characters of another's error that a message repeats


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
    frames = [frame for frame in every if not frame.filename.startswith(libraries)] or every
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    words = " ".join(str(error).split())[:_LONGEST]
    return f"{type(error).__name__}: {words}{place}"


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """For one import: afterwards the path is what it was."""
    before, folder = list(sys.path), str(Path.cwd())
    importlib.invalidate_caches()  # the file may have been written a moment ago
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path[:] = before
