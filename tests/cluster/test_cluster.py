"""The cluster backend on real schedulers and workers: processes with TLS on loopback, one cluster for each role."""

import secrets
import signal
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from crowdfl.crypto import blocks
from crowdfl.crypto.compute import Progress, Threads
from crowdfl.crypto.paillier.kernels import (
    BucketProduct,
    FixedBase,
    FixedBasePower,
    MulMod,
    MultiPow,
    PartialDecrypt,
    PowEach,
    PowMod,
)
from crowdfl.crypto.paillier.vector import CipherVector, RunningProduct
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    BackendUnavailable,
    Cancelled,
    ClusterTaken,
    ClusterUnprotected,
    KeyFileDamaged,
    KeyFileMissing,
    KeyFilePermissions,
    KeyFileRole,
    NotAUnit,
    SettingsError,
    StoreUnavailable,
    UploadDamaged,
)
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares.round.upload import make_upload
from crowdfl.protocols.shares.round.work import Findings, ShareWork, Sown, Stored
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.sp.aggregators import read_upload, upload_name
from crowdfl.roles.sp.core import SpOptions
from crowdfl.services.cluster import backend as backend_module
from crowdfl.services.cluster.backend import Cluster
from crowdfl.services.cluster.worker import (
    KEYS,
    KeyFolder,
    Piece,
    Rows,
    Store,
    WorkPart,
    dask_setup,
    own_keys,
    recipe_of,
    share_name,
)
from crowdfl.services.http.tls import make_cluster_certificate
from crowdfl.services.run import open_csp
from crowdfl.services.server import running
from crowdfl.settings import ClusterSettings, CspSettings, PeerSettings, S3Settings, TaskSettings
from crowdfl.storage.atomic import write_private
from crowdfl.storage.blobs import OF_STORE, FileBlobs
from crowdfl.storage.sealed_blobs import SealedBlobs
from tests.cluster.processes import clusters, wait_for
from tests.hosts import FileDisk
from tests.hosts import test_tools as host_tools
from tests.protocols.driving import SMALL, converse, deal
from tests.shares.crowd import BUDGET, SETTINGS, Crowd, along, next_model

ONE = Threads(1)


class Nowhere:
    """A backend that must not be asked."""

    name = "nowhere"

    def map(self, kernel, *blocks, out=None, progress=None):
        raise AssertionError(f"{kernel} ran here")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A dealt task with its bundles in the folders of the two clusters' workers, and the two backends."""
    folder = tmp_path_factory.mktemp("clusters")
    sides = deal(4, 400, **(SMALL | {"max_participants": 4, "rounds": 5}))
    keys = {role: folder / "keys" / role for role in ("sp", "csp")}
    with clusters(folder, keys) as found:
        for role, count in (("sp", 2), ("csp", 1)):
            write_private(keys[role] / f"task.{role}", getattr(sides.dealing, role))
            for _ in range(count):
                found[role].add_worker()
        backends = {role: Cluster(role, found[role].settings, ONE) for role in found}
        try:
            wait_for(lambda: [backend.connect() for backend in backends.values()] == [2, 1])
            yield SimpleNamespace(sides=sides, processes=found, keys=keys, **backends)
        finally:
            for backend in backends.values():
                backend.close()


@pytest.fixture(scope="module")
def public(world):
    return world.sides.task.public


def units(public, count: int) -> blocks.Block:
    return blocks.from_ints((secrets.randbelow(int(public.n_squared)) for _ in range(count)), public.ciphertext_bytes)


def exponents(count: int, width: int) -> blocks.Block:
    return blocks.from_bytes(secrets.token_bytes(count * width), width)


