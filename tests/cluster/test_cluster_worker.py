"""Where a worker has its key shares from: the role's own bundles, and nothing else."""

import pytest

from crowdfl.errors import KeyFileDamaged, KeyFileMissing, KeyFilePermissions, KeyFileRole
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.registry import PROFILES
from crowdfl.services.cluster.worker import KEYS, KeyFolder, dask_setup, own_keys, share_name
from crowdfl.settings import TaskSettings
from crowdfl.storage.atomic import write_private
from tests.protocols.driving import deal


@pytest.fixture(scope="module", params=["hardened", "paper"])
def sides(request):
    """A dealt task of each profile."""
    return deal(3, 2, profile=request.param)


def shares_of(party_side) -> list:
    """What a side decrypts with; the paper's SP has a second share to deliver with."""
    delivery = [party_side.delivery] if hasattr(party_side, "delivery") else []
    return [party.share.exponent for party in (party_side.party, *delivery)]


@pytest.mark.parametrize("role", ["sp", "csp"])
def test_the_shares_of_a_bundle_are_found_by_their_names(tmp_path, sides, role):
    """Every share that the role decrypts with, and none of the other role's."""
    write_private(tmp_path / f"task.{role}", getattr(sides.dealer._dealing, role))
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
    write_private(tmp_path / "task.sp", sides.dealer._dealing.sp)
    assert folder.share(share_name(share)) == share
    (tmp_path / "task.sp").unlink()
    with pytest.raises(KeyFileMissing):
        folder.share(share_name(share))


def test_a_bundle_that_others_can_read_is_refused(tmp_path, sides):
    """As every key file."""
    write_private(tmp_path / "task.sp", sides.dealer._dealing.sp)
    (tmp_path / "task.sp").chmod(0o640)
    with pytest.raises(KeyFilePermissions):
        KeyFolder(tmp_path).read()


@pytest.mark.parametrize("names", [["a.sp", "a.csp"], ["a.requester"], ["a.sp", "a.participant"]])
def test_a_folder_of_more_than_one_role_is_refused(tmp_path, sides, names):
    """KGC's own folder, for one, would put the two shares side by side."""
    for name in names:
        write_private(tmp_path / name, sides.dealer._dealing.sp)
    with pytest.raises(KeyFileRole):
        KeyFolder(tmp_path).read()


def test_damaged_bundles_and_missing_folders_have_their_names(tmp_path, sides):
    """And a write under way is not looked at."""
    write_private(tmp_path / ".half.part", b"")
    assert KeyFolder(tmp_path).read() == 0
    write_private(tmp_path / "task.sp", sides.dealer._dealing.sp[:-1])
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


def test_what_a_task_of_shares_is_dealt_is_not_looked_at(tmp_path, sides):
    """No power is computed with it: its bundle has no key share, and its rounds' files are none."""
    dealing = PROFILES["shares"].deal(TaskSpec("task", TaskSettings(profile="shares"), 10), insecure_test_key=False)
    write_private(tmp_path / "task.sp", sides.dealer._dealing.sp)
    alone = KeyFolder(tmp_path).read()
    write_private(tmp_path / "other.sp", dealing.sp)
    write_private(tmp_path / "other.dealt.1", b"dealt")
    assert KeyFolder(tmp_path).read() == alone > 0
