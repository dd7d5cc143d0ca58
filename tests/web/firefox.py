"""Scripts for Firefox: node runs them with puppeteer-core, because Playwright drives only a Firefox of its own."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import subprocesses

ROOT = Path(__file__).parents[2]
_PROGRAM = os.environ.get("CROWDFL_FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")


def need_firefox() -> None:
    """Skip where it, or what drives it, is missing."""
    if _PROGRAM is None:
        pytest.skip("no Firefox was found: install the package `firefox-esr`, or name the program in CROWDFL_FIREFOX")
    if shutil.which("node") is None or not (ROOT / "node_modules/puppeteer-core").exists():
        pytest.skip("node or puppeteer-core is missing: install node 20 or later and run `npm ci`")


def in_firefox(script: Path, *words: object) -> Any:
    """What a script prints last, as JSON. It closes Firefox when its standard input ends, so that none is left behind."""
    need_firefox()
    environment = os.environ | {"CROWDFL_FIREFOX": str(_PROGRAM)}
    command = ["node", script, *words]
    with subprocesses.running(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            printed = process.stdout.read()
            assert process.wait(subprocesses.PATIENCE) == 0, f"{script.name} failed: see what it wrote"
        finally:
            process.stdin.close()
            process.wait(30)
    return json.loads(printed.splitlines()[-1])
