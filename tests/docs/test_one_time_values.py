"""docs/security.md lists every use of a one-time value: the code has no other, and none of them is gone."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from crowdfl.protocols.shares.dealing.rounds import DealtLanes, DealtRound

ROOT = Path(__file__).parents[2]
CODE = ROOT / "src/crowdfl"
DRAWN = {"secret_bytes", "random_below", "random_bits", "random_unit", "random_prime", "random_p256", "log_uniform"}
TAKEN = {"received"}  # from what KGC dealt
PASSED = {"fresh"}  # a method that draws
IN_BROWSERS = ("getRandomValues", "generateKey")


def calls(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[str]:
    """The functions that draw something or take what was dealt."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            called = child.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            if name in DRAWN | TAKEN | PASSED:
                yield ".".join(names)
        inside = (*names, child.name) if isinstance(child, ast.FunctionDef | ast.ClassDef) else names
        yield from calls(child, inside)


def uses() -> set[str]:
    found = set()
    for folder in ("crypto", "protocols"):
        for path in (CODE / folder).rglob("*.py"):
            if path.name != "randomness.py":  # where they come from
                module = ".".join(path.relative_to(CODE).with_suffix("").parts)
                found |= {f"{module}.{name}" for name in calls(ast.parse(path.read_text()))}
    for path in (CODE / "web").rglob("*.js"):
        if "vendor" not in path.parts and any(name in path.read_text() for name in IN_BROWSERS):
            found.add(str(path.relative_to(CODE)))
    return found | {f"{kind.__name__}.{one.name}" for kind in (DealtRound, DealtLanes) for one in fields(kind)}


def test_the_list_of_one_time_values_is_that_of_the_code():
    text = (ROOT / "docs/security.md").read_text()
    table = text.split("### One-time values")[1].split("**The guard.**")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \| (.+) \|$", table, re.MULTILINE)
    assert sorted(place for place, _, _ in rows) == sorted(uses())
