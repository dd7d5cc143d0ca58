"""`crowdfl backup` and `crowdfl restore` as an operator meets them."""

import json
import shutil
import stat
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from crowdfl.errors import BackupRefused, RolledBack
from crowdfl.roles.guard import Guard
from crowdfl.roles.records import payment_key
from crowdfl.services.folders.backups import require_named
from crowdfl.services.http.auth import Tokens
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.database_copy import url_words
from crowdfl.storage.sql import SqlStore
from tests.cli.conftest import TASK, WAITS
from tests.cli.program import call


def opened(folder: Path) -> SqlStore:
    return SqlStore(f"sqlite:///{folder}/state.db")


@pytest.mark.parametrize("role", ["kgc", "sp", "csp"])
def test_a_role_is_backed_up_and_restored(role: str, busy: Path, tmp_path: Path):
    """All that `init` made is there again, and the doctor finds its permissions well."""
    archive, again = tmp_path / "role.backup", tmp_path / "again"
    told = json.loads(call("backup", busy / role / "settings.toml", archive, "--json").out)
    assert (told["role"], told["notes"]) == (role, [])
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    restored = call("restore", archive, again)
    assert (restored.code, f"crowdfl {role} serve {again}" in restored.out.replace("\n", " ")) == (0, True)
    for entry in Tokens(busy / role / "tokens.json").entries():  # whoever altered the archive could have added one
        assert f"{entry.name} ({entry.role})" in restored.out.replace("\n", " ")
    assert ("kgc at https://" in restored.out) is (role != "kgc")
    names = {path.name for path in (busy / role).iterdir() if path.is_file() and not path.name.startswith(".")}
    assert {path.name for path in again.iterdir() if path.is_file()} == names
    checked = json.loads(call("doctor", again / "settings.toml", "--json").out)["findings"]
    assert {line["verdict"] for line in checked if line["what"].endswith(("permissions", "database"))} == {"ok"}


@pytest.mark.parametrize(("options", "state"), [((), "failed"), (("--unchanged",), "waiting")])
def test_a_payment_is_in_doubt_unless_the_role_has_not_run_since(
    options: tuple[str, ...], state: str, busy: Path, tmp_path: Path
):
    call("backup", busy / "sp/settings.toml", tmp_path / "sp.backup")
    assert call("restore", tmp_path / "sp.backup", tmp_path / "again", *options).code == 0
    (row,) = json.loads(call("sp", "payouts", tmp_path / "again/settings.toml", "--json").out)
    assert (row["state"], row["key"]) == (state, WAITS.key)
    assert ("restored from a backup" in row["note"]) is (state == "failed")
    store = opened(tmp_path / "again")
    assert store.task(TASK).unreconciled is (state == "failed")
    assert call("sp", "reconcile", tmp_path / "again/settings.toml", TASK, "--returned", "0").code == 0
    assert not store.task(TASK).unreconciled
    store.close()


def test_payments_that_sp_forgot_are_recorded_by_key_and_amount(busy: Path, tmp_path: Path):
    """Shown as paid by the bank, and those in the books settled as far as that goes; what is no payment is refused."""
    settings, forgotten = tmp_path / "again/settings.toml", payment_key(TASK, "c" * 20, 3)
    call("backup", busy / "sp/settings.toml", tmp_path / "sp.backup")
    assert call("restore", tmp_path / "sp.backup", tmp_path / "again").code == 0
    reconciling = ("sp", "reconcile", settings, TASK, "--returned", "0", "--paid", f"{forgotten}=7.20", "--paid")
    for wrong in ("mallory=1", WAITS.key):
        assert "SettingsError" in call(*reconciling, wrong).err
    (row,) = json.loads(call("sp", "payouts", settings, "--json").out)
    assert row["state"] == "failed"
    for named, second in (("4", "failed"), ("5", "paid")):  # the second corrects the first
        assert call(*reconciling, f"{WAITS.key}={named}").code == 0
        *booked, known = json.loads(call("sp", "payouts", settings, "--json").out)
        found = [(one["participant"], one["amount"], one["state"]) for one in booked]
        assert found == [(WAITS.who, "4.00", "paid"), (WAITS.who, "1.00", second)]
    assert (known["key"], known["amount"], known["state"]) == (forgotten, "7.20", "paid")
    assert "paid before SP was restored" in known["note"]
    assert forgotten in call("sp", "payouts", settings, TASK).out


