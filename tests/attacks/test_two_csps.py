"""Two processes of CSP on one PostgreSQL, asked at once by an SP that deviates.

One is to show the bits of a round, the other to begin the next, which ends that round.
Bits of rounds that no record shows are counted. Whichever process comes first, CSP has counted all that it has shown, and after
three rounds it opens no seal of a person's any more.
"""

import multiprocessing
from collections.abc import Iterator
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

from crowdfl.errors import CrowdFLError, RoundEnded
from crowdfl.protocols.exchange import Exchange
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.records import Place
from crowdfl.protocols.shares.round.csp_records import MOST_UNSHOWN, KeptTask
from crowdfl.protocols.shares.round.manifest import ManifestReply, StepReply
from crowdfl.protocols.shares.round.steps import shown_in
from crowdfl.roles.csp import Csp
from crowdfl.roles.guard import Guard
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.sql import SqlStore
from tests.hosts import FileDisk, test_tools
from tests.shares.crowd import Crowd
from tests.storage.conftest import SERVER, empty_database

ROUNDS, VICTIM = 7, "2"
SPAWN = multiprocessing.get_context("spawn")
pytestmark = [
    pytest.mark.second,
    pytest.mark.skipif(SERVER is None, reason="CROWDFL_TEST_POSTGRES names no server"),
]


class Disk(FileDisk):
    """CSP's records are in PostgreSQL."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, durable=False)
        self.url = url

    def store(self, role: str) -> SqlStore:
        if role != "csp":
            return super().store(role)
        store = SqlStore(self.url)
        self._opened.append(store)
        return store


def serve(url: str, folder: Path, kgc_key: bytes, task: str, gate: Barrier, line: Connection) -> None:
    """A process of CSP: each request waits at the gate for the other process's."""
    with closing(SqlStore(url)) as store:
        own = FileBlobs(folder / "blobs"), FileBlobs(folder / "keys"), Guard(FileBlobs(folder / "guard"), store, "csp")
        csp = Csp(store, *own, None, kgc_key, test_tools())  # type: ignore[arg-type]  # KGC has nothing left to give
        while (request := line.recv()) is not None:
            gate.wait()
            line.send(answered(csp, task, request))


def answered(csp: Csp, task: str, request: bytes) -> bytes | str:
    """Asked again where the other process has erased, under this one, what a round that is over needs no more."""
    while True:
        try:
            return csp.answer(task, request)
        except OSError:
            continue
        except CrowdFLError as refusal:
            return type(refusal).__name__


class Two:
    """Two processes, asked at once."""

    def __init__(self, crowd: Crowd, url: str, folder: Path, stack: ExitStack) -> None:
        self._gate, self._lines = SPAWN.Barrier(2), list[Connection]()
        for _ in range(2):
            line, theirs = SPAWN.Pipe()
            told = url, folder, crowd.signing.public, crowd.task, self._gate, theirs
            process = SPAWN.Process(target=serve, args=told, daemon=True)
            process.start()
            stack.callback(process.join, 30)
            stack.callback(line.send, None)
            self._lines.append(line)

    def ask(self, *requests: bytes) -> list[bytes | str]:
        for line, request in zip(self._lines, requests, strict=True):
            line.send(request)
        return [line.recv() for line in self._lines]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with empty_database("postgresql", tmp_path) as url:
        with closing(SqlStore(url)) as store:
            store.create_tables()
        crowd = Crowd(4, rounds=ROUNDS, budget=None, weighting="equal", host={"disk": Disk(tmp_path, url)})
        crowd.csp.prepare(crowd.task)
        crowd.sp.ports.kgc.acknowledge(crowd.task)
        assert crowd.csp._become_sole_holder(crowd.task)
        yield crowd
        assert isinstance(crowd.disk, Disk)
        crowd.disk.close()


def begun(crowd: Crowd, number: int) -> Exchange:
    """SP's half of a round that never publishes: phones, told that the one before was unused, send to it."""
    sp = crowd.sp.aggregators._new(crowd.task, number)
    for person in crowd.people.values():
        sp.enrol(person.keys.identity)
    models = {name: np.full(8, 0.01 * (int(name) + 1)) for name in crowd.people}
    uploads = {
        person.keys.who: person.side.encrypt_update(models[name], 1, number) for name, person in crowd.people.items()
    }
    sp.add_all(uploads)
    return sp.publish(final=False)


def broken(crowd: Crowd, reply: bytes) -> tuple[str, ...]:
    """Whose seals CSP does not open, by its answer to a manifest."""
    payload = StepReply.from_bytes(reply, Limits.plain(len(reply))).payload
    return ManifestReply.from_bytes(payload, crowd.shape.limits()).broken


def counted(crowd: Crowd, who: str) -> int:
    """In how many rounds CSP has shown somebody's bits, with no record of them."""
    body = crowd.csp.store.record(crowd.task, Place(KeptTask.kind)).body
    assert body is not None
    kept = KeptTask.from_bytes(body, Limits.plain(len(body)))
    return dict(zip(kept.unshown, kept.counts, strict=True)).get(who, 0)


def test_bits_that_two_processes_show_are_counted(crowd: Crowd, tmp_path: Path) -> None:
    victim, shown = crowd.people[VICTIM].keys.who, 0
    assert isinstance(crowd.disk, Disk)
    with ExitStack() as stack:
        two = Two(crowd, crowd.disk.url, tmp_path / "csp", stack)
        steps = begun(crowd, 1)
        manifest = next(steps)
        reply = crowd.csp.answer(crowd.task, manifest)
        for number in range(1, ROUNDS):
            is_closed = victim in broken(crowd, reply)
            try:
                request = steps.send(lambda said=reply: said)
                for _ in range(2, shown_in(crowd.shape)):
                    reply = crowd.csp.answer(crowd.task, request)
                    request = steps.send(lambda said=reply: said)
            except RoundEnded:  # the bits won every race so far: CSP shows no more of anyone
                assert shown == MOST_UNSHOWN
                break
            steps = begun(crowd, number + 1)
            bits, reply = two.ask(request, next(steps))
            assert isinstance(reply, bytes), reply  # the next round begins, whoever was first
            assert isinstance(bits, bytes) or bits == "RoundEnded"
            shown += isinstance(bits, bytes) and not is_closed
            assert counted(crowd, victim) == shown
    assert shown <= MOST_UNSHOWN


def test_of_one_step_two_processes_answer_one_request(crowd: Crowd, tmp_path: Path) -> None:
    """The same twice has one answer; of two manifests of a round, one is taken."""
    assert isinstance(crowd.disk, Disk)
    with ExitStack() as stack:
        two = Two(crowd, crowd.disk.url, tmp_path / "csp", stack)
        for number in range(1, ROUNDS + 1):
            one, another = next(begun(crowd, number)), next(begun(crowd, number))
            answers = two.ask(one, one if number % 2 else another)
            assert len({answer for answer in answers if isinstance(answer, bytes)}) == 1
            if not number % 2:
                assert sorted(type(answer).__name__ for answer in answers) == ["bytes", "str"]
        notes = crowd.csp.guard.look(crowd.task)
        assert notes.steps == set(range(1, ROUNDS + 1))
