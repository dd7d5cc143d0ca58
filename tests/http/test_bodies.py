"""Bodies are refused before they are read, or cut off at the limit."""

import os
import socket
import time
from urllib.parse import urlsplit

import pytest

from crowdfl.errors import BadSignature, LimitExceeded
from crowdfl.protocols.uploads import parcel_head_bytes
from crowdfl.services.client.transport import Signer
from crowdfl.services.http.bodies import JSON_LIMIT, SMALL_LIMIT, download
from crowdfl.services.http.connections import LimitedH11Protocol
from crowdfl.services.server import running
from crowdfl.settings import ServiceSettings
from tests.http.test_boundary import numbers
from tests.subprocesses import until


class Endless:
    """A body that says how much of it was taken."""

    def __init__(self, piece=64 * 1024):
        self.piece, self.taken = piece, 0

    def __iter__(self):
        while True:
            self.taken += self.piece
            yield bytes(self.piece)


def sending(campaign, service, method, path):
    """Headers that let the caller in, whatever the route."""
    if "uploads" in path or "claims" in path:
        person = campaign.people[0]
        return Signer(person.who, person.keys.signing).headers(method, path, b"", campaign.world.clock.now())
    caller = campaign.world.token("csp", "sp") if service == "csp" else campaign.world.owner(service)
    return caller.headers(method, path, b"", campaign.world.clock.now()) | {"X-CrowdFL-Protocol": "3"}


def places(campaign):
    """Every kind of body that is read, with the most that may be read of it."""
    task, who = f"/v1/tasks/{campaign.task}", campaign.people[0].who
    upload = campaign.world.sp.uploads.limit(campaign.task)
    return [
        ("kgc", "POST", "/v1/tasks", JSON_LIMIT),
        ("kgc", "POST", f"{task}/participants", SMALL_LIMIT),
        ("kgc", "POST", f"{task}/close", JSON_LIMIT),
        ("sp", "PUT", f"{task}/deposits/n", JSON_LIMIT),
        ("sp", "POST", f"{task}/orders", JSON_LIMIT),
        ("sp", "POST", f"{task}/participants", SMALL_LIMIT),
        ("sp", "POST", f"{task}/claims", campaign.world.sp.claims.limit(campaign.task)),
        ("sp", "POST", "/v1/tasks", JSON_LIMIT),
        ("sp", "PATCH", f"/v1/weights/{'0' * 64}?offset=0&total=10", 10 + parcel_head_bytes(10)),
        ("sp", "PUT", f"{task}/rounds/1/uploads/{who}", upload),
        ("sp", "PATCH", f"{task}/rounds/1/uploads/{who}?offset=0", upload),
        ("sp", "POST", f"{task}/rounds/1/uploads/{who}/commit", 4096),
        ("csp", "POST", f"{task}/participants", SMALL_LIMIT),
        ("csp", "POST", f"{task}/requests", 256 * 1024 * 1024),
        ("csp", "PATCH", f"{task}/requests/{'0' * 64}?offset=0&total=10", 10 + parcel_head_bytes(10)),
    ]


def test_an_announced_body_over_the_limit_is_refused_unread(campaign):
    for service, method, path, limit in places(campaign):
        body = Endless()
        headers = sending(campaign, service, method, path) | {"Content-Length": str(limit + 1)}
        answer = campaign.world.http(service).request(method, path, content=body, headers=headers)
        assert (answer.status_code, body.taken) == (413, 0), path
        assert answer.json()["type"] == "urn:crowdfl:problem:limit-exceeded"


def test_a_body_of_unknown_length_is_cut_off_at_the_limit(campaign):
    for service, method, path, limit in places(campaign):
        if limit > 2 * JSON_LIMIT or "total=" in path:
            continue  # the same code, and minutes of sending; or pieces, which are found wrong before
        body = Endless()
        headers = sending(campaign, service, method, path)
        answer = campaign.world.http(service).request(method, path, content=body, headers=headers)
        assert answer.status_code == 413, path
        assert body.taken <= limit + 2 * body.piece


