"""What users mistype, mislay or name twice: a named error that says where and what, and nothing half done."""

import contextlib
import csv
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509

from crowdfl.cli import workspace as workspace_module
from crowdfl.cli.task.template import template
from crowdfl.documents.signed import Definition
from crowdfl.errors import PlainHttpRefused, ServiceUnavailable
from crowdfl.roles.records import DepositState, PaymentState, StoredDeposit, StoredPayment, StoredTask
from crowdfl.roles.requester import own_key
from crowdfl.services import run as services
from crowdfl.services.client import opening as requester_file
from crowdfl.services.client.opening import RequesterFile
from crowdfl.services.run import open_kgc
from crowdfl.services.server import bind, running
from crowdfl.settings import CspSettings, KgcSettings, SpSettings, is_host
from crowdfl.storage import migrations
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.settings_file import SERVICES, read_service
from crowdfl.storage.sql import SqlStore
from tests import subprocesses
from tests.cli.program import call, refused
from tests.http.world import definition_of

TASK = template.replace('learner = "network"', 'learner = "softmax"')
INVITATION = {
    "task": "0" * 64,
    "invitation": "x",
    "kgc": "https://127.0.0.1:1",
    "sp": "https://127.0.0.1:1",
    "kgc_key": "00" * 32,
    "sp_key": "00" * 32,
    "ca": None,
    "insecure_test_key": True,
}


def with_line(path, table, line):
    """A settings file with one more line at the start, or at the start of a table; the line it replaces goes."""
    lines = path.read_text().splitlines()
    start = lines.index(f"[{table}]") + 1 if table else 0
    name = line.split("=")[0].strip()
    end = next((i for i, text in enumerate(lines) if i >= start and text.startswith("[")), len(lines))
    kept = [text for text in lines[start:end] if text.split("=")[0].strip() != name]
    path.write_text("\n".join([*lines[:start], line, *kept, *lines[end:]]) + "\n")


@pytest.mark.parametrize("name", ["host", "port", "key"])
def test_a_missing_service_setting_is_named(workspace, name):
    path = workspace / "kgc/settings.toml"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith(f"{name} =")))
    refused(call("kgc", "token", "list", path), "SettingsError", str(path), f"`{name}`")


def test_good_service_settings_arrive(workspace):
    path = workspace / "sp/settings.toml"
    for line in ('listen = "0.0.0.0"', 'csp_patience = "1 min"', 'tick = "0.5 s"', 'on_paid = ["/bin/pay", "x"]'):
        with_line(path, "", line)
    found = read_service(SpSettings, path)
    assert (found.host, found.address, found.csp_patience) == ("127.0.0.1", "0.0.0.0", 60)  # noqa: S104
    assert (found.tick, found.on_paid) == (0.5, ("/bin/pay", "x"))
    assert read_service(CspSettings, workspace / "csp/settings.toml").address == "127.0.0.1"
    assert SpSettings.model_fields["csp_patience"].default == 86400.0


def test_sp_is_as_patient_as_it_is_told(workspace, monkeypatch):
    """What the file says of a CSP that stays away is what SP is made with."""
    told = []
    with_line(workspace / "sp/settings.toml", "", 'csp_patience = "60.5 s"')
    idle = SimpleNamespace(run_one=None, abandon=None)
    made = SimpleNamespace(tick=None, payments=idle, reminders=None, aggregators=SimpleNamespace(drop=None))
    monkeypatch.setattr(services, "Sp", lambda _ports, options: told.append(options) or made)
    app = SimpleNamespace(state=SimpleNamespace(web_origins=set()))
    monkeypatch.setattr(services.sp_app, "create_app", lambda *_args, **_options: app)
    services.open_sp(read_service(SpSettings, workspace / "sp/settings.toml"))
    assert (told[0].csp_patience, told[0].min_claim_window) == (60.5, 86400.0)


def test_a_token_that_others_can_read_is_refused(workspace):
    settings, token = workspace / "requester/settings.toml", workspace / "requester/sp.token"
    assert RequesterFile.read(settings).sp_token == token.read_text()
    token.chmod(0o640)
    refused(call("task", "watch", "0" * 64, "-s", settings), "KeyFilePermissions", str(token), "chmod 600")
    token.unlink()
    refused(call("task", "watch", "0" * 64, "-s", settings), "KeyFileMissing", str(token))
    token.mkdir()
    refused(call("task", "watch", "0" * 64, "-s", settings), "KeyFileDamaged", str(token), "one line of text")


