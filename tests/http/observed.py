"""The platform of `world` with all that an operator sees: events of the stores, ids of steps, calls to peers watched."""

import base64
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal

from crowdfl.services.client.peer_link import calls_to
from crowdfl.services.client.transport import Service
from crowdfl.services.http import logs
from crowdfl.services.run import around_step
from crowdfl.services.tracing import TracedRounds
from crowdfl.storage.sql import SqlStore
from tests.hosts import test_tools
from tests.http.world import Person, ServersDisk, World

SHORT: dict[str, Any] = {  # as small as a task with rewards can be
    "key_bits": 960,
    "sigma": 20,
    "decimals": 3,
    "clip": 2.0,
    "max_samples": 10,
    "max_participants": 5,
}


class ObservedDisk(ServersDisk):
    """Whose stores tell the log what becomes durable."""

    def open_store(self, role: str, url: str) -> SqlStore:
        """As `open_sp` and the others do it."""
        return SqlStore(url, logs.events(role))


class ObservedWorld(World):
    """As the services are run."""

    new_disk = ObservedDisk
    new_tools = staticmethod(lambda: replace(test_tools(), observer=TracedRounds()))

    def __init__(self, folder: Path, portal: BlockingPortal) -> None:
        super().__init__(folder, portal)
        self.options.events, self.options.around_step = logs.events("sp"), around_step

    def peer(self, name: str, role: str) -> Service:
        """Watched."""
        return replace(super().peer(name, role), watch=calls_to(name.upper(), logs.events(role)))

    def whole_campaign(self) -> tuple[str, list[Person], list[bytes]]:
        """From the first deposit to the settlement: the task, its people, their uploads."""
        task, people = self.open_round(**SHORT)
        uploads = [person.update() for person in people]
        for person, upload in zip(people, uploads, strict=True):
            person.sp.upload(task, 1, upload)
            person.participant.blobs.put("rounds/1/receipt", b"")
        self.run()
        for person in people:
            person.participant.claim()
        self.clock.time += 2000.0
        self.run()
        return task, people, uploads


def forms_of(secret: bytes | str) -> Iterator[str]:
    """How a secret, or a part of it, may look in a text."""
    if isinstance(secret, str):
        yield secret
        return
    for start in {0, len(secret) // 2, max(0, len(secret) - 24)}:
        part = secret[start : start + 24]
        yield part.hex()
        yield str(int.from_bytes(part, "big"))
        yield repr(part)[2:-1]
        for shift in range(3):  # wherever base64 of the whole begins
            inner = base64.b64encode(part[shift : shift + 18]).decode()
            yield inner
            yield inner.replace("+", "-").replace("/", "_")


def found_in(text: str, secrets: Iterable[bytes | str]) -> list[str]:
    """Which of them a text holds, in any form."""
    return [form for secret in secrets for form in forms_of(secret) if form in text]
