"""Organisations that share nothing: each role in its own place, processes of their own, up to a paid claim.

In the middle of the campaign every credential is renewed, while the services run.
"""

import datetime
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crowdfl.errors import KeyNotProven, TokenExpired
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Tokens
from tests import subprocesses
from tests.cli.organisations import PATIENCE, PEOPLE, Organisations, enrol, made_files, set_up
from tests.cli.program import call
from tests.cli.test_campaign import task_file

pytestmark = pytest.mark.second


@pytest.fixture(scope="module")
def organisations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Organisations]:
    """Set up as docs/organisations.md says; a task with its people, before its money."""
    ports = dict(zip(("kgc", "sp", "csp"), subprocesses.free_ports(3), strict=True))
    made = Organisations(tmp_path_factory.mktemp("organisations"), ports=ports)
    try:
        set_up(made)
        enrol(made)
        yield made
    finally:
        made.stop()


def test_every_credential_is_good_everywhere(organisations: Organisations):
    """After the exchange, as `doctor` tries them."""
    findings = organisations.doctor()
    tried = {
        "sp: token for KGC",
        "sp: token for CSP",
        "sp: certificate at KGC",
        "csp: token for KGC",
        "csp: certificate at KGC",
        "acme: token for KGC",
        "acme: token for SP",
        "kgc: signing key",
        "kgc: sp's TLS key",
    }
    assert {findings.get(what) for what in tried} == {"ok"}


@pytest.mark.parametrize(
    ("damage", "what", "said"),
    [
        ("token", "sp: token for KGC", "NotAuthenticated"),
        ("certificate", "sp: token for KGC", "KeyNotProven"),
        ("authority", "sp: certificate at KGC", "does not believe"),
        ("signing", "sp: signing key", "KeyFileDamaged"),
        ("tokens", "sp: tokens", "KeyFileDamaged"),
        ("old token", "sp: monitoring's old token", "good until"),
        ("expired", "sp: certificate", "2001"),
    ],
)
def test_doctor_tries_every_credential_and_names_the_bad_one(
    organisations: Organisations, tmp_path, damage, what, said
):
    """On a copy of SP's folder, against the services as they run."""
    made, copy = organisations, Path(shutil.copytree(organisations.home("sp"), tmp_path / "sp"))
    _harm(made, copy, damage)
    found = {
        line["what"]: line for line in json.loads(call("doctor", copy / "settings.toml", "--json").out)["findings"]
    }
    assert found[what]["verdict"] == ("warn" if damage == "old token" else "fail")
    assert said in found[what]["found"] + found[what]["advice"]


def _harm(made: Organisations, copy: Path, damage: str) -> None:
    authority = tls.CertificateFiles(copy / "authority/ca.pem", copy / "authority/ca.key")
    tokens = Tokens(copy / "tokens.json")
    if damage == "token":
        (copy / "kgc.token").write_text("crowdfl_other")
    elif damage == "certificate":
        for name in ("tls.pem", "tls.key"):
            shutil.copy(made.home("csp") / name, copy / name)
    elif damage == "authority":
        for path in (authority.certificate, authority.key, copy / "tls.pem", copy / "tls.key"):
            path.unlink()
        tls.make_server_certificate(copy, tls.make_ca(copy / "authority", hosts=[]), "tls")
    elif damage == "signing":
        (copy / "signing.key").write_bytes(b"short")
    elif damage == "tokens":
        (copy / "tokens.json").write_text("{}")
    elif damage == "old token":
        tokens.add("monitoring", "operator")
        tokens.rotate("monitoring", 3600.0)
    else:
        tls.renew_certificate(made_files(copy), authority, now=datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))


def test_a_new_key_and_a_new_token_are_taken_over_while_running(organisations: Organisations):
    """Known before they are used; afterwards the old key opens nothing, and the old token until its overlap ends."""
    made = organisations
    old_files = made.certificate("sp")
    kept = tls.CertificateFiles(made.folder / "stolen.pem", made.folder / "stolen.key")
    shutil.copy(old_files.certificate, kept.certificate)
    shutil.copy(old_files.key, kept.key)
    old_token = (made.home("sp") / "kgc.token").read_text()
    made.do("sp", "tls", "renew", "sp/settings.toml", "--new-key")
    made.do("sp", "exchange", "token", "sp/settings.toml", "kgc")
    made.send("sp")
    for peer in ("kgc", "csp"):
        made.accept(peer, "sp", "--replace", "--overlap", 0.008)
        made.reload(peer)
    listed = made.do("kgc", "kgc", "token", "list", "kgc/settings.toml").out
    assert "good until" in listed
    assert made.call("kgc", old_token, kept)["expires"] is not None  # both are good now
    made.do("sp", "tls", "renew", "sp/settings.toml", "--use-new-key")
    made.do("sp", "exchange", "token", "sp/settings.toml", "kgc", "--use")
    made.reload("sp")
    made.send("sp")
    for peer in ("kgc", "csp"):
        made.accept(peer, "sp", "--replace")
        made.reload(peer)
    new_token = (made.home("sp") / "kgc.token").read_text()
    with pytest.raises(KeyNotProven):
        made.call("kgc", new_token, kept)
    assert made.call("kgc", new_token, old_files)["expires"] is None
    with pytest.raises(TokenExpired):
        _call_until_refused(lambda: made.call("kgc", old_token, old_files))
    made.doctor()


def _call_until_refused(known: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        known()
        time.sleep(0.5)


def test_the_campaign_ends_in_paid_claims(organisations: Organisations):
    """Its rounds run between organisations, over the credentials that were renewed above; and a second task gets its keys."""
    made, own = organisations, ("-s", "acme/settings.toml")
    made.do("acme", "task", "fund", made.task, "36.00", "--name", "all", *own)
    made.do("sp", "sp", "deposit", "confirm", "sp/settings.toml", made.task, "all", "36.00", "EUR")
    made.do("acme", "task", "close", made.task, *own)
    made.do("acme", "task", "watch", made.task, "--until", "finished", *own)
    for person in range(PEOPLE):
        assert made.processes[f"person-{person}"].wait(timeout=PATIENCE) == 0, made.logs()
        events = [json.loads(line) for line in made.log(f"person-{person}").splitlines()]
        claimed = [event["millionths"] for event in events if event["event"] == "claimed"]
        assert claimed
        assert claimed[-1] == sum(event["millionths"] for event in events if event["event"] == "rewarded") > 0
    (made.place("acme") / "again.toml").write_text(task_file(purpose="Recognise again"))
    created = made.do("acme", "task", "create", "again.toml", "--json", *own)  # both servers fetch their shares
    assert json.loads(created.out)["task"] != made.task
