"""`crowdfl demo-phone`: the campaign that a real phone joins, as far as it goes without one."""

import hashlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import httpx
import psutil
import pytest
from tests import subprocesses
from tests.cli.program import call

from crowdfl.documents.links import read_link
from crowdfl.errors import SettingsError
from crowdfl.learning.datasets.csv_files import CsvFolder
from crowdfl.learning.training import LocalTrainer
from crowdfl.protocols.registry import profile_named
from crowdfl.services.http.tls import client_context
from crowdfl.settings import PlanSettings, TaskSettings, origin_of
from crowdfl.task_tables import flat_settings
from crowdfl_lab.demo import phone
from crowdfl_lab.demo.motion import ACTIVITIES, write_recordings
from crowdfl_lab.demo.phone import certificate_page, fingerprint, share_authority

PATIENCE = 240.0


def test_made_up_people_can_be_told_apart_by_what_they_do(tmp_path):
    """Each has windows of every activity, and two people are not the same."""
    for person in (0, 1):
        write_recordings(tmp_path / str(person), person)
        source = CsvFolder(tmp_path / str(person))
        split = source.load_person(0)
        assert set(source.label_names) == set(ACTIVITIES)
        assert split.train.windows.shape[1:] == (100, 3)
        assert set(split.train.labels) == set(split.held_out.labels) == {0, 1, 2}
    texts = {(tmp_path / str(person) / "walking.csv").read_text() for person in (0, 1)}
    assert len(texts) == 2


def task() -> dict:
    """The task file of a demo for one phone."""
    return tomllib.loads(phone.phone_task(3, 600.0, 300.0, 6))


def test_the_task_fits_a_phone(tmp_path):
    """A profile that browsers compute, a crowd that a phone accepts, windows of minutes; a sound task without warnings."""
    settings = TaskSettings.of(**flat_settings(task()["settings"], {"shares": task()["shares"]}))
    assert (settings.profile, settings.min_participants, settings.window) == ("shares", 5, 600.0)
    write_recordings(tmp_path, 0)
    trainer = LocalTrainer(f"csv:{tmp_path}", task()["training"])
    trained, _ = trainer.train(trainer.learner.weights(), task()["training"], 1)
    assert trainer.evaluate(trained)["accuracy"] > 0.8
    profile_named("shares").check(settings, trainer.learner.shape.parameters)


def test_a_phone_that_never_claims_keeps_no_demo_from_its_end():
    """Three rounds of ten minutes: what it has not claimed returns within hours."""
    plan, settings = (
        PlanSettings.parse(task()["plan"], ""),
        TaskSettings.of(**flat_settings(task()["settings"], {"shares": task()["shares"]})),
    )
    assert plan.rounds_until(settings, time.time()) - time.time() < 6 * 3600


def test_a_phone_has_one_authority_to_trust(tmp_path):
    """KGC's certificate and SP's are of the same one, which can speak for this host alone; keys stay as they were pinned."""
    assert call("init", tmp_path / "roles", "--host", "192.0.2.7").code == 0
    before = (tmp_path / "roles/kgc/tls.key").read_bytes()
    certificate = share_authority(tmp_path / "roles", "192.0.2.7")
    assert (tmp_path / "roles/kgc/tls.key").read_bytes() == before
    for role in ("kgc", "sp"):
        files = [str(tmp_path / f"roles/{role}/tls.{kind}") for kind in ("pem", "key")]
        assert handshake(files, tmp_path / "roles/sp/authority/ca.pem", "192.0.2.7")
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(files, tmp_path / "roles/sp/authority/ca.pem", "192.0.2.8")
    der = ssl.PEM_cert_to_DER_cert((tmp_path / "roles/sp/authority/ca.pem").read_text())
    assert fingerprint(certificate).replace(":", "").lower() == hashlib.sha256(der).hexdigest()


