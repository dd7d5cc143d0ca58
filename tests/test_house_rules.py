"""Rules that a reader relies on: privacy between modules, one class per name, no test without an assertion."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import crowdfl

PACKAGE = Path(crowdfl.__file__).parent
TESTS = Path(__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
TEST_FILES = sorted(TESTS.rglob("test_*.py"))

PUBLIC_ALL_THE_SAME = {"_asdict", "_exit", "_fields", "_replace", "_value_"}  # named tuples' own methods, and os._exit

# What expects an error, and helpers that raise where a test should fail: `attempt` on any error that nobody foresaw (fuzz),
# `survive` on an outcome that a killed process has changed (faults).
ASSERTING = (
    "assert",
    "attempt",
    "check",
    "expect",
    "fail",
    "raises",
    "refuse",
    "require",
    "survive",
    "verify",
    "warns",
)


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def nodes_of(text: str, mentioned: re.Pattern[str]) -> list[ast.AST]:
    """A file's syntax, where its text mentions what a rule is about. Most do not, and parsing all of them takes seconds."""
    return list(ast.walk(ast.parse(text))) if mentioned.search(text) else []


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_"


def own_names(nodes: Sequence[ast.AST]) -> set[str]:
    """The private names that classes of this module define: methods, fields, and what is assigned to self or cls."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    found.add(member.name)
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    found.add(member.target.id)
                elif isinstance(member, ast.Assign):
                    found |= {target.id for target in member.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            found.add(node.attr)
    return found


def is_own(value: ast.expr) -> bool:
    """self, cls, or super()."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


# `x._y` where x is neither self, cls nor super(); a name in one line of an import, or in a line of its own.
PRIVATE = re.compile(
    r"(?<!\bself)(?<!\bcls)(?<!\bsuper\(\))\._(?!\w*__\b)|import\b[^\n]*\b_|^\s+_\w+ *(?:as |,|#|$)", re.MULTILINE
)


def intrusions(text: str) -> Iterator[str]:
    """Private names of other modules and objects that a module uses."""
    nodes = nodes_of(text, PRIVATE)
    own = own_names(nodes) | PUBLIC_ALL_THE_SAME
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            if node.attr not in own:
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom):
            yield from (
                f"line {node.lineno}: from {node.module} import {alias.name}"
                for alias in node.names
                if is_private(alias.name)
            )


def test_no_module_touches_private_names_of_another():
    """Whoever needs to look inside asks the owner for a public method, or uses the observer."""
    assert [f"{path}: {found}" for path in SOURCES for found in intrusions(text_of(path))] == []


SEEN = [
    "from m import _x",
    "from m import (\n    x,\n    _x,\n)",
    "m._x",
    "self._own._x",
    "other._x",
    "other.__x",
    "(\n    m.f()\n    ._x\n)",
    "x[0]._x",
]
ALLOWED = ["self._x", "cls._x", "super()._x", "other._own", "row._asdict()", "m.__name__", "from m import x"]


@pytest.mark.parametrize(("line", "count"), [(line, 1) for line in SEEN] + [(line, 0) for line in ALLOWED])
def test_the_rule_about_private_names_sees_them(line, count):
    assert len(list(intrusions(f"class Owner:\n    _own = 1\n{line}"))) == count


# Who may use what is drawn elsewhere, and why: nothing of it is secret.
DRAWING = {
    "crypto/entropy.py": {"os.urandom"},
    "cli/doctor/machine.py": {"os.getrandom", "os.urandom"},  # looks whether the system has any
    "retry.py": {"random"},  # spreads clients that lost one server together
    "simulation/draws.py": {"random"},  # seeded: who is drawn repeats itself
    "simulation/dropouts.py": {"random"},  # seeded: so does who is away
    "simulation/parallel.py": {
        "random",
        "np.random.get_state",
        "np.random.set_state",
    },  # seeded, for the user's training
}
DRAWN = {"urandom", "getrandom", "SystemRandom", "generate_private_key", "random_serial_number"}
UNSEEDED = {"default_rng", "get_state", "set_state", "SeedSequence", "Generator", "RandomState"}
CHANCE = re.compile(rf"\b(?:random|secrets|uuid|generate|{'|'.join(DRAWN | UNSEEDED)})\b")