@pytest.mark.parametrize("host", ['a"b', "", "a b", "https://a", "a:1", "1.2.3.999", "fe80::1%eth0", "-a", "ü", "a\n"])
def test_init_takes_plain_hosts_alone(tmp_path, host):
    """Whatever else it is, it must not come out of TOML, a URL or a certificate as something different."""
    refused(call("init", tmp_path / "new", "--host", host), "SettingsError", repr(host))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("host", ["localhost", "sp.example.org", "sp_1", "10.0.0.7", "::1", "7up"])
def test_plain_hosts(host):
    assert is_host(host)


def test_three_machines_with_three_names(tmp_path):
    folder = tmp_path / "new"
    hosts = {"kgc": "kgc.example", "sp": "10.0.0.7", "csp": "fd00::3"}
    result = call("init", folder, *(w for role, host in hosts.items() for w in (f"--{role}-host", host)), "--json")
    assert json.loads(result.out) == {"folder": str(folder), "roles": ["kgc", "sp", "csp", "requester"]}
    found = {role: read_service(SERVICES[role], folder / role / "settings.toml") for role in hosts}
    assert {role: one.host for role, one in found.items()} == hosts
    assert (found["sp"].kgc.url, found["sp"].csp.url) == ("https://kgc.example:7101", "https://[fd00::3]:7103")
    requester = RequesterFile.read(folder / "requester/settings.toml")
    assert (requester.settings.kgc, requester.settings.sp) == ("https://kgc.example:7101", "https://10.0.0.7:7102")
    for role, host in hosts.items():
        certificate = x509.load_pem_x509_certificate((folder / role / "tls.pem").read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert {str(name.value) for name in names} == {"localhost", "127.0.0.1", host}


def test_init_finds_free_ports_on_this_machine(tmp_path, monkeypatch):
    """Where somebody listens, and where another role was put by hand, it goes on; it says where."""
    (usual,) = subprocesses.free_ports(1)
    monkeypatch.setattr(workspace_module, "_PORTS", dict.fromkeys(("kgc", "sp", "csp"), usual))
    with socket.create_server(("127.0.0.1", usual)):
        result = call("init", tmp_path / "new", "--sp-port", usual + 10, "--csp-host", "csp.example")
    made = {role: read_service(SERVICES[role], tmp_path / "new" / role / "settings.toml") for role in SERVICES}
    assert made["kgc"].port > usual + 10
    assert (made["kgc"].port - usual) % 10 == 0
    assert (made["sp"].port, made["csp"].port) == (usual + 10, usual)  # as given; of another machine nobody knows
    assert f"# port {made['kgc'].port}" in result.out


def test_a_service_listens_where_it_is_told(tmp_path):
    """`listen` is what is bound; plain HTTP is judged by it; an address of another machine is told by name."""
    folder = tmp_path / "kgc"
    elsewhere = KgcSettings(data=folder, host="kgc.example", port=0, listen="127.0.0.1", plain_http=True)
    app = open_kgc(elsewhere)
    with running(app, elsewhere) as url:
        assert url.startswith("http://127.0.0.1:")
    everywhere = elsewhere.changed(listen="0.0.0.0")  # noqa: S104
    with pytest.raises(PlainHttpRefused), running(app, everywhere):
        pass
    with pytest.raises(ServiceUnavailable, match=r"192\.0\.2\.1 port 7101"):
        bind("192.0.2.1", 7101)


def test_doctor_looks_at_the_port_that_is_bound(workspace):
    path = workspace / "kgc/settings.toml"
    for line in ('host = "kgc.invalid"', 'listen = "127.0.0.1"', "port = 0"):
        with_line(path, "", line)
    findings = {line["what"]: line for line in json.loads(call("doctor", path, "--json").out)["findings"]}
    assert findings["kgc: port 0"]["verdict"] == "ok"


@pytest.fixture
def books(workspace):
    """SP's settings, with a task in whose books somebody was paid."""
    url = f"sqlite:///{workspace / 'sp/state.db'}"
    migrations.upgrade(url)
    with contextlib.closing(SqlStore(url)) as store:
        papers = json.loads((Path(__file__).parents[2] / "vectors/phone_documents.json").read_text("utf-8"))
        store.add_task(StoredTask("0" * 64, papers["definitions"][0]["text"], "a", "settled"))
        lost = StoredPayment("0" * 64, "somebody", 1, 1_250_000, 0, PaymentState.RUNNING, 0.0, 1.0, "p", 1)
        store.add_payment(lost)
        store.add_deposit(StoredDeposit("0" * 64, "a", 2_000_000, DepositState.PENDING, 0.0))
    return workspace / "sp/settings.toml"


def test_payouts_as_json_and_csv(books, tmp_path):
    (row,) = json.loads(call("sp", "payouts", books, "--json").out)
    assert (row["participant"], row["amount"], row["attempts"]) == ("somebody", "1.25", 1)
    assert row["state"] == "failed"  # the process that ran it is gone: nobody knows whether it paid
    assert "check with your bank" in row["note"]
    assert call("sp", "payouts", books, "0" * 64, tmp_path / "p.json", "--json").out == ""
    written = json.loads((tmp_path / "p.json").read_text())
    printed = list(csv.DictReader(call("sp", "payouts", books, "0" * 64).out.splitlines()))
    for rows in (written, printed):
        assert [rows[0][name] for name in ("participant", "amount", "key")] == ["somebody", "1.25", row["key"]]


def test_a_payment_is_resolved_by_whoever_asked_the_bank(books):
    place = (books, "0" * 64, "somebody")
    refused(call("sp", "resolve", books, "0" * 64, "nobody", "paid"), "UnknownPayment", "nobody")
    assert call("sp", "resolve", *place, "perhaps").code == 2
    for _ in range(2):
        assert call("sp", "resolve", *place, "paid").code == 0
    refused(call("sp", "resolve", *place, "again"), "Conflict", "paid")
    (row,) = json.loads(call("sp", "payouts", books, "--json").out)
    assert (row["state"], row["note"]) == ("paid", "")


def test_files_that_the_system_refuses(books, tmp_path):
    """A folder for a file, a file for a folder, a folder that is not there: which one, exit code 3."""
    (tmp_path / "afile").write_text("")
    (tmp_path / "dir.npz").mkdir()
    (tmp_path / "dir.npz.json").write_text(json.dumps({"definition": {}}))
    (tmp_path / "invitation.json").write_text(json.dumps(INVITATION))
    missing = tmp_path / "nodir/x.csv"
    refused(
        call("sp", "payouts", books, "0" * 64, missing),
        f"FileNotFoundError: No such file or directory: {missing}",
    )
    refused(call("evaluate", tmp_path / "dir.npz", "--data", "watch:0"), "IsADirectoryError", "dir.npz")
    refused(call("init", tmp_path / "afile"), f"NotADirectoryError: Not a directory: {tmp_path / 'afile'}")
    look = call("participant", "look", tmp_path / "invitation.json", "--home", tmp_path / "afile")
    refused(look, "NotADirectoryError", str(tmp_path / "afile"))
    refused(call("reproduce", "table5", "--quick", "--out", tmp_path / "afile"), str(tmp_path / "afile"))


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    """`crowdfl task new | head -0`: nothing on standard error."""
    script = "from crowdfl.cli.main import run; run()"
    with open(tmp_path / "err", "w+") as err:
        command = [sys.executable, "-c", script, "task", "new"]
        with subprocesses.running(command, stdout=subprocess.PIPE, stderr=err) as program:
            program.stdout.close()
            program.wait(60)
        err.seek(0)
        assert err.read() == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kgc_key": "zz"}, "`kgc_key` is 'zz'"),
        ({"sp_key": "00"}, "`sp_key` is '00'"),
        ({"sp": 7}, "`sp` is 7"),
        ({"kgc": "https://[/"}, "`kgc` is 'https://[/'"),
        ({"ca": 7}, "`ca` is 7"),
        ({"insecure_test_key": "no"}, "`insecure_test_key` is 'no'"),
        ({"task": None}, "`task` is None"),
    ],
)
def test_a_wrong_invitation_is_told(tmp_path, changes, said):
    path = tmp_path / "invitation.json"
    path.write_text(json.dumps(INVITATION | changes))
    refused(call("participant", "look", path, "--home", tmp_path / "home"), "SettingsError", str(path), said)


