"""Seeds that become bytes: one stream for each seed and context."""

from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crowdfl.crypto.randomness import SEED_BYTES

_KEY_BYTES = 32
_BLOCK_BYTES = 16
_ZEROS = memoryview(bytes(1 << 22))  # kept: fresh zeros for every call would take three times as long as AES


class Stream:
    """The bytes of one seed and context, in order: AES-256-CTR, which phones and browsers have in hardware.

    The key is HKDF-SHA-256 of the seed with the context as `info`, without salt; the counter block starts at zero. A seed and a
    context are used for one purpose ever, so that no stream of bytes masks two things.
    """

    def __init__(self, seed: bytes, context: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        self._key = AES(HKDF(SHA256(), _KEY_BYTES, None, context).derive(seed))
        self._cipher = self._from(0)
        self._place = 0

    def take(self, length: int) -> bytes:
        """The next bytes; two calls give what one for both lengths gives."""
        if length < 0:
            raise ValueError(f"no stream gives {length} bytes")
        self._place += length
        return _drawn(self._cipher, length)

    def aside(self, length: int) -> Callable[[int, int], bytes]:
        """The next bytes, to be read in pieces (start, length) when they are needed: the stream goes on behind them."""
        first = self._place
        self._place += length
        self._cipher = self._from(self._place)
        return lambda start, size: _drawn(self._from(first + start), size)

    def _from(self, place: int) -> CipherContext:
        """What is encrypted next is the byte at this place."""
        blocks, within = divmod(place, _BLOCK_BYTES)
        cipher = Cipher(self._key, CTR(blocks.to_bytes(_BLOCK_BYTES, "big"))).encryptor()
        cipher.update(_ZEROS[:within])
        return cipher

    def __repr__(self) -> str:
        return "Stream(secret)"


def _drawn(cipher: CipherContext, length: int) -> bytes:
    if length <= len(_ZEROS):
        return cipher.update(_ZEROS[:length])
    pieces = (min(len(_ZEROS), length - start) for start in range(0, length, len(_ZEROS)))
    return b"".join(cipher.update(_ZEROS[:size]) for size in pieces)


def expand(seed: bytes, context: bytes, length: int) -> bytes:
    """The first bytes of a stream."""
    return Stream(seed, context).take(length)


class Expansion:
    """The same, drawn piece by piece when they are looked at: a long one is never in memory as a whole."""

    def __init__(self, seed: bytes, context: bytes, length: int) -> None:
        self._length = length
        self._drawn = Stream(seed, context).aside(length)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, piece: slice, /) -> bytes:
        first, last, _ = piece.indices(self._length)
        return self._drawn(first, max(0, last - first))

    def __repr__(self) -> str:
        return "Expansion(secret)"