@pytest.mark.parametrize(("options", "sealed"), [((), True), (("--unchanged",), False)])
def test_a_restored_csp_is_sealed_unless_it_has_not_run_since(
    options: tuple[str, ...], sealed: bool, busy: Path, tmp_path: Path
):
    call("backup", busy / "csp/settings.toml", tmp_path / "csp.backup")
    assert call("restore", tmp_path / "csp.backup", tmp_path / "again", *options).code == 0
    with closing(opened(tmp_path / "again")) as store:
        assert store.task(TASK).rolled_back is sealed


@pytest.mark.parametrize("role", ["sp", "csp"])
def test_a_guard_elsewhere_is_asked_what_has_left_since(role: str, busy: Path, tmp_path: Path):
    """It is in no archive, and a restore leaves it, and the tasks that it knows of, alone."""
    live, elsewhere = tmp_path / "live", tmp_path / "other-disk"
    shutil.copytree(busy / role, live)
    settings = live / "settings.toml"
    settings.write_text(f'guard = "{elsewhere}"\n' + settings.read_text())
    with closing(opened(live)) as store:
        guard = Guard(FileBlobs(elsewhere), store, role)
        guard.note(TASK, 1, "0" * 64)
    made_of = call("backup", settings, tmp_path / "one.backup")
    assert f"keep it elsewhere: {elsewhere}" in made_of.out.replace("\n", "")
    assert call("restore", tmp_path / "one.backup", tmp_path / "again").code == 0
    with closing(opened(tmp_path / "again")) as store:
        stored, guard = store.task(TASK), Guard(FileBlobs(elsewhere), store, role)
        assert (stored.state, stored.rolled_back) == ("running", False)
        with pytest.raises(RolledBack, match="step 1 of the task has left"):
            guard.compare(guard.look(TASK), stored)


@pytest.mark.parametrize("role", ["sp", "csp"])
def test_a_guard_inside_the_folder_is_believed_after_a_restore_by_nobody(role: str, busy: Path, tmp_path: Path):
    """It was set back with the database, though a setting names it: as if there were none."""
    live = tmp_path / "live"
    shutil.copytree(busy / role, live)
    settings = live / "settings.toml"
    settings.write_text('guard = "notes"\n' + settings.read_text())
    with closing(opened(live)) as store:
        Guard(FileBlobs(live / "notes"), store, role).note(TASK, 1, "0" * 64)
    assert call("backup", settings, tmp_path / "one.backup").code == 0
    assert call("restore", tmp_path / "one.backup", tmp_path / "again").code == 0
    with closing(opened(tmp_path / "again")) as store:
        assert (store.task(TASK).state, store.task(TASK).rolled_back) != ("running", False)


@pytest.mark.parametrize("role", ["sp", "csp"])
def test_doctor_says_what_a_guard_leaves_open_and_the_operator_gives_one_up(role: str, busy: Path, tmp_path: Path):
    live = tmp_path / "live"
    shutil.copytree(busy / role, live)
    settings, volume = live / "settings.toml", "the guard is on one volume with the database"
    assert found(settings)[0] == "warn"
    assert volume in found(settings)[1]
    shutil.rmtree(live / "guard")
    (live / "guard").mkdir()  # a folder that is not mounted
    assert found(settings)[0] == "fail"
    assert f"crowdfl {role} guard new" in found(settings)[2]
    assert call(role, "guard", "new", settings, "--unchanged").code == 0
    with closing(opened(live)) as store:
        assert (store.task(TASK).state, store.task(TASK).rolled_back) == ("running", False)
    assert call(role, "guard", "new", settings).code == 0
    with closing(opened(live)) as store:
        assert (store.task(TASK).state, store.task(TASK).rolled_back) != ("running", False)
    assert found(settings)[0] == "warn"


def found(settings: Path) -> tuple[str, str, str]:
    """What doctor says of a guard."""
    said = json.loads(call("doctor", settings, "--json").out)["findings"]
    one = next(one for one in said if one["what"].endswith(": guard"))
    return one["verdict"], one["found"], one["advice"]


