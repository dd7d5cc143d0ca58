"""Rounds of `shares` as they are served: KGC, SP and CSP are processes, uploads go through `Sp.uploads` over HTTPS.

Counted is the processor time of SP's and CSP's processes from the first byte of a round's uploads until it is published and
paid: connections and TLS, the store and its disk, and each server's ticks come on top of the protocol.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from crowdfl.services.client.peers import SpClient
from crowdfl.settings import MILLION, TaskSettings
from crowdfl_lab.bench.compare.systems import CompareSettings, Shares, System, figures_of, shares_task
from crowdfl_lab.bench.load import LoadSettings, Platform, bare_job, send_all, wait_until
from crowdfl_lab.bench.workload import Say, made_up_weights
from crowdfl_lab.timing import processor_seconds

_SERVERS = {"sp": "SP", "csp": "CSP"}
_OVER = ("published", "rewarded")
_DAY = 86400.0


class _Servers(Platform):
    """The same platform, for the task of a row."""

    def __init__(self, folder: Path, row: TaskSettings, settings: LoadSettings, stack: ExitStack, say: Say) -> None:
        self.row = row
        super().__init__(folder, settings, stack, say)
        self.sides = [self.side(keys) for keys in self.people]

    def made_uploads(self) -> list[bytes]:
        return []  # each round's are made when it is there

    def task_settings(self, crowd: int, clip: float) -> TaskSettings:
        del crowd, clip
        return self.row

    def fund(self) -> None:
        """All rounds, by the platform's operator."""
        if self.row.budget is None:
            return
        amount = self.row.rounds * self.settings.participants * MILLION
        self.requester.fund(self.task, amount, "all")
        sp = str(self.folder / "roles/sp/settings.toml")
        confirm = ["sp", "deposit", "confirm", sp, self.task, "all", str(amount / MILLION), self.row.currency]
        subprocess.run([sys.executable, "-m", "crowdfl", *confirm], check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def served_system(settings: CompareSettings, protocol: Shares, say: Say) -> System:
    """The row beside the protocol's, of the same task; the first round warms up and is not counted."""
    crowd = settings.participants
    row = shares_task(settings, rewards=protocol.rewards).model_copy(update={"min_participants": crowd, "window": _DAY})
    load = LoadSettings(profile="shares", parameters=settings.parameters, participants=crowd)
    with tempfile.TemporaryDirectory(prefix="crowdfl-compare-") as folder, ExitStack() as stack:
        ready = _Servers(Path(folder), row, load, stack, say)
        ready.fund()
        played = [_round(ready, number, settings) for number in range(1, settings.reads + 2)][1:]
    bare = min(one.pop("bare") for one in played)
    spent = min(played, key=lambda one: sum(one.values()))
    words = dict.fromkeys(("drop", "reads", "rewards"), "as the protocol's row") | {"kind": "crowdfl"}
    name = f"{protocol.name}, served over HTTPS"
    note = f"processor time of both servers' processes, the least of {settings.reads} rounds after the first"
    figures = figures_of(spent | {"servers": sum(spent.values()), "bare": bare})
    return System(f"{protocol.key}_served", name, figures, words, (note,))


def _round(ready: _Servers, number: int, settings: CompareSettings) -> dict[str, float]:
    """Everyone reads the round before, and sends; then SP closes the round by itself."""
    clients = [SpClient(ready.service(keys)) for keys in ready.people]
    uploads = _uploads(ready, number, clients, settings)
    wait_until(lambda: ready.round_state(number) == "open", f"round {number} to open")
    before = {role: processor_seconds(ready.pids[role]) for role in _SERVERS}
    for client, keys, upload in zip(clients, ready.people, uploads, strict=True):
        client.send(ready.task, number, keys, upload)
    wait_until(lambda: ready.round_state(number) in _OVER, f"round {number} to be published")
    after = {role: processor_seconds(ready.pids[role]) for role in _SERVERS}
    for client in clients:
        client.close()
    return {role: after[role] - before[role] for role in _SERVERS} | {"bare": _bare(ready, uploads)}


def _bare(ready: _Servers, uploads: Sequence[bytes]) -> float:
    """Processor time of a route that takes the same bodies, over connections of their own, writes and fsyncs them."""
    before = processor_seconds(ready.pids["bare"])
    send_all(ready, "bare", 1, [bare_job(place, upload) for place, upload in enumerate(uploads)], kept=False)
    return processor_seconds(ready.pids["bare"]) - before


def _uploads(ready: _Servers, number: int, clients: Sequence[SpClient], settings: CompareSettings) -> list[bytes]:
    weights = np.zeros(settings.parameters)
    if number > 1:
        publication = clients[0].average(ready.task, number - 1, ready.people[0])
        for side in ready.sides:
            weights = side.read(publication, number - 1).weights
    made = []
    for place, side in enumerate(ready.sides):
        update = made_up_weights(settings.parameters, 2021 + number + place)
        update *= settings.norm / 2 / np.linalg.norm(update)
        made.append(side.encrypt_update(weights + update, 10, number))
    return made