def batches(public, share):
    """A batch for every kernel that is sent, with odd numbers of rows and factors."""
    n2, width = public.n_squared, public.ciphertext_bytes
    rows = units(public, 1100)
    fixed = FixedBase(public.h_s, n2, public.exponent_bits, 4)
    signs = np.frombuffer(secrets.token_bytes(1100), dtype=np.uint8) & 1
    return {
        "one exponent": (PowMod(mpz(secrets.randbits(90)), n2), rows[:301]),
        "a negative exponent": (PowMod(mpz(-77), n2), rows[:40]),
        "a key share": (PartialDecrypt(share, n2), rows[:50]),
        "a key share in constant time": (PartialDecrypt(share, n2, True), rows[:20]),
        "an exponent each": (PowEach(n2, 64), rows[:97], exponents(97, 8)),
        "a fixed base": (FixedBasePower(fixed), exponents(600, fixed.exponent_width)),
        "a product of few": (BucketProduct(n2, 5), rows.reshape(220, 5 * width), signs.reshape(220, 5)),
        "a product of many": (BucketProduct(n2, 55), rows.reshape(20, 55 * width), signs.reshape(20, 55)),
        "one product of all": (BucketProduct(n2, 1100), rows.reshape(1, -1), signs.reshape(1, -1)),
        "powers multiplied": (MultiPow(n2, 11, 40), rows.reshape(100, -1), exponents(100, 11 * 5)),
        "many powers multiplied": (MultiPow(n2, 1100, 40), rows.reshape(1, -1), exponents(1, 1100 * 5)),
    }


def test_every_kernel_gives_the_bytes_of_one_thread(world, public):
    """On workers alone; and progress ends with all rows."""
    share = world.sides.sp.party.share.exponent
    on_workers = replace(world.sp, others=Nowhere())
    try:
        for name, (kernel, *given) in batches(public, share).items():
            seen = []
            found = on_workers.map(kernel, *given, progress=Progress(lambda *how_far, seen=seen: seen.append(how_far)))
            assert np.array_equal(found, ONE.map(kernel, *given)), name
            assert (seen[0], seen[-1]) == ((0, len(found)), (len(found), len(found))), name
    finally:
        on_workers.close()


def test_light_work_and_handfuls_stay_here(public):
    """Sending them costs more than doing them; no scheduler is asked."""
    unconnected = Cluster("sp", ClusterSettings(scheduler="tls://127.0.0.1:1"), ONE)
    rows = units(public, 300)
    for kernel, *given in ((MulMod(public.n_squared), rows, rows), (PowMod(mpz(3), public.n_squared), rows[:5])):
        assert np.array_equal(unconnected.map(kernel, *given), ONE.map(kernel, *given))


def test_the_result_may_replace_an_operand(world, public):
    rows = units(public, 40).copy()
    kernel = PowMod(mpz(5), public.n_squared)
    expected = ONE.map(kernel, rows)
    assert world.sp.map(kernel, rows, out=rows) is rows
    assert np.array_equal(rows, expected)


def test_running_products_reduce_as_a_tree_on_the_workers(world, public):
    """A group of uploads: partial products are multiplied by workers, and the sum is that of one thread, one by one."""
    rows, count = 1600, 12
    numbers = (
        np.frombuffer(secrets.token_bytes(rows * public.ciphertext_bytes), dtype=np.uint8).reshape(rows, -1).copy()
    )
    numbers[:, 0] = 0  # below N^2
    uploads = [CipherVector(public, np.roll(numbers, i, axis=0)) for i in range(count)]
    here, there = (RunningProduct(public, rows, count, backend=backend) for backend in (ONE, world.sp))
    for upload in uploads:
        here.add(upload)
    there.add(uploads[0])
    before = steps(world.sp, "run_rows", "memory")
    there.add_all(uploads[1:])
    assert there.result() == here.result()
    assert steps(world.sp, "run_rows", "memory") > before


def steps(cluster, function: str, finish: str, start: str | None = None) -> int:
    """How many tasks of a function the scheduler has seen go over to a state."""

    def count(function, finish, start, dask_scheduler):
        log = dask_scheduler.transition_log
        return len({e[0] for e in log if e[0].startswith(function) and e[2] == finish and start in (None, e[1])})

    return cluster._client.run_on_scheduler(count, function, finish, start)