def draws(text: str) -> Iterator[str]:
    """Randomness that does not come from `crypto.randomness`, by the name of its source."""
    for node in nodes_of(text, CHANCE):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in ("random", "secrets", "uuid"))
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if node.module in ("random", "secrets", "uuid") or (node.module == "os" and names & DRAWN):
                yield str(node.module)
        elif isinstance(node, ast.Attribute) and node.attr in DRAWN:
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            of_key = node.func.attr == "generate" and ast.unparse(node.func.value).endswith("PrivateKey")
            of_numpy = node.func.attr in UNSEEDED and ast.unparse(node.func.value).endswith("np.random")
            if of_key or of_numpy:
                yield ast.unparse(node.func)


def test_every_secret_comes_from_one_function():
    """`crypto.randomness.secret_bytes`: so a run can be replayed, and nothing else can be drawn from."""
    found = {path.relative_to(PACKAGE).as_posix(): set(draws(text_of(path))) for path in SOURCES}
    assert {
        name: drawn - DRAWING.get(name, set()) for name, drawn in found.items() if drawn - DRAWING.get(name, set())
    } == {}


def test_the_source_of_secrets_is_replaced_in_one_place():
    """Which an import contract keeps out of reach of everything but the simulation."""
    assert [path.name for path in SOURCES if "SOURCE.set(" in text_of(path)] == ["replayed.py"]


def test_the_sides_of_a_protocol_are_paired_in_one_place():
    """`simulation.sides`, whoever measures, attacks or tests them. For services, KGC deals."""
    everything = [*SOURCES, *TESTS.rglob("*.py"), *(TESTS.parent / "lab").rglob("*.py")]
    dealing = re.compile(r"\.deal\([^)]*insecure_test_key=")
    assert {path.name for path in everything if dealing.search(text_of(path))} == {
        "kgc.py",
        "sides.py",
    }


SOURCES_OF_CHANCE = [
    "import random",
    "import secrets",
    "from secrets import token_bytes",
    "import uuid",
    "os.urandom(1)",
    "from os import urandom",
    "X25519PrivateKey.generate()",
    "ec.generate_private_key(curve)",
    "np.random.default_rng()",
]
NO_CHANCE = ["np.random.default_rng(seed)", "dcf.generate(numbers, bits)", "from crowdfl.crypto.randomness import x"]


@pytest.mark.parametrize(
    ("line", "count"), [(line, 1) for line in SOURCES_OF_CHANCE] + [(line, 0) for line in NO_CHANCE]
)
def test_the_rule_about_randomness_sees_it(line, count):
    assert len(list(draws(line))) == count


def test_every_public_class_has_a_name_of_its_own():
    classes = [name for path in SOURCES for name in re.findall(r"^class (\w+)", text_of(path), re.MULTILINE)]
    times = Counter(name for name in classes if not name.startswith("_"))
    assert {name for name, count in times.items() if count > 1} == set()


def called(node: ast.AST) -> set[str]:
    """The last parts of the names that are called inside `node`."""
    functions = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return {getattr(function, "attr", "") or getattr(function, "id", "") for function in functions}


def can_fail(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    has_assert = any(isinstance(node, ast.Assert) for node in ast.walk(test))
    return has_assert or any(name.startswith(ASSERTING) for name in called(test))


def idle_tests(text: str) -> list[str]:
    """The tests of a file that cannot fail."""
    outer = ast.parse(text).body
    nodes = outer + [node for one in outer if isinstance(one, ast.ClassDef) for node in one.body]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name for node in functions if node.name.startswith("test_") and not can_fail(node)]


def test_every_test_asserts():
    """Itself, by an expected error, or by a helper whose name says that it checks."""
    assert [f"{path}: {name}" for path in TEST_FILES for name in idle_tests(text_of(path))] == []


