"""What the package offers is said in one place per module, and said truly."""

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

import crowdfl
from crowdfl import errors

ROOT = Path(crowdfl.__file__).parent
BARE = ("crypto", "protocols", "learning")  # what a GPU machine without the other packages runs
PUBLIC = {"crowdfl", "crowdfl.errors", "crowdfl.crypto.paillier.pctd"}  # what README shows
SOURCES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__main__.py")
FROM_BYTES = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve")  # they run what they read
RULED = re.compile(rf"\b(?:__all__|{'|'.join(FROM_BYTES)})\b|\bimport\s*\*")  # the few files that need to be parsed
BARE_SOURCES = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in BARE]


def module_name(path: Path) -> str:
    """crowdfl.crypto.paillier.pctd for .../crowdfl/crypto/pctd.py."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def ruff_order(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then the rest."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


def is_docstring(node: ast.stmt) -> bool:
    """A string that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def offered(tree: ast.Module) -> list[list[str]]:
    """The lists assigned to `__all__`, annotated or not; errors.py, where every class is public, computes its own."""
    assigned = []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            computed = isinstance(node.value, ast.ListComp)
            assigned.append(errors.__all__ if computed else ast.literal_eval(node.value))
    return assigned


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_there_are_modules_to_look_at():
    """The tests below have not lost their subject."""
    assert {"crowdfl", "crowdfl.errors", "crowdfl.crypto.paillier.pctd"} <= set(map(module_name, SOURCES))


def test_a_module_shows_what_it_offers_and_takes():
    """`__all__` of the public surface alone, without repeats and in ruff's order. No star imports, and no code from bytes."""
    for path in SOURCES:
        tree = ast.parse(text if RULED.search(text := path.read_text(encoding="utf-8")) else "")
        lists = offered(tree)
        assert len(lists) == (module_name(path) in PUBLIC), path
        assert lists in ([], [sorted(set(names), key=ruff_order) for names in lists]), path
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        named = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
        named |= {node.module for node in imports if isinstance(node, ast.ImportFrom) and node.module}
        named |= {alias.name for node in imports for alias in node.names if alias.name == "*"}
        if module_name(path) == "crowdfl.simulation.parallel":
            named.discard("pickle")  # between a process and those that it has forked itself
        assert named.isdisjoint({"*", *FROM_BYTES}), path


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_every_module_loads_and_has_what_it_offers(path):
    """Each entry of `__all__` resolves."""
    if path.name == "env.py":
        pytest.skip("Alembic runs this file, it is never imported; the migration tests run it")
    try:
        module = importlib.import_module(module_name(path))
    except ModuleNotFoundError as missing:
        if (missing.name or "crowdfl").partition(".")[0] == "crowdfl":
            raise
        pytest.skip(f"{missing.name} is an optional dependency that is not installed")
    assert [name for name in getattr(module, "__all__", []) if not hasattr(module, name)] == []


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_nothing_public_is_left_out(name):
    """A function or class without an underscore is in `__all__`, or should have one."""
    module = importlib.import_module(name)
    tree = tree_of(Path(module.__file__ or ""))
    defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    assert [one for one in defined if not one.startswith("_") and one not in module.__all__] == []


def family(kind: type) -> list[type]:
    """A kind of error, and below it those that are one of it."""
    below = [one for one in kind.__subclasses__() if one.__module__ == errors.__name__]
    return [kind, *(one for child in below for one in family(child))]


def test_errors_stand_in_the_order_of_their_tree():
    assert [value for value in vars(errors).values() if isinstance(value, type)] == family(errors.CrowdFLError)


def test_every_error_is_offered():
    classes = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    assert set(errors.__all__) == set(classes)
    assert all(issubclass(cls, errors.CrowdFLError) for cls in classes.values())
    docs = [cls.__doc__ for cls in classes.values()]
    assert all(docs)
    assert len(set(docs)) == len(docs)


def imported(tree: ast.Module) -> set[str]:
    """Top-level names of what a module imports when it is loaded; an import inside a function is not."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def test_what_computes_runs_on_a_bare_machine():
    """Beyond the standard library: what computes and what checks forms, and nothing else of the package's needs."""
    allowed = {"blake3", "crowdfl", "cryptography", "gmpy2", "numpy", "pydantic", "torch"}
    for path in BARE_SOURCES:
        assert imported(tree_of(path)) - set(sys.stdlib_module_names) <= allowed, path
        inner = [node.module or "" for node in tree_of(path).body if isinstance(node, ast.ImportFrom)]
        layers = {name.split(".")[1] for name in inner if name.startswith("crowdfl.")}
        known = {*BARE, "codes", "errors", "privacy", "reasons", "settings"}
        assert layers <= known, f"{path}: a higher layer would bring its own needs along"
