"""Libraries that the pages use are those that VENDORED.json names, and anyone can make them again."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

import crowdfl.web
from tests import subprocesses

ROOT = Path(__file__).parents[2]
VENDOR = Path(crowdfl.web.__file__).parent / "vendor"
VENDORED = json.loads((VENDOR / "VENDORED.json").read_text())


def test_each_library_has_the_hash_that_is_written_down():
    found = {one["file"]: hashlib.sha256((VENDOR / one["file"]).read_bytes()).hexdigest() for one in VENDORED}
    assert found == {one["file"]: one["sha256"] for one in VENDORED}


def test_no_library_lies_there_unnamed():
    served = {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")}
    assert served == {one["file"] for one in VENDORED}


def test_versions_and_integrity_are_those_of_the_lock_file():
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    for package in (package for one in VENDORED for package in one["packages"]):
        entry = locked[f"node_modules/{package['name']}"]
        assert (package["version"], package["integrity"]) == (entry["version"], entry["integrity"])


def test_the_lock_file_names_no_registry():
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert [name for name, entry in packages.items() if "resolved" in entry] == []


@pytest.mark.second
def test_the_libraries_can_be_made_again_from_their_packages(tmp_path):
    if shutil.which("node") is None or not (ROOT / "node_modules/esbuild").exists():
        pytest.skip("node or its packages are missing: install node 20 or later and run `npm ci`")
    made = subprocesses.run(["node", "tools/vendor.mjs", tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in VENDOR.iterdir()
    }
