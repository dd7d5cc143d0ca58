"""So many of something for one address in a time. Addresses are in memory alone, and the oldest are forgotten."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request

from crowdfl.services.http.connections import address_of


@dataclass
class AddressLimit:
    """At most `most` in `seconds`; 0: no limit."""

    most: int
    seconds: float
    addresses: int = 1000  # that are remembered
    now: Callable[[], float] = time.monotonic
    _seen: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def wait(self, address: str) -> int:
        """0, and it counts; or in how many seconds there may be another."""
        if not self.most:
            return 0
        with self._lock:
            seen = self._seen.setdefault(address, deque(maxlen=self.most))
            now = self.now()
            while seen and now - seen[0] > self.seconds:
                seen.popleft()
            if len(seen) == self.most:
                return int(self.seconds - (now - seen[0])) + 1
            seen.append(now)
            self._seen.move_to_end(address)
            while len(self._seen) > self.addresses:
                self._seen.popitem(last=False)
            return 0


def address_in(request: Request) -> str:
    try:
        return address_of((request.client.host,)) if request.client is not None else "unknown"
    except ValueError:  # a name, as tests have it
        return "unknown"