def test_a_killed_worker_costs_its_pieces_alone(world, public):
    """SIGKILL in the middle of a batch: the others go on, and the result is that of one thread."""
    spare = world.processes["sp"].add_worker()
    wait_for(lambda: world.sp.connect() == 3, spare)
    rows, kernel = units(public, 600), PowMod(mpz(secrets.randbits(1500)), public.n_squared)
    finished, moved = steps(world.sp, "run_piece", "memory"), steps(world.sp, "run_piece", "released", "processing")
    kills = []

    def kill(done, total):
        if done and not kills:
            kills.append((done, total))
            spare.send_signal(signal.SIGKILL)
            spare.wait()

    found = world.sp.map(kernel, rows, progress=Progress(kill))
    assert kills[0][0] < kills[0][1]
    assert np.array_equal(found, ONE.map(kernel, rows))
    wait_for(lambda: world.sp.connect() == 2)
    pieces = steps(world.sp, "run_piece", "memory") - finished
    assert 1 <= steps(world.sp, "run_piece", "released", "processing") - moved < pieces


def test_a_cancelled_batch_stops_and_leaves_nothing_behind(world, public):
    progress = Progress()
    progress.on_progress = lambda done, _total: progress.cancel() if done else None
    kernel = PowMod(mpz(secrets.randbits(1500)), public.n_squared)
    with pytest.raises(Cancelled):
        world.sp.map(kernel, units(public, 900), progress=progress)

    def tasks(dask_scheduler):
        return len(dask_scheduler.tasks)

    wait_for(lambda: world.sp._client.run_on_scheduler(tasks) == 0)


def test_an_error_of_a_kernel_comes_back_as_itself_and_its_numbers_stay_out_of_the_logs(world, public):
    """Dask logs what a failed piece was called with; ours show no numbers."""
    rows = units(public, 1024).copy()
    rows[7] = blocks.from_ints([public.n], public.ciphertext_bytes)[0]
    with pytest.raises(NotAUnit):
        world.sp.map(BucketProduct(public.n_squared, 8), rows.reshape(128, -1), np.ones((128, 8), dtype=np.uint8))
    wait_for(lambda: "Compute Failed" in world.processes["sp"].logs())
    shown = world.processes["sp"].logs() + repr(Piece(recipe_of(PowMod(mpz(7), public.n_squared)), (Rows.of(rows),)))
    assert "PowMod" in shown
    assert f"{public.n_squared:x}" not in shown
    assert repr(rows[0].tobytes())[2:40] not in shown


def forms(number: int) -> list[bytes]:
    """A number in every form in which it could be sent or shown."""
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    shown = [f"{number:x}", f"{number:X}", str(number), repr(raw), str(list(raw))]
    return [raw, raw[::-1], gmpy2.to_binary(mpz(number)), *(text.encode() for text in shown)]


def heard(cluster) -> bytes:
    """Every frame that has reached the scheduler since `record`, from the role or from workers."""

    def frames(dask_scheduler):
        return b"".join(dask_scheduler.crowdfl_heard)

    return cluster._client.run_on_scheduler(frames)


def record(cluster) -> None:
    """From now on, the scheduler keeps every frame that it receives."""

    def listen(dask_scheduler):
        from distributed.comm import tcp

        dask_scheduler.crowdfl_heard = []
        inner = tcp.from_frames

        async def from_frames(frames, *args, **kwargs):
            dask_scheduler.crowdfl_heard.extend(map(bytes, frames))
            return await inner(frames, *args, **kwargs)

        tcp.from_frames = from_frames

    cluster._client.run_on_scheduler(listen)


