"""Requests that wait for the same thing: worked on together, answered each by itself."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from crowdfl.errors import ServiceUnavailable, StoreUnavailable
from crowdfl.services.apps.sp_uploads import Batches


class Work:
    """Doubles numbers once its gate is open; odd ones are refused. Notes the batches it was given."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, int]] = []
        self.at_once = self.most_at_once = 0
        self.failing = False
        self.gate, self._lock = threading.Event(), threading.Lock()

    def __call__(self, key: str, items: Sequence[int]) -> list[int | Exception]:
        """One batch."""
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.batches.append((key, len(items)))
        self.gate.wait(5)
        with self._lock:
            self.at_once -= 1
        if self.failing:
            raise StoreUnavailable("the disk is gone")
        return [ValueError(f"odd {item}") if item % 2 else 2 * item for item in items]


def asked(work: Work, *wishes: tuple[str, int], patience: float = 0.2) -> list[int | BaseException]:
    """Everything asked for at once; the gate opens after a while."""

    async def ask() -> list[int | BaseException]:
        batches: Batches[str, int, int] = Batches(work)
        asyncio.get_running_loop().call_later(patience, work.gate.set)
        answers = await asyncio.gather(*(batches.run(*wish) for wish in wishes), return_exceptions=True)
        assert batches._tasks == batches._waiting == {}
        return answers

    return asyncio.run(ask())


def test_those_who_wait_share_batches_and_each_gets_its_own_answer():
    """The first batch takes who is there, the others wait in batches of a bounded size, two at a time."""
    work = Work()
    assert asked(work, *(("t", n) for n in range(0, 200, 2)), patience=1.0) == [2 * n for n in range(0, 200, 2)]
    sizes = [size for _, size in work.batches]
    assert sum(sizes) == 100
    assert max(sizes) == 16
    assert len(sizes) < 12
    assert work.most_at_once == 2


def test_a_refusal_is_told_to_whoever_asked():
    """And to nobody else."""
    answers = asked(Work(), *(("t", n) for n in range(20)))
    assert [str(a) if n % 2 else a for n, a in enumerate(answers)] == [
        f"odd {n}" if n % 2 else 2 * n for n in range(20)
    ]


def test_a_failure_is_told_to_everyone_in_the_batch_and_the_next_goes_on():
    """Nobody is told that something is durable which is not."""
    work = Work()
    work.failing = True
    assert all(isinstance(answer, StoreUnavailable) for answer in asked(work, ("t", 2), ("t", 4), ("t", 6)))
    work.failing = False
    assert asked(work, ("t", 8)) == [16]


def test_batches_are_of_one_key():
    """Two rounds do not mix."""
    work = Work()
    assert asked(work, ("a", 2), ("b", 4), ("a", 6), ("b", 8)) == [4, 8, 12, 16]
    assert {key for key, _ in work.batches} == {"a", "b"}
    assert sum(size for key, size in work.batches if key == "a") == 2


def test_one_who_gives_up_keeps_nobody_waiting():
    """A request that was cancelled meanwhile is passed over."""
    work = Work()

    async def ask() -> int:
        batches: Batches[str, int, int] = Batches(work)
        impatient = asyncio.ensure_future(batches.run("t", 2))
        patient = asyncio.ensure_future(batches.run("t", 4))
        await asyncio.sleep(0.05)
        impatient.cancel()
        work.gate.set()
        answer = await patient
        with pytest.raises(asyncio.CancelledError):
            await impatient
        return answer

    assert asyncio.run(ask()) == 8


def test_one_who_comes_as_all_batches_end_is_not_forgotten():
    """Between the end of the last batch and the loop's notice of it."""
    gate: asyncio.Event

    class Gated(Batches[str, int, int]):
        async def _outcomes(self, key: str, items: Sequence[int]) -> Sequence[int | Exception]:
            await gate.wait()
            return [2 * item for item in items]

    async def ask() -> list[int]:
        nonlocal gate
        gate = asyncio.Event()
        batches = Gated(Work())

        async def late() -> int:
            await gate.wait()
            return await batches.run("t", 6)

        first = asyncio.ensure_future(batches.run("t", 2))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(batches.run("t", 4))
        await asyncio.sleep(0.05)
        third = asyncio.ensure_future(late())
        await asyncio.sleep(0.05)
        gate.set()
        return await asyncio.wait_for(asyncio.gather(first, second, third), 5)

    assert asyncio.run(ask()) == [4, 8, 12]


def test_work_that_answers_too_little_keeps_nobody_waiting():
    """A mistake of the program's, told to those in the batch; who came meanwhile goes on."""
    work = Work()

    async def ask() -> list[int | BaseException]:
        batches: Batches[str, int, int] = Batches(lambda key, items: work(key, items)[: 8 if len(items) > 8 else None])
        work.gate.set()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        return await asyncio.gather(*(batches.run("t", 2 * n) for n in range(20)), return_exceptions=True)

    answers = asyncio.run(asyncio.wait_for(ask(), 10))
    assert answers[:8] == [4 * n for n in range(8)]
    assert {type(answer) for answer in answers[8:16]} == {ServiceUnavailable}
    assert answers[16:] == [4 * n for n in range(16, 20)]
