"""Motion sensors that replay numbers: Chromium's DevTools drive `devicemotion` with them.

Chromium fires `devicemotion` 60 times a second with the newest reading, and rounds it: to 0.1 m/s² and 0.1 °/s.
"""

import time
from collections.abc import Mapping, Sequence

from playwright.sync_api import CDPSession, Page

STANDARD_GRAVITY = 9.80665
RESOLUTION = 0.1  # what Chromium rounds to, in m/s² and °/s
_RATES = {"available": True, "minimumFrequency": 1, "maximumFrequency": 60}

Samples = Sequence[Sequence[float]]


class Motion:
    """The sensors of one page: an accelerometer in m/s², with gravity, and a gyroscope in rad/s if it has one."""

    def __init__(self, page: Page, gyroscope: bool = True) -> None:
        self._session: CDPSession = page.context.new_cdp_session(page)
        self._types = ["accelerometer", "linear-acceleration", *(["gyroscope"] if gyroscope else [])]
        for one in self._types:
            self._session.send("Emulation.setSensorOverrideEnabled", {"enabled": True, "type": one, "metadata": _RATES})

    def show(self, sample: Sequence[float]) -> None:
        """Readings from now on: x, y, z in g, then, for a gyroscope, x, y, z in rad/s."""
        pull = [STANDARD_GRAVITY * one for one in sample[:3]]
        turn = [*sample[3:6]] or [0.0, 0.0, 0.0]
        for one in self._types:
            values = turn if one == "gyroscope" else pull
            reading = {"xyz": dict(zip("xyz", values, strict=True))}
            self._session.send("Emulation.setSensorOverrideReadings", {"type": one, "reading": reading})

    def stop(self) -> None:
        for one in self._types:
            self._session.send("Emulation.setSensorOverrideEnabled", {"enabled": False, "type": one})
        self._session.detach()


def replay(samples: Mapping[Motion, Samples], hertz: float) -> None:
    """Show each phone its samples, all phones at once, `hertz` a second by the clock; a late one is shown all the same."""
    began = time.monotonic()
    for number in range(max(map(len, samples.values()))):
        time.sleep(max(0.0, began + number / hertz - time.monotonic()))
        for motion, its in samples.items():
            if number < len(its):
                motion.show(its[number])
