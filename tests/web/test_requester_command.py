"""`crowdfl task console` as a process: where it listens, what it prints, how it ends."""

import contextlib
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from crowdfl.cli.task import console as command
from crowdfl.cli.task.console import opened_in_browser
from crowdfl.errors import ServiceUnavailable
from crowdfl.retry import Backoff
from crowdfl.roles.requester import Requester
from crowdfl.services.client.opening import RequesterFile, open_requester
from crowdfl.settings import TaskSettings
from crowdfl.web.shell import HEADER
from tests.cli.program import call, start, wait_or_kill
from tests.hosts import small_definition
from tests.subprocesses import until
from tests.web.consoles import small_values

PATIENCE = 600.0


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace") / "roles"
    assert call("init", folder).code == 0
    return folder / "requester/settings.toml"


@pytest.fixture
def console(settings: Path, tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    log = tmp_path / "console.log"
    process = start("task", "console", "--settings", settings, "--no-open", log=log)
    yield process, log
    process.kill()
    process.wait(PATIENCE)


def printed(log: Path) -> str:
    found = until(lambda: re.findall(r"http://127\.0\.0\.1:\d+/#open=\S+", log.read_text()), log.read_text)
    (address,) = found  # once
    return str(address)


@pytest.mark.second
def test_the_console_listens_on_loopback_alone_and_ends_at_an_interrupt(console, settings):
    process, log = console
    address, secret = printed(log).split("#open=")
    port = httpx.URL(address).port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=PATIENCE)  # an address of this machine, but not that one
    own = {"Origin": address.rstrip("/"), HEADER: "-"}
    with httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE) as http:
        assert "requester.css" in http.get("/").text
        assert http.get("/api/overview", headers=own).status_code == 401
        opened = http.post("/api/session", json={"secret": secret}, headers=own)
        found = http.get("/api/overview", headers=own | {HEADER: opened.json()["half"]}).json()
        assert found["tasks"] == []
        assert found["folder"] == str(settings.parent.resolve())
    process.send_signal(signal.SIGINT)
    wait_or_kill(process, PATIENCE)
    assert process.returncode == 0, log.read_text()
    said = log.read_text()
    assert said.count(secret) == 1
    assert opened.json()["half"] not in said
    assert said.endswith("the console has ended\n")


@contextlib.contextmanager
def mute_platform(folder: Path) -> Iterator[str]:
    """The address of a platform that takes requests and never answers, with SP's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "sp" / "tls.pem", folder / "sp" / "tls.key")
    taken = []

    def take() -> None:
        with contextlib.suppress(OSError):
            while True:
                taken.append(listener.accept()[0])

    with context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True) as listener:
        thread = threading.Thread(target=take)
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)
    for one in taken:
        one.close()


@pytest.mark.second
def test_an_interrupt_ends_the_console_while_a_platform_does_not_answer(settings, tmp_path):
    """It would wait for ten minutes; and what is cut off is no fault to be printed."""
    log, own_settings = tmp_path / "console.log", settings.with_name("mute.toml")
    with mute_platform(settings.parents[1]) as url:
        own_settings.write_text(re.sub(r'(?m)^(sp|kgc) = "[^"]*"', rf'\1 = "{url}"', settings.read_text()))
        process = start("task", "console", "--settings", own_settings, "--no-open", log=log)
        address, secret = printed(log).split("#open=")
        own = {"Origin": address.rstrip("/"), HEADER: "-"}
        with httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE) as http:
            own |= {HEADER: http.post("/api/session", json={"secret": secret}, headers=own).json()["half"]}
            http.post("/api/tasks", json={"values": small_values()}, headers=own)
            while not (tasks := http.get("/api/overview", headers=own).json()["tasks"]):
                time.sleep(0.05)
            with pytest.raises(httpx.ReadTimeout):
                http.get(f"/api/tasks/{tasks[0]['task']}/status", headers=own, timeout=2.0)
        process.send_signal(signal.SIGINT)
        wait_or_kill(process, PATIENCE)
    assert process.returncode == 0, log.read_text()
    assert "Traceback" not in log.read_text()


def test_the_browser_is_given_a_file_that_nobody_else_can_read(tmp_path, monkeypatch):
    """Its command line, which others can read, names the file and not the secret."""
    given: list[str] = []
    monkeypatch.setattr(webbrowser, "open", given.append)
    address = "http://127.0.0.1:7999/#open=secret"
    with opened_in_browser(address, tmp_path):
        (path,) = tmp_path.iterdir()
        assert given == [path.as_uri()]
        assert path.stat().st_mode & 0o077 == 0
        assert f"url={address}" in path.read_text()
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_named(settings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = call("task", "console", "-s", settings, "--port", taken.getsockname()[1])
    assert result.code == 3
    assert "choose another --port" in result.err


def test_a_platform_that_is_away_is_said_soon(settings, tmp_path, monkeypatch):
    """The commands try for two minutes; whoever looks at a page would take it for broken."""
    monkeypatch.setattr(command, "_PATIENCE", Backoff(deadline=0.1))
    monkeypatch.setattr(Requester, "definition", lambda _self, _task: small_definition(TaskSettings()))
    own, began = RequesterFile.read(settings), time.monotonic()
    with open_requester(own, command._PATIENCE) as requester:
        actions = command.requester_actions(own, requester)
        for ask in (
            lambda: requester.sp.status("0" * 64),
            lambda: requester.order("0" * 64, "cancel"),
            lambda: requester.close_enrolment("0" * 64),
            lambda: actions.invite_into("0" * 64, tmp_path / "invitations", 1, 1.0, ""),
        ):
            with pytest.raises(ServiceUnavailable):
                ask()
    assert time.monotonic() - began < 100.0
