"""Strangers against a running SP process: what they cost it in memory, and whether others are served meanwhile.

Margins are wide: without the limits each of these cost hundreds of megabytes, or hundreds of thousands of lines.
"""

import json
import socket
import time
from contextlib import ExitStack

import pytest

from crowdfl.services.http import tls
from tests.http.processes import LiveService, finished_desk, room_for, serving_sp

pytestmark = pytest.mark.second

MB = 1_000_000
MODEL = 64 * 2**20


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A task that has ended, with initial weights of 64 MiB."""
    desk = finished_desk(tmp_path_factory.mktemp("live"))
    path = desk.folder / "sp/blobs" / desk.task / "initial"
    with path.open("wb") as file:
        file.truncate(MODEL)
    return desk


@pytest.fixture(scope="module")
def sp(desk):
    with serving_sp(desk) as sp:
        assert len(sp.get(f"/v1/tasks/{desk.task}/initial").content) == MODEL  # what is loaded at first, is
        yield sp


@pytest.fixture
def crowd():
    """Connections that stay open until the end of a test."""
    with ExitStack() as stack:
        yield stack


def post(sp: LiveService, crowd: ExitStack, path: str, length: int, *headers: str) -> socket.socket:
    """Send as much of a body as is taken, and leave it at that."""
    connection = crowd.enter_context(sp.connect())
    connection.settimeout(1.0)
    lines = (f"POST {path} HTTP/1.1", "Host: sp", f"Content-Length: {length}", *headers, "", "")
    try:
        connection.sendall("\r\n".join(lines).encode())
        for _ in range(0, length - 65536, 65536):  # all but the end
            connection.sendall(bytes(65536))
    except OSError:
        pass  # refused
    return connection


def growth(sp: LiveService, before: int) -> float:
    """Megabytes since then, once all has settled: the most of some looks."""
    looks = []
    for _ in range(10):
        time.sleep(0.2)
        looks.append(sp.memory())
    return (max(looks) - before) / MB


def test_a_requester_s_long_bodies_wait_on_disk(sp, crowd):
    """A token lets it send them; ten that are not complete are not in memory."""
    before, token = sp.memory(), f"Authorization: Bearer {sp.tokens['requester']}"
    for _ in range(10):
        post(sp, crowd, "/v1/tasks", 32 * 2**20, token)
    assert growth(sp, before) < 60


def readers(sp: LiveService, crowd: ExitStack, path: str, count: int) -> list[socket.socket]:
    found = []
    for _ in range(count):
        connection = crowd.enter_context(socket.socket())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(sp.place)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: sp\r\n\r\n".encode())
        found.append(connection)
    return found


def test_readers_that_never_read_cost_no_memory(sp, desk, crowd):
    """Twelve of a large model: +920 MB before; somebody who reads gets it meanwhile."""
    before = sp.memory()
    readers(sp, crowd, f"/v1/tasks/{desk.task}/initial", 12)
    assert growth(sp, before) < 100
    assert len(sp.get(f"/v1/tasks/{desk.task}/initial").content) == MODEL
    assert growth(sp, before) < 100


@pytest.fixture(scope="module")
def over_tls(desk, tmp_path_factory):
    """SP over TLS, without a limit for one address, and what trusts its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    ca = tls.make_ca(folder)
    files = tls.make_server_certificate(folder, ca, "sp")
    with serving_sp(desk, certificate=str(files.certificate), key=str(files.key), connections_per_address=0) as sp:
        yield sp, tls.client_context(ca.certificate)


def test_readers_over_tls_that_never_read_cost_no_memory(desk, crowd, over_tls):
    """asyncio would take half a megabyte for each, and the encrypted form of it."""
    sp, context = over_tls

    def ask(path: str) -> None:
        plain = crowd.enter_context(sp.connect())
        connection = crowd.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: sp\r\n\r\n".encode())

    ask("/readyz")
    time.sleep(0.5)
    before = sp.memory()
    for _ in range(40):
        ask(f"/v1/tasks/{desk.task}/initial")
    assert growth(sp, before) < 60


def test_silent_connections_over_tls_cost_little_memory(crowd, over_tls):
    """asyncio would take 256 KiB for each, before anything has come over it: 170 MB here."""
    room_for(600)
    sp, _ = over_tls
    before = sp.memory()
    for _ in range(600):
        crowd.enter_context(sp.connect())
    assert growth(sp, before) < 100


def test_silent_connections_do_not_stop_the_service(desk, crowd):
    """1,100 at 1,024 descriptors, of one address, then of many: they and all others are served; the log stays short."""
    room_for(1100)
    with serving_sp(desk, descriptors=1024) as sp:
        for turn, sources in enumerate((1, 11), 1):
            for number in range(1100):
                crowd.enter_context(sp.connect(f"127.0.{turn}.{number % sources + 1}"))
            time.sleep(1.5)  # some more would come at this moment
            for source in ("127.0.0.2", f"127.0.{turn}.1"):
                assert sp.get("/healthz", source).status_code == 200
                assert sp.get("/readyz", source).status_code == 200
                assert sp.get(f"/v1/tasks/{desk.task}", source).json()["status"]["state"] == "finished"
            crowd.close()
            assert len(sp.lines()) < 100 * turn
            assert sum(sp.metric("crowdfl_connections_turned_away_total").values()) >= 600 * turn
            assert sp.metric("crowdfl_connections")["crowdfl_connections"] <= 384
        assert {json.loads(line)["event"] for line in sp.lines()} >= {"connections refused", "served"}


def test_descriptors_that_run_out_stop_nothing(desk, crowd):
    """Files took what connections were promised: no loop, no flood of lines, and service when they are back."""
    room_for(300)
    with serving_sp(desk) as sp:
        assert sp.get(f"/v1/tasks/{desk.task}").status_code == 200
        sp.leave_descriptors(10)
        for number in range(300):
            crowd.enter_context(sp.connect(f"127.0.1.{number % 30 + 1}"))
        time.sleep(1.5)
        busy = sp.seconds()
        time.sleep(2)
        assert sp.seconds() - busy < 1.0  # it does not turn in circles
        assert sp.get("/healthz", "127.0.0.2").status_code == 200
        assert sum(sp.metric("crowdfl_connections_turned_away_total").values()) >= 200
        assert len(sp.lines()) < 100
