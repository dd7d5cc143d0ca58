"""A task ends: its secrets are erased everywhere, whoever dies on the way, and nobody can bring it back."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import (
    BadSignature,
    DocumentError,
    Forbidden,
    RoundEnded,
    ServiceUnavailable,
    TaskEnded,
    UnknownTask,
)
from crowdfl.protocols.hardened.order import HardenedStep
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.records import Look, Place, Standing
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle, SharesSpBundle
from crowdfl.retry import Backoff, no_jitter
from crowdfl.roles.csp import Csp, refuse_task
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.guard import Guard
from crowdfl.roles.kgc import Kgc
from crowdfl.roles.kgc_retention import KgcRetention
from crowdfl.roles.ports import CspStore, ManualClock
from crowdfl.roles.records import RoundState, StoredTask
from crowdfl.roles.retention import secrets_of
from crowdfl.roles.sp.end_notices import EndNotices
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.services.apps.sp_uploads import UnfinishedUploads
from crowdfl.services.background.sweeper import Sweeper
from crowdfl.simulation.faults import Crash, Life, LivedBlobs
from tests.campaigns.faults import dying
from tests.campaigns.world import World, closing
from tests.hosts import FileDisk, test_tools
from tests.storage.papers import DEFINITION

SP_KEY, KGC_KEY = SigningKey.fresh(), SigningKey.fresh()
NOW = 1e9  # as the file system's clock says
OLD = NOW + 10**9  # long after every file was written
HOURS = 24


class Roles:
    """KGC, CSP and SP over a folder, each able to end tasks; `life` is that of whichever server is to die."""

    def __init__(self, folder: Path, task: str, server: str = "", life: Life | None = None) -> None:
        self.folder, self.task, self.disk, self.clock = folder, task, FileDisk(folder, durable=False), ManualClock(1e6)
        self.stores = {role: self.disk.store(role) for role in ("kgc", "csp", "sp")}
        self._server, self._life = server, life or dying(None)
        kgc = Kgc(self._own("kgc"), self._blobs("kgc/keys"), self.clock, KGC_KEY, True)
        csp_store, sp_store = self._own("csp"), self._own("sp")
        csp = Csp(
            csp_store,
            self._blobs("csp/blobs"),
            self._blobs("csp/keys"),
            Guard(self._blobs("csp/guard"), csp_store, "csp"),
            None,  # type: ignore[arg-type]  # it would be asked for keys, and no test gets so far
            KGC_KEY.public,
            self.clock,
            test_tools(),
        )
        self.parts = UnfinishedUploads(folder / "sp/incoming", lambda: NOW)
        parts: Any = _MortalParts(self.parts, self._life) if server == "sp" else self.parts
        self.kgc_role, self.csp_role = kgc, csp
        self.kgc = KgcRetention(kgc.store, kgc.bundles, self.clock, sp_key=SP_KEY.public)
        self.csp = csp_retention(csp, self.clock)
        peers: Any = {"kgc": self.kgc, "csp": self.csp}
        self.rests = ManualClock()
        rests = Backoff(10.0, 3600.0, jitter=no_jitter, clock=self.rests.now)
        own = sp_store, self._blobs("sp/keys"), self.clock, self._blobs("sp/blobs")
        guard = Guard(self._blobs("sp/guard"), sp_store, "sp")
        self.notices = EndNotices(sp_store, self.clock, SP_KEY, peers, rests)
        self.sp = SpRetention(*own, guard, parts, notices=self.notices)

    def _own(self, role: str) -> Any:
        if role != self._server:
            return self.stores[role]
        store = self.disk.store(role)
        store.at_commit = self._life.commit
        return store

    def _blobs(self, name: str) -> Any:
        blobs = self.disk.blobs(name)
        return LivedBlobs(blobs, self._life, "blobs") if name.startswith(self._server + "/") else blobs

    def secrets(self) -> dict[str, dict[str, int]]:
        """What each still holds of the task and must not keep."""
        held = {"kgc": self.kgc.held(), "csp": self.csp.held(), "sp": self.sp.held()}
        return {role: dict(secrets_of(found[self.task])) for role, found in held.items() if self.task in found}

    def sweep(self, hours: int = 1, machine_time: float = NOW) -> None:
        for _ in range(hours):
            self.clock.time += 3600
            for retention in (self.kgc, self.csp, self.sp):
                retention.sweep(machine_time, counting=True)  # type: ignore[attr-defined]

    def end(self) -> str:
        return self.notices.document(self.stores["sp"].task(self.task))

    def marker(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file() and b"SECRET" in path.read_bytes()]


@dataclass
class _MortalParts:
    """Parts of uploads in the hands of a process that may die when it removes one."""

    parts: UnfinishedUploads
    life: Life

    def __getattr__(self, name: str) -> Any:
        return getattr(self.parts, name)

    def remove(self, *part: Any) -> None:
        with self.life.passing("blobs.remove"):
            self.parts.remove(*part)


def csp_retention(csp: Csp, clock: ManualClock) -> CspRetention:
    return CspRetention(csp.store, csp.bundles, clock, csp.blobs, csp.guard, sp_key=SP_KEY.public, forget=csp.drop)


class _Nowhere:
    """Records of which none was set."""

    def standing(self, _place: Place) -> Standing:
        return Standing()

    def file(self, _number: int, _name: str) -> bytes:
        raise AssertionError("no test reads one")


def keep_in_csp(store: CspStore, task: str, blob: str) -> None:
    """A record of a step, and an answer."""
    look = Look(_Nowhere())
    look.put(HardenedStep(b"SECRET record"), 1, step=99)
    store.set_records(task, look, "0" * 64, blob)


def _plant(world: World, folder: Path) -> None:
    """Secrets that can be searched for, as a crash might leave them."""
    task = world.task
    known = world.truth.sp_record(task, 1)
    world.truth.set_sp_record(task, 1, known, replace(known, round=b"SECRET seed"))
    keep_in_csp(world.disk.store("csp"), task, f"{task}/answers/x/y")
    world.disk.blobs("csp/blobs").put(f"{task}/answers/x/y", b"SECRET answer")
    for blob in ("uploads/x", "replies/x"):
        world.blobs.put(f"{task}/rounds/1/{blob}", b"SECRET blob")
    for role in ("sp", "csp"):
        keys, kind = world.disk.blobs(f"{role}/keys"), SharesSpBundle if role == "sp" else SharesCspBundle
        dealt = kind.from_bytes(keys.get(f"{task}.{role}"), Limits.plain())
        keys.delete(f"{task}.{role}")
        keys.put(f"{task}.{role}", replace(dealt, seed=b"SECRET share".ljust(len(dealt.seed))).to_bytes())
    keys = world.disk.blobs("kgc/keys")
    for role in ("sp", "csp", "requester", "participant"):
        keys.delete(f"{task}.{role}")
        keys.put(f"{task}.{role}", b"SECRET bundle")
    parts = UnfinishedUploads(folder / "sp/incoming")
    parts.path(task, 1, world.truth.participants(task)[0].identity.who, "0" * 64).write_bytes(b"SECRET")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A campaign that was settled, with nothing erased that `settle` does not erase itself."""
    folder = tmp_path_factory.mktemp("ended")
    with closing(World(folder, 3, rounds=1, window=1000.0)) as world:
        world.run()
        for person in world.people:
            world.upload(person)
        world.run()
        world.finish()
        _plant(world, folder)
        return folder, world.task


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("running")
    with closing(World(folder, 3, rounds=1, window=1000.0)) as world:
        world.run()
        for person in list(world.people)[:2]:
            world.upload(person)
        _plant(world, folder)
        return folder, world.task


