"""Reminders by Web Push: whom SP tells that a round is open, and again before its deadline; and whom it may be made to call.

A subscription names an address that SP will post to, so that a phone must not choose it freely: push services that the operator
has listed, by HTTPS, and nothing else. Messages say that a round is open, or about to close, and nothing about whom or what.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from crowdfl.crypto.webpush import AUTH_BYTES, browser_key
from crowdfl.errors import Forbidden, FormatError, TaskUnreadable
from crowdfl.roles.records import RoundState, StoredSubscription, TaskState
from crowdfl.roles.sp.core import SpCore
from crowdfl.settings import is_host

Message = Literal["opened", "closing"]
_LONGEST = 1000  # characters of an address
_AT_ONCE = 500
_LAST_PART = 4  # of a round's window, before which nobody is told that it closes


@dataclass(frozen=True)
class Reminder:
    """One to send: `seconds` from now it is of no use."""

    message: Message
    seconds: float
    subscription: StoredSubscription


@dataclass(frozen=True)
class PushAddress:
    """Where a message goes: all that is used of a subscription's address."""

    host: str
    port: int
    target: str
    plain: bool = False  # of a trial on this machine

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}" if self.plain else f"https://{self.host}"

    @classmethod
    def of(cls, url: str, hosts: Sequence[str]) -> "PushAddress":
        """`Forbidden` for what no listed push service gives out."""
        if len(url) > _LONGEST or not url.isascii() or not url.isprintable() or any(one in url for one in ' \\"<>#'):
            raise FormatError(f"the address of a push service has at most {_LONGEST} plain characters")
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            port = parts.port
        except ValueError:
            raise FormatError("this is not the address of a push service") from None
        target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        if parts.scheme == "http" and port is not None and parts.netloc == f"{host}:{port}" and parts.netloc in hosts:
            return cls(host, port, target, plain=True)
        listed = any(host == one or (one.startswith("*.") and host.endswith(one[1:])) for one in hosts)
        # The whole authority is the host: no user, no port, no brackets, no capitals, no dot at its end.
        if parts.scheme != "https" or parts.netloc != host or not is_host(host) or not listed:
            raise Forbidden("this platform sends reminders to the push services that it lists, and not to this address")
        return cls(host, 443, target)


class Reminders:
    """Who wants to be reminded, and of what now."""

    def __init__(self, core: SpCore) -> None:
        self._core = core
        self._store = core.ports.store

    @property
    def hosts(self) -> Sequence[str]:
        return self._core.options.push_hosts

    def subscribe(self, task: str, who: str, endpoint: str, key: bytes, auth: bytes) -> None:
        """One for each participant; another takes its place. A round that is open now is not told of."""
        PushAddress.of(endpoint, self.hosts)
        browser_key(key)
        if len(auth) != AUTH_BYTES:
            raise FormatError(f"the secret of a subscription has {AUTH_BYTES} bytes, not {len(auth)}")
        last = self._core.last_round(task)
        told = 0 if last is None else last.number
        self._store.put_subscription(StoredSubscription(task, who, endpoint, key, auth, told))

    def unsubscribe(self, task: str, who: str) -> None:
        self._store.delete_subscription(task, who)

    def due(self) -> list[Reminder]:
        """Each is given out once, by one process, and is durably given out before it is sent: at most once."""
        tasks = [stored.task for stored in self._store.tasks() if stored.state == TaskState.RUNNING]
        found = []
        for task in tasks:
            with contextlib.suppress(TaskUnreadable):
                found += self._of_task(task)
        return found

    def _of_task(self, task: str) -> list[Reminder]:
        last = self._core.last_round(task)
        settings = self._core.definition(task).settings
        if last is None or last.state is not RoundState.OPEN:
            return []
        left = last.deadline(settings) - self._core.probably_now()
        found = [Reminder("opened", left, one) for one in self._take(task, last.number, "opened")]
        if 0 < left < settings.window / _LAST_PART:
            found += [Reminder("closing", left, one) for one in self._take(task, last.number, "closing")]
        return found

    def _take(self, task: str, number: int, message: Message) -> list[StoredSubscription]:
        """Of those who were not told yet, those who are in the round and have not sent."""
        taken = self._store.take_subscriptions(task, number, message, _AT_ONCE)
        if not taken:
            return []
        found = self._store.upload_context(task, number, [one.who for one in taken])
        draws = self._core.definition(task).settings.per_round is not None
        return [
            one
            for one in taken
            if one.who in (found.drawn if draws else found.enrolled)
            and one.who not in found.left
            and one.who not in found.uploads
        ]
