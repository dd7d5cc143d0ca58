"""A store and its folder of blobs belong together: a missing folder is not a damaged one."""

import shutil

import pytest

from crowdfl.errors import StoreUnavailable
from crowdfl.retry import Backoff
from crowdfl.services import run
from crowdfl.services.run import open_sp
from crowdfl.settings import PeerSettings, SpSettings
from crowdfl.storage.atomic import write_private
from tests.hosts import Desk


@pytest.fixture
def desk(tmp_path):
    """A round with three uploads, in which CSP was not asked for anything yet, on a folder that SP has served."""
    desk = Desk(tmp_path)
    write_private(tmp_path / "sp" / "peer.token", b"crowdfl_of_nobody")
    open_sp(settings_of(desk)).state.parts.sp.store.close()
    desk.sp.blobs.bind(desk.sp.store.identity(desk.sp.blobs.name))
    desk.invite(3)
    desk.requester.fund(desk.task, 72_000_000, "all")
    desk.run()
    desk.upload(desk.crowd)
    return desk


def settings_of(desk):
    peer = PeerSettings(url="http://127.0.0.1:9", token=desk.folder / "sp" / "peer.token")
    own = {"data": desk.folder / "sp", "host": "127.0.0.1", "port": 0, "plain_http": True, "insecure_test_key": True}
    return SpSettings(**own, kgc=peer, csp=peer, kgc_key=desk.signing.public)


def take_away(desk, kind):
    """The folder of blobs: it is not mounted, or another one is."""
    blobs = desk.folder / "sp" / "blobs"
    blobs.rename(desk.folder / "elsewhere")
    if kind != "gone":
        blobs.mkdir(mode=0o700)
    if kind == "another's":
        other = Desk(desk.folder / "other")
        shutil.copytree(other.folder / "sp" / "blobs", blobs, dirs_exist_ok=True)
        (blobs / "store-id").write_text("0" * 32)


@pytest.mark.parametrize("kind", ["gone", "empty", "another's"])
def test_an_sp_without_its_folder_does_not_start(desk, kind):
    app = open_sp(settings_of(desk))
    app.state.parts.sp.store.close()
    take_away(desk, kind)
    with pytest.raises(StoreUnavailable, match="blobs"):
        open_sp(settings_of(desk))
    (files,) = [work for work in app.state.background if hasattr(work, "blobs")]
    with pytest.raises(StoreUnavailable):  # as /readyz asks
        files.check()


@pytest.mark.parametrize("kind", ["gone", "empty", "another's"])
def test_a_running_sp_that_loses_its_folder_drops_no_upload(desk, kind):
    """Nothing is called damaged, nothing is written elsewhere; when the folder is back, the round goes on."""
    take_away(desk, kind)
    before = desk.sp.store.uploads(desk.task, 1)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            desk.run()
    assert desk.sp.store.uploads(desk.task, 1) == before
    assert desk.sp.steps.dropped == 0
    with pytest.raises(StoreUnavailable):
        desk.sp.blobs.put("a/b", b"c")
    shutil.rmtree(desk.folder / "sp" / "blobs", ignore_errors=True)
    (desk.folder / "elsewhere").rename(desk.folder / "sp" / "blobs")
    desk.run()
    assert desk.sp.store.round(desk.task, 1).state == "rewarded"


def test_a_service_waits_for_its_database_and_says_so(desk, monkeypatch, logged):
    """One that has a server of its own; what waiting does not mend is raised at once."""
    settings = settings_of(desk).changed(database="postgresql://sp@127.0.0.1:1/sp")
    asked = []

    def upgrade(url, _accept):
        asked.append(url)
        if len(asked) < 4:
            raise StoreUnavailable("connection refused")

    monkeypatch.setattr(run.migrations, "upgrade", upgrade)
    monkeypatch.setattr(run, "_DATABASE", Backoff.steady(0.0))
    run._store(settings).close()
    lines = [entry for entry in logged if entry["event"] == "waiting for the database"]
    assert [entry["reason"] for entry in lines] == ["connection refused"] * 3
    asked.clear()
    with pytest.raises(StoreUnavailable):
        run._store(settings_of(desk))


def test_a_new_folder_with_a_new_database_is_theirs_from_then_on(desk):
    """Every later start finds the same name in both, and no blob of that name."""
    open_sp(settings_of(desk)).state.parts.sp.store.close()
    assert "store-id" not in desk.sp.blobs.listing()
