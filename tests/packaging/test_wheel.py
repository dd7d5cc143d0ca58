"""The package as strangers get it: built, installed into an empty environment, and used there."""

import os
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from crowdfl.version import __version__
from tests import subprocesses

pytestmark = pytest.mark.second

ROOT = Path(__file__).parents[2]
# What only the installed package would miss: it is not code, and no import asks for it.
DATA = (
    "learning/datasets/watch.NOTICE",
    "learning/datasets/watch.npz",
    "py.typed",
    "storage/migrations/",
    "web/console/index.html",
    "web/phone/index.html",
    "web/phone/manifest.webmanifest",
    "web/requester_console/",
    "web/vendor/LICENSES",
)
TEN_LINES = """
import numpy as np
import crowdfl

def train(model, data):
    return model + (data.mean() - model) / 2, len(data)

people = [np.full(10, 1.0), np.full(10, 2.0), np.full(20, 4.0)]
result = crowdfl.simulate(train, lambda model, data: abs(model - data).mean(), people, rounds=2, initial=np.zeros(1))
print(len(result.history), round(result.model[0], 2))
"""


def build(source: Path, target: str, folder: Path) -> Path:
    """A wheel or sdist of a source tree, by the build system that pyproject.toml names."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder]
    built = subprocesses.run(command, cwd=source, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


def tracked(folder: str) -> set[str]:
    """The files below a folder of the source tree that are part of it."""
    left_out = ("__pycache__", ".pyc")
    files = (path for path in (ROOT / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in files if not any(part in str(path) for part in left_out)}


def test_the_wheel_holds_every_file_of_the_package(wheel):
    """Pages, migrations, the watch data and the marker of types as well as code; nothing of the laboratory."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {name.removeprefix("src/") for name in tracked("src/crowdfl")}
    assert [name for name in DATA if not any(one.startswith(f"crowdfl/{name}") for one in held)] == []


def test_wheel_and_sdist_have_the_one_version(wheel, sdist):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        assert f"\nVersion: {__version__}\n" in archive.read(metadata).decode()
    assert sdist.name == f"crowdfl-{__version__}.tar.gz"


def test_the_sdist_builds_the_same_wheel(wheel, sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    tops = {path.name for path in source.iterdir()}
    assert {"tests", "docs", "examples", "lab", "vectors", "Makefile", "conftest.py", "mkdocs.yml", "LICENSE"} <= tops
    assert tops.isdisjoint({".venv", "node_modules", "site", ".git"})
    again = build(source, "wheel", tmp_path / "again")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {info.filename: info.CRC for info in one.infolist()} == {i.filename: i.CRC for i in other.infolist()}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment, then the wheel with its core packages and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    limits = ["--constraint", ROOT / "constraints.txt"]
    probe = [*pip, "--retries", "0", "download", "--quiet", "--no-deps", *limits, "--dest", folder / "probe", "rich"]
    if subprocesses.run(probe, capture_output=True).returncode:
        pytest.skip("pip reaches no package index here: the wheel was not installed into an empty environment")
    got = subprocesses.run([*pip, "install", "--quiet", "--no-compile", *limits, wheel], capture_output=True, text=True)
    assert got.returncode == 0, got.stderr
    return folder / "bin"


def said(command: list[object], folder: Path, code: int = 0) -> str:
    """What a program of the environment prints, or complains; nothing of this checkout is on its path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CROWDFL"))}
    ran = subprocesses.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == code, ran.stderr
    return str(ran.stderr if code else ran.stdout)


def test_the_wheel_works_in_an_empty_environment(installed, tmp_path):
    """The command, a model trained in NumPy alone, the data that the wheel brings, and ten lines of Python."""
    where = said([installed / "python", "-c", "import crowdfl; print(crowdfl.__file__)"], tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent), "this checkout was used in place of the wheel"
    assert __version__ in said([installed / "crowdfl", "--version"], tmp_path)
    assert "accuracy" in said([installed / "crowdfl", "train", "--data", "synthetic:1", "--model", "softmax"], tmp_path)
    assert "watch" in said([installed / "crowdfl", "train", "--look", "--data", "watch:0"], tmp_path)
    assert said([installed / "python", "-c", TEN_LINES], tmp_path).split() == ["2", "2.06"]


def test_the_laboratory_is_not_in_the_wheel_and_its_commands_say_where_it_is(wheel, installed, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if "crowdfl_lab" in name or name.startswith("lab")] == []
    shown = said([installed / "crowdfl", "--help"], tmp_path)
    assert "participant" in shown
    assert "audit" not in shown
    for words in (["demo"], ["bench", "compare", "--quick"]):
        complaint = said([installed / "crowdfl", *words], tmp_path, code=3)
        assert f"`crowdfl {words[0]}` is part of the laboratory" in complaint
        assert "clone the repository" in complaint