SUBPROCESS = re.compile(r"\bsubprocess\b")


def own_processes(text: str) -> list[int]:
    """The lines that start a process by the standard library's own means."""
    calls = [
        node
        for node in nodes_of(text, SUBPROCESS)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    found = [node for node in calls if getattr(node.func.value, "id", "") == "subprocess"]
    return [node.lineno for node in found if node.func.attr in ("Popen", "run", "call", "check_call", "check_output")]


def test_no_process_of_a_test_can_outlive_it():
    """`tests.subprocesses` starts them all: it kills each on the way out, and waits for none without end."""
    found = {path.relative_to(TESTS): own_processes(text_of(path)) for path in TESTS.rglob("*.py")}
    assert [str(path) for path, lines in found.items() if lines] == ["subprocesses.py"]


def test_the_rule_about_processes_sees_them():
    """Wherever they are started."""
    assert own_processes("with subprocess.Popen(['x']) as p: pass\nsubprocesses.run(['x'])") == [1]


def modules_in(package: Path) -> dict[str, Path]:
    """By the name they are imported by."""
    found = {".".join(path.relative_to(package.parent).with_suffix("").parts): path for path in package.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def imported_by(tree: ast.Module, known: Mapping[str, object]) -> set[str]:
    """The modules among `known` that this one imports, wherever it does: at its head, in a function, or for types alone."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in known else str(node.module) for name in names}
    return found & known.keys()


SCRIPTS = re.compile(r"""(?:\bfrom\s*|\bimport\s*\(?\s*)["'](\.[^"']+)["']""")


def imported_by_script(path: Path, text: str) -> set[Path]:
    """The files that a page's module imports. A page under /join writes `web/` for what every page shares."""
    found = (str((path.parent / name).resolve()) for name in SCRIPTS.findall(text))
    return {Path(name.replace("/web/web/", "/web/")) for name in found}


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other, from the first to itself again; none if all arrows go down."""
    try:
        TopologicalSorter({name: needed - {name} for name, needed in imports.items()}).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle():
    """Nor with an import in a function, or for types alone: a circle is one idea in two files, or an arrow that goes up."""
    known = modules_in(PACKAGE) | modules_in(TESTS.parent / "lab" / "crowdfl_lab")
    imports = {name: imported_by(ast.parse(text_of(path)), known) for name, path in known.items()}
    assert sum(map(len, imports.values())) > len(known)
    assert circle(imports) == []


def test_no_scripts_of_the_pages_import_each_other_in_a_circle():
    """Those of every page together: what pages share knows none of them."""
    scripts = sorted((PACKAGE / "web").resolve().rglob("*.js"))
    imports = {path: imported_by_script(path, path.read_text(encoding="utf-8")) for path in scripts}
    assert {str(needed) for found in imports.values() for needed in found if needed not in imports} == set()
    assert circle({str(path): set(map(str, found)) for path, found in imports.items()}) == []


@pytest.mark.parametrize(
    "back",
    [
        "from crowdfl import a",
        "import crowdfl.a",
        "def late():\n    from crowdfl.a import x",
        "if TYPE_CHECKING:\n    from crowdfl.a import X",
    ],
)
def test_the_rule_about_circles_sees_them(back):
    known = {"crowdfl.a": "from crowdfl.b import y", "crowdfl.b": back, "crowdfl.c": "import crowdfl.a"}
    imports = {name: imported_by(ast.parse(text), known) for name, text in known.items()}
    assert set(circle(imports)) == {"crowdfl.a", "crowdfl.b"}
    assert circle(imports | {"crowdfl.b": set()}) == []


def test_the_rule_about_circles_sees_those_of_scripts():
    page = PACKAGE.resolve() / "web" / "phone" / "app"
    lines = "import { a } from './a.js';\nexport { b } from \"../b.js\";\nawait import('../../web/common/c.js');"
    assert imported_by_script(page / "x.js", lines) == {
        page / "a.js",
        page.parent / "b.js",
        page.parent.parent / "common" / "c.js",
    }