Copies = Callable[..., Roles]


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    """A campaign in a folder of its own, opened by roles of its own."""
    opened: list[Roles] = []

    def copy(campaign: tuple[Path, str], server: str = "", life: Life | None = None) -> Roles:
        folder = tmp_path / str(len(opened))
        shutil.copytree(campaign[0], folder)
        opened.append(Roles(folder, campaign[1], server, life))
        return opened[-1]

    yield copy
    for roles in opened:
        roles.disk.close()


def test_all_that_a_task_needed_is_erased_when_it_has_ended(ended, copies: Copies):
    """Not a byte of it is left in any file, the databases included; names, books and results stay."""
    roles = copies(ended)
    before, books = roles.secrets(), roles.stores["sp"].movements(roles.task)
    assert before["kgc"] == {"key shares": 4}
    assert before["csp"]["key shares"] == 1
    assert before["csp"]["answers"] > 1
    assert before["csp"]["records"] >= 1
    assert before["sp"].keys() == {"key shares", "seeds", "uploads", "replies", "parts", "left-overs"}
    assert len(roles.marker()) >= 8
    roles.sp.tick()
    assert roles.secrets() == {"sp": {}}
    assert roles.marker() == []
    assert roles.stores["sp"].movements(roles.task) == books
    assert roles.sp.held()[roles.task]["results"] > 0
    for role in ("kgc", "csp"):
        assert roles.stores[role].task(roles.task).state == "ended"
        document = roles.stores[role].task(roles.task).end
        assert document is not None
        assert TaskEnd.open(document.document, SP_KEY.public).why == "settled"


