"""Long answers come from their files piece by piece; who does not read them is hung up on and keeps no memory and no file."""

import json
import os
import socket
import time
from urllib.parse import urlsplit

import pytest

from crowdfl.services.http.bodies import download
from crowdfl.services.http.connections import LimitedH11Protocol
from crowdfl.services.server import running
from crowdfl.settings import ServiceSettings
from tests.http.test_boundary import numbers

LONG = 8 * 1024 * 1024


@pytest.fixture(scope="module")
def served(campaign):
    """SP on loopback, with initial weights of some megabytes."""
    path = campaign.world.folder / "sp/blobs" / campaign.task / "initial"
    path.write_bytes(os.urandom(LONG))
    settings = ServiceSettings(data=campaign.world.folder / "sp", host="127.0.0.1", port=0, plain_http=True)
    with running(campaign.world.apps["sp"], settings) as url:
        yield urlsplit(url)


@pytest.fixture
def weights(campaign):
    """What is served."""
    return (campaign.world.folder / "sp/blobs" / campaign.task / "initial").read_bytes()


def asking(served, campaign, method="GET", times=1):
    """A connection over which the initial weights were asked for; its own system buffers little."""
    connection = socket.socket()
    connection.settimeout(30)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    connection.connect((served.hostname, served.port))
    request = f"{method} /v1/tasks/{campaign.task}/initial HTTP/1.1\r\nHost: sp\r\n\r\n"
    connection.sendall(request.encode() * times)
    return connection


def answer(file):
    """Status, headers and body."""
    status = int(file.readline().split()[1])
    headers = dict(line.decode().strip().lower().split(": ", 1) for line in iter(file.readline, b"\r\n"))
    return status, headers, file.read(int(headers["content-length"]))


def open_files(campaign):
    """How often this process has the weights open."""
    path = str(campaign.world.folder / "sp/blobs" / campaign.task / "initial")
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.realpath(link) == path for link in links if os.path.islink(link))


def wait_until(holds):
    """For what another thread is about to do."""
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_long_answer_comes_whole_with_its_length(served, campaign, weights):
    """One after the other over the same connection, and two that were asked for at once; the file is closed in the end."""
    with asking(served, campaign, times=2) as connection, connection.makefile("rb") as file:
        for _ in range(2):
            status, headers, body = answer(file)
            assert (status, headers["content-type"]) == (200, "application/octet-stream")
            assert body == weights
    wait_until(lambda: open_files(campaign) == 0)


def test_who_does_not_read_is_hung_up_on(served, campaign, monkeypatch):
    """After a while without progress; its file is closed, and it is counted."""
    monkeypatch.setattr(LimitedH11Protocol, "stall_seconds", 0.4)
    with asking(served, campaign):
        wait_until(lambda: open_files(campaign) == 1)
        wait_until(lambda: open_files(campaign) == 0)
    text = numbers(campaign.world, "sp")
    assert 'crowdfl_connections_turned_away_total{why="slow reader"}' in text


def test_short_answers_that_are_not_read_are_not_waited_for(served, campaign, monkeypatch):
    """Hundreds that were asked for at once: they fill the buffers, and no more of them is made."""
    monkeypatch.setattr(LimitedH11Protocol, "stall_seconds", 0.4)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((served.hostname, served.port))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: sp\r\n\r\n" * 200)
        wait_until(lambda: _connections(campaign) == 0)
    assert _connections(campaign) == 0


def _connections(campaign):
    line = next(line for line in numbers(campaign.world, "sp").splitlines() if line.startswith("crowdfl_connections "))
    return int(float(line.split()[1]))


def test_a_slow_reader_that_goes_on_reading_gets_everything(served, campaign, weights, monkeypatch):
    """Pauses that end in time cost nothing."""
    monkeypatch.setattr(LimitedH11Protocol, "stall_seconds", 20.0)
    with asking(served, campaign) as connection:
        time.sleep(0.3)
        with connection.makefile("rb") as file:
            assert answer(file)[2] == weights


def test_who_leaves_in_the_middle_leaves_no_file_open(served, campaign):
    """It has read a little."""
    with asking(served, campaign) as connection:
        assert connection.recv(1000)
        wait_until(lambda: open_files(campaign) == 1)
    wait_until(lambda: open_files(campaign) == 0)


def test_head_of_a_long_answer_sends_nothing_of_it(served, campaign):
    """It is not offered, and says so."""
    with asking(served, campaign, method="HEAD") as connection:
        assert connection.recv(20).startswith(b"HTTP/1.1 405")
    assert open_files(campaign) == 0


def test_a_short_answer_is_read_at_once(tmp_path):
    """And its file closed."""
    (tmp_path / "short").write_bytes(b"short")
    file = (tmp_path / "short").open("rb")
    response = download(file)
    assert (bytes(response.body), file.closed) == (b"short", True)


def test_a_file_that_shrinks_while_it_is_sent_ends_the_connection(served, campaign):
    """A reader must not take what came for the whole."""
    path = campaign.world.folder / "sp/blobs" / campaign.task / "initial"
    whole = path.read_bytes()
    try:
        with asking(served, campaign) as connection, connection.makefile("rb") as file:
            wait_until(lambda: open_files(campaign) == 1)
            os.truncate(path, 1000)
            try:
                body = file.read()
            except ConnectionResetError:
                body = b""
            assert len(body) < LONG
    finally:
        path.write_bytes(whole)


def test_long_initial_weights_arrive_over_http(world):
    """The body stays on disk until its turn has come; what is not JSON is refused as a short one is."""
    body = b'{"definition": "' + b"x" * (2 * 1024 * 1024) + b'"}'
    headers = world.token("sp", "requester").headers("", "", b"", 0.0)
    answer = world.http("sp").post("/v1/tasks", content=body, headers=headers)
    assert (answer.status_code, json.loads(answer.content)["type"]) == (422, "urn:crowdfl:problem:invalid-request")
    assert [path.name for path in (world.folder / "sp").rglob("*tmp*")] == []
