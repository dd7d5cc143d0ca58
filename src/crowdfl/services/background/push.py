"""The thread that sends reminders; each is posted once, to a listed push service at a public address, within seconds."""

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from structlog.types import FilteringBoundLogger

from crowdfl.crypto.webpush import PushKey, encrypt
from crowdfl.errors import CrowdFLError, Forbidden
from crowdfl.roles.sp.reminders import PushAddress, Reminder, Reminders
from crowdfl.services.background.workers import Ticker, log_failure

_MESSAGE_BYTES = 16
_PATIENCE = 15.0  # seconds for all of one message
_GONE = (404, 410)  # the owner has taken the permission back, or the browser is gone
_AT_ONCE = 8
_TOKEN_SECONDS = 3600.0
_LONGEST_WAIT = 86400.0  # seconds that a push service keeps it for a phone that is off


def public_addresses(address: PushAddress) -> list[str]:
    """Where its host is. `Forbidden` if any of that is not public: a name must not lead into this network."""
    found = [str(one[4][0]) for one in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)]
    if not address.plain and not all(map(_is_public, found)):
        raise Forbidden(f"{address.host} leads to an address that is not public")
    return found


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_global and not (mapped or address).is_multicast


def _connected(address: PushAddress) -> socket.socket:
    """To the very address that was looked at: a name may lead elsewhere the next moment."""
    wrong: OSError = ConnectionError(f"{address.host} has no address")
    for one in public_addresses(address):
        try:
            return socket.create_connection((one, address.port), _PATIENCE)
        except OSError as failure:
            wrong = failure
    raise wrong


def post(address: PushAddress, headers: dict[str, str], body: bytes) -> int:
    """The status of the answer; nothing else of it is read, and no redirection followed."""
    connected = _connected(address)
    watched = connected.dup()  # the same connection: TLS takes the other name of it over
    watchdog = threading.Timer(_PATIENCE, _cut, [watched])  # one that answers byte by byte ends too
    watchdog.start()
    connection = http.client.HTTPConnection(address.host, address.port)
    try:
        if not address.plain:
            connected = ssl.create_default_context().wrap_socket(connected, server_hostname=address.host)
        connection.sock = connected
        connection.request("POST", address.target, body, headers)
        return connection.getresponse().status
    finally:
        watchdog.cancel()
        watched.close()
        connected.close()


def _cut(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended by itself
        connected.shutdown(socket.SHUT_RDWR)


@dataclass
class Sender:
    """Sends what is due, a few at a time. What fails is not sent again: a reminder that comes late helps nobody."""

    log: FilteringBoundLogger
    reminders: Reminders
    key: PushKey = field(repr=False)
    subject: str  # whom a push service can ask about these messages
    post: Callable[[PushAddress, dict[str, str], bytes], int] = post
    _closed: bool = field(default=False, init=False)

    def close(self) -> None:
        self._closed = True

    def send_due(self) -> bool:
        """Never True: nothing is urgent."""
        due = self.reminders.due()
        if due:
            with ThreadPoolExecutor(_AT_ONCE, "sp-push") as pool:
                list(pool.map(self._send, due))
        return False

    def _send(self, reminder: Reminder) -> None:
        if self._closed:
            return
        try:
            if self._posted(reminder) in _GONE:
                self.reminders.unsubscribe(reminder.subscription.task, reminder.subscription.who)
        except (CrowdFLError, OSError, http.client.HTTPException) as failure:
            log_failure(self.log, "a reminder was not sent", failure)

    def _posted(self, reminder: Reminder) -> int:
        one = reminder.subscription
        address = PushAddress.of(one.endpoint, self.reminders.hosts)  # the list may have changed since
        body = encrypt(reminder.message.encode(), one.key, one.auth, _MESSAGE_BYTES)
        headers = {
            "Authorization": self.key.authorization(address.origin, self.subject, time.time() + _TOKEN_SECONDS),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(int(min(max(reminder.seconds, 60.0), _LONGEST_WAIT))),
            "Topic": "round",  # one that was not delivered yet is replaced
        }
        return self.post(address, headers, body)


@dataclass
class Push(Ticker):
    """The thread that sends reminders."""

    name = "sp-push"
    without = "reminders are not sent"
    failed = "reminders failed"