@pytest.mark.second
@pytest.mark.parametrize("server", ["kgc", "csp", "sp"])
def test_whatever_step_a_server_dies_at_all_is_erased_in_the_end(server: str, ended, copies: Copies):
    """And it never erases anything of a task that is not marked as ended: a restart would not know why it is gone."""
    for step in range(1, 100):
        mortal = copies(ended, server, dying(step))
        whole = mortal.secrets()
        died = False
        try:
            mortal.sp.tick()
        except Crash:
            died = True
        fresh = Roles(mortal.folder, mortal.task)
        marked = fresh.stores[server].task(fresh.task).state in ("ended", "settled")
        assert marked or fresh.secrets()[server] == whole[server]
        fresh.sp.tick()
        fresh.sweep()
        left = (
            fresh.secrets(),
            fresh.marker(),
            fresh.stores["sp"].task(fresh.task).unnotified(["kgc", "csp"]),
        )
        fresh.disk.close()
        assert left == ({"sp": {}}, [], [])
        if not died:
            assert step > 5
            return
    pytest.fail("it never lived to the end")


def test_only_sp_itself_ends_a_task(ended, copies: Copies):
    """Whose word it is, and of which task, is checked before anything is touched."""
    roles = copies(ended)
    before, forged = roles.secrets(), TaskEnd(roles.task, "settled", 1.0).sign(SigningKey.fresh())
    for retention in (roles.kgc, roles.csp):
        with pytest.raises(BadSignature):
            retention.end(roles.task, forged)
        with pytest.raises(DocumentError, match="another task"):
            retention.end(roles.task, TaskEnd("0" * 64, "settled", 1.0).sign(SP_KEY))
        with pytest.raises(DocumentError, match="why"):
            retention.end(roles.task, TaskEnd(roles.task, "because", 1.0).sign(SP_KEY))  # type: ignore[arg-type]
        with pytest.raises(UnknownTask):
            retention.end("0" * 64, TaskEnd("0" * 64, "settled", 1.0).sign(SP_KEY))
        retention.sp_key = None
        with pytest.raises(Forbidden, match="sp_key"):
            retention.end(roles.task, roles.end())
    assert roles.secrets() == before


def test_a_task_that_has_ended_is_never_made_again(ended, copies: Copies):
    """KGC deals no other keys under its name, CSP fetches none, SP takes it over no more; the mark is enough for that."""
    roles = copies(ended)
    text = roles.stores["kgc"].task(roles.task).definition
    roles.sp.tick()
    roles.sp.tick()
    kgc, csp = roles.kgc_role, roles.csp_role
    with pytest.raises(TaskEnded, match="settled by SP"):
        kgc.create_task(text)
    for role in ("sp", "csp"):
        with pytest.raises(TaskEnded):
            kgc.bundle(roles.task, role)
    with pytest.raises(TaskEnded):
        csp.prepare(roles.task)
    with pytest.raises(TaskEnded):
        csp.answer(roles.task, b"a request")
    assert roles.secrets() == {"sp": {}}


def test_sp_takes_no_task_over_that_has_ended(tmp_path: Path):
    """Nor checks an upload to it: its key share is gone."""
    with closing(World(tmp_path / "world", 3, rounds=1, window=1000.0)) as world:
        world.run()
        world.finish()
        papers = world.truth.task(world.task)
        with pytest.raises(TaskEnded):
            world.sps[0].tasks.create(papers.definition, papers.appointment, b"initial")
        world.sps[0].aggregators.drop(world.task)
        with pytest.raises(TaskEnded):
            world.sps[0].uploads.limit(world.task)


