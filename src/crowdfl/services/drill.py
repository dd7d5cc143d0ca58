"""A drill: the newest backup of a role is restored in a scratch place and started there alone; what would be lost is counted.

The running role is only read: a copy of its database, of one moment, and the notes of a guard that would outlive the loss. All
that is made is in one private folder, which goes at the end. One that a killed drill has left goes with the next drill.
"""

import contextlib
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from crowdfl.errors import BackupError, BackupRefused, GuardMissing, RolledBack, TaskUnreadable
from crowdfl.roles.records import DepositState, PaymentState, RoundState, StoredPayment, StoredTask, TaskState
from crowdfl.roles.sp.aggregators import upload_name
from crowdfl.roles.sp.instalments import BANK
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.roles.waiting import amount_words, format_time
from crowdfl.services.alone import GUARD, alone
from crowdfl.services.folders.backups import is_guard_archived, put_back, read_role, restoring_role
from crowdfl.services.run import open_guard
from crowdfl.settings import ComputingSettings, ServiceSettings, handed_over, in_cents
from crowdfl.storage import migrations
from crowdfl.storage.archive import Manifest, read_manifest
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.database_copy import copy_database, put_database
from crowdfl.storage.s3 import kept
from crowdfl.storage.sql import SqlStore
from crowdfl.storage.tables import metadata

_SCRATCH = "crowdfl-drill-"
_STALE = 600.0  # seconds: a folder so old that nobody holds was left by a drill that was killed
_COUNTED = {
    "kgc": {"invitations": "people certified"},
    "sp": {"participants": "people who joined or left", "uploads": "uploads", "rounds": "steps of rounds"},
    "csp": {"participants": "people who joined or left", "answers": "answers to SP"},
}
_ENDED = (TaskState.CANCELLED, TaskState.FINISHED, TaskState.SETTLED)
_OPEN = (PaymentState.PENDING, PaymentState.RUNNING)
_DOUBTFUL = (PaymentState.RUNNING, PaymentState.UNKNOWN)  # nobody knows yet whether the bank has them


@dataclass(frozen=True)
class Money:
    """What the books of a task would lack."""

    task: str
    currency: str
    deposits: dict[str, str]  # confirmed since
    paid: dict[str, str]  # by the bank since: to be named in `sp reconcile`
    in_doubt: dict[
        str, str
    ]  # payments that wait in the backup, or may have been made since: to be looked for at the bank
    returned: str  # to the requester since

    @property
    def is_nothing(self) -> bool:
        return not (self.deposits or self.paid or self.in_doubt) and self.returned == amount_words(0)


@dataclass
class Drill:
    """What a drill has found."""

    role: str
    archive: str
    taken_at: float
    seconds: float  # of work that would be lost
    wrong: list[str] = field(default_factory=list)  # why this backup would not do
    tasks: list[str] = field(default_factory=list)  # created since: lost
    ended: dict[str, str] = field(default_factory=dict)  # tasks that a restore ends, and why
    rounds: dict[str, str] = field(default_factory=dict)  # by task and number: what would become of them
    counts: dict[str, int] = field(default_factory=dict)  # rows since, by what they are
    money: list[Money] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        return {"ok": not self.wrong} | asdict(self)

    def words(self) -> list[str]:
        """The report, line by line."""
        lines = [f"{self.archive}: {self.role} as of {format_time(self.taken_at)}"]
        lines.append(f"a restore would lose {self.seconds / 3600:.1f} hours:")
        lines += [f"- task {task}, which was created since" for task in self.tasks]
        lines += [f"- task {task} would end: {why}" for task, why in self.ended.items()]
        lines += [f"- {which}: {what}" for which, what in self.rounds.items()]
        lines += [f"- {count} {what}" for what, count in self.counts.items() if count]
        for one in self.money:
            lines += [
                f"- task {one.task}: confirm deposit {name} of {much} {one.currency} again"
                for name, much in one.deposits.items()
            ]
            lines += [
                f"- task {one.task}: name --paid {key}={much}, {one.currency} paid since"
                for key, much in one.paid.items()
            ]
            lines += [
                f"- task {one.task}: look for payment {key} of {much} {one.currency} at the bank"
                for key, much in one.in_doubt.items()
            ]
            if one.returned != amount_words(0):
                lines.append(f"- task {one.task}: {one.returned} {one.currency} returned to the requester since")
        if len(lines) == 2:
            lines.append("- nothing that the database knows")
        return lines


def drill(settings: Path, backups: Path, longest: float, scratch: Path | None = None) -> Drill:
    """`longest`: seconds that a backup may be old."""
    role, running = read_role(settings)
    archive, manifest, damaged = newest(backups, role)
    now = time.time()
    found = Drill(role, str(archive), manifest.taken_at, now - manifest.taken_at, damaged)
    if found.seconds > longest:
        found.wrong.append(f"the newest backup is {found.seconds / 3600:.1f} hours old: look at what makes them")
    with scratch_folder(scratch or Path(tempfile.gettempdir())) as place:
        _copy_running(running, place)
        path = _restore(archive, place)
        restored = alone(read_role(path)[1])
        _require_own(running, restored, place)
        _count(place, role, found)
        with _Stores.opened(place) as stores:
            _compare(stores, restored, found)
        _start(path, running, found)
    return found