def test_an_invitation_lacks_nothing_and_is_an_object(tmp_path):
    path = tmp_path / "invitation.json"
    path.write_text(json.dumps({name: value for name, value in INVITATION.items() if name != "sp_key"}))
    refused(call("participant", "look", path), "SettingsError", "`sp_key` is missing")
    path.write_text("[]")
    refused(call("participant", "look", path), "SettingsError", "not an invitation")


@pytest.mark.parametrize("command", ["leave", "rewards", "claim"])
def test_a_home_that_nobody_joined_with(tmp_path, command):
    path, home = tmp_path / "invitation.json", tmp_path / "home"
    path.write_text(json.dumps(INVITATION))
    refused(
        call("participant", command, path, "--home", home), "SettingsError", "nobody has joined", str(home), "--home"
    )
    assert not home.exists()


@pytest.mark.parametrize("name", ["m.xyz", "m", "nodir/m.npz", "dir.npz"])
def test_a_model_that_could_not_be_written_is_refused_at_the_start(workspace, tmp_path, name):
    """No task is posted, and nobody invited, for a model that has nowhere to go."""
    (tmp_path / "dir.npz").mkdir()
    (tmp_path / "task.toml").write_text(TASK)
    settings = workspace / "requester/settings.toml"
    words = ("task", "run", tmp_path / "task.toml", tmp_path / "invitations", tmp_path / name, "-s", settings)
    refused(call(*words), "SettingsError")
    assert not (workspace / "requester/state").exists()
    refused(call("task", "fetch", "0" * 64, tmp_path / name, "-s", settings), "SettingsError")


