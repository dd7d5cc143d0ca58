"""`crowdfl drill`: the newest backup is restored and started beside the running role, which notices nothing; and it is told
what would be lost."""

import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import BackupError
from crowdfl.roles.guard import Guard
from crowdfl.roles.records import DepositState, PaymentState, Round, RoundState, StoredDeposit, Upload
from crowdfl.roles.sp.aggregators import upload_name
from crowdfl.services.alone import alone
from crowdfl.services.drill import newest, scratch_folder
from crowdfl.settings import SpSettings
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.settings_file import read_service
from crowdfl.storage.sql import SqlStore
from tests import subprocesses
from tests.cli.conftest import TASK, WAITS
from tests.cli.program import Result, call

OTHER, WHO = "b" * 64, "c" * 20


class Live:
    """A role's folder as it runs, its backups, and a place for drills."""

    def __init__(self, role: str, made: Path, folder: Path) -> None:
        self.role, self.folder, self.backups, self.scratch = (
            role,
            folder / "live",
            folder / "backups",
            folder / "scratch",
        )
        shutil.copytree(made / role, self.folder)
        self.backups.mkdir()
        self.scratch.mkdir()

    @property
    def settings(self) -> Path:
        return self.folder / "settings.toml"

    def set(self, line: str) -> None:
        self.settings.write_text(f"{line}\n{self.settings.read_text()}")

    @contextlib.contextmanager
    def store(self) -> Iterator[SqlStore]:
        with closing(SqlStore(f"sqlite:///{self.folder}/state.db")) as store:
            yield store

    def backup(self, name: str = "1.backup") -> Path:
        assert call("backup", self.settings, self.backups / name).code == 0
        return self.backups / name

    def drill(self, *options: object) -> tuple[int, dict[str, Any]]:
        result = self.said(*options, "--json")
        return result.code, json.loads(result.out) if result.code in (0, 1) else {"error": result.err}

    def said(self, *options: object) -> Result:
        result = call("drill", self.settings, self.backups, "--scratch", self.scratch, *options)
        assert list(self.scratch.iterdir()) == []  # whatever came of it
        return result


@pytest.fixture
def sp(busy: Path, tmp_path: Path) -> Live:
    return Live("sp", busy, tmp_path)


@pytest.mark.second
@pytest.mark.parametrize("role", ["kgc", "sp", "csp"])
def test_a_fresh_backup_starts_and_loses_nothing(role: str, busy: Path, tmp_path: Path):
    """But what a restore costs by itself: a payment that waits is in doubt."""
    live = Live(role, busy, tmp_path)
    live.backup()
    code, found = live.drill()
    assert (code, found["ok"], found["wrong"], found["tasks"], found["rounds"]) == (0, True, [], [], {})
    assert not any(found["counts"].values())
    assert found["seconds"] < 600
    assert [one["in_doubt"] for one in found["money"]] == ([{WAITS.key: "5.00"}] if role == "sp" else [])
    assert f"{role} as of" in live.said().out


@pytest.mark.second
def test_what_happened_since_the_backup_is_told(sp: Live, tmp_path: Path):
    """Time, tasks, rounds, uploads and money, each by what an operator has to do about it. A guard on another disk has seen no
    step."""
    sp.set(f'guard = "{tmp_path}/other-disk"')
    with sp.store() as store:
        Guard(FileBlobs(tmp_path / "other-disk"), store, "sp").require_own()
        for number, state in ((1, RoundState.CLOSED), (2, RoundState.OPEN)):
            store.set_round(TASK, None, Round(number, 1.0, state))
        store.mark_paid_before(TASK, {"1" * 32: 1_000_000, "2" * 32: 2_000_000})
    sp.backup()
    with sp.store() as store:
        store.mark_paid_before(
            TASK, {"1" * 32: 3_005_000, "3" * 32: 4_000_000}
        )  # of an earlier restore, corrected since
        store.acknowledge(TASK, 2, [Upload(WHO, "1" * 64, late=False)])
        store.set_round(TASK, Round(1, 1.0, RoundState.CLOSED), Round(1, 1.0, RoundState.REWARDED))
        store.set_round(TASK, Round(2, 1.0), Round(2, 1.0, RoundState.CLOSED))
        store.set_round(TASK, None, Round(3, 2.0))
        store.add_task(replace(store.task(TASK), task=OTHER))
        store.add_deposit(StoredDeposit(OTHER, "all", 36_000_000, DepositState.CONFIRMED, 0.0, 1.0))
        (waits,) = store.payments(TASK)
        store.change_payment(waits, replace(waits, state=PaymentState.PAID))
        store.add_payment(since := replace(waits, sequence=waits.sequence + 1, state=PaymentState.UNKNOWN))
        store.add_payment(replace(waits, sequence=waits.sequence + 2, state=PaymentState.PENDING))
    old = time.time() - 3 * 3600
    code, found = sp.drill()
    assert (code, found["tasks"]) == (0, [OTHER])
    assert found["rounds"] == {
        f"round 1 of task {TASK}": "rewarded now, is given up after a restore",
        f"round 2 of task {TASK}": "closed now, takes uploads for a whole window again after a restore",
        f"round 3 of task {TASK}": "open now, begins anew after a restore",
    }
    assert (found["counts"]["uploads"], found["counts"]["steps of rounds"]) == (1, 3)
    mine, new = sorted(found["money"], key=lambda one: one["task"])
    doubtful = {WAITS.key: "5.00", since.key: "5.00"}
    paid = {WAITS.key: "5.00", "1" * 32: "3.00", "3" * 32: "4.00"}
    assert (mine["paid"], mine["in_doubt"]) == (paid, doubtful), "what may be made since is looked for too"
    assert (new["task"], new["deposits"]) == (OTHER, {"all": "36.00"})
    words = sp.said().out
    for line in (
        f"task {OTHER}, which was created since",
        f"name --paid {WAITS.key}=5.00",
        "confirm deposit all of 36.00 EUR again",
        "1 uploads",
    ):
        assert line in words
    assert old < found["taken_at"]


