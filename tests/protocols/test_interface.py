"""A profile's interface is what roles ask of it: nothing in a side is empty, and nothing only refuses."""

import ast
import inspect
import textwrap
from typing import get_type_hints

import pytest

from crowdfl.protocols import capabilities
from crowdfl.protocols.registry import PROFILES, profile_named

ROLES = ("sp", "csp", "requester", "participant")
DEFINED = [one for one in vars(capabilities).values() if getattr(one, "__module__", "") == capabilities.__name__]
CAPABILITIES = [one for one in DEFINED if getattr(one, "_is_protocol", False)]
EXCEPTIONS: dict[str, str] = {}  # "Class.method": why it may be empty


def classes(name):
    """A profile's, and those of its sides, by what its methods say to return."""
    made = profile_named(name)
    return [type(made), *(get_type_hints(getattr(type(made), role))["return"] for role in ROLES)]


def functions(side):
    for name, _ in inspect.getmembers(side):
        found = inspect.getattr_static(side, name)
        found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if inspect.isfunction(found) and found.__module__.startswith("crowdfl."):
            yield found


def does_nothing(function):
    """Nothing but a docstring, names that are not used, an empty value, or an error."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    return all(map(_is_idle, definition.body))


def _is_idle(step):
    if isinstance(step, ast.Return):
        return step.value is None or _is_empty(step.value)
    constant = isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant)
    return constant or isinstance(step, ast.Pass | ast.Delete | ast.Raise)


def _is_empty(value):
    if isinstance(value, ast.Call):  # iter(()), dict(), SpRecord()
        return all(map(_is_empty, value.args)) and not value.keywords and isinstance(value.func, ast.Name)
    if isinstance(value, ast.Tuple | ast.List):
        return not value.elts
    return (isinstance(value, ast.Dict) and not value.keys) or (isinstance(value, ast.Constant) and not value.value)


@pytest.mark.parametrize("name", PROFILES)
def test_nothing_of_a_profile_is_empty_or_only_raises(name):
    idle = {one.__qualname__ for side in classes(name) for one in functions(side) if does_nothing(one)}
    assert idle - EXCEPTIONS.keys() == set()


def test_emptiness_is_seen():
    class Side:
        def told(self):
            """Words."""

        def raising(self):
            raise ValueError

        def unused(self, given):
            del given
            return b""

        def counted(self):
            return iter(())

        def kept(self):
            return self.told()

    assert [
        one.__name__ for one in (Side.told, Side.raising, Side.unused, Side.counted, Side.kept) if does_nothing(one)
    ] == [
        "told",
        "raising",
        "unused",
        "counted",
    ]


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.__name__)
def test_a_capability_is_of_some_profiles_and_not_of_all(capability):
    """What all have belongs to `profile.py`, what none has to nobody."""
    wanted = [one for one in dir(capability) if not one.startswith("_") and one != "party"]  # which all have
    has = [any(all(hasattr(side, one) for one in wanted) for side in classes(name)) for name in PROFILES]
    assert any(has)
    assert not all(has)