def test_csp_gives_no_answer_after_the_end_that_it_gave_before(tmp_path: Path):
    """Also one that was being computed when the end came: nothing of it stays. The last day of claims is over."""
    with closing(World(tmp_path / "world", 3, rounds=1, window=1000.0)) as world:
        world.run()
        for person in world.people:
            world.upload(person)
        world.run()
        csp, before = world.host.csp, [sent for sent in world.wire.sent if sent[0] == "answer"]
        retention = csp_retention(csp, world.clock)
        world.clock.time = retention.lives_until(csp.store.task(world.task)) + 1
        side = csp._side(csp.store.task(world.task), 0)
        computed = []

        class Slow:
            def answer(self, records: Look, request: bytes) -> bytes:
                computed.append(request)
                records.put(HardenedStep(b"SECRET record"), 1, step=99)
                records.keep(1, b"SECRET file")
                retention.end(world.task, TaskEnd(world.task, "cancelled", 1.0).sign(SP_KEY))
                return b"SECRET reply"

            def __getattr__(self, name: str) -> Any:
                return getattr(side, name)

        csp._sides[world.task] = Slow()  # type: ignore[assignment]
        with pytest.raises(TaskEnded):
            csp.answer(world.task, b"a new request")
        assert computed == [b"a new request"]
        with pytest.raises(TaskEnded):
            csp.answer(*before[0][1])
        assert world.task not in csp._sides
        retention.sweep(NOW, counting=False)
        assert retention.held() == {}


def test_csp_takes_no_step_after_the_end_and_keeps_what_claims_need(tmp_path: Path):
    """Until their last day: SP's word does not end what people have earned."""
    with closing(World(tmp_path / "world", 3, rounds=1, window=1000.0)) as world:
        world.run()
        for person in world.people:
            world.upload(person)
        world.run()
        csp, steps = world.host.csp, [sent[1] for sent in world.wire.sent if sent[0] == "answer"]
        retention = csp_retention(csp, world.clock)
        retention.end(world.task, TaskEnd(world.task, "cancelled", 1.0).sign(SP_KEY))
        for step in steps:
            with pytest.raises((TaskEnded, RoundEnded)):
                csp.answer(*step)
        left = retention.held()[world.task]
        assert (left["key shares"], left["answers"], left["dealt files"]) == (1, 0, 0)
        assert [name for name in csp.blobs.listing() if name.startswith(f"{world.task}/steps/")] == []
        assert not csp.bundles.has(f"{world.task}.csp")
        for person in world.people:
            world.claim(person)
        assert sum(sum(rounds.values()) for rounds in world.ledger().paid().values()) > 0
        world.clock.time = retention.lives_until(csp.store.task(world.task)) + 1
        retention.end(world.task, TaskEnd(world.task, "cancelled", 1.0).sign(SP_KEY))
        assert retention.held() == {}


def _last_days(roles: Roles) -> tuple[float, float]:
    """Of the task on KGC and on CSP, as they themselves say."""
    return tuple(one.lives_until(one.store.task(roles.task)) for one in (roles.kgc, roles.csp))  # type: ignore[return-value]


def test_where_sp_says_nothing_a_task_ends_with_its_last_days(running, copies: Copies):
    """On KGC with that of its rounds, on CSP a day after that of its claims; on time, and not before."""
    roles = copies(running)
    defined = roles.stores["csp"].task(roles.task).opened
    days = _last_days(roles)
    assert days == (defined.rounds_until, defined.claims_until + min(86400, defined.claim_window))
    assert defined.claims_until - defined.rounds_until > 0
    before = roles.secrets()
    for day, role in zip(days, ("kgc", "csp"), strict=True):
        roles.clock.time = day + 1 - 2 * HOURS * 3600
        while roles.clock.time < day:
            for retention in (roles.kgc, roles.csp):
                for _ in range(3):  # by several processes
                    retention.sweep(NOW, counting=True)
            assert roles.stores[role].task(roles.task).state == "open"
            assert roles.secrets()[role] == before[role]
            roles.clock.time += 3600
        for retention in (roles.kgc, roles.csp):
            retention.sweep(NOW, counting=True)
        assert roles.stores[role].task(roles.task).state == "ended"
    assert roles.secrets().keys() == {"sp"}
    with pytest.raises(TaskEnded, match="expired"):
        roles.csp_role.prepare(roles.task)