@pytest.fixture
def posted(workspace, monkeypatch):
    """A requester's settings and a task that it has posted, with an SP that tells its key."""
    settings = workspace / "requester/settings.toml"
    blobs = FileBlobs(RequesterFile.read(settings).folder / "state")
    text = definition_of(own_key(blobs), time.time()).sign(own_key(blobs))
    task = Definition.open(text).task
    blobs.put(f"{task}/definition", text.encode())
    told = RequesterFile.read(settings).settings.sp_key
    monkeypatch.setattr(requester_file, "SpClient", lambda _service: Sp(told))
    return settings, task


class Sp:
    def __init__(self, told):
        self.told = told

    def key(self):
        return self.told

    def status(self, _task):
        return {"enrolment": "open"}

    def close(self):
        """Nothing is open."""


@pytest.mark.parametrize("task", ["0" * 64, "nonsense", "../x", ""])
def test_nobody_is_invited_to_a_task_that_is_not_there(posted, tmp_path, task):
    refused(call("task", "invite", task, tmp_path / "invitations", "-s", posted[0]), "UnknownTask", repr(task))
    assert not (tmp_path / "invitations").exists()


def test_nobody_is_invited_with_a_signing_key_that_was_not_accepted(posted, tmp_path, monkeypatch):
    """A phone would take another's receipts for SP's."""
    settings, task = posted
    monkeypatch.setattr(requester_file, "SpClient", lambda _service: Sp(bytes(32)))
    refused(call("task", "invite", task, tmp_path / "invitations", "-s", settings), "KeyMismatch", "`sp_key`")
    assert not (tmp_path / "invitations").exists()


def test_invitations_are_numbered_on_whatever_lies_beside_them(posted, tmp_path):
    """A copy that a file manager made, or a friend's file, is no invitation's name; none is overwritten."""
    settings, task = posted
    folder = tmp_path / "invitations"
    folder.mkdir()
    for name in ("invitation-3 (1).json", "invitation-7x.json", "invitation-2.json"):
        (folder / name).write_text("")
    found = json.loads(call("task", "invite", task, folder, "-n", "2", "--json", "-s", settings).out)
    assert found["invitations"] == [str(folder / f"invitation-{number}.json") for number in (3, 4)]
    (tmp_path / "afile").write_text("")
    refused(call("task", "invite", task, tmp_path / "afile", "-s", settings), "SettingsError", str(tmp_path / "afile"))
