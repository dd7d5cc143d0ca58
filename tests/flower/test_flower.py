"""Flower's plug-in, in the environment that `make flower` makes: this project's own cannot hold Flower's pins.

The tests of `inside` run there; Flower's own quickstart app is run by `flwr run`, without CrowdFL and with it.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import subprocesses

ROOT = Path(__file__).parents[2]
FLOWER = ROOT / ".venv-flower"
INSIDE = Path(__file__).parent / "inside"
QUICKSTART = ROOT / "examples/flower-quickstart"
PATIENCE = 1400.0  # a busy machine
# The two lines that protect the app, what they were, and the imports that go with them.
LINES = {
    "client_app.py": {
        "app = ClientApp(mods=[crowdfl_mod])\n": "app = ClientApp()\n",
        "from crowdfl.flower import crowdfl_mod\n": "",
    },
    "server_app.py": {
        "    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=fraction_evaluate), reveal=True)\n": (
            "    strategy = FedAvg(fraction_evaluate=fraction_evaluate)\n"
        ),
        "from crowdfl.flower import CrowdFLStrategy\n": "",
    },
}
installed = pytest.mark.skipif(not (FLOWER / "bin/flwr").exists(), reason="`make flower` has not been run")


def environment(home: Path) -> dict[str, str]:
    """Of Flower's processes: nothing is installed, downloaded or reported."""
    quiet = {
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    paths = {
        "FLWR_HOME": str(home),
        "PYTHONPATH": f"{ROOT}/src",
        "PATH": f"{FLOWER}/bin{os.pathsep}{os.environ['PATH']}",
    }
    return os.environ | quiet | paths


@installed
@pytest.mark.second
@pytest.mark.parametrize("area", sorted(path.stem for path in INSIDE.glob("check_*.py")))
def test_flowers_own_environment(area: str, tmp_path: Path) -> None:
    """In it, `conftest.py` cannot be loaded: it needs hypothesis."""
    options = ["--noconftest", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "filterwarnings=", "--show-capture=no"]
    names = ["-o", "python_files=check_*.py", "-q", "--basetemp", tmp_path / "inside"]
    done = subprocesses.run(
        [FLOWER / "bin/python", "-m", "pytest", *options, *names, INSIDE / f"{area}.py"],
        cwd=ROOT,
        env=environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@contextlib.contextmanager
def superlink(folder: Path) -> Iterator[int]:
    """Flower's simulation engine, as `flwr run` would start it for a user, but one that ends with the test."""
    (port,) = subprocesses.free_ports(1)
    command = [FLOWER / "bin/flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", port]
    with (folder / "superlink.log").open("w") as log:
        process = subprocesses.start(
            command, cwd=folder, env=environment(folder / "home"), stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for(port, folder / "superlink.log")
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with the run's processes, if a test has failed
        process.wait()


def wait_for(port: int, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5.0):
                return
        except OSError:
            assert time.monotonic() < until, log.read_text()


def configure(folder: Path, port: int) -> None:
    (folder / "home").mkdir(exist_ok=True)
    (folder / "home/config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )


def run_app(app: Path, folder: Path) -> dict[str, object]:
    """`flwr run`; the model that the app has saved."""
    import torch

    clients = (
        "num-supernodes=4 client-resources-num-cpus=1 init-args-num-cpus=1"  # one after the other: a small machine's
    )
    short = "num-server-rounds=2 learning-rate=0.01 local-epochs=1"
    command = [FLOWER / "bin/flwr", "run", app, "--stream", "--run-config", short]
    command += ["--federation-config", clients]
    options = {"env": environment(folder / "home"), "capture_output": True, "text": True, "timeout": PATIENCE}
    done = subprocesses.run(command, **options)
    saved = folder / "final_model.pt"
    assert saved.is_file(), done.stdout[-5000:] + done.stderr[-2000:]
    state = torch.load(saved, weights_only=True)
    saved.unlink()
    return dict(state) | {"said": done.stdout}


def without_crowdfl(folder: Path) -> Path:
    """The quickstart as it was before the two lines."""
    app = folder / "plain"
    shutil.copytree(QUICKSTART, app)
    for name, lines in LINES.items():
        path = app / "pytorchexample" / name
        text = path.read_text()
        for ours, theirs in lines.items():
            assert text.count(ours) == 1, (name, ours)
            text = text.replace(ours, theirs)
        path.write_text(text)
    assert "import crowdfl" not in "".join(path.read_text() for path in app.rglob("*.py"))
    return app


@installed
@pytest.mark.second
def test_flowers_quickstart_gives_the_same_model_with_two_lines_changed(tmp_path: Path) -> None:
    plain = without_crowdfl(tmp_path)
    with superlink(tmp_path) as port:
        configure(tmp_path, port)
        expected = run_app(plain, tmp_path)
        found = run_app(QUICKSTART, tmp_path)
    assert "crowdfl-averaged" in str(found.pop("said"))
    assert "CrowdFL" not in str(expected.pop("said"))
    assert list(found) == list(expected)
    worst = max(float((found[name] - expected[name]).abs().max()) for name in found)
    assert worst < 1e-5, worst
    print(f"largest difference of a weight: {worst:.2g}")  # noqa: T201 -- for whoever runs this with -s


@pytest.mark.second
def test_neither_crowdfl_nor_its_plug_in_needs_flower_to_be_imported() -> None:
    """In this environment, which has none."""
    code = (
        "import crowdfl, crowdfl.flower, crowdfl.errors, sys\n"
        "assert not any(name.partition('.')[0] == 'flwr' for name in sys.modules)\n"
        "sys.modules['flwr'] = None\n"
        "try:\n    crowdfl.flower.CrowdFLStrategy\n"
        "except crowdfl.errors.PackageMissing as missing:\n    print(missing)\n"
    )
    done = subprocesses.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'crowdfl[flower]'" in done.stdout, done
