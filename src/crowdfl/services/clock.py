"""The machine's clock, apart from the services that use it: a requester needs it and none of them."""

import time

__all__ = ["SystemClock"]


class SystemClock:
    """The machine's time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()
