"""Credentials as clients hold them, and how they sign requests.

A participant signs method, path with query, time and the SHA-256 of the body with the key that KGC certified. A requester signs
the same with the key that its task's definition names, beside its token: the token lets it use the service, the signature its
own task.
"""

import hashlib
from dataclasses import dataclass, field

from crowdfl.crypto.sealing import SigningKey

__all__ = ["DIGEST_HEADER", "REQUESTER_HEADER", "Bearer", "Credential", "Owner", "Signer", "signed_text"]

DIGEST_HEADER = "X-Content-SHA256"
REQUESTER_HEADER = "X-CrowdFL-Requester"


@dataclass(frozen=True)
class Bearer:
    """A role's token."""

    token: str = field(repr=False)

    def headers(self, _method: str, _target: str, _body: bytes, _now: float) -> dict[str, str]:
        """What goes with a request."""
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True)
class Signer:
    """A participant's certified key."""

    who: str
    signing: SigningKey

    def headers(self, method: str, target: str, body: bytes, now: float) -> dict[str, str]:
        """What goes with this request, and with no other."""
        proof, digest = _prove(self.signing, method, target, body, now)
        return {"Authorization": f'CrowdFL who="{self.who}", {proof}', DIGEST_HEADER: digest}


@dataclass(frozen=True)
class Owner:
    """A requester's token, and the key that its tasks' definitions name."""

    token: str = field(repr=False)
    signing: SigningKey

    def headers(self, method: str, target: str, body: bytes, now: float) -> dict[str, str]:
        """What goes with this request, and with no other."""
        proof, digest = _prove(self.signing, method, target, body, now)
        return {"Authorization": f"Bearer {self.token}", REQUESTER_HEADER: proof, DIGEST_HEADER: digest}


Credential = Bearer | Signer | Owner


def signed_text(method: str, target: str, time: str, digest: str) -> bytes:
    """What a signature is of."""
    return "\n".join(("crowdfl request 1", method, target, time, digest)).encode()


def _prove(key: SigningKey, method: str, target: str, body: bytes, now: float) -> tuple[str, str]:
    digest, time = hashlib.sha256(body).hexdigest(), str(int(now))
    return f'time="{time}", signature="{key.sign(signed_text(method, target, time, digest)).hex()}"', digest
