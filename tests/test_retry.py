"""The one back-off: its delays, its deadline, and what it retries."""

import math

import pytest

from crowdfl.retry import Backoff, no_jitter, retry


class Time:
    def __init__(self) -> None:
        self.now, self.slept = 0.0, []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def backoff(self, **changes) -> Backoff:
        return Backoff(**{"jitter": no_jitter, "sleep": self.sleep, "clock": lambda: self.now} | changes)


@pytest.fixture
def time() -> Time:
    return Time()


class Flaky:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_delays_grow_by_the_factor_up_to_the_longest():
    """Also after very many failures; a service that asks for more time gets it."""
    backoff = Backoff(first=0.5, longest=4.0, factor=2.0, jitter=no_jitter)
    assert [backoff.delay(failures) for failures in (0, 1, 2, 3, 4, 10**6)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert backoff.delay(0, at_least=17.0) == 17.0


def test_jitter_is_asked_for_something_between_half_and_all_of_a_delay():
    asked = []
    backoff = Backoff(first=1.0, longest=3.0, jitter=lambda low, high: asked.append((low, high)) or low)
    assert [backoff.delay(failures) for failures in range(3)] == [0.5, 1.0, 1.5]
    assert asked == [(0.5, 1.0), (1.0, 2.0), (1.5, 3.0)]
    assert len({Backoff().delay(3) for _ in range(20)}) > 1, "by default delays differ"


def test_a_steady_backoff_always_waits_as_long(time):
    backoff = Backoff.steady(0.3, deadline=9.0)
    assert [backoff.delay(failures) for failures in range(4)] == [0.3] * 4
    assert backoff.deadline == 9.0
    assert Backoff.steady(0.3).deadline == math.inf


def test_waiting_ends_before_the_deadline_and_not_after_it(time):
    attempts = time.backoff(first=1.0, deadline=8.0).start()
    assert [attempts.wait() for _ in range(4)] == [True, True, True, False]
    assert time.slept == [1.0, 2.0, 4.0]


def test_the_deadline_counts_from_the_start_of_the_attempts(time):
    """A deadline of zero means one attempt."""
    assert not time.backoff(deadline=0.0).start().wait()
    assert time.slept == []
    backoff = time.backoff(first=1.0, deadline=1.5)
    time.now = 100.0
    attempts = backoff.start()
    assert [attempts.wait(), attempts.wait()] == [True, False]


def test_after_a_success_delays_begin_anew(time):
    attempts = time.backoff(first=1.0).start()
    attempts.wait()
    attempts.wait()
    attempts.succeed()
    assert not attempts.is_resting
    attempts.wait()
    assert time.slept == [1.0, 2.0, 1.0]


def test_a_failure_rests_for_its_delay(time):
    attempts = time.backoff(first=2.0).start()
    assert not attempts.is_resting
    assert attempts.fail() == 2.0
    assert attempts.is_resting
    time.now = 2.0
    assert not attempts.is_resting
    assert attempts.failures == 1


def test_a_call_is_retried_until_it_succeeds_and_each_wait_is_told(time):
    told = []
    found = retry(
        Flaky(OSError("one"), OSError("two")),
        time.backoff(first=1.0),
        OSError,
        tell=lambda error, delay: told.append((str(error), delay)),
    )
    assert found == "done"
    assert told == [("one", 1.0), ("two", 2.0)]
    assert time.slept == [1.0, 2.0]


def test_at_the_deadline_the_last_error_is_raised(time):
    with pytest.raises(OSError, match="two"):
        retry(Flaky(OSError("one"), OSError("two"), OSError("three")), time.backoff(first=1.0, deadline=1.0), OSError)
    assert time.slept == [1.0]


def test_an_error_that_does_not_pass_is_raised_at_once(time):
    with pytest.raises(OSError, match="broken"):
        retry(Flaky(OSError("broken")), time.backoff(), OSError, passing=lambda error: "busy" in str(error))
    with pytest.raises(ValueError, match="other"):
        retry(Flaky(ValueError("other")), time.backoff(), OSError)
    assert time.slept == []
