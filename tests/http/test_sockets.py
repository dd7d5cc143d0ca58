"""Hostile clients over real connections: too much, too slowly, half, or no HTTP at all."""

import json
import socket
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from crowdfl.protocols.uploads import upload_digest
from crowdfl.services.client.transport import Signer
from crowdfl.services.http import bodies
from crowdfl.services.http.connections import LimitedH11Protocol
from crowdfl.services.server import running
from crowdfl.settings import ServiceSettings


@pytest.fixture(scope="module")
def served(campaign):
    settings = ServiceSettings(data=campaign.world.folder / "sp", host="127.0.0.1", port=0, plain_http=True)
    with running(campaign.world.apps["sp"], settings) as url:
        yield urlsplit(url)


@contextmanager
def connected(served):
    """A connection, and what comes back over it until the server closes it or nothing more comes."""
    with socket.create_connection((served.hostname, served.port), timeout=20) as connection:
        yield connection


def answer(connection):
    file = connection.makefile("rb")
    status = int(file.readline().split()[1])
    headers = dict(line.decode().strip().lower().split(": ", 1) for line in iter(file.readline, b"\r\n"))
    raw = file.read(int(headers["content-length"])) if "content-length" in headers else file.read()
    if headers.get("transfer-encoding") == "chunked":
        raw = raw.split(b"\r\n")[1]
    assert headers["content-type"] == "application/problem+json"
    return status, headers, json.loads(raw)


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def head(method, path, *lines):
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: sp", "X-CrowdFL-Protocol: 3", *lines, "", "")).encode()


def claim_head(campaign, *lines, body=b""):
    person, path = campaign.people[0], f"/v1/tasks/{campaign.task}/claims"
    signed = Signer(person.who, person.keys.signing).headers("POST", path, body, campaign.world.clock.now())
    return head("POST", path, *lines, *(f"{name}: {value}" for name, value in signed.items()))


def too_long(campaign):
    return f"Content-Length: {campaign.world.sp.claims.limit(campaign.task) + 1}"


def test_an_announced_body_is_refused_before_it_is_sent(campaign, served):
    """413 at once to a client that has sent its headers alone, and to one that waits to be told to go on."""
    for line in ("Accept: */*", "Expect: 100-continue"):
        with connected(served) as connection:
            connection.sendall(claim_head(campaign, too_long(campaign), line))
            status, _, problem = answer(connection)
            assert (status, problem["type"]) == (413, "urn:crowdfl:problem:limit-exceeded")


def test_a_body_without_end_is_cut_off_at_the_limit(campaign, served, monkeypatch):
    """413 once it is over the limit; a sender that does not stop is hung up on."""
    monkeypatch.setattr(LimitedH11Protocol, "linger_seconds", 0.3)
    sent, started = [], time.monotonic()
    with connected(served) as connection:
        connection.sendall(claim_head(campaign, "Transfer-Encoding: chunked"))
        with pytest.raises(OSError, match=r"(?i)reset|broken pipe"):
            flood(connection, sent)
    assert sent
    assert time.monotonic() - started < 30


def flood(connection, sent):
    """Zeros until the other side hangs up, or a minute."""
    piece, started = b"10000\r\n" + bytes(0x10000) + b"\r\n", time.monotonic()
    while time.monotonic() < started + 60:
        connection.sendall(piece)
        sent.append(len(piece))


def test_a_refused_body_s_sender_can_read_the_refusal(campaign, served):
    with connected(served) as connection:
        connection.sendall(claim_head(campaign, "Content-Length: 16777216"))
        for _ in range(20):
            connection.sendall(bytes(0x10000))
        assert answer(connection)[0] == 413


@pytest.fixture
def hurried(monkeypatch):
    monkeypatch.setattr(bodies.PACE, "idle", 0.3)
    monkeypatch.setattr(bodies.PACE, "patience", 0.8)
    monkeypatch.setattr(LimitedH11Protocol, "header_seconds", 0.5)


