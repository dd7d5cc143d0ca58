"""A task's first weights on their way to SP: in pieces, before the task itself is here.

Whoever sends them has a requester's token and nothing else yet. So one requester has one unfinished file, which another one of
its own replaces, all of them together have a few, and what nobody continues is swept.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, FastAPI, Request

from crowdfl.crypto.long_bytes import blocks_of
from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import QuotaExceeded
from crowdfl.roles.kept_file import KeptFile
from crowdfl.roles.limits import SpQuotas
from crowdfl.services.http.auth import TokenEntry, Tokens
from crowdfl.services.http.bodies import Sha256, takes_bytes
from crowdfl.services.http.pieces import Offset, Total, UnfinishedFiles, open_parcel, take_parcel

_MOST = 8  # times what one task may have


@dataclass(frozen=True)
class UnfinishedWeights(UnfinishedFiles):
    """One file of each requester, by the name of its token."""

    def path(self, requester: str, name: str) -> Path:
        return self.folder / f"{hashlib.sha256(requester.encode()).hexdigest()[:32]}.{name}.part"

    def require_room(self, requester: str, total: int, quotas: SpQuotas) -> None:
        """For so many bytes, in place of what this requester has here."""
        quotas.require_initial(total)
        own = self.path(requester, "").name.partition(".")[0]
        others = [path.stat().st_size for path in self.folder.glob("*.part") if not path.name.startswith(own)]
        if sum(others) + total > _MOST * quotas.initial_bytes:
            raise QuotaExceeded(
                f"first weights of {len(others)} other requesters are on their way to this platform, and there is no room for "
                "more: try again later"
            )

    @contextmanager
    def taken(self, requester: str, name: str) -> Iterator[KeptFile]:
        """All of it, in a file of its own; what has arrived goes if nothing is refused."""
        path = self.path(requester, name)
        parcel, own = open_parcel(self, path, name), path.with_suffix(f".{secret_hex(8)}.part")
        try:
            with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                for block in blocks_of(parcel):
                    file.write(block)
            yield KeptFile(own.open("rb"), path=own)
        finally:
            own.unlink(missing_ok=True)
        self.unlink(path)


def add_weight_routes(app: FastAPI, tokens: Tokens, quotas: SpQuotas, folder: Path) -> UnfinishedWeights:
    incoming = UnfinishedWeights(folder / "incoming/weights")
    incoming.sweep()
    requester = Annotated[TokenEntry, Depends(tokens.require("requester"))]

    @app.patch("/v1/weights/{parcel}", openapi_extra=takes_bytes())
    async def take(request: Request, parcel: Sha256, caller: requester, offset: Offset, total: Total) -> dict[str, int]:
        """One more piece, or several, of the first weights of a task, which are named after the leaves of all their pieces."""
        await to_thread.run_sync(incoming.require_room, caller.name, total, quotas)
        return await take_parcel(request, incoming, incoming.path(caller.name, parcel), parcel, offset, total)

    @app.get("/v1/weights/{parcel}/offset")
    def offset(parcel: Sha256, caller: requester) -> dict[str, int]:
        """How much of them has arrived."""
        return {"offset": incoming.length(incoming.path(caller.name, parcel))}

    return incoming
