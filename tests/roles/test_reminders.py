"""Reminders: whom a phone can make SP call (nobody but a push service), who is told what, and how one is posted."""

import contextlib
import http.client
import http.server
import socket
import ssl
import threading

import pytest
import structlog

from crowdfl.crypto.webpush import PushKey
from crowdfl.errors import Forbidden, FormatError, InvalidKey
from crowdfl.roles.sp.reminders import PushAddress
from crowdfl.services.background import push
from crowdfl.services.background.push import Sender
from crowdfl.services.http import tls
from crowdfl.settings import SpSettings
from tests.crypto.test_webpush import opened
from tests.hosts import Desk

HOSTS = SpSettings.model_fields["push_hosts"].default
BROWSER, AUTH = PushKey.fresh(), bytes(range(16))
ENDPOINT = "https://updates.push.services.mozilla.com/wpush/v2/abc"


@pytest.mark.parametrize(
    "url",
    [
        ENDPOINT,
        "https://fcm.googleapis.com/fcm/send/a:b-c_d",
        "https://web.push.apple.com/Q?x=1",
        "https://db5p.notify.windows.com/w/?token=x%2b",
    ],
)
def test_addresses_of_push_services_are_taken(url):
    found = PushAddress.of(url, HOSTS)
    assert f"{found.origin}{found.target}" == url
    assert found.port == 443


@pytest.mark.parametrize(
    "url",
    [
        "http://fcm.googleapis.com/x",
        "https://fcm.googleapis.com:8443/x",
        "https://fcm.googleapis.com:443/x",
        "https://fcm.googleapis.com:/x",
        "https://fcm.googleapis.com./x",
        "https://FCM.googleapis.com/x",
        "https://fcm.googleapis.com@127.0.0.1/x",
        "https://user:word@fcm.googleapis.com/x",
        "https://fcm.googleapis.com%2f@127.0.0.1/x",
        "https://fcm.googleapis.com\\@127.0.0.1/x",
        "https://127.0.0.1\\fcm.googleapis.com/x",
        "https://fcm.googleapis.com#@127.0.0.1/x",
        "https://127.0.0.1#.fcm.googleapis.com/x",
        "https://127.0.0.1?.push.apple.com/x",
        "https://fcm.googleapis.com.example.org/x",
        "https://xfcm.googleapis.com/x",
        "https://evilpush.apple.com/x",
        "https://.push.apple.com/x",
        "https://push.apple.com/x",
        "https://a..push.apple.com/x",
        "https://[::1]/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://[fe80::1%25eth0]/x",
        "https://127.0.0.1/x",
        "https://2130706433/x",
        "https://0x7f.1/x",
        "https://localhost/x",
        "http://localhost:9000/x",
        "https://f\u0441m.googleapis.com/x",
        "https://fcm\u3002googleapis.com/x",
        "https://fcm.googleapis.com/\r\nHost: a",
        "https://fcm.googleapis.com/ x",
        "https:///fcm.googleapis.com/x",
        "https:fcm.googleapis.com/x",
        "//fcm.googleapis.com/x",
        "file:///etc/passwd",
        "https://fcm.googleapis.com:99999/x",
        "https://[fcm.googleapis.com/x",
        "https://fcm.googleapis.com/" + "x" * 1000,
        "",
    ],
)
def test_a_phone_steers_sp_nowhere_else(url):
    with pytest.raises((Forbidden, FormatError)):
        PushAddress.of(url, HOSTS)


@pytest.mark.parametrize(
    "found",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104 -- not bound to
        "224.0.0.1",
        "::1",
        "fe80::1",
        "fd00::1",
        "::ffff:10.0.0.1",
    ],
)
def test_a_listed_name_that_leads_into_this_network_is_not_called(monkeypatch, found):
    public = (0, 0, 0, "", ("142.250.1.1", 443))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [public, (0, 0, 0, "", (found, 443))])
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("called"))
    with pytest.raises(Forbidden, match="not public"):
        push.post(PushAddress.of(ENDPOINT, HOSTS), {}, b"")