@pytest.mark.parametrize("role", ["sp", "csp"])
def test_a_key_share_never_travels(world, public, role):
    """In no message that the scheduler gets, no log, no repr; another exponent is found by the same search."""
    cluster, party = getattr(world, role), getattr(world.sides, role).party
    share, plain = int(party.share.exponent), secrets.randbits(512) | 1 << 511
    record(cluster)
    for exponent, kind in ((share, PartialDecrypt), (plain, PowMod)):
        kernel, rows = kind(mpz(exponent), public.n_squared), units(public, 64)
        assert np.array_equal(cluster.map(kernel, rows), ONE.map(kernel, rows))
        assert not any(form in repr(kernel).encode() for form in forms(exponent))
    traffic, logs = heard(cluster), world.processes[role].logs().encode()
    assert share_name(share).encode() in traffic
    assert any(form in traffic for form in forms(plain))
    assert b"run_piece" in logs
    assert not any(form in text for form in forms(share) for text in (traffic, logs))


def test_a_worker_without_the_share_says_what_to_do(world, public):
    """SP's workers hold no share of CSP's."""
    share = world.sides.csp.party.share.exponent
    with pytest.raises(KeyFileMissing, match="CROWDFL_KEYS"):
        world.sp.map(PartialDecrypt(share, public.n_squared), units(public, 20))


def test_a_whole_round_on_two_clusters_gives_the_average_of_threads(world):
    """Averages and rewards of the same uploads, SP and CSP each on its own cluster."""
    sides = world.sides
    rng = np.random.default_rng(3)
    models = {who: rng.uniform(-1, 1, 400) for who in sides.people}
    uploads = {who: sides.upload(model, 3 + i, who) for i, (who, model) in enumerate(models.items())}
    results = []
    for backends in ({"sp": ONE, "csp": ONE}, {"sp": world.sp, "csp": world.csp}):
        sp = sides.fresh_sp(replace(sides.tools, backend=backends["sp"]))
        csp = sides.fresh_csp(tools=replace(sides.tools, backend=backends["csp"]))
        sp.add_all(uploads)
        converse(sp.reward(36_000_000), csp.answer)
        converse(sp.publish(final=False), csp.answer)
        average = sides.people["p0"].read(sp.publication(), 1)
        rewards = {who: sides.people[who].open_reward(sealed, 1) for who, sealed in sp.envelopes().items()}
        results.append((average.weights.tolist(), average.total, rewards))
    assert results[0][:2] == results[1][:2]
    for who, paid in results[0][2].items():
        assert abs(results[1][2][who] - paid) <= 2  # masks are fresh, and a reward is rounded with them
    expected = sum((3 + i) * model for i, model in enumerate(models.values())) / (3 + 4 + 5 + 6)
    assert np.allclose(results[1][0], expected, atol=2e-3)


def test_one_scheduler_for_both_roles_is_refused(world):
    """Whoever came first keeps it; and the owner is not disturbed."""
    intruder = Cluster("csp", world.sp.settings)
    with pytest.raises(ClusterTaken, match="works for sp"):
        intruder.connect()
    assert world.sp.connect() == 2


def test_a_service_computes_on_its_roles_cluster(world, tmp_path):
    """CSP starts on its own and refuses to start on SP's; without a scheduler the setting is named."""
    token = tmp_path / "token"
    write_private(token, b"crowdfl_x")
    settings = CspSettings(
        data=tmp_path,
        host="127.0.0.1",
        port=0,
        kgc=PeerSettings(url="https://localhost:1", token=token),
        kgc_key=bytes(32),
        plain_http=True,
    )
    with pytest.raises(SettingsError, match="scheduler"):
        settings.changed(compute="dask")
    settings.changed(compute="dask", dask=world.csp.settings, s3=S3Settings(bucket="b"), passphrase_file=token)
    with pytest.raises(ClusterTaken):
        open_csp(settings.changed(compute="dask", dask=world.sp.settings))

    def clients(dask_scheduler):
        return len(dask_scheduler.clients)

    before = world.csp._client.run_on_scheduler(clients)
    with running(open_csp(settings.changed(compute="dask", dask=world.csp.settings)), settings):
        assert world.csp._client.run_on_scheduler(clients) == before + 1
    wait_for(lambda: world.csp._client.run_on_scheduler(clients) == before)