def handshake(files: list[str], ca: Path, host: str) -> bool:
    """Whether a client that trusts this authority accepts these files as the host; in memory."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*files)
    ends = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
    (to_client, to_server) = ends[0]
    client = client_context(ca).wrap_bio(to_client, to_server, server_hostname=host)
    served = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (client, served):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.version() is not None


def test_the_certificate_page_has_the_certificate_and_nothing_else(tmp_path):
    """With what to do, in the type that phones install. Its fingerprint here would invite people to compare the wrong one."""
    assert call("init", tmp_path / "roles", "--host", "127.0.0.1").code == 0
    certificate = share_authority(tmp_path / "roles", "127.0.0.1")
    with certificate_page("127.0.0.1", certificate) as url, httpx.Client(base_url=url, timeout=60) as client:
        page, file = client.get("/"), client.get("/crowdfl-demo.crt")
        assert fingerprint(certificate) not in page.text
        assert "in the terminal" in page.text
        assert 'href="/crowdfl-demo.crt"' in page.text
        assert file.headers["content-type"] == "application/x-x509-ca-cert"
        assert hashlib.sha256(file.content).hexdigest() == fingerprint(certificate).replace(":", "").lower()
        assert {client.get(path).status_code for path in ("/x", "/../roles/sp/tls.key", "/ca.key")} == {404}


def test_an_address_in_the_network_is_needed(monkeypatch):
    """On a machine without one, the demo says what to do."""

    def nowhere(_self, _place) -> None:
        raise OSError("no route")

    monkeypatch.setattr(socket.socket, "connect", nowhere)
    with pytest.raises(SettingsError, match="--host"):
        phone.lan_address()


def started(*more: object) -> "subprocess.Popen[str]":
    """The demo on loopback, as a process."""
    command = [sys.executable, "-m", "crowdfl", "demo-phone", "--host", "127.0.0.1", *more]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocesses.start(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )


def listen_for(process: "subprocess.Popen[str]", pattern: str, lines: list[str]) -> str:
    """Read until a line has this."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if found := re.search(pattern, line):
            return found[0]
    raise AssertionError("".join(lines))


@pytest.mark.second
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_phone_finds_the_page_and_nothing_is_left_after_the_end(number):
    """The link's page answers over TLS to whoever trusts the certificate; KGC answers that page; then the demo is ended."""
    lines: list[str] = []
    process = started("--phones", "1")
    try:
        authority = Path(listen_for(process, r"/\S+/ca\.pem", lines))
        trusted = authority.read_bytes()
        offered = listen_for(process, r"http://\S+", lines)
        link = listen_for(process, r"^https://\S+#\S+", lines)
        held, context = read_link(link), client_context(authority)
        with httpx.Client(timeout=60, verify=context) as client:
            page = client.get(link.partition("#")[0])
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert f"connect-src 'self' {held.kgc};" in page.headers["content-security-policy"]
            key = client.get(f"{held.kgc}/v1/key", headers={"Origin": origin_of(link)})
            assert key.json()["key"] == held.kgc_key.hex()
            assert key.headers["access-control-allow-origin"] == origin_of(link)
            task = client.get(f"{origin_of(link)}/v1/tasks/{held.task}").json()
            assert "sits, walks or climbs" in task["definition"]
        certificate = httpx.get(f"{offered}crowdfl-demo.crt").content
        assert ssl.DER_cert_to_PEM_cert(certificate).split() == trusted.decode().split()
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 4  # KGC, SP, CSP and the requester
        process.send_signal(number)
        rest, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, rest
    assert "the demo's folder is removed" in rest
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    assert not authority.exists()


@pytest.mark.second
@pytest.mark.slow
def test_a_demo_without_a_phone_goes_to_its_end():
    """A round closes as soon as everyone has sent, long before its time; the money is settled, and nothing is left."""
    process = started("--phones", "0", "--rounds", "1", "--minutes", "60", "--claim-minutes", "1")
    try:
        said, _ = process.communicate(timeout=550)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "round 1: SP and CSP compute the average and the rewards of 5" in said
    assert "the campaign is over" in said
    assert "the demo's folder is removed" in said
