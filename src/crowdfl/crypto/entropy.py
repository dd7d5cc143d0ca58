"""Where secret bytes come from: the operating system.

Only `crypto.randomness` draws here; the library that seals draws its ephemeral keys by itself. A run that must repeat itself
puts another source in its place for as long as it lasts: the simulation alone can (`simulation.replayed`), which an import
contract holds. No setting, argument or variable reaches this.
"""

import os
from collections.abc import Callable
from contextvars import ContextVar

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

SOURCE: ContextVar[Callable[[int], bytes]] = ContextVar("SOURCE", default=os.urandom)

Seal = Callable[[X25519PublicKey, bytes, bytes], bytes]
"""To a reader, a plaintext, bound to a context."""

REPLAYED_SEAL: ContextVar[Seal | None] = ContextVar("REPLAYED_SEAL", default=None)
"""What seals in the library's place, in a run that repeats itself."""
