"""What must be equal to the byte on every machine uses nothing that differs between machines.

Whole numbers, fractions, and of IEEE doubles the operations that are correctly rounded everywhere: + - * / sqrt rint. No
logarithm or power of the C library, and no sum of floats in an order that a processor chooses.
"""

import ast
import hashlib
import inspect
import json

import pytest

from crowdfl.crypto import encoding, randomness
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.paillier import budget
from crowdfl.crypto.shares import dcf, ring, sketch
from crowdfl.protocols.shares import chain, rule_widths, server_optimizers, shape, widths
from crowdfl.protocols.shares.circuits import reciprocal, scalars
from crowdfl.protocols.shares.circuits.reciprocal import draw_mask
from crowdfl.protocols.shares.dealing import correlations, rounds
from crowdfl.protocols.shares.rule_widths import RuleWidths
from crowdfl.protocols.shares.widths import SharesWidths
from crowdfl.settings import TaskSettings

INTEGERS = [budget, randomness, dcf, ring, sketch, correlations, rounds]
INTEGERS += [reciprocal, rule_widths, scalars, shape, widths]
DOUBLES = [encoding, chain, server_optimizers]
"""Modules that compute with doubles: no power there but of a whole number that is written out."""
TEXTS = {"power_of_two", "_off_by"}
"""Functions whose result is only printed."""
EXACT = {"ceil", "comb", "floor", "gcd", "isfinite", "isqrt", "ldexp", "pi", "sqrt"}
ORDERED = {
    "convolve",
    "cumsum",
    "dot",
    "einsum",
    "inner",
    "linalg",
    "matmul",
    "mean",
    "prod",
    "std",
    "sum",
    "tensordot",
}
LIBRARY = {
    "cbrt",
    "cos",
    "exp",
    "exp2",
    "expm1",
    "float_power",
    "hypot",
    "log",
    "log10",
    "log1p",
    "log2",
    "power",
    "sin",
}


def findings(source: str, *, doubles: bool = False) -> list[str]:
    """What a module uses that may differ, outside of functions that make texts."""
    return [found for node in _decisive(ast.parse(source)) if (found := _finding(node, doubles))]


def _decisive(node: ast.AST):
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.FunctionDef) and child.name in TEXTS):
            yield child
            yield from _decisive(child)


def _finding(node: ast.AST, doubles: bool) -> str:
    found = ""
    match node:
        case ast.ImportFrom(module="math", names=names):
            found = " ".join(name.name for name in names if name.name not in EXACT)
        case ast.Attribute(value=ast.Name(id="math"), attr=name):
            found = "" if name in EXACT else f"math.{name}"
        case ast.Attribute(value=ast.Name(id="gmpy2")):
            found = ""  # MPFR rounds correctly
        case ast.Attribute(attr=name):
            found = f".{name}" if name in ORDERED | LIBRARY else ""
        case ast.BinOp(op=ast.MatMult()):
            found = "@"
        case ast.BinOp(op=ast.Pow(), left=base, right=exponent):
            found = "" if _is_whole(base, exponent, doubles) else "**"
        case ast.Call(func=ast.Name(id="pow")):
            found = "pow"
    return found


def _is_whole(base: ast.expr, exponent: ast.expr, doubles: bool) -> bool:
    if doubles:
        return isinstance(base, ast.Constant) and isinstance(base.value, int)
    parts = [part for side in (base, exponent) for part in ast.walk(side)]
    made_float = any(isinstance(part, ast.Name) and part.id == "float" for part in parts)
    written = any(isinstance(part, ast.Constant) and isinstance(part.value, float) for part in parts)
    return not (made_float or written or isinstance(exponent, ast.UnaryOp))


@pytest.mark.parametrize("module", [*INTEGERS, *DOUBLES], ids=lambda module: module.__name__)
def test_nothing_that_differs_between_machines_is_used(module):
    assert findings(inspect.getsource(module), doubles=module in DOUBLES) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import math\nmath.lgamma(3)", ["math.lgamma"]),
        ("from math import comb, log2", ["log2"]),
        ("np.exp(x)", [".exp"]),
        ("(x * x).sum()", [".sum"]),
        ("a.T @ b", ["@"]),
        ("2.0**-40", ["**"]),
        ("x ** -float(rows)", ["**"]),
        ("pow(x, 2)", ["pow"]),
        ("def power_of_two(x):\n    return math.log2(x)", []),
        ("math.isqrt(8) + math.comb(3, 2) + 2**40 + bound**2", []),
    ],
)
def test_what_differs_is_found(source, found):
    assert findings(source) == found


def test_where_doubles_are_computed_with_no_power_is_taken_of_them():
    assert findings("self.momentum**2", doubles=True) == ["**"]
    assert findings("10**self.decimals", doubles=True) == []


def test_masks_are_those_of_every_machine():
    """Drawn from fixed coins; an SP that moves to another machine in a round draws them again."""
    coins = Coins(b"masks of every machine".ljust(32))
    drawn = [[int(draw_mask(coins, lo, hi)) for _ in range(200)] for lo, hi in ((100, 140), (200, 4000))]
    assert (
        hashlib.sha256(json.dumps(drawn).encode()).hexdigest()
        == "23b87bd67f169a7f3d40de10461978a1504fc349364a1c2ae24e87026b19bbdd"
    )


TASKS = [
    (300, {"max_participants": 3, "lanes": 128, "decimals": 0, "clip": 1.0, "max_samples": 1, "max_norm": 1.0}),
    (30, {"max_participants": 6, "lanes": 260, "decimals": 3, "clip": 4.0, "max_samples": 50, "max_norm": 2.0}),
    (277_006, {"max_participants": 36, "lanes": 4096, "rounds": 5, "max_norm": 5.0}),
    (61_706, {"max_participants": 200, "lanes": 1024, "max_samples": 1000, "max_norm": 5.0}),
    (5_000, {"max_participants": 1000, "lanes": 65_536, "max_norm": 20.0, "decimals": 4}),
]


def widths_of(parameters: int, rule: str, settings: dict) -> list:
    task = TaskSettings.of(profile="shares", budget="1.00", pay=rule, **settings)
    upload = SharesWidths.of(task, parameters)
    sketched = [upload.rows, upload.buckets, upload.load, upload.lane_bound, upload.max_dropped_blocks]
    return [*sketched, upload.k, upload.R, upload.K, *of_rule(task, upload), str(upload.tau)]


def of_rule(task: TaskSettings, upload: SharesWidths) -> list[int]:
    if task.pay != "distance":
        return []
    rules = RuleWidths.of(upload, task)
    return [rules.span, rules.weight_bits, rules.product_bits]


@pytest.mark.parametrize(
    ("rule", "tasks", "digest"),
    [
        ("samples", TASKS, "e881a7ce3ffa4356a85d7f7a2a7fea5f3ae249640a0b9760850807a61537edeb"),
        ("distance", TASKS[:3], "b23c17fa4f2cd0bbab065c3533696a30bdd6b214b9f4b9f3d5b1cfa2f5ea7fcf"),
    ],
)
def test_widths_are_those_of_every_machine(rule, tasks, digest):
    found = [widths_of(parameters, rule, settings) for parameters, settings in tasks]
    assert hashlib.sha256(json.dumps(found).encode()).hexdigest() == digest