def test_the_other_roles_certificate_opens_nothing(world):
    """Each cluster's certificate is its own authority."""
    mixed = world.csp.settings.changed(scheduler=world.sp.settings.scheduler, patience=1.0)
    with pytest.raises(BackendUnavailable, match="does not answer"):
        Cluster("sp", mixed).connect()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"scheduler": "tcp://127.0.0.1:8786"}, ClusterUnprotected),
        ({"scheduler": "tcp://10.0.0.7:8786", "plain_tcp": True}, ClusterUnprotected),
        ({"scheduler": "tls://127.0.0.1:8786"}, SettingsError),
        ({"scheduler": "127.0.0.1:8786"}, SettingsError),
        ({"scheduler": "tcp://127.0.0.1:1", "plain_tcp": True, "patience": 0.5}, BackendUnavailable),
    ],
)
def test_what_is_no_protected_cluster_is_refused_by_name(settings, error):
    """Without TLS, without certificates, without a scheduler."""
    with pytest.raises(error):
        Cluster("sp", ClusterSettings(**settings)).connect()


def test_a_cluster_key_that_others_can_read_is_refused(tmp_path):
    """Whoever has it runs what it likes on the workers, which read the share."""
    files = make_cluster_certificate(tmp_path)
    files.key.chmod(0o644)
    settings = ClusterSettings(
        scheduler="tls://127.0.0.1:1", ca=files.certificate, certificate=files.certificate, key=files.key
    )
    with pytest.raises(KeyFilePermissions):
        Cluster("sp", settings).connect()


def test_without_dask_the_extra_is_named(monkeypatch):
    """Everything else works without it."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BackendUnavailable, match="extra `dask`"):
        Cluster("sp", ClusterSettings(scheduler="tls://127.0.0.1:1")).connect()


def test_a_cluster_that_is_lost_is_told_of_and_works_again_when_it_is_back(public, tmp_path):
    """All workers, then the scheduler, killed during a batch: an error soon, and nothing to restart on this side."""
    kernel, rows = PowMod(mpz(secrets.randbits(1500)), public.n_squared), units(public, 300)
    with clusters(tmp_path, {"sp": tmp_path / "keys"}) as found:
        processes = found["sp"]
        backend = Cluster("sp", processes.settings.changed(patience=3.0), ONE)
        try:
            for lost, message in (("worker", "no worker"), ("scheduler", "does not answer")):
                worker = processes.add_worker()
                wait_for(lambda: connected(backend), worker)
                victim = {"worker": worker, "scheduler": processes.scheduler}[lost]
                with pytest.raises(BackendUnavailable, match=message):
                    backend.map(
                        kernel, rows, progress=Progress(lambda done, _total, one=victim: one.kill() if done else None)
                    )
            processes.restart()
            worker = processes.add_worker()
            wait_for(lambda: connected(backend), worker)
            assert np.array_equal(backend.map(kernel, rows), ONE.map(kernel, rows))
        finally:
            backend.close()


def test_repro_a_client_that_has_just_lost_its_scheduler_is_replaced(monkeypatch):
    """Dask's client raises AttributeError between losing its scheduler and saying that it is closed."""
    opened = []

    class Client:
        def __init__(self, *_where, **_how):
            opened.append(self)
            self.status, self.first = "running", len(opened) == 1

        def run_on_scheduler(self, _function, role):
            if self.first:
                self.status = "closed"
                raise AttributeError("'NoneType' object has no attribute 'run_function'")
            return role, 3

    names = {"Client": Client, "KilledWorker": KeyError, "CancelledError": KeyError}
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(**names))
    backend = Cluster("sp", ClusterSettings(scheduler="tcp://127.0.0.1:1", plain_tcp=True), ONE)
    with pytest.raises(BackendUnavailable, match="does not answer"):
        backend.connect()
    assert backend.connect() == 3
    assert len(opened) == 2


