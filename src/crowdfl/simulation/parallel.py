"""People who train side by side: a simulation's workers, each a process of its own with its share of the people.

Workers are forked: they inherit functions and data as they are, also those of a notebook, which no other process could load.
Somebody's work is always done by the same worker, so that what a function keeps in that person's data is there in the next
round. Only arrays and results travel.
"""

import multiprocessing
import os
import pickle  # between this process and its own children
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from crowdfl.errors import LearningError, SettingsError, WorkerDied
from crowdfl.learning.functions import FunctionRaised, FunctionTrainer, loaded_data, samples_of
from crowdfl.learning.models.shape import Weights

_GONE = 5.0  # seconds until a worker that was told to end is killed


def devices_of(device: str | Sequence[str] | None) -> list[str]:
    """What workers take turns with; "cuda" stands for every GPU that torch sees."""
    asked = ["cpu"] if device is None else [device] if isinstance(device, str) else list(device)
    if not asked or not all(isinstance(one, str) and one for one in asked):
        raise SettingsError(
            f'`device` is {device!r}; expected "cpu", "cuda", a name such as "cuda:1", or a list of them'
        )
    gpus: list[str] = []
    if any(one.startswith("cuda") for one in asked):
        try:
            import torch
        except ModuleNotFoundError:
            raise SettingsError("`device` names a GPU, and torch is not installed") from None
        gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    found = [one for name in asked for one in (gpus if name == "cuda" else [name])]
    if wrong := [one for one in found if one.startswith("cuda") and one not in gpus] or ([] if found else ["cuda"]):
        raise SettingsError(f"`device` names {wrong[0]}, and torch sees {', '.join(gpus) or 'no GPU'} here")
    return found


class ParallelTrainer(FunctionTrainer):
    """A person whose functions run here, or in a worker; the same either way."""

    workers: "Workers"
    load: Callable[[str], Any] | None = None  # of data that is a function of the name
    loaded: int | None = None  # samples in it, once it was there

    def begin(self, what: str, arrays: Weights, number: int) -> None:
        """Ahead of time, where there is a worker for it; `train` or `evaluate` then has the result."""
        self.workers.begin(self, what, arrays, number)

    def train(self, arrays: Weights, _settings: Mapping[str, Any], number: int) -> tuple[Weights, int]:
        (weights, _), self.samples, self.metrics, self._counts, self.loaded = self.workers.result(
            self, "train", arrays, number
        )
        return weights, self.counted(self.samples or 0, f"{self.person}, round {number}")

    def evaluate(self, arrays: Weights, number: int) -> dict[str, float]:
        chosen = self.workers.evaluated(number)
        if chosen is not None and self.person not in chosen:
            return {}
        self.workers.begin_all("evaluate", arrays, number)
        found: dict[str, float]
        found, *_, self.loaded = self.workers.result(self, "evaluate", arrays, number)
        return found

    @property
    def weight(self) -> float:
        return self.samples or self.loaded or super().weight

    def work(
        self, what: str, arrays: Weights, number: int
    ) -> tuple[Any, float | None, Mapping[str, float], dict[str, Any], int | None]:
        """In whichever process: the result, and what this person keeps."""
        with self._with_data(), _seeded(self.info(number).seed):
            result = super().train(arrays, {}, number) if what == "train" else super().evaluate(arrays, number)
        return result, self.samples, self.metrics, self._counts, self.loaded

    @contextmanager
    def _with_data(self) -> Iterator[None]:
        """Data that is loaded is here for as long as it is used."""
        if self.load is None:
            yield
            return
        self.data = loaded_data(self.load, self.person)
        self.loaded = samples_of(self.data)
        try:
            yield
        finally:
            self.data = None

    def work_from(self, kept: Mapping[str, Any], what: str, arrays: Weights, number: int) -> tuple[Any, ...]:
        self._counts = dict(kept)
        return self.work(what, arrays, number)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The generators that programs share, as of a program of its own for each training: then its place does not matter."""
    torch = sys.modules.get("torch")
    before = random.getstate(), np.random.get_state(), torch and torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if torch is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        if torch is not None and before[2] is not None:
            torch.set_rng_state(before[2])


class Trainers(Mapping[str, ParallelTrainer]):
    """Everyone's, each made when it is asked for: of a hundred thousand people a few are drawn."""

    def __init__(self, names: Iterable[str], make: Callable[[str], ParallelTrainer]) -> None:
        self._names, self._make = dict.fromkeys(names), make
        self._device, self.units = "cpu", 1
        self._workers: Workers | None = None
        self.made: dict[str, ParallelTrainer] = {}

    def __getitem__(self, name: str) -> ParallelTrainer:
        if name not in self.made:
            if name not in self._names:
                raise KeyError(name)
            self.made[name] = self._settled(self._make(name))
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def settle(self, workers: "Workers | None", device: str) -> None:
        """Where all of them work."""
        self._workers, self._device = workers, device
        for trainer in self.made.values():
            self._settled(trainer)

    def count(self, units: int) -> None:
        """What a weight of 1 is counted as."""
        self.units = units
        for trainer in self.made.values():
            trainer.units = units

    def _settled(self, trainer: ParallelTrainer) -> ParallelTrainer:
        if self._workers is not None:
            trainer.workers = self._workers
        trainer.device, trainer.units = self._device, self.units
        return trainer