def test_a_clock_that_is_wrong_for_a_while_ends_nothing(running, copies: Copies):
    """A day of hourly sightings in a row is needed, and sweeps at a start are not sightings."""
    roles = copies(running)
    roles.sweep()
    before, now = roles.secrets(), roles.clock.time
    roles.clock.time += 10 * _last_days(roles)[1]
    roles.sweep(HOURS - 1)
    for retention in (roles.kgc, roles.csp, roles.sp):
        for _ in range(2 * HOURS):
            retention.sweep(NOW, counting=False)  # type: ignore[attr-defined]
    roles.clock.time = now
    roles.sweep()
    roles.clock.time += 10 * _last_days(roles)[1]
    roles.sweep(HOURS - 1)
    assert roles.secrets() == before
    assert roles.stores["sp"].task(roles.task).state == "running"


def test_sp_cancels_a_task_past_its_life_and_returns_its_money(running, copies: Copies):
    """Then people can claim as after any cancellation, and everyone can read why."""
    roles = copies(running)
    roles.sweep()
    roles.clock.time = roles.sp.lives_until(roles.stores["sp"].task(roles.task)) + 1 - 86400
    roles.sweep(HOURS)
    store = roles.stores["sp"]
    assert store.task(roles.task).state == "cancelled"
    assert [str(round_.state) for round_ in store.rounds(roles.task)] == ["aborted"]
    assert [m.name for m in store.movements(roles.task)][-1] == "abort round 1"
    how = store.task(roles.task).end
    assert how is not None
    assert how.why == "expired"
    assert roles.secrets()["sp"]["key shares"] == 1


def test_files_of_unknown_tasks_are_swept_when_they_are_old(running, copies: Copies):
    """A creation that never ended leaves keys; one that is under way, or a store that knows nothing, is left alone."""
    roles, unknown = copies(running), "f" * 64
    for role, name in (("kgc", "sp"), ("kgc", "dealt"), ("csp", "csp"), ("sp", "sp")):
        roles.disk.blobs(f"{role}/keys").put(f"{unknown}.{name}", b"SECRET share")
    roles.disk.blobs("sp/blobs").put(f"{unknown}/initial", b"weights")
    kgc, csp, sp = (dict(found) for found in (roles.kgc.held(), roles.csp.held(), roles.sp.held()))
    roles.sweep(2 * HOURS, machine_time=max(roles.kgc._written().values()) + 6 * 86400)
    assert (roles.kgc.held(), roles.csp.held(), roles.sp.held()) == (kgc, csp, sp)
    roles.sweep(HOURS - 1, machine_time=OLD)
    assert unknown in roles.csp.held()
    roles.sweep(1, machine_time=OLD)
    for held in (roles.kgc.held(), roles.csp.held(), roles.sp.held()):
        assert held.keys() == {roles.task}
    assert not roles.disk.blobs("kgc/keys").has(f"{unknown}.dealt")  # or whoever asks again would be dealt nothing


def test_a_store_that_knows_no_task_may_be_the_wrong_one(running, copies: Copies):
    roles = copies(running)
    csp = roles.csp_role
    retention = CspRetention(roles.disk.store("another"), csp.bundles, roles.clock, csp.blobs, csp.guard)
    for _ in range(2 * HOURS):
        retention.sweep(OLD, counting=True)
    assert csp.bundles.has(f"{roles.task}.csp")


def test_parts_of_rounds_that_are_over_and_unfinished_files_are_swept(running, copies: Copies):
    """A part of an open round stays: its owner may come back."""
    roles = copies(running)
    store, (place, *_) = roles.stores["sp"], roles.parts.places()
    unfinished = roles.folder / "sp/blobs" / roles.task / ".0123.part"
    unfinished.write_bytes(b"SECRET")
    roles.sp.sweep(unfinished.stat().st_mtime, counting=False)
    assert (roles.parts.places(), unfinished.exists()) == ([place], True)
    (last,) = store.rounds(roles.task)
    store.set_round(roles.task, last, replace(last, state=RoundState.ABORTED))
    roles.sp.sweep(unfinished.stat().st_mtime + 2 * 86400, counting=False)
    assert (roles.parts.places(), unfinished.exists()) == ([], False)


