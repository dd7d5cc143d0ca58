"""KGC and CSP as processes, and the folders of SP and of a task's owner, as `crowdfl init` makes them for a trial."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdfl.errors import CrowdFLError
from crowdfl.flower import prepare
from crowdfl.services.client.transport import Link
from tests import subprocesses
from tests.cli.program import call, start
from tests.flower.inside.grid import initial

PATIENCE = 600.0


@contextlib.contextmanager
def organisations(folder: Path) -> Iterator[Path]:
    """The folder with `kgc`, `sp`, `csp` and `requester`; KGC and CSP run, and SP's own service does not."""
    kgc, sp, csp = subprocesses.free_ports(3)
    roles, ports = folder / "roles", ("--kgc-port", kgc, "--sp-port", sp, "--csp-port", csp)
    made = call("init", roles, *ports)
    assert made.code == 0, made
    running = [
        start(role, "serve", roles / role / "settings.toml", log=folder / f"{role}.log") for role in ("kgc", "csp")
    ]
    try:
        for port in (kgc, csp):
            _wait_for(f"https://127.0.0.1:{port}", roles, folder)
        yield roles
    finally:
        for process in running:
            process.kill()
            process.wait()


def _wait_for(url: str, roles: Path, folder: Path) -> None:
    until, ca = time.monotonic() + PATIENCE, next(roles.rglob("ca.pem"))
    while time.monotonic() < until:
        with contextlib.suppress(CrowdFLError):
            Link(url, ca).open().call("GET", "/healthz")
            return
    pytest.fail("\n".join(path.read_text()[-2000:] for path in folder.glob("*.log")))


def prepared(roles: Path, folder: Path, nodes: int, rounds: int = 2, **settings: object) -> Path:
    prepare(roles / "requester/settings.toml", initial(), rounds, folder, nodes=nodes, **settings)
    return folder