def test_an_upload_as_long_as_the_limit_is_looked_at(campaign, person):
    limit = campaign.world.sp.uploads.limit(campaign.task)
    assert len(campaign.update) <= limit
    with pytest.raises(LimitExceeded):
        person.sp.upload(campaign.task, 1, bytes(limit + 1))
    with pytest.raises(BadSignature):  # no upload at all, and that is what is wrong with it
        person.sp.service.call(
            "PATCH", f"/v1/tasks/{campaign.task}/rounds/1/uploads/{person.who}?offset=0", bytes(limit)
        )


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "\u00b2", "9" * 30])
def test_a_length_that_is_no_number_is_refused(campaign, length):
    path = f"/v1/tasks/{campaign.task}/claims"
    headers = {**sending(campaign, "sp", "POST", path), "Content-Length": length.encode()}
    answer = campaign.world.http("sp").post(path, content=iter([b"x"]), headers=headers)
    assert answer.status_code in (400, 413)


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
    status = int(file.readline().split()[1])
    headers = dict(line.decode().strip().lower().split(": ", 1) for line in iter(file.readline, b"\r\n"))
    return status, headers, file.read(int(headers["content-length"]))


def open_files(campaign):
    path = str(campaign.world.folder / "sp/blobs" / campaign.task / "initial")
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.realpath(link) == path for link in links if os.path.islink(link))


def test_a_long_answer_comes_whole_with_its_length(served, campaign, weights):
    """One after the other over the same connection, and two that were asked for at once; the file is closed in the end."""
    with asking(served, campaign, times=2) as connection, connection.makefile("rb") as file:
        for _ in range(2):
            status, headers, body = answer(file)
            assert (status, headers["content-type"]) == (200, "application/octet-stream")
            assert body == weights
    until(lambda: open_files(campaign) == 0)


def test_who_does_not_read_is_hung_up_on(served, campaign, monkeypatch):
    """After a while without progress; its file is closed, and it is counted."""
    monkeypatch.setattr(LimitedH11Protocol, "stall_seconds", 0.4)
    with asking(served, campaign):
        until(lambda: open_files(campaign) == 1)
        until(lambda: open_files(campaign) == 0)
    text = numbers(campaign.world, "sp")
    assert 'crowdfl_connections_turned_away_total{why="slow reader"}' in text


def test_short_answers_that_are_not_read_are_not_waited_for(served, campaign, monkeypatch):
    """Hundreds that were asked for at once: they fill the buffers, and no more of them is made."""
    monkeypatch.setattr(LimitedH11Protocol, "stall_seconds", 0.4)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((served.hostname, served.port))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: sp\r\n\r\n" * 200)
        until(lambda: _connections(campaign) == 0)
    assert _connections(campaign) == 0


def _connections(campaign):
    line = next(line for line in numbers(campaign.world, "sp").splitlines() if line.startswith("crowdfl_connections "))
    return int(float(line.split()[1]))


def test_a_slow_reader_that_goes_on_reading_gets_everything(served, campaign, weights, monkeypatch):
    monkeypatch.setattr(LimitedH11Protocol, "stall_seconds", 20.0)
    with asking(served, campaign) as connection:
        time.sleep(0.3)
        with connection.makefile("rb") as file:
            assert answer(file)[2] == weights


def test_who_leaves_in_the_middle_leaves_no_file_open(served, campaign):
    with asking(served, campaign) as connection:
        assert connection.recv(1000)
        until(lambda: open_files(campaign) == 1)
    until(lambda: open_files(campaign) == 0)


def test_a_short_answer_is_read_at_once(tmp_path):
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
            until(lambda: open_files(campaign) == 1)
            os.truncate(path, 1000)
            try:
                body = file.read()
            except ConnectionResetError:
                body = b""
            assert len(body) < LONG
    finally:
        path.write_bytes(whole)
