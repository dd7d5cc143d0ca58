"""A point of `bench scale` of the profile `shares`: every server in a process of its own, everyone's upload real.

The parent deals, makes one upload for each participant (one update, a fresh seed each) into one file, and carries the messages.
This module is also the program of a role: `python -m crowdfl_lab.bench.scale.shares`.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.protocols.exchange import Reply, Silent, ask_directly
from crowdfl.protocols.profile import CspProtocol, Identity, ParticipantKeys, SpProtocol, TaskSpec, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.round import AggregationRound
from crowdfl.settings import TaskSettings, to_millionths
from crowdfl_lab.bench.scale.frames import END, STAGES, ChildRole, read_frame, write_frame
from crowdfl_lab.bench.scale.growth import ScalePoint
from crowdfl_lab.bench.workload import made_up_weights
from crowdfl_lab.observe import RoundRecorder
from crowdfl_lab.report.results import Figure
from crowdfl_lab.timing import current_bytes, peak_bytes, timed_call

UPLOADS, PUBLICATION = "uploads", "publication"
_MODULE = "crowdfl_lab.bench.scale.shares"
_NAME = "scale"
_ROUND = 1


class SharesPoint:
    """One round of `crowd` people, measured."""

    def __init__(self, axis: str, parameters: int, crowd: int, task: TaskSettings) -> None:
        self.axis, self.crowd, self.task = axis, crowd, task
        self.spec = TaskSpec(_NAME, task, parameters)
        self.profile = profile_named("shares")
        self.dealing = self.profile.deal(self.spec, insecure_test_key=False)
        self.people = [ParticipantKeys.fresh(f"p{i:07}") for i in range(crowd)]

    def measured(self, x: int | None = None) -> ScalePoint:
        with tempfile.TemporaryDirectory(prefix="crowdfl-bench-") as name:
            folder = Path(name)
            figures = self._upload(folder) | self._deal(folder)
            servers, counts = self._servers(folder)
            figures |= servers | self._read(folder)
        return ScalePoint(self.axis, self.crowd if x is None else x, self.crowd, counts, figures)

    def _upload(self, folder: Path) -> dict[str, Figure]:
        """Everyone's, one after another; a participant's figure is the mean of all."""
        update = made_up_weights(self.spec.parameters, 2021)
        update *= (self.task.max_norm or 1.0) / 2 / np.linalg.norm(update)
        spent = 0.0
        with (folder / UPLOADS).open("wb") as file:
            for keys in self.people:
                side = self._person(keys)
                start = time.process_time()
                upload = side.encrypt_update(update, 1, _ROUND)
                spent += time.process_time() - start
                file.write(upload)
        mean = f"the mean of {self.crowd:,}"
        return {"participant: encrypt": Figure(spent / self.crowd, "s", mean), "upload": Figure(len(upload), "B")}

    def _person(self, keys: ParticipantKeys) -> Any:  # noqa: ANN401 -- the profile's own
        tools = Tools(Threads(1), observer=Silent())
        side = self.profile.participant(self.spec, self.dealing.participant, keys, tools)
        side.resume(None, np.zeros(self.spec.parameters))
        return side

    def _deal(self, folder: Path) -> dict[str, Figure]:
        """Where a round has files."""
        if not self.profile.dealt_bytes(self.task, self.spec.parameters):
            return {}
        seconds, size = 0.0, 0
        for role in ("sp", "csp"):
            start = time.process_time()
            file = self.profile.dealt(self.spec, self.dealing.source, role, _ROUND)
            seconds += time.process_time() - start
            size += (folder / f"{role}.dealt").write_bytes(file)
        return {"KGC: deal": Figure(seconds, "s"), "dealt": Figure(size, "B")}

    def _servers(self, folder: Path) -> tuple[dict[str, Figure], dict[str, int]]:
        """SP and CSP, their messages carried from one to the other and counted."""
        sp, csp = (self._child(role, folder) for role in ("sp", "csp"))
        counts = {"to_csp": 0, "to_sp": 0, "requests": 0, "longest": 0, "parameters": self.spec.parameters}
        while request := sp.receive():
            csp.send(request)
            reply = csp.receive()
            sp.send(reply)
            counts["to_csp"] += len(request)
            counts["to_sp"] += len(reply)
            counts["requests"] += 1
            counts["longest"] = max(counts["longest"], len(request), len(reply))
        csp.send(END)
        return sp.figures() | csp.figures(), counts

    def _child(self, role: str, folder: Path) -> ChildRole:
        people = [(one.identity.who, one.identity.signing.hex(), one.identity.reading.hex()) for one in self.people]
        bundle: bytes = getattr(self.dealing, role)
        order: dict[str, Any] = {"role": role, "folder": str(folder), "bundle": bundle.hex(), "people": people}
        order |= {"task": self.task.model_dump(mode="json"), "parameters": self.spec.parameters}
        return ChildRole(role, order, _MODULE)

    def _read(self, folder: Path) -> dict[str, Figure]:
        publication = (folder / PUBLICATION).read_bytes()
        seconds, average = timed_call(lambda: self._person(self.people[0]).read(publication, _ROUND))
        if average.total != self.crowd:
            raise AssertionError(f"{average.total} of {self.crowd} uploads are in the average")
        return {"participant: read": Figure(seconds, "s"), "publication": Figure(len(publication), "B")}


class _Server:
    """What either server starts from. Its clock shows processor time."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.folder, self.baseline = Path(order["folder"]), 0
        self.recorder = RoundRecorder(clock=time.process_time)
        self.tools = Tools(Threads(1), observer=self.recorder)
        self.spec = TaskSpec(_NAME, TaskSettings.of(**order["task"]), order["parameters"])
        self.bundle, self.role = bytes.fromhex(order["bundle"]), order["role"]
        self.people = [Identity(who, bytes.fromhex(s), bytes.fromhex(r)) for who, s, r in order.pop("people")]

    def begin(self, side: SpProtocol | CspProtocol) -> None:
        """Everyone is enrolled: what memory grows by from here is the round's."""
        for identity in self.people:
            side.enrol(identity)
        side.set_dealt_loader(lambda _: (self.folder / f"{self.role}.dealt").read_bytes())
        self.baseline = current_bytes()

    def measured(self) -> dict[str, Any]:
        seconds: dict[str, float] = {}
        for (stage, _), spent in self.recorder.seconds.items():
            name = STAGES.get(stage, stage)
            seconds[name] = seconds.get(name, 0.0) + spent
        return {"seconds": seconds, "sampled": [], "memory": peak_bytes() - self.baseline}

    @cached_property
    def payment(self) -> int:
        budget = self.spec.settings.budget
        return 0 if budget is None else to_millionths(budget)

    @contextmanager
    def uploads(self) -> Iterator[Callable[[int], bytes]]:
        """By place: one is in memory at a time."""
        with (self.folder / UPLOADS).open("rb") as file:
            size = (self.folder / UPLOADS).stat().st_size // len(self.people)

            def at(place: int) -> bytes:
                file.seek(place * size)
                return file.read(size)

            yield at