class Away:
    """A peer that does not answer, or not to this message."""

    def __init__(self, failure: Exception) -> None:
        self.asked: list[str] = []
        self.failure: Exception | None = failure

    def end(self, task: str, document: str) -> None:
        assert document
        self.asked.append(task)
        if self.failure is not None:
            raise self.failure


def test_a_peer_that_is_away_is_told_when_it_is_back(ended, copies: Copies):
    """Seldom while it is away or of an older release, across restarts, and no more once it has acknowledged."""
    roles = copies(ended)
    away = Away(ServiceUnavailable("Not Found"))
    roles.notices.peers = {"kgc": roles.kgc, "csp": away}
    others = [f"{number:032x}" for number in range(5)]
    for task in others:  # settled too: they wait with it
        roles.stores["sp"].add_task(StoredTask(task, DEFINITION, "a", "settled", 1.0))
    for _ in range(6 * 60):
        roles.rests.time += 60
        roles.sp.tick()
    assert 8 < len(away.asked) < 16  # soon again at first, then about once an hour, and of one task at a time
    roles.sp = replace(roles.sp, notices=replace(roles.notices))
    away.failure, away.asked = None, []
    for _ in range(3):
        roles.sp.tick()
    assert sorted(away.asked) == sorted([roles.task, *others])


def test_one_task_that_a_peer_refuses_keeps_no_other_waiting(ended, copies: Copies):
    """A peer that never knew a task has nothing of it: that counts as told."""
    roles = copies(ended)
    roles.stores["sp"].add_task(StoredTask("0" * 64, DEFINITION, "a", "settled", 1.0))
    refusing = Away(DocumentError("no"))
    roles.notices.peers = {"kgc": roles.kgc, "csp": refusing}
    roles.sp.tick()
    assert sorted(refusing.asked) == sorted(["0" * 64, roles.task])
    assert roles.stores["sp"].task("0" * 64).unnotified(["kgc", "csp"]) == ["csp"]


def test_a_csp_whose_operator_refuses_a_task_ends_it_at_once(tmp_path: Path):
    """No round waits a day for it: the budget returns, and everyone can read why."""
    with closing(World(tmp_path / "world", 3, rounds=2, window=1000.0)) as world:
        world.run()
        for _ in range(2):
            refuse_task(world.disk.store("csp"), world.task, "a court order")
        for person in world.people:
            world.upload(person)
        world.run()
        assert (world.states(), world.task_state()) == (["aborted"], "settled")  # nobody is owed anything
        assert "a court order" in world.sps[0].tasks.status(world.task)["ended"]["reason"]
        world.finish()


def test_a_refusal_is_heard_when_csp_is_told_of_someone(tmp_path: Path):
    with closing(World(tmp_path / "world", 3, rounds=2, window=1000.0)) as world:
        refuse_task(world.disk.store("csp"), world.task, "a court order")
        world.join(0)  # again, as phones do
        assert world.task_state() == "cancelled"
        assert "a court order" in world.sps[0].tasks.status(world.task)["ended"]["reason"]
        world.finish()


def test_sweeps_come_at_the_start_and_then_every_hour():
    """By time that passes; the first of a process counts nothing."""
    passed, seen, often = ManualClock(), [], []
    sweeper = Sweeper(
        lambda _time, *, counting: seen.append(counting), lambda: bool(often.append(1)), elapsed=passed.now
    )
    for _ in range(3 * 60):
        assert sweeper.tick() is False
        passed.time += 60
    assert seen == [False, True, True]
    assert len(often) == 180


def test_a_sweep_that_fails_is_repeated_and_counts_once():
    """It is tried again within the hour, and what it saw is not seen twice."""
    passed, seen, failing = ManualClock(), [], [True]

    def sweep(_time: float, *, counting: bool) -> None:
        seen.append(counting)
        if failing:
            raise OSError("the disk is away")

    sweeper = Sweeper(sweep, elapsed=passed.now)
    for minute in range(4 * 60):
        if minute == 150:
            failing.clear()
        with contextlib.suppress(OSError):
            sweeper.tick()
        passed.time += 60
    assert len(seen) == 150 + 2
    assert seen.count(True) == 3
