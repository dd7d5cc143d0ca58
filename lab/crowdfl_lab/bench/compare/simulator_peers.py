"""Run by the peers' own Python, as a plain script: simulates a crowd with one peer and prints one JSON object: its version, the
processor time of a person and round beside training, that of training, and how far the last model is off.

It imports nothing of CrowdFL, and the peers by name, because they are not installed where CrowdFL is type-checked. Everyone's
training adds the same step to the model, so that the last model is known whoever is drawn. The first round, in which programs
start, is not counted.
"""

import argparse
import importlib
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

_LOOKS = 0.1  # seconds between two looks at what other processes have used
_TICKS = os.sysconf("SC_CLK_TCK")


def step_of(parameters: int) -> Any:  # noqa: ANN401 -- an array
    """What training adds."""
    return np.random.default_rng(41).normal(0, 1e-3, parameters)


class _Clock:
    """Processor time of this process and of all that it has started, those that have ended included."""

    def __init__(self, *, starts_others: bool) -> None:
        self._used: dict[int, float] = {}
        self._looking = 0.0  # what that takes itself
        self._starts_others, self._lock = starts_others, threading.Lock()
        if starts_others:
            threading.Thread(target=self._watch, daemon=True).start()

    def now(self) -> float:
        if self._starts_others:
            self._timed_look()
        return time.process_time() - self._looking + sum(self._used.values())

    def _timed_look(self) -> None:
        with self._lock:
            start = time.thread_time()
            self._look()
            self._looking += time.thread_time() - start

    def _watch(self) -> None:
        while True:
            self._timed_look()
            time.sleep(_LOOKS)

    def _look(self) -> None:
        parents: dict[int, int] = {}
        used: dict[int, float] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:  # it has just ended
                    continue
                parents[int(entry.name)] = int(fields[1])
                used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
        for pid in parents:
            if pid in self._used or self._is_ours(pid, parents):
                self._used[pid] = max(used[pid], self._used.get(pid, 0.0))

    @staticmethod
    def _is_ours(pid: int, parents: dict[int, int]) -> bool:
        above = parents.get(pid, 0)
        while above > 1 and above != os.getpid():
            above = parents.get(above, 0)
        return above == os.getpid()


class _Rounds:
    """The clock after each round, and what training took meanwhile."""

    def __init__(self, *, starts_others: bool) -> None:
        self._clock, self.training = _Clock(starts_others=starts_others), 0.0
        self._ends: list[tuple[float, float]] = []

    def ended(self) -> None:
        self._ends.append((self._clock.now(), self.training))

    def answer(self, version: str, model: Any, options: argparse.Namespace) -> dict[str, Any]:  # noqa: ANN401
        (first, trained_first), (last, trained_last) = self._ends[0], self._ends[-1]
        count = options.drawn * (len(self._ends) - 1)
        trained = trained_last - trained_first
        off = float(np.abs(model - len(self._ends) * step_of(options.parameters)).max())
        return {"version": version, "each": (last - first - trained) / count, "training": trained / count, "off": off}