def _sp(server: _Server, hear: Callable[[], bytes], say: Callable[[bytes], None]) -> None:
    sp = profile_named("shares").sp(server.spec, server.bundle, server.tools)
    server.begin(sp)

    def reply_to(request: bytes) -> Reply:
        say(request)
        return partial(bytes, hear())  # waiting for CSP is on nobody's clock

    with server.uploads() as upload:
        sp.set_upload_loader(lambda who: upload(int(who[1:])))
        round_ = AggregationRound(sp, reply_to, server.recorder)
        for place, identity in enumerate(server.people):
            round_.collect({identity.who: upload(place)})
        if server.payment:
            round_.reward(server.payment)
        (server.folder / PUBLICATION).write_bytes(round_.average())
    say(END)


def _csp(server: _Server, hear: Callable[[], bytes], say: Callable[[bytes], None]) -> None:
    csp = profile_named("shares").csp(server.spec, server.bundle, server.tools)
    server.begin(csp)
    ask = ask_directly(csp.answer, server.recorder)
    server.recorder.begin("round")
    while request := hear():
        say(ask(request)())


def main() -> None:
    hear, say = partial(read_frame, sys.stdin.buffer), partial(write_frame, sys.stdout.buffer)
    server = _Server(json.loads(hear()))
    {"sp": _sp, "csp": _csp}[server.role](server, hear, say)
    say(json.dumps(server.measured()).encode())


if __name__ == "__main__":
    main()