class Workers(ExitStack):
    """So many processes; with None, everything is done here, when it is asked for."""

    def __init__(self, count: int | None, device: str | Sequence[str] | None) -> None:
        super().__init__()
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise SettingsError(f"`workers` is {count!r}; expected how many people train at once, 1 or more, or None")
        if count is not None and "fork" not in multiprocessing.get_all_start_methods():
            raise SettingsError("`workers` needs a system that can fork, such as Linux: leave it out here")
        self._count = count
        self._devices = devices_of(device)
        self._workers: list[_Worker] = []
        self._places: dict[str, int] = {}
        self._trainers: Mapping[str, ParallelTrainer] = {}
        self._begun: dict[tuple[str, str, int], Callable[[], Any]] = {}
        self._all_begun: set[tuple[str, int]] = set()
        self._pickled: tuple[Weights, bytes] | None = None
        self.evaluated: Callable[[int], Collection[str] | None] = lambda _number: None

    def start(self, trainers: Trainers) -> None:
        """From here on; all that the functions need is there."""
        self._trainers = trainers
        trainers.settle(self, self._devices[0])
        if self._count is None:
            return
        _require_unused_gpu(self._devices)
        for number in range(min(self._count, len(trainers))):
            device = self._devices[number % len(self._devices)]
            self._workers.append(self.enter_context(_Worker(trainers, device, [one.pipe for one in self._workers])))
        for worker in self._workers:
            worker.listen()
        self._places = {name: place % len(self._workers) for place, name in enumerate(trainers)}

    def begin(self, trainer: ParallelTrainer, what: str, arrays: Weights, number: int) -> None:
        if self._workers:
            worker = self._workers[self._places[trainer.person]]
            if self._pickled is None or self._pickled[0] is not arrays:  # everyone starts from the same
                self._pickled = arrays, pickle.dumps(arrays)
            self._begun[trainer.person, what, number] = worker.submit(trainer, what, self._pickled[1], number)

    def begin_all(self, what: str, arrays: Weights, number: int) -> None:
        """For everyone who evaluates this round, at the first one's."""
        if not self._workers or (what, number) in self._all_begun:
            return
        self._all_begun.add((what, number))
        chosen = self.evaluated(number)
        for name in self._trainers if chosen is None else chosen:
            self.begin(self._trainers[name], what, arrays, number)

    def result(self, trainer: ParallelTrainer, what: str, arrays: Weights, number: int) -> Any:  # noqa: ANN401
        key = trainer.person, what, number
        if self._workers and key not in self._begun:
            self.begin(trainer, what, arrays, number)
        begun = self._begun.pop(key, None)
        return trainer.work(what, arrays, number) if begun is None else begun()