class PushService(http.server.BaseHTTPRequestHandler):
    """One of the test's own: keeps what came, and answers by the path."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.came.append((self.path, dict(self.headers), body))
        self.send_response(int(self.path.strip("/").partition("/")[0]))
        self.send_header("Location", f"http://{self.headers['Host']}/201/elsewhere")
        self.end_headers()

    def log_message(self, *_):
        """In silence."""


@pytest.fixture
def service():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), PushService) as server:
        server.came, server.name = [], f"127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def desk(tmp_path, service):
    desk = Desk.funded(tmp_path, 3, budget=None)  # the first round is open
    desk.options.push_hosts = (service.name,)
    yield desk
    desk.disk.close()


def subscribe(desk, service, person, status=201):
    desk.sp.reminders.subscribe(
        desk.task, person.keys.who, f"http://{service.name}/{status}/{person.keys.who}", BROWSER.public, AUTH
    )


def test_who_has_not_sent_is_told_once_that_a_round_opens_and_once_that_it_closes(desk, service):
    sender = Sender(structlog.get_logger(), desk.sp.reminders, PushKey.fresh(), "https://sp.example")
    first, second, third = desk.crowd
    subscribe(desk, service, first)
    sender.send_due()
    assert service.came == [], "whoever subscribes in a round knows that it is open"
    desk.play()  # the second round is open
    subscribe(desk, service, second)
    for _ in range(2):
        sender.send_due()
    assert [path for path, _, _ in service.came] == [f"/201/{first.keys.who}"]
    ((_, headers, body),) = service.came
    assert opened(body, BROWSER, AUTH) == b"opened"
    assert headers["Content-Encoding"] == "aes128gcm"
    assert headers["Authorization"].startswith("vapid t=")
    assert 60 <= int(headers["TTL"]) <= desk.settings.window
    assert desk.task not in str(headers) + str(body)
    service.came.clear()
    desk.upload([first])
    subscribe(desk, service, third)
    third.leave()
    desk.clock.time += desk.settings.window * 0.8
    for _ in range(2):
        sender.send_due()
    assert [(path, opened(body, BROWSER, AUTH)) for path, _, body in service.came] == [
        (f"/201/{second.keys.who}", b"closing")
    ]


@pytest.mark.parametrize(("status", "kept"), [(404, False), (410, False), (302, True), (500, True)])
def test_a_browser_that_is_gone_is_forgotten_and_no_redirection_followed(desk, service, status, kept):
    sender = Sender(structlog.get_logger(), desk.sp.reminders, PushKey.fresh(), "https://sp.example")
    subscribe(desk, service, desk.crowd[0], status)
    desk.play()
    sender.send_due()
    assert len(service.came) == 1
    assert bool(desk.sp.store.take_subscriptions(desk.task, 9, "opened", 9)) == kept


class Dribbling(http.server.BaseHTTPRequestHandler):
    """A push service that answers byte by byte, as long as somebody listens, and at last with success."""

    def do_POST(self):
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 201 ")
            for _ in range(3000):
                self.wfile.write(b"x")
                if self.server.cut.wait(0.01):
                    return
            self.wfile.write(b"\r\nContent-Length: 0\r\n\r\n")
            self.server.heard_out = True

    def log_message(self, *_):
        """In silence."""


@pytest.mark.second
@pytest.mark.parametrize("plain", [True, False])
def test_a_message_takes_no_longer_than_it_may_over_tls_too(plain, tmp_path, monkeypatch):
    """Each byte comes in time, and all together too late."""
    authority = tls.make_ca(tmp_path)
    files = tls.make_server_certificate(tmp_path, authority, "push", ["localhost"])
    context = ssl.create_default_context(cafile=str(authority.certificate))
    monkeypatch.setattr(push.ssl, "create_default_context", lambda: context)
    monkeypatch.setattr(push, "public_addresses", lambda _address: ["127.0.0.1"])
    monkeypatch.setattr(push, "_PATIENCE", 1.0)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dribbling) as server:
        server.cut, server.heard_out = threading.Event(), False
        if not plain:
            server.socket = tls.server_context(files, None, asks=False).wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with contextlib.suppress(OSError, http.client.HTTPException):
                push.post(PushAddress("localhost", server.server_address[1], "/x", plain), {}, b"")
            assert not server.heard_out
        finally:
            server.cut.set()
            server.shutdown()


def test_a_service_that_is_away_or_no_longer_listed_holds_up_nothing(desk, service):
    sender = Sender(structlog.get_logger(), desk.sp.reminders, PushKey.fresh(), "https://sp.example")
    for person in desk.crowd:
        subscribe(desk, service, person)
    desk.play()
    desk.options.push_hosts = ()
    assert sender.send_due() is False
    assert service.came == []


@pytest.mark.parametrize(
    ("endpoint", "key", "auth", "error"),
    [
        ("https://127.0.0.1/", BROWSER.public, AUTH, Forbidden),
        (ENDPOINT, b"\x04" + bytes(64), AUTH, InvalidKey),
        (ENDPOINT, BROWSER.public, AUTH[1:], FormatError),
    ],
    ids=["place", "key", "secret"],
)
def test_what_is_no_subscription_is_refused(desk, endpoint, key, auth, error):
    desk.options.push_hosts = HOSTS
    with pytest.raises(error):
        desk.sp.reminders.subscribe(desk.task, desk.crowd[0].keys.who, endpoint, key, auth)


def test_subscriptions_end_with_the_task(desk, service):
    subscribe(desk, service, desk.crowd[0])
    desk.requester.order(desk.task, "cancel")
    desk.later(1000.0)
    assert desk.state == "settled"
    assert desk.sp.store.take_subscriptions(desk.task, 9, "opened", 9) == []