def connected(backend) -> bool:
    """Whether the scheduler answers and has a worker."""
    try:
        return backend.connect() > 0
    except BackendUnavailable:
        return False


@pytest.fixture(scope="module", params=["hardened", "paper"])
def sides(request):
    return deal(3, 2, profile=request.param)


def shares_of(party_side) -> list:
    """What a side decrypts with; the paper's SP has a second share to deliver with."""
    delivery = [party_side.delivery] if hasattr(party_side, "delivery") else []
    return [party.share.exponent for party in (party_side.party, *delivery)]


@pytest.mark.parametrize("role", ["sp", "csp"])
def test_the_shares_of_a_bundle_are_found_by_their_names(tmp_path, sides, role):
    """Every share that the role decrypts with, and none of the other role's."""
    write_private(tmp_path / f"task.{role}", getattr(sides.dealing, role))
    folder = KeyFolder(tmp_path)
    other = {"sp": sides.csp, "csp": sides.sp}[role]
    for share in shares_of(getattr(sides, role)):
        assert folder.share(share_name(share)) == share
        assert str(int(share)) not in repr(folder)
    for share in shares_of(other):
        with pytest.raises(KeyFileMissing, match=KEYS):
            folder.share(share_name(share))


def test_a_new_bundle_is_found_and_a_deleted_one_forgotten(tmp_path, sides):
    """A worker runs on while tasks come and go."""
    folder = KeyFolder(tmp_path)
    (share, *_) = shares_of(sides.sp)
    with pytest.raises(KeyFileMissing):
        folder.share(share_name(share))
    write_private(tmp_path / "task.sp", sides.dealing.sp)
    assert folder.share(share_name(share)) == share
    (tmp_path / "task.sp").unlink()
    with pytest.raises(KeyFileMissing):
        folder.share(share_name(share))


def test_a_bundle_that_others_can_read_is_refused(tmp_path, sides):
    write_private(tmp_path / "task.sp", sides.dealing.sp)
    (tmp_path / "task.sp").chmod(0o640)
    with pytest.raises(KeyFilePermissions):
        KeyFolder(tmp_path).read()


@pytest.mark.parametrize("names", [["a.sp", "a.csp"], ["a.requester"], ["a.sp", "a.participant"]])
def test_a_folder_of_more_than_one_role_is_refused(tmp_path, sides, names):
    """KGC's own folder, for one, would put the two shares side by side."""
    for name in names:
        write_private(tmp_path / name, sides.dealing.sp)
    with pytest.raises(KeyFileRole):
        KeyFolder(tmp_path).read()


def test_damaged_bundles_and_missing_folders_have_their_names(tmp_path, sides):
    """And a write under way is not looked at."""
    write_private(tmp_path / ".half.part", b"")
    assert KeyFolder(tmp_path).read() == 0
    write_private(tmp_path / "task.sp", sides.dealing.sp[:-1])
    with pytest.raises(KeyFileDamaged):
        KeyFolder(tmp_path).read()
    with pytest.raises(KeyFileMissing, match="not a folder"):
        KeyFolder(tmp_path / "nowhere").read()


def test_a_worker_that_cannot_read_its_keys_does_not_start(monkeypatch):
    """Dask goes on after other errors of a preload."""
    own_keys.cache_clear()
    monkeypatch.delenv(KEYS, raising=False)
    with pytest.raises(SystemExit, match=f"KeyFileMissing.*{KEYS}"):
        dask_setup(None)


def test_sealed_shares_are_found_by_the_roles_settings(tmp_path, monkeypatch, sides):
    """The passphrase opens them, wherever the settings say that they are; a deleted one is forgotten."""
    (share, *_) = shares_of(sides.csp)
    write_private(tmp_path / "passphrase", b"correct horse")
    text = 'host = "h"\nport = 0\npassphrase_file = "passphrase"\n[kgc]\nurl = "https://k:1"\ntoken = "t"\n'
    (tmp_path / "settings.toml").write_text(f'kgc_key = "{"00" * 32}"\n{text}')
    sealed = SealedBlobs(FileBlobs(tmp_path / "keys"), "correct horse", 4)
    sealed.put("task.csp", sides.dealing.csp)
    monkeypatch.setenv(KEYS, str(tmp_path / "settings.toml"))
    own_keys.cache_clear()
    try:
        assert own_keys().share(share_name(share)) == share
        sealed.delete("task.csp")
        with pytest.raises(KeyFileMissing):
            own_keys().share(share_name(share))
    finally:
        own_keys.cache_clear()


