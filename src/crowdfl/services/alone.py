"""A role opened where nothing of it leaves the process: it listens nowhere, calls nobody, pays nothing, starts no program.

`python -m crowdfl.services.alone SETTINGS [PASSPHRASE_FILE]` opens a restored role so, and ends with 0 if it is ready. What is
wrong is its last line on standard error. A hook of the interpreter, which nothing can take away, refuses every connection,
address and program; that is why this is a process of its own.
"""

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from crowdfl.errors import CrowdFLError, ServiceUnavailable
from crowdfl.services.folders.backups import read_role
from crowdfl.services.http import logs
from crowdfl.services.run import open_csp, open_kgc, open_sp
from crowdfl.settings import ComputingSettings, ServiceSettings, SpSettings

OPENING: Mapping[str, Callable[[Any], FastAPI]] = {"kgc": open_kgc, "sp": open_sp, "csp": open_csp}
GUARD = "guard-elsewhere"  # beside the folder, as a guard on another disk is
_REFUSED = (
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostby",
    "socket.sendto",
    "socket.sendmsg",
)
_PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")
_UNSET = ("on_paid", "on_paid_time", "push_hosts")  # what would send or pay, and how


def alone(settings: ServiceSettings, passphrase: Path | None = None) -> ServiceSettings:
    """The same role with all that it keeps in its own folder, and nobody whom it tells anything."""
    chosen: dict[str, Any] = {"database": None, "tracing": None, "host": "127.0.0.1", "listen": None, "port": 0}
    chosen["passphrase_file"] = passphrase
    if isinstance(settings, ComputingSettings):
        beside = settings.data.parent / GUARD
        chosen |= {"s3": None, "compute": "threads", "dask": None, "guard": beside if beside.is_dir() else None}
    if isinstance(settings, SpSettings):
        chosen |= {name: SpSettings.model_fields[name].default for name in _UNSET} | {"push_hosts": ()}
    return settings.changed(**chosen)


def refuse_to_leave() -> None:
    """From now on, for as long as this process lives."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith((*_REFUSED, *_PROGRAMS)):
            raise OSError(errno.ENETUNREACH, f"{os.strerror(errno.ENETUNREACH)}: {event} is refused in a drill")

    sys.addaudithook(refuse)


async def _look(app: FastAPI) -> None:
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://alone") as client:
            answer = await client.get("/readyz")
    if answer.status_code != httpx.codes.OK:
        raise ServiceUnavailable(f"the role started and is not ready: {answer.text[:300]}")


def main(words: list[str]) -> None:
    logs.configure()
    role, found = read_role(Path(words[0]))
    settings = alone(found, *map(Path, words[1:]))
    app = OPENING[role](settings)
    loop = asyncio.new_event_loop()  # it wakes itself by a pair of sockets, made before they are refused
    refuse_to_leave()
    loop.run_until_complete(_look(app))
    loop.close()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (CrowdFLError, OSError) as wrong:
        sys.exit(f"{type(wrong).__name__}: {wrong}")
