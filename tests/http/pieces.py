"""A device whose connection is bad: its uploads go in pieces, however short they are."""

from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.services.client.peers import SpClient


class InPieces(SpClient):
    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        return self._as(keys).upload_in_pieces(task, number, upload)
