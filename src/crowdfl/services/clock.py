"""The machine's clock, in a module of its own: a requester needs it without the services."""

import time


class SystemClock:
    """Seconds since the epoch, as the machine counts them."""

    def now(self) -> float:
        return time.time()