def test_a_body_that_stops_coming_is_408(campaign, served, hurried):
    """After the longest pause that is allowed, and the connection is closed."""
    with connected(served) as connection:
        connection.sendall(claim_head(campaign, "Content-Length: 300") + b"x")
        status, headers, problem = answer(connection)
        assert (status, problem["type"]) == (408, "urn:crowdfl:problem:too-slow")
        assert headers["connection"] == "close"
        assert problem["request"] == headers["x-request-id"]
        assert is_closed(connection)


def test_a_body_that_drips_is_408(campaign, served, hurried):
    with connected(served) as connection:
        connection.sendall(claim_head(campaign, "Content-Length: 300"))
        started = time.monotonic()
        while time.monotonic() < started + 1.5:
            try:
                connection.sendall(b"x")
            except OSError:
                break
            time.sleep(0.1)
        assert answer(connection)[0] == 408


def test_a_slow_upload_leaves_nothing(campaign, served, hurried, person):
    before = sorted(path.name for path in (campaign.world.folder / "sp").rglob("*"))
    path = f"/v1/tasks/{campaign.task}/rounds/1/uploads/{person.who}?offset=0"
    body = bytes(400)
    signed = Signer(person.who, person.keys.signing).headers("PATCH", path, body, campaign.world.clock.now())
    lines = [f"{name}: {value}" for name, value in signed.items()]
    with connected(served) as connection:
        connection.sendall(head("PATCH", path, "Content-Length: 400", *lines) + body[:200])
        assert answer(connection)[0] == 408
    assert sorted(path.name for path in (campaign.world.folder / "sp").rglob("*")) == before


def test_a_body_at_a_fair_pace_is_waited_for(campaign, served, hurried, monkeypatch):
    monkeypatch.setattr(bodies.PACE, "idle", 10.0)  # this is not about pauses, and a busy machine makes some
    monkeypatch.setattr(bodies.PACE, "rate", 64.0)
    with connected(served) as connection:
        connection.sendall(claim_head(campaign, "Content-Length: 384", body=bytes(384)))
        for _ in range(12):
            connection.sendall(bytes(32))
            time.sleep(0.1)
        status, _, problem = answer(connection)
        assert (status, problem["type"]) == (
            400,
            "urn:crowdfl:problem:format-error",
        )  # all of it was read: it is no claim


@pytest.mark.parametrize("start", [b"", b"GET /healthz HTTP/1.1\r\nHost"], ids=["nothing", "half a header"])
def test_headers_that_do_not_come_are_not_waited_for(served, hurried, start):
    with connected(served) as connection:
        connection.sendall(start)
        status, _, problem = answer(connection)
        assert (status, problem["type"]) == (408, "urn:crowdfl:problem:too-slow")
        assert is_closed(connection)


@pytest.mark.parametrize(
    "bad",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n",
        b"GET / FTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",  # without Host
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /" + b"a" * 100_000,
    ],
    ids=["TLS", "version", "no host", "two lengths", "endless"],
)
def test_bytes_that_are_no_http_are_a_problem_too(served, bad):
    with connected(served) as connection:
        connection.sendall(bad)
        status, _, problem = answer(connection)
        assert (status, problem["type"]) == (400, "urn:crowdfl:problem:format-error")


def test_a_connection_serves_one_request_after_another(served, monkeypatch):
    """The timers are for those who keep others waiting."""
    monkeypatch.setattr(LimitedH11Protocol, "header_seconds", 2.0)
    with connected(served) as connection:
        for _ in range(3):
            connection.sendall(b"GET /nowhere HTTP/1.1\r\nHost: sp\r\n\r\n")
            assert answer(connection)[0] == 404
            time.sleep(0.8)


def test_a_body_cut_off_by_a_lost_connection_leaves_nothing(campaign, served, person):
    update = person.update()
    path = f"/v1/tasks/{campaign.task}/rounds/1/uploads/{person.who}"
    signed = Signer(person.who, person.keys.signing).headers(
        "PUT", path, update, campaign.world.clock.now(), upload_digest(update)
    )
    lines = [f"{name}: {value}" for name, value in signed.items()]
    with connected(served) as connection:
        length = f"Content-Length: {len(update)}"
        connection.sendall(head("PUT", path, length, *lines) + update[:500])
    assert person.sp.upload(campaign.task, 1, update)
    assert [u.who for u in campaign.world.sp.store.uploads(campaign.task, 1)].count(person.who) == 1