def test_what_a_task_of_shares_is_dealt_is_not_looked_at(tmp_path, sides):
    """No power is computed with it: its bundle has no key share, and its rounds' files are none."""
    dealing = deal(3, 10, profile="shares", check="none").dealing
    write_private(tmp_path / "task.sp", sides.dealing.sp)
    alone = KeyFolder(tmp_path).read()
    write_private(tmp_path / "other.sp", dealing.sp)
    write_private(tmp_path / "other.dealt.1", b"dealt")
    assert KeyFolder(tmp_path).read() == alone > 0


# Work on uploads of `shares`.


class Twice:
    """A cluster beside this machine: what the workers find must be the same, to the byte."""

    name = "twice"

    def __init__(self, cluster, store=None):
        self.cluster, self.seen = replace(cluster, store=store), []
        self.map = ONE.map

    def divide(self, work, read):
        alone = replace(work, onto=None) if isinstance(work, ShareWork) else work  # a sum is added to once
        assert told(self.cluster.divide(alone, read)) == told(alone.run(read))
        self.seen.append((type(work).__name__, len(work.rows)))
        return self.cluster.divide(work, read)


def told(found):
    """All of it, as bytes."""
    if not isinstance(found, Findings):
        return found
    lanes = found.lanes.shape, found.lanes.tobytes()
    return found.sums.to_bytes(), found.samples, list(found.entries.items()), lanes


@pytest.fixture
def small_parts(monkeypatch):
    """Of few uploads, though they are short."""
    for name in ("_LEAST_WEIGHT", "_LEAST_PART"):
        monkeypatch.setattr(backend_module, name, 1)