def _require_unused_gpu(devices: Sequence[str]) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized() and any(one.startswith("cuda") for one in devices):
        raise SettingsError(
            "a GPU was used in this process before, and workers cannot share it: make the initial model on the CPU and move "
            "it in `train`, after a restart; or leave `workers` out"
        )


class _Worker:
    """One process, and the thread that waits for its answers. It knows everyone, and is asked for its own."""

    def __init__(self, trainers: Trainers, device: str, others: Sequence[Connection]) -> None:
        fork = multiprocessing.get_context("fork")
        self.pipe, theirs = fork.Pipe()
        foreign = [*others, self.pipe]
        self._process = fork.Process(target=_serve, args=(theirs, trainers, device, foreign), daemon=True)
        with warnings.catch_warnings():  # newer Pythons warn of threads; the child uses none of them
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()
        self._thread: ThreadPoolExecutor | None = None

    def listen(self) -> None:
        """After the last fork: a thread must not be in the middle of something then."""
        self._thread = ThreadPoolExecutor(1)

    def submit(self, trainer: ParallelTrainer, what: str, arrays: bytes, number: int) -> Callable[[], Any]:
        job = pickle.dumps((trainer.person, dict(trainer.own), what, number))
        if self._thread is None:
            raise SettingsError("this worker has ended")
        return self._thread.submit(self._ask, job, arrays, f"{trainer.person}, round {number}").result

    def _ask(self, job: bytes, arrays: bytes, place: str) -> Any:  # noqa: ANN401
        try:
            self.pipe.send_bytes(job)
            self.pipe.send_bytes(arrays)
            is_well, answer = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 -- a child of this process
        except (EOFError, OSError):
            self._process.join(_GONE)
            raise WorkerDied(
                f"{place}: the worker has ended by itself (exit code {self._process.exitcode}; -9: killed, often for memory): "
                "try fewer `workers`"
            ) from None
        if is_well:
            return answer
        raise _as_raised(*answer)

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        self._process.join(_GONE)
        if self._process.is_alive():
            self._process.kill()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self.pipe.close()


def _serve(pipe: Connection, trainers: Trainers, device: str, foreign: Sequence[Connection]) -> None:
    """A worker's life. It ends with its pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    for other in foreign:  # else a worker whose owner was killed would wait for ever
        other.close()
    os.environ["OMP_NUM_THREADS"] = "1"
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    trainers.count(0)  # its parent knows how weights are counted
    trainers.settle(None, device)
    with suppress(EOFError):
        while True:
            name, own, what, number = pickle.loads(pipe.recv_bytes())  # noqa: S301 -- of its parent
            arrays = pickle.loads(pipe.recv_bytes())  # noqa: S301
            pipe.send_bytes(_answer(trainers[name], own, what, arrays, number))


def _answer(trainer: ParallelTrainer, *job: Any) -> bytes:  # noqa: ANN401
    try:
        return pickle.dumps((True, trainer.work_from(*job)))
    except Exception as error:  # noqa: BLE001 -- told to the parent
        own = error.error if isinstance(error, FunctionRaised) else error
        frames = "".join(traceback.format_exception(own))
        try:
            pickled = pickle.dumps(own)
            pickle.loads(pickled)  # noqa: S301 -- some errors cannot be made again
        except Exception:  # noqa: BLE001
            pickled = pickle.dumps(LearningError(f"{type(own).__name__}: {own}"))
        return pickle.dumps((False, (pickled, isinstance(error, FunctionRaised), frames)))


def _as_raised(pickled: bytes, is_functions: bool, frames: str) -> Exception:
    error: Exception = pickle.loads(pickled)  # noqa: S301
    error.add_note(f"(from CrowdFL: raised in a worker)\n{frames}")
    return FunctionRaised(error) if is_functions else error