@pytest.mark.second
@pytest.mark.parametrize(("role", "elsewhere"), [("sp", False), ("csp", False), ("csp", True)])
def test_tasks_that_a_restore_ends_are_told(role: str, elsewhere: bool, busy: Path, tmp_path: Path):
    """By a guard inside the folder all of `shares`; one on another disk says which: it is read, and not written."""
    live = Live(role, busy, tmp_path)
    notes = FileBlobs(tmp_path / "other-disk")
    if elsewhere:
        live.set(f'guard = "{tmp_path}/other-disk"')
        with live.store() as store:
            Guard(notes, store, role).require_own()
    live.backup()
    code, found = live.drill()
    assert (code, set(found["ended"])) == (0, set() if elsewhere else {TASK})
    if elsewhere:
        with live.store() as store:
            Guard(notes, store, role).note(TASK, 1, "0" * 64)
        before = notes.listing()
        code, found = live.drill()
        assert "step 1 of the task has left" in found["ended"][TASK]
        assert notes.listing() == before


@pytest.mark.second
def test_the_running_role_its_peers_its_bank_and_its_guard_notice_nothing(sp: Live, tmp_path: Path):
    """Two servers that count connections stand for KGC and CSP; the program that pays would leave a file."""
    bank = tmp_path / "bank"
    bank.write_text(f"#!/bin/sh\ntouch {tmp_path}/paid\n")
    bank.chmod(0o700)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        text = sp.settings.read_text()
        for url, server in zip(("7101", "7103"), servers, strict=True):
            assert f":{url}" in text
            text = text.replace(f":{url}", f":{server.getsockname()[1]}")
        sp.settings.write_text(text)
        sp.set(f'on_paid = ["{bank}"]\ntick = "0.01 s"')
        sp.backup()
        before = contents(sp.folder)
        assert sp.drill()[0] == 0
        assert contents(sp.folder) == before
        for server in servers:
            server.setblocking(False)
            with pytest.raises(BlockingIOError):
                server.accept()
    assert not (tmp_path / "paid").exists()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file; SQLite's own beside its database hold no rows when nobody writes."""
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


LEAVING = {
    "connect": "socket.create_connection(('127.0.0.1', {port}))",
    "name": "socket.getaddrinfo('localhost', 80)",
    "listen": "socket.create_server(('127.0.0.1', 0))",
    "datagram": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
    "program": "subprocess.Popen(['true'])",
    "shell": "os.system('true')",
    "replace": "os.execv('/bin/true', ['true'])",
    "spawn": "os.posix_spawn('/bin/true', ['true'], {{}})",
    "fork": "os.fork() or os._exit(0)",
}


