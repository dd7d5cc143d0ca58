"""A manifest: the names of a round in order, each certified, each with its signature of an upload for this very round.

CSP takes no step of a round before it has one, and takes one ever: a round that nobody has signed an upload for never comes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crowdfl.crypto.compute import Backend, Read, Work, run_work
from crowdfl.crypto.signing import verify
from crowdfl.errors import BadSignature, ProtocolError, TooFewParticipants

_SIGNATURE_WEIGHT = 1 << 16  # to check one takes as long as to go over so many bytes

SignedEntry = tuple[bytes, str, bytes, bytes]
"""A key, whose it is, what its owner must have signed, and the signature."""


def require_listed(names: Sequence[str], keys: Mapping[str, bytes], least: int, most: int) -> None:
    """Each once, in order, as many as may be, and all of them certified."""
    if list(names) != sorted(set(names)):
        raise ProtocolError("the names of a manifest are not in order, or one stands there twice")
    if not least <= len(names) <= most:
        raise TooFewParticipants(f"a manifest of {len(names)} participants; expected {least} to {most}")
    strangers = [who for who in names if who not in keys]
    if strangers:
        raise ProtocolError(f"no certified keys of {', '.join(strangers)}")


def require_signed(entries: Sequence[SignedEntry], backend: Backend) -> None:
    """Everyone has signed what the manifest says of its upload."""
    run_work(backend, SignedEntries(entries))


@dataclass(frozen=True)
class SignedEntries(Work[SignedEntry, None]):
    """Whether everyone has signed, by this key, what a manifest says of its upload."""

    def weight(self) -> int:
        return _SIGNATURE_WEIGHT * len(self.rows)

    def run(self, read: Read) -> None:
        del read
        for key, who, statement, signature in self.rows:
            try:
                verify(key, statement, signature)
            except BadSignature:
                raise BadSignature(f"{who} has not signed what the manifest says of its upload") from None

    def merged(self, found: Iterable[None]) -> None:
        for _ in found:
            pass
