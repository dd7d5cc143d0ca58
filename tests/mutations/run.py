"""Runs tests against altered sources: one process loads everything once, and forks for each mutation.

    python -m tests.mutations.run [--only] [GROUP [FIRST END]]

With --only, the tests are not run as they are first: for whoever runs them anyway.

A mutation replaces text in one function; the fork gives every function of that name its new code. Prints each mutation with
what came of it, and ends with 1 if one survived: no named test failed without the check.
"""

import ast
import gc
import io
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import CodeType, FunctionType

import pytest

import crowdfl
from tests.mutations.declared import MUTATIONS, Mutation

ROOT = Path(__file__).parent.parent.parent
PACKAGE = Path(crowdfl.__file__).parent
KILLED, SURVIVED, STALE = "killed", "survived", "stale"
_CODES = {0: SURVIVED, 1: KILLED}


def mutate(mutation: Mutation) -> None:
    """In this process, for good."""
    path = PACKAGE / mutation.file
    source = path.read_text(encoding="utf-8")
    if source.count(mutation.old) != 1:
        raise ValueError(f"{mutation.file} has this text {source.count(mutation.old)} times, not once")
    place = source.index(mutation.old)
    qualname = _function_at(ast.parse(source), source[:place].count("\n") + 1)
    changed = compile(source[:place] + mutation.new + source[place + len(mutation.old) :], str(path), "exec")
    code = next(one for one in _codes(changed) if one.co_qualname == qualname)
    functions = [
        one for one in gc.get_objects() if isinstance(one, FunctionType) and _is_of(one.__code__, path, qualname)
    ]
    if not functions:
        raise ValueError(f"no function {qualname} of {mutation.file} is loaded: its tests do not import it")
    for function in functions:
        function.__code__ = code


def _is_of(code: CodeType, path: Path, qualname: str) -> bool:
    return code.co_qualname == qualname and code.co_filename == str(path)


def _function_at(tree: ast.Module, line: int) -> str:
    """The outermost function around a line, as Python names it."""
    names, nodes = [], tree.body
    while True:
        around = [one for one in nodes if isinstance(one, ast.ClassDef | ast.FunctionDef) and _has(one, line)]
        if not around:
            raise ValueError(f"line {line} is in no function")
        names.append(around[0].name)
        if isinstance(around[0], ast.FunctionDef):
            return ".".join(names)
        nodes = around[0].body


def _has(node: ast.ClassDef | ast.FunctionDef, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def tested(mutation: Mutation | None, tests: Sequence[str]) -> tuple[str, str]:
    """What came of it, in a fork, and what was said."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said, code = io.StringIO(), 3
        try:
            with redirect_stdout(said), redirect_stderr(said):
                if mutation is not None:
                    mutate(mutation)
                code = int(_run(tests))
        except BaseException:  # noqa: BLE001 -- whatever it is, this process ends here
            said.write(traceback.format_exc())
        finally:
            with os.fdopen(write, "w") as pipe:
                pipe.write(said.getvalue()[-4000:])
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as pipe:
        said_there = pipe.read()
    status = os.waitpid(child, 0)[1]
    return _CODES.get(os.waitstatus_to_exitcode(status), STALE), said_there


def _run(tests: Sequence[str], *options: str) -> int:
    quiet = (
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:randomly",
        "-o",
        "addopts=",
    )
    return int(pytest.main([*(test.removesuffix("::") for test in tests), *quiet, *options]))


def main(words: Sequence[str]) -> int:
    os.chdir(ROOT)
    only, words = "--only" in words, [word for word in words if word != "--only"]
    part = slice(*map(int, words[1:])) if words[1:] else slice(None)
    chosen = [one for group in words[:1] or MUTATIONS for one in MUTATIONS[group][part]]
    every = list(dict.fromkeys(test for one in chosen for test in one.tests))
    with redirect_stdout(io.StringIO()):
        loaded = _run(every, "--collect-only")
    if loaded != 0:
        print(f"{STALE}: some of the tests are not found: {_run(every, '--collect-only')}")  # noqa: T201
        return 1
    found = {} if only else {"nothing altered": tested(None, every)}
    found |= {one.name: tested(one, one.tests) for one in chosen}
    wrong = 0
    for name, (outcome, said) in found.items():
        is_right = outcome == (SURVIVED if name == "nothing altered" else KILLED)
        wrong += not is_right
        print(f"{outcome}: {name}" + ("" if is_right else f"\n{said}"), flush=True)  # noqa: T201
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