def newest(backups: Path, role: str) -> tuple[Path, Manifest, list[str]]:
    """The newest archive of a role in a folder, or the one that is named; and what is wrong with those beside it."""
    if not backups.exists():
        raise BackupError(f"there is neither a backup nor a folder of backups at {backups}")
    files = [backups]
    if backups.is_dir():  # hidden is what `backup` has not finished: no backup yet, and none that is damaged
        files = sorted(path for path in backups.iterdir() if path.is_file() and not path.name.startswith("."))
    readable: list[tuple[Path, Manifest]] = []
    damaged: list[tuple[Path, BackupError]] = []
    for path in files:
        try:
            readable.append((path, read_manifest(path)))
        except BackupError as wrong:
            damaged.append((path, wrong))
    own = [one for one in readable if one[1].role == role]
    if not own:
        why = f": {damaged[-1][1]}" if damaged else ""
        raise BackupError(f"there is no backup of {role} in {backups}{why}")
    path, manifest = max(own, key=lambda one: one[1].taken_at)
    unfit = [
        f"{one} is newer, and cannot be read: {why}" for one, why in damaged if one.stat().st_mtime > manifest.taken_at
    ]
    if {"sp", "csp"} <= {one.role for _, one in readable}:
        unfit.append(f"{backups} has backups of SP and of CSP: together they are the key of every task")
    return path, manifest, unfit


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Its owner's alone: it holds keys. Held by a lock as long as its drill lives."""
    for left in parent.glob(f"{_SCRATCH}*"):
        _remove_left(left)
    folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent))
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder)


def _remove_left(folder: Path) -> None:
    with contextlib.suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            known = os.fstat(lock)
            if known.st_uid == os.geteuid() and known.st_mtime < time.time() - _STALE:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        finally:
            os.close(lock)


def _copy_running(running: ServiceSettings, place: Path) -> None:
    """Its database, and the notes of a guard that would still be there."""
    copy_database(running.database_url, place / "running.db")
    migrations.upgrade(f"sqlite:///{place}/running.db")
    if isinstance(running, ComputingSettings) and not is_guard_archived(running):
        notes, copy = kept(running, "guard"), FileBlobs(place / GUARD)
        copy.put_all({name: notes.get(name) for name in notes.listing()})


def _restore(archive: Path, place: Path) -> Path:
    """As `crowdfl restore` does it; the settings file. The database as it was in the archive stays beside."""
    before = place / "backup.db"
    with restoring_role(archive, place / "role") as (manifest, _, put):
        put(f"sqlite:///{before}")
    migrations.upgrade(f"sqlite:///{before}")
    path = place / "role" / manifest.settings
    put_back(alone(read_role(path)[1]), partial(put_database, copy=before), unchanged=False)
    return path


def _require_own(running: ServiceSettings, restored: ServiceSettings, place: Path) -> None:
    """A backup of another platform would start as well."""
    keys = [(settings.data / "signing.key") for settings in (running, restored)]
    signs = [path.read_bytes() for path in keys if path.exists()]
    names = [
        _rows(place / name, "SELECT name FROM identity WHERE position = 1") for name in ("running.db", "backup.db")
    ]
    if len(set(signs)) > 1 or (all(names) and names[0] != names[1]):
        raise BackupRefused(
            "the backup is of another platform than the settings: name the folder of this role's backups"
        )


def _rows(database: Path, query: str, *beside: Path) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection:
        for path in beside:
            connection.execute("ATTACH ? AS beside", (str(path),))
        return connection.execute(query).fetchall()


def _count(place: Path, role: str, found: Drill) -> None:
    """Rows that are new or other since the backup."""
    for name, what in _COUNTED[role].items():
        columns = ", ".join(f'"{column.name}"' for column in metadata.tables[name].columns)
        since = f'SELECT {columns} FROM main."{name}" EXCEPT SELECT {columns} FROM beside."{name}"'  # noqa: S608 -- own tables
        ((number,),) = _rows(place / "running.db", f"SELECT count(*) FROM ({since})", place / "backup.db")  # noqa: S608
        found.counts[what] = number


@dataclass(frozen=True)
class _Stores:
    """The running role's, the archive's, and the one that a restore makes of it."""

    running: SqlStore
    before: SqlStore
    after: SqlStore

    @classmethod
    @contextmanager
    def opened(cls, place: Path) -> Iterator["_Stores"]:
        paths = (place / "running.db", place / "backup.db", place / "role" / "state.db")
        with contextlib.ExitStack() as stack:
            yield cls(*(stack.enter_context(closing(SqlStore(f"sqlite:///{path}"))) for path in paths))