def _pfl(options: argparse.Namespace) -> dict[str, Any]:
    names = ("aggregate.simulate", "algorithm.base", "algorithm.federated_averaging", "callback.base", "data.dataset")
    simulate, base, averaging, callback, dataset = (importlib.import_module(f"pfl.{name}") for name in names)
    federated, sampling = (importlib.import_module(f"pfl.data.{name}") for name in ("federated_dataset", "sampling"))
    metrics, model_base, stats = (importlib.import_module(f"pfl.{name}") for name in ("metrics", "model.base", "stats"))
    hyper = importlib.import_module("pfl.hyperparam.base")
    rounds, step = _Rounds(starts_others=False), step_of(options.parameters)

    class Model(model_base.StatefulModel):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.weights = np.zeros(options.parameters)

        def get_parameters(self, placeholders: Any = None) -> Any:  # noqa: ANN401
            if placeholders is None:
                return stats.MappedVectorStatistics({"weights": self.weights.copy()})
            placeholders["weights"][:] = self.weights
            return placeholders

        def set_parameters(self, w: Any) -> None:  # noqa: ANN401
            self.weights = w["weights"].copy()

        def get_model_difference(self, other_parameters: Any, clone: bool = False) -> Any:  # noqa: ANN401
            del clone
            return stats.MappedVectorStatistics({"weights": self.weights - other_parameters["weights"]})

        def apply_model_update(self, statistics: Any) -> Any:  # noqa: ANN401
            self.weights = self.weights + statistics["weights"]
            return self, metrics.Metrics()

        def evaluate(self, *_: Any) -> Any:  # noqa: ANN401
            return metrics.Metrics()

        def save(self, dir_path: str) -> None: ...
        def load(self, dir_path: str) -> None: ...

    class Averaging(averaging.FederatedAveraging):  # type: ignore[misc, name-defined]
        def train_one_user(self, initial: Any, model: Any, *_: Any) -> Any:  # noqa: ANN401
            start = time.process_time()
            model.weights = model.weights + step
            rounds.training += time.process_time() - start
            return model.get_model_difference(initial), metrics.Metrics()

    class Noted(callback.TrainingProcessCallback):  # type: ignore[misc, name-defined]
        def after_central_iteration(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401
            rounds.ended()
            return False, metrics.Metrics()

    people = [str(number) for number in range(options.people)]
    data = federated.FederatedDataset(
        lambda who: dataset.Dataset((np.arange(10),), user_id=who), sampling.get_user_sampler("minimize_reuse", people)
    )
    algorithm = base.NNAlgorithmParams(
        central_num_iterations=options.rounds,
        evaluation_frequency=options.rounds + 1,
        train_cohort_size=options.drawn,
        val_cohort_size=None,
    )
    trained = hyper.NNTrainHyperParams(local_batch_size=None, local_num_epochs=1, local_learning_rate=0.1)
    backend = simulate.SimulatedBackend(training_data=data, val_data=data)
    model = Averaging().run(algorithm, backend, Model(), trained, callbacks=[Noted()], send_metrics_to_platform=False)
    return rounds.answer(importlib.import_module("importlib.metadata").version("pfl"), model.weights, options)


def _flower(options: argparse.Namespace) -> dict[str, Any]:
    logging.disable(logging.CRITICAL)  # stdout is for the one object
    os.environ["RAY_DEDUP_LOGS"] = "0"
    app, client, server, simulation = (
        importlib.import_module(f"flwr.{name}") for name in ("app", "clientapp", "serverapp", "simulation")
    )
    strategy = importlib.import_module("flwr.serverapp.strategy")
    rounds, step = _Rounds(starts_others=True), step_of(options.parameters)
    clients, servers = client.ClientApp(), server.ServerApp()
    found: list[Any] = []

    @clients.train()  # type: ignore[untyped-decorator]
    def train(message: Any, _context: Any) -> Any:  # noqa: ANN401
        (weights,) = message.content["arrays"].to_numpy_ndarrays()
        start = time.process_time()
        weights = weights + step
        spent = time.process_time() - start
        arrays = app.ArrayRecord([weights])
        told = app.MetricRecord({"num-examples": 10, "spent": spent})
        return app.Message(content=app.RecordDict({"arrays": arrays, "metrics": told}), reply_to=message)

    class Noted(strategy.FedAvg):  # type: ignore[misc, name-defined]
        def aggregate_train(self, server_round: int, replies: Any) -> Any:  # noqa: ANN401
            replies = list(replies)
            rounds.training += sum(reply.content["metrics"]["spent"] for reply in replies)
            result = super().aggregate_train(server_round, replies)
            rounds.ended()
            return result

    @servers.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, _context: Any) -> None:  # noqa: ANN401
        share = options.drawn / options.people
        averaging = Noted(fraction_train=share, fraction_evaluate=0.0, min_available_nodes=options.people)
        result = averaging.start(grid, app.ArrayRecord([np.zeros(options.parameters)]), num_rounds=options.rounds)
        found.extend(result.arrays.to_numpy_ndarrays())

    config = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"log_to_driver": False}}
    simulation.run_simulation(servers, clients, num_supernodes=options.people, backend_config=config)
    return rounds.answer(importlib.import_module("importlib.metadata").version("flwr"), found[0], options)


_SIMULATORS = {"pfl": _pfl, "flower": _flower}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=tuple(_SIMULATORS))
    for name in ("parameters", "people", "drawn", "rounds"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args()
    kept = os.dup(1)
    os.dup2(2, 1)  # what others print goes elsewhere
    answer = _SIMULATORS[options.peer](options)
    sys.stdout.flush()
    os.dup2(kept, 1)
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
