"""What a process has checked once, and reads again from its own disk: known by a keyed tag, at a tenth of the cost of a hash.

The key is drawn by each process for itself, a child that was forked included, and never leaves it: what another process has
written is hashed. Every part of a file has a nonce of its own, counted, so that none serves two contents.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass, field
from itertools import count

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from crowdfl.crypto.long_bytes import Wire
from crowdfl.crypto.randomness import secret_bytes

_KEY_BYTES, _NONCE_BYTES = 32, 12
_MOST = 1 << 17  # files; of those that were not read for longest, the tags are forgotten


@dataclass(frozen=True)
class Mark:
    """The tag of a part of a file, under this process's key."""

    length: int
    nonce: bytes
    tag: bytes = field(repr=False)


class OwnFiles:
    """The tags of one process."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        # From the operating system itself, also in a run that repeats itself: the key is the process's, not the run's.
        self._key = AES(Context().run(secret_bytes, _KEY_BYTES))
        self._nonces = count(1)
        self._marks: OrderedDict[str, tuple[Mark, ...]] = OrderedDict()

    def mark(self, part: Wire) -> Mark:
        nonce = next(self._nonces).to_bytes(_NONCE_BYTES, "big")
        cipher = Cipher(self._key, GCM(nonce)).encryptor()
        cipher.authenticate_additional_data(part)
        cipher.finalize()
        return Mark(len(part), nonce, cipher.tag)

    def keep(self, name: str, marks: Sequence[Mark]) -> None:
        """What was checked lies under this name, in parts that follow each other."""
        with self._lock:
            self._marks[name] = tuple(marks)
            self._marks.move_to_end(name)
            while len(self._marks) > self._most:
                self._marks.popitem(last=False)

    def knows(self, name: str, data: Wire) -> bool | None:
        """Whether these are the bytes that were checked; None if this process has checked none of this name."""
        with self._lock:
            marks = self._marks.get(name)
        if marks is None:
            return None
        view, place = memoryview(data), 0
        if len(view) != sum(mark.length for mark in marks):
            return False
        for mark in marks:
            if not self._fits(mark, view[place : place + mark.length]):
                return False
            place += mark.length
        return True

    def forget(self, name: str) -> None:
        with self._lock:
            self._marks.pop(name, None)

    def _fits(self, mark: Mark, part: memoryview) -> bool:
        cipher = Cipher(self._key, GCM(mark.nonce, mark.tag)).decryptor()
        cipher.authenticate_additional_data(part)
        try:
            cipher.finalize()
        except InvalidTag:
            return False
        return True

    def __repr__(self) -> str:
        return f"OwnFiles({len(self._marks)})"


CHECKED = OwnFiles()
"""What this process has checked, by its names in the store: none is hashed twice."""