def _compare(stores: _Stores, settings: ServiceSettings, found: Drill) -> None:
    before, after = ({one.task: one for one in store.tasks()} for store in (stores.before, stores.after))
    found.wrong += [f"task {one.task} cannot be read: {one.why}" for one in stores.before.unreadable()]
    for now in stores.running.tasks():
        try:
            if now.task not in before:
                found.tasks.append(now.task)
            else:
                why = _why_ended(stores, settings, now, after[now.task])
                found.ended |= {now.task: why} if why else {}
                found.rounds |= _rounds(stores, now.task)
            if found.role == "sp":
                money = _money(stores, now)
                found.money += [] if money.is_nothing else [money]
        except TaskUnreadable as wrong:  # a row beside its own
            found.wrong.append(f"task {now.task} cannot be read: {wrong.why}")
    if isinstance(settings, ComputingSettings):
        missing = [one for task in before.values() for one in _missing(stores.before, settings, task)]
        found.wrong += (
            [f"the backup lacks {len(missing)} files that its database names, such as {missing[0]}"] if missing else []
        )


def _why_ended(stores: _Stores, settings: ServiceSettings, now: StoredTask, after: StoredTask) -> str:
    """Why a task that is under way would not be after a restore."""
    if now.state in _ENDED or now.rolled_back:
        return ""
    if after.state in _ENDED:
        return after.end.words() if after.end else after.state
    if after.rolled_back:
        return "the notes of its steps would be lost"
    if isinstance(settings, ComputingSettings):
        guard = open_guard(stores.after, settings, tell=False)
        try:
            guard.compare(guard.look(now.task), after)
        except (RolledBack, GuardMissing) as back:
            return str(back)
    return ""


def _rounds(stores: _Stores, task: str) -> dict[str, str]:
    after = {one.number: one.state for one in stores.after.rounds(task)}
    changed = {one.number: (one.state, after.get(one.number)) for one in stores.running.rounds(task)}
    words = {
        None: "begins anew",
        RoundState.OPEN: "takes uploads for a whole window again",
        RoundState.ABORTED: "is given up",
    }
    return {
        f"round {number} of task {task}": f"{now} now, {words.get(then, str(then))} after a restore"
        for number, (now, then) in changed.items()
        if now != then
    }


def _money(stores: _Stores, now: StoredTask) -> Money:
    old = {one.key: one for one in stores.before.payments(now.task)}
    confirmed = [
        {one.name: amount_words(one.amount) for one in store.deposits(now.task) if one.state is DepositState.CONFIRMED}
        for store in (stores.running, stores.before)
    ]
    returned = [Ledger(store.movements(now.task)).returned() for store in (stores.running, stores.before)]
    rows = stores.running.payments(now.task)
    is_named = not now.opened.payer  # a payer knows itself what it has paid
    paid = [one for one in rows if is_named and one.state is PaymentState.PAID and one.owner != BANK]
    said = [store.paid_before(now.task) for store in (stores.running, stores.before)]
    doubtful = {key: one for key, one in old.items() if one.state in _OPEN}
    doubtful |= {  # perhaps made since the backup, and so unknown to it
        one.key: one
        for one in rows
        if one.state in _DOUBTFUL and (one.key not in old or old[one.key].state is not PaymentState.PAID)
    }
    return Money(
        now.task,
        now.opened.settings.currency,
        {name: much for name, much in confirmed[0].items() if name not in confirmed[1]},
        {
            one.key: _handed(stores.running, one)
            for one in paid
            if one.key not in old or old[one.key].state is not one.state
        }
        | {key: f"{in_cents(much):f}" for key, much in said[0].items() if said[1].get(key) != much},
        {key: _handed(stores.running, one) for key, one in doubtful.items()},
        amount_words(max(0, returned[0] - returned[1])),
    )


def _handed(store: SqlStore, payment: StoredPayment) -> str:
    """In cents, as a bank's statement has it."""
    rows = store.instalments(payment.task, payment.who)
    before = sum(one.amount for one in rows if one.sequence < payment.sequence)
    return f"{in_cents(handed_over(before, payment.amount)):f}"


def _missing(store: SqlStore, settings: ComputingSettings, task: StoredTask) -> Iterator[str]:
    """Files of a task under way that a round would miss."""
    if task.state in _ENDED:
        return
    blobs = FileBlobs(settings.data / "blobs", make=False)
    try:
        rounds = [one.number for one in store.rounds(task.task) if not one.is_over]
    except TaskUnreadable:  # told before
        return
    wanted = [
        upload_name(task.task, number, one.digest) for number in rounds for one in store.uploads(task.task, number)
    ]
    yield from (name for name in wanted if not blobs.has(name))


def _start(path: Path, running: ServiceSettings, found: Drill) -> None:
    """In a process of its own, which can reach nobody."""
    command = [sys.executable, "-P", "-m", "crowdfl.services.alone", str(path)]
    command += [] if running.passphrase_file is None else [str(running.passphrase_file.absolute())]
    # This very program, and names that it has made itself; no shell reads them.
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        found.wrong.append(f"the restored role does not start: {said[-1][:500] if said else done.returncode}")
