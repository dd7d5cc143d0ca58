"""A node's own invitation: a file that its operator got from the task's owner, and not through Flower's servers."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from crowdfl.errors import InvitationRefused, SettingsError

if TYPE_CHECKING:
    from crowdfl.services.client.peers import KgcClient


@dataclass(frozen=True)
class NodeInvitation:
    """To one task, for one node. Whoever holds the file can join once."""

    task: str
    invitation: str = field(repr=False)
    kgc: str  # where it is
    kgc_key: str  # in hex
    ca: str | None = None  # certificates in PEM to trust; None: the system's authorities

    @classmethod
    def read(cls, place: object) -> "NodeInvitation | None":
        """From the file that a node's configuration names, if it names one."""
        if place is None:
            return None
        try:
            return TypeAdapter(cls).validate_json(Path(str(place)).read_bytes())
        except OSError as wrong:
            raise SettingsError(f"there is no invitation at {place}: {wrong.strerror}") from None
        except ValidationError:
            raise SettingsError(f"{place} is not an invitation, as `crowdfl.flower.prepare` writes it") from None

    def text(self) -> str:
        return json.dumps(asdict(self))

    def require(self, task: str) -> None:
        if self.task != task:
            raise InvitationRefused(
                f"this node is invited to task {self.task}, and the server runs {task}: ask the task's owner which is right"
            )


@contextmanager
def kgc_of(invitation: NodeInvitation) -> "Iterator[KgcClient]":
    """KGC's service, as anyone may call it."""
    from crowdfl.services.client.peers import KgcClient
    from crowdfl.services.client.transport import Link

    with TemporaryDirectory() as scratch:
        ca = Path(scratch) / "ca.pem" if invitation.ca else None
        if ca is not None:
            ca.write_text(invitation.ca or "")
        with closing(KgcClient(Link(invitation.kgc, ca).open())) as kgc:
            yield kgc