def test_what_cannot_be_done_is_named_and_changes_nothing(busy: Path, tmp_path: Path):
    """A taken name, a damaged archive, no archive, settings of somebody else."""
    archive = tmp_path / "sp.backup"
    sp = busy / "sp/settings.toml"
    assert call("backup", sp, archive).code == 0
    before = archive.read_bytes()
    for args, name in (
        (("backup", sp, archive), "BackupRefused"),
        (("backup", sp, busy / "sp/monday.backup"), "BackupRefused"),
        (("backup", busy / "requester/settings.toml", tmp_path / "x"), "SettingsError"),
        (("backup", tmp_path / "none.toml", tmp_path / "x"), "SettingsError"),
        (("restore", archive, busy / "sp"), "BackupRefused"),
        (("restore", tmp_path / "none", tmp_path / "again"), "SettingsError"),
        (("restore", sp, tmp_path / "again"), "BackupDamaged"),
    ):
        result = call(*args)
        assert (result.code, name in result.err) == (3, True), (args, result)
    archive.write_bytes(before[: len(before) // 2])
    assert "BackupDamaged" in call("restore", archive, tmp_path / "again").err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sp.backup"]


@pytest.mark.parametrize(
    "named",
    ["passphrase", "../csp/passphrase", "{made}/link/csp/passphrase", "alias", "../hard", "./keys/../passphrase"],
)
def test_the_passphrase_stays_out_by_whatever_name_the_settings_reach_it(named: str, busy: Path, tmp_path: Path):
    """Through a folder above, a link to the folder, a link to the file, another name of the same file."""
    settings, secret = busy / "csp/settings.toml", busy / "csp/passphrase"
    text = settings.read_text()
    secret.write_text("secret words")
    secret.chmod(0o600)
    others = busy / "link", busy / "csp/alias", busy / "hard"
    others[0].symlink_to(busy)
    others[1].symlink_to("passphrase")
    others[2].hardlink_to(secret)
    line = f'passphrase_file = "{named.format(made=busy)}"'
    settings.write_text(text.replace('# passphrase_file = "passphrase"', line))
    try:
        told = json.loads(call("backup", settings, tmp_path / "csp.backup", "--json").out)
        assert str(busy / "hard" if named == "../hard" else secret) in " ".join(told["notes"])
        assert b"secret words" not in (tmp_path / "csp.backup").read_bytes()
        with tarfile.open(tmp_path / "csp.backup") as archive:
            assert [name for name in archive.getnames() if "passphrase" in name] == []
    finally:
        settings.write_text(text)
        for path in (secret, *others):
            path.unlink()


def test_a_file_outside_is_named_however_the_settings_reach_it(busy: Path, tmp_path: Path):
    settings = busy / "csp/settings.toml"
    text = settings.read_text()
    settings.write_text(text.replace('ca = "peers/ca.pem"', 'ca = "../sp/peers/ca.pem"', 1))
    try:
        (note,) = json.loads(call("backup", settings, tmp_path / "csp.backup", "--json").out)["notes"]
        assert note.endswith("sp/peers/ca.pem")
    finally:
        settings.write_text(text)


def test_a_restore_writes_no_database_that_the_operator_did_not_name(busy: Path, tmp_path: Path):
    """Whoever can alter the archive can alter its settings and its digests too."""
    settings, elsewhere = busy / "csp/settings.toml", tmp_path / "elsewhere.db"
    text = settings.read_text()
    settings.write_text(f'database = "sqlite:///{elsewhere}"\n{text}')
    (busy / "csp/state.db").rename(elsewhere)
    try:
        assert call("backup", settings, tmp_path / "csp.backup").code == 0
    finally:
        settings.write_text(text)
        elsewhere.rename(busy / "csp/state.db")
    for options in ((), ("--database", f"sqlite:///{tmp_path}/other.db")):
        refused = call("restore", tmp_path / "csp.backup", tmp_path / "again", *options)
        assert (refused.code, "BackupRefused" in refused.err, str(elsewhere) in refused.err) == (3, True, True)
        assert not elsewhere.exists()
        assert not (tmp_path / "again").exists()
    named = f"sqlite:///{elsewhere}"
    told = json.loads(call("restore", tmp_path / "csp.backup", tmp_path / "again", "--database", named, "--json").out)
    assert (told["database"], "files/settings.toml" in told["files"]) == (named, True)
    assert elsewhere.exists()


def test_a_restore_writes_no_bucket_that_the_operator_did_not_name():
    require_named("bucket", None, None)
    require_named("bucket", "s3://one/sp", "s3://one/sp")
    for named in (None, "s3://another/sp"):
        with pytest.raises(BackupRefused, match="--bucket s3://one/sp"):
            require_named("bucket", "s3://one/sp", named)


def test_a_database_is_named_without_its_secrets():
    """In what is shown, and in what an operator types where others can read it."""
    url = "postgresql+psycopg://sp:secret@db:5432/sp?sslmode=verify-full&sslpassword=hidden"
    assert url_words(url) == "postgresql+psycopg://sp@db:5432/sp?sslmode=verify-full"
