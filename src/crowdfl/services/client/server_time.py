"""A service's clock as its client follows it, once a signature was refused for its time.

A phone whose clock is wrong signs with the time in the reply's `Date`. A service that lies about its time gets signatures for
another moment; it could repeat such a request later, to itself alone: the request names a task and a participant that no other
service takes signatures of. Times more than a day away are not believed: then the person is asked to set the clock.
"""

import math
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

FARTHEST = 86400.0  # seconds that a service's clock may differ from this device's
_NEWS = 60.0  # a smaller difference is no reason for a refusal


@dataclass
class ServerTime:
    """How many seconds a service is ahead of this device; 0 until a refusal says otherwise."""

    ahead: float = 0.0

    def learn(self, date: str | None, now: float) -> bool:
        """Follow the service's clock from now on; False if that changes nothing, or it is too far away to be believed."""
        ahead = _moment(date) - now
        if not abs(ahead) <= FARTHEST or abs(ahead - self.ahead) < _NEWS:
            return False
        self.ahead = ahead
        return True


def _moment(date: str | None) -> float:
    try:
        return parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return math.nan
