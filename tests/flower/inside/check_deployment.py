"""Everything as a process of its own: SuperLink, three SuperNodes, KGC and CSP. The owner opens what the server cannot."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from crowdfl.flower import open_model, prepare
from tests import subprocesses
from tests.flower.inside.organisations import organisations

APP = Path(__file__).parents[1] / "app"
BIN = Path(sys.executable).parent
NODES = 3
PATIENCE = 900.0
START = np.linspace(-1, 1, 40, dtype=np.float32)


def environment(home: Path) -> dict[str, str]:
    quiet = {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    return os.environ | quiet | {"FLWR_HOME": str(home), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with organisations(tmp_path_factory.mktemp("organisations")) as made:
        yield made


def started(command: list[object], log: Path, home: Path):
    with log.open("w") as file:
        return subprocesses.start(command, stdout=file, stderr=file, env=environment(home), start_new_session=True)


def end(processes) -> None:
    for process in processes:
        os.killpg(process.pid, 9)
        process.wait()


def wait_for_superlink(port: int, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            httpx.get(f"http://127.0.0.1:{port}/health", timeout=5.0).raise_for_status()
            return
        except httpx.HTTPError:
            assert time.monotonic() < until, log.read_text()


def test_a_deployment_of_five_organisations(roles: Path, tmp_path: Path):
    sys.path.insert(0, str(APP))
    from numpyapp.server_app import initial

    prepare(roles / "requester/settings.toml", initial(), 1, tmp_path / "task", nodes=NODES, max_norm=40.0)
    port, *own = subprocesses.free_ports(1 + NODES)
    superlink, log = tmp_path / "superlink", tmp_path / "superlink.log"
    options = ["--insecure", "--host", "127.0.0.1", "--port", port, "--disable-runtime-dependency-installation"]
    processes = [started([BIN / "flower-superlink", *options], log, superlink)]
    try:
        wait_for_superlink(port, log)
        for node in range(NODES):
            config = (
                f'partition-id={node} crowdfl-invitation="{tmp_path}/task/nodes/node-{node}.json" '
                f'crowdfl-home="{tmp_path}/keys-{node}"'
            )
            command = [BIN / "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--port", own[node]]
            place = tmp_path / f"node-{node}"
            processes.append(started([*command, "--node-config", config], tmp_path / f"node-{node}.log", place))
        said = submitted(tmp_path, port, roles)
    finally:
        end(processes)
    logs = said + "".join(path.read_text()[-3000:] for path in tmp_path.glob("*.log"))
    assert (tmp_path / "home/published").is_dir(), logs
    opened = open_model(roles / "requester/settings.toml", tmp_path / "home/published")
    moved = sum(node * (10 + node) for node in range(NODES)) / sum(10 + node for node in range(NODES))
    assert np.abs(opened["weight"].numpy() - (START + moved)).max() < 1e-5, logs
    assert len(list(tmp_path.glob("keys-*/*/keys"))) == NODES


def submitted(folder: Path, port: int, roles: Path) -> str:
    home = folder / "submitter"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    config = f'sp="{roles}/sp/settings.toml" task="{folder}/task/run" home="{folder}/home"'
    command = [BIN / "flwr", "run", APP, "--stream", "--run-config", config]
    done = subprocesses.run(command, env=environment(home), capture_output=True, text=True, timeout=PATIENCE)
    return str(done.stdout + done.stderr)