def test_a_campaign_of_shares_on_both_clusters_is_that_of_one_machine(world, tmp_path, small_parts):
    """Rounds with cohorts, checks, pay and someone out of bounds: every sum, lane and entry, and the model in the end."""
    blobs = FileBlobs(tmp_path / "sp" / "blobs")
    sp, csp = Twice(world.sp, Store(blobs.folder, blobs.name())), Twice(world.csp)
    options = SpOptions(replace(host_tools(), backend=sp), checker=ONE, min_claim_window=0.0)
    host = {"disk": FileDisk(tmp_path, durable=False), "options": options}
    once = {"weighting": "equal", "pay": "equal", "max_participants": 7, "cohort": 4, "rounds": 2}
    try:
        crowd = Crowd(7, host=host, **once)
        crowd.csp.tools = replace(crowd.csp.tools, backend=csp)
        base, people = crowd.start(), [str(place) for place in range(6)]
        for number in (1, 2):
            changes = along(number, [0.1 * (place + number) for place in range(6)])
            crowd.train(number, changes, dict.fromkeys(people, 1))
            crowd.cheat("6", number, [4000] * 8, 1)
            crowd.everyone_came()
            base = next_model(base, changes, dict.fromkeys(people, 1))
            assert crowd.units(number) == base
            assert crowd.rewards(number, people) == [BUDGET // 6] * 6
        assert crowd.states == ["rewarded"] * 2
    finally:
        sp.cluster.close(), csp.cluster.close()
    assert {("ShareWork", 7), ("ShareWork", 4), ("ShareWork", 1)} <= set(sp.seen)
    assert {("SignedEntries", 4), ("ShareWork", 3)} <= set(csp.seen)


@pytest.fixture
def stored(tmp_path):
    """Forty uploads in a folder, and SP's work on them."""
    shape = SharesShape(TaskSpec("task", TaskSettings.of(**SETTINGS | {"max_participants": 40}), 30_000))
    place, signing, sealing = shape.place(1, bytes(32)), SigningKey.fresh(), ReaderKey.fresh().public
    blobs, sources = FileBlobs(tmp_path / "blobs"), []
    for who in map(str, range(40)):
        body = make_upload(shape, place, who, signing, sealing, np.ones(30_000, dtype=np.int64), 3).to_bytes()
        name = upload_name("task", 1, upload_digest(body))
        blobs.put(name, body)
        sources.append(Stored(who, name))
    work = ShareWork(sources, shape, place, bytes(32))
    return SimpleNamespace(work=work, blobs=blobs, read=partial(read_upload, blobs))


def workers(cluster) -> dict[str, int]:
    """By address, how many tasks the scheduler has given it that are not done."""

    def count(dask_scheduler):
        return {address: len(worker.processing) for address, worker in dask_scheduler.workers.items()}

    return cluster._client.run_on_scheduler(count)


class Killing(Cluster):
    """Kills a worker that has stopped, once it was given a part."""

    victim = None
    address = ""

    def _result(self, future, progress):
        if self.victim is not None:
            wait_for(lambda: workers(self)[self.address] > 0)
            self.victim.send_signal(signal.SIGKILL)
            self.victim.wait()
            self.victim = None
        return super()._result(future, progress)


def test_a_worker_killed_amid_uploads_costs_its_part(world, stored, small_parts):
    before = set(workers(world.sp))
    spare = world.processes["sp"].add_worker()
    wait_for(lambda: world.sp.connect() == 3, spare)
    moved = steps(world.sp, "run_part", "released", "processing")
    cluster = Killing("sp", world.sp.settings, ONE, Store(stored.blobs.folder, stored.blobs.name()))
    cluster.connect()
    cluster.victim, (cluster.address,) = spare, set(workers(world.sp)) - before
    spare.send_signal(signal.SIGSTOP)  # so that it is not done before it dies
    try:
        assert told(cluster.divide(stored.work, stored.read)) == told(stored.work.run(stored.read))
    finally:
        cluster.close()
    wait_for(lambda: world.sp.connect() == 2)
    assert steps(world.sp, "run_part", "released", "processing") > moved


def test_what_a_worker_cannot_read_is_named_and_what_it_finds_damaged_is_looked_at_here(
    world, stored, tmp_path, small_parts
):
    """No folder, another's, one without the upload: a worker's bad view alone costs no upload."""
    name = stored.blobs.name()
    other = FileBlobs(tmp_path / "other")
    empty_copy = tmp_path / "copy"
    empty_copy.mkdir()
    (empty_copy / OF_STORE).write_text(name)
    for store, why in (
        (None, "not said where"),
        (Store(tmp_path / "nowhere", name), "is empty, or not there"),
        (Store(other.folder, other.name()[::-1]), "another database"),
    ):
        cluster = replace(world.sp, store=store)
        with pytest.raises(StoreUnavailable, match=rf"the worker on .* cannot read uploads: .*{why}"):
            cluster.divide(stored.work, stored.read)
        cluster.close()
    assert not (tmp_path / "nowhere").exists()
    cluster = replace(world.sp, store=Store(empty_copy, name))
    assert told(cluster.divide(stored.work, stored.read)) == told(stored.work.run(stored.read))
    stored.blobs.delete(stored.work.rows[5].name)
    with pytest.raises(UploadDamaged, match="missing"):
        cluster.divide(stored.work, stored.read)
    cluster.close()


def test_no_seed_is_shown_where_dask_logs_what_a_part_was_called_with(stored):
    seed = secrets.token_bytes(32)
    part = WorkPart(replace(stored.work, rows=[Sown("p", seed)]), None)
    for shown in (repr(part), repr(part.work), repr(part.work.run(stored.read))):
        assert repr(seed)[2:-1] not in shown
        assert seed.hex() not in shown