@pytest.mark.second
@pytest.mark.parametrize("way", LEAVING)
def test_nothing_leaves_a_process_in_which_a_role_is_alone(way: str):
    with socket.create_server(("127.0.0.1", 0)) as server:
        act = LEAVING[way].format(port=server.getsockname()[1])
        code = f"import os, socket, subprocess\nfrom crowdfl.services.alone import refuse_to_leave\nrefuse_to_leave()\n{act}"
        done = subprocesses.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, "is refused in a drill" in done.stderr) == (1, True), done.stderr
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_role_that_is_alone_keeps_all_in_its_folder_and_has_nobody_to_tell(sp: Live):
    """What programs outside of Python would reach, such as PostgreSQL and a bucket, it does not even name."""
    text = sp.settings.read_text().replace('compute = "threads"', 'compute = "dask"')
    sp.settings.write_text(
        'database = "postgresql+psycopg://sp@db/sp"\non_paid = ["/bin/pay"]\non_paid_time = "90 s"\nlisten = "0.0.0.0"\n'
        f'tracing = "http://127.0.0.1:1"\nguard = "/mnt/guard"\npassphrase_file = "passphrase"\n{text}\n[s3]\nbucket = "b"\n'
    )
    named = read_service(SpSettings, sp.settings)
    assert named.dask is not None
    assert named.s3 is not None
    found = alone(named, sp.folder / "passphrase")
    assert isinstance(found, SpSettings)
    assert (found.database, found.s3, found.dask, found.tracing, found.guard) == (None,) * 5
    assert (found.on_paid, found.push_hosts, found.address, found.port, found.compute) == (
        (),
        (),
        "127.0.0.1",
        0,
        "threads",
    )
    assert found.passphrase_file == sp.folder / "passphrase"


@pytest.mark.second
def test_a_backup_that_would_not_do_ends_with_1_and_says_why(sp: Live, busy: Path):
    """Too old, without files that its database names, of a role that does not start, or beside CSP's."""
    with sp.store() as store:
        store.set_round(TASK, None, Round(1, 1.0))
        store.acknowledge(TASK, 1, [Upload(WHO, "1" * 64, late=False)])
    sp.backup()
    code, found = sp.drill("--hours", "0")
    assert code == 1
    assert [("hours old" in one, upload_name(TASK, 1, "1" * 64) in one) for one in found["wrong"]] == [
        (True, False),
        (False, True),
    ]
    assert call("backup", busy / "csp/settings.toml", sp.backups / "csp.backup").code == 0
    assert "together they are the key" in " ".join(sp.drill()[1]["wrong"])
    (sp.backups / "csp.backup").unlink()
    (sp.folder / "kgc.token").unlink()
    sp.backup("2.backup")
    code, found = sp.drill()
    assert (code, found["archive"]) == (1, str(sp.backups / "2.backup"))
    assert "does not start" in found["wrong"][-1]


@pytest.mark.second
def test_a_row_that_cannot_be_read_is_told_with_all_else(sp: Live):
    with sp.store() as store, store._write() as c:
        store.set_round(TASK, None, Round(1, 1.0))
        c.execute(text("UPDATE rounds SET state = 'brand new'"))
    sp.backup()
    code, found = sp.drill()
    assert (code, len(found["wrong"]), found["counts"]["uploads"]) == (1, 1, 0)
    assert found["wrong"][0].startswith(f"task {TASK} cannot be read: round 1")


def test_the_newest_backup_that_can_be_read_is_tried_and_a_newer_damaged_one_told(sp: Live):
    first, second = sp.backup("z.backup"), sp.backup("a.backup")
    (sp.backups / f".{'0' * 24}.part").write_bytes(second.read_bytes()[:5000])  # of a backup that is being written
    assert newest(sp.backups, "sp")[::2] == (second, [])
    second.write_bytes(second.read_bytes()[:5000])
    archive, _, wrong = newest(sp.backups, "sp")
    assert (archive, len(wrong)) == (first, 1)
    assert "a.backup is newer, and cannot be read" in wrong[0]
    for folder in (sp.scratch, sp.folder / "nowhere", second):
        with pytest.raises(BackupError, match="there is n"):
            newest(folder, "sp")
    with pytest.raises(BackupError, match="no backup of csp"):
        newest(sp.backups, "csp")


@pytest.mark.second
def test_a_backup_of_another_platform_is_refused(sp: Live):
    sp.backup()
    (sp.folder / "signing.key").write_bytes(SigningKey.fresh().private)
    code, found = sp.drill()
    assert (code, "of another platform" in found["error"]) == (3, True)


def test_what_a_killed_drill_has_left_goes_with_the_next_and_a_living_one_stays(tmp_path: Path):
    with scratch_folder(tmp_path) as living:
        assert living.stat().st_mode & 0o777 == 0o700
        left, young = tmp_path / "crowdfl-drill-left", tmp_path / "crowdfl-drill-young"
        for folder in (left, young):
            folder.mkdir()
            (folder / "signing.key").write_bytes(b"a key")
        for folder in (left, living):
            os.utime(folder, (0.0, 0.0))
        with pytest.raises(ZeroDivisionError), scratch_folder(tmp_path):
            raise ZeroDivisionError
        assert sorted(tmp_path.iterdir()) == sorted((living, young))
