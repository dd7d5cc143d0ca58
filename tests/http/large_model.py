"""A campaign with a large model over HTTP, of three people.

Each is a process of its own that ends before the next one begins: one computer then holds them all.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import crowdfl
from crowdfl.campaigns.local import OwnServers
from crowdfl.roles.participant.participant import Participant
from crowdfl.services.client.opening import home_of, invited, read_invitation
from tests.subprocesses import run

PEOPLE = 3
STEP = 0.25  # that everyone's training moves every weight by, times their number
_PATIENCE = 3600.0  # seconds, for one person
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Played:
    """What a campaign has shown: the model, and each server's greatest memory in bytes, before the task and in all."""

    model: np.ndarray
    idle: Mapping[str, int]
    most: Mapping[str, int]


def highest_memory(servers: OwnServers) -> dict[str, int]:
    """VmHWM of each process."""
    found = {}
    for one in servers._processes:
        assert one.process is not None
        status = Path(f"/proc/{one.process.pid}/status").read_text()
        found[one.role] = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return found


def play(folder: Path, parameters: int, **settings: Any) -> Played:
    with crowdfl.local_servers(folder, progress=False) as servers:
        idle = highest_memory(servers)
        usual = {"rounds": 1, "check": "none", "min_participants": PEOPLE, "max_participants": PEOPLE, "decimals": 6}
        task = servers.create(
            initial={"w": np.zeros(parameters)},
            **usual | {"clip": 1.0, "max_samples": 1000, "window": 3600.0} | settings,
        )
        people = [str(one) for one in task.invite(PEOPLE)]
        for path in people:
            _join(path)
        for number, path in enumerate(people, 1):
            command = [sys.executable, "-m", "tests.http.large_model", path, str(number)]
            run(command, cwd=_ROOT, check=True, timeout=_PATIENCE)
        task.wait()
        return Played(task.model["w"], idle, highest_memory(servers))


def _join(path: str) -> None:
    with _opened(path) as person:
        person.join(read_invitation(Path(path)).invitation)


def _upload(path: str, number: int) -> None:
    def train(weights: Any, _training: Any, _number: int) -> tuple[Any, int]:
        return [array + STEP * number for array in weights], 1

    with _opened(path) as person:
        while not person.blobs.has("rounds/1/receipt"):
            person.step(train)
            time.sleep(0.5)


def _opened(path: str) -> Any:
    return invited(read_invitation(Path(path)), home_of(Path(path)), Participant, least=1, all_the_same=True)


if __name__ == "__main__":
    _upload(sys.argv[1], int(sys.argv[2]))
