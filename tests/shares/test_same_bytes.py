"""Every process of a `shares` task begins anew at every exchange: both servers say the same bytes again, and nothing else."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from crowdfl.protocols.messages import Message
from crowdfl.protocols.shares.round.manifest import StepRequest
from tests.shares.crowd import BUDGET, Crowd, along, next_model

STEPS = {"equal": 6, "samples": 10, "distance": 15}
SAMPLES = {"0": 3, "1": 4, "2": 5, "3": 6}


class BadWire:
    """Between SP and CSP. Of each step the first request is lost, and the first answer; each time everybody is started anew."""

    def __init__(self) -> None:
        self.host: Any = None
        self.csp: Any = None
        self.requests: dict[tuple[int, int], set[bytes]] = defaultdict(set)
        self.replies: dict[tuple[int, int], set[bytes]] = defaultdict(set)
        self.times: dict[tuple[int, int], int] = defaultdict(int)
        self.last: dict[tuple[int, int], bytes] = {}
        self.is_good = False  # loses nothing

    def between(self, csp: Any) -> "BadWire":
        self.csp = csp
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.csp, name)

    def answer(self, task: str, request: bytes, _longest: int = 0) -> bytes:
        if Message.kind_of(request) != StepRequest.kind:
            return bytes(self.csp.answer(task, request))
        message = StepRequest.from_bytes(request, self.host.shape.limits(10**7))
        step = message.round_number, message.step
        self.requests[step].add(request)
        self.times[step] += 1
        self.last[step] = request
        if self.times[step] == 1 and not self.is_good:
            raise ConnectionError("the request was lost")
        reply = bytes(self.csp.answer(task, request))
        self.replies[step].add(reply)
        if self.times[step] == 2 and not self.is_good:
            raise ConnectionError("the answer was lost")
        return reply


def play_on(crowd: Crowd) -> None:
    """Until SP comes to rest; after each failure everything is built anew from what is on the disk."""
    for _ in range(200):
        try:
            if not crowd.sp.tick():
                return
        except ConnectionError:
            crowd.restart()
            crowd.clock.time += 61  # the lease of the one that died
    pytest.fail("SP never comes to rest")


@pytest.mark.parametrize(
    "pay", ["equal", *(pytest.param(r, marks=pytest.mark.second) for r in ("samples", "distance"))]
)
def test_a_restart_of_everything_at_every_exchange_sends_the_same_bytes(pay: str):
    """In two rounds, one of which has a cheating phone: one request and one reply for each step, whatever happens between."""
    wire = BadWire()
    crowd = Crowd(4, pay=pay, rounds=2, window=1e6, host={"wire": wire.between})
    wire.host, base = crowd, crowd.start()
    for number, people in ((1, 4), (2, 3)):
        changes = along(number, [0.5, 0.25, 0.75, 1.0][:people])
        samples = {who: SAMPLES[who] for who in changes}
        crowd.train(number, changes, samples)
        if people == 3:
            crowd.cheat("3", number, [0, 10**6] + [0] * 6, 5)
        play_on(crowd)
        base = next_model(base, changes, samples)
        assert crowd.states[number - 1] == "rewarded"
        assert crowd.units(number) == base
        rewards = crowd.rewards(number, list(changes))
        assert BUDGET - 2 * people <= sum(rewards) <= BUDGET
        if pay == "equal":
            assert rewards == [BUDGET // people] * people
        if pay == "samples":
            assert np.allclose(rewards, [BUDGET * s / sum(samples.values()) for s in samples.values()], atol=8)
    assert sorted(wire.requests) == [(n, step) for n in (1, 2) for step in range(1, STEPS[pay] + 1)]
    assert {len(said) for said in (*wire.requests.values(), *wire.replies.values())} == {1}
    assert set(wire.times.values()) == {3}
    claims = [
        person.claim(without_missing=pay != "equal") for person in crowd.people.values()
    ]  # the last has no word of CSP's
    assert min(claims) > 0
