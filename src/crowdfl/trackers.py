"""Where the rounds of a campaign are logged in other programs: each function here makes an `on_round` for `crowdfl.simulate`.

crowdfl.simulate(..., on_round=crowdfl.trackers.tensorboard("runs/first"))
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

from crowdfl.errors import PackageMissing
from crowdfl.results import RoundOfResult

OnRound = Callable[[RoundOfResult], None]


def tensorboard(folder: str | os.PathLike[str]) -> OnRound:
    """Write each number of a round as a point of a curve: `tensorboard --logdir FOLDER` shows them while rounds go on."""
    writer = _package("tensorboard.summary").Writer(os.fspath(folder))

    def log(done: RoundOfResult) -> None:
        for name, value in _numbers(done).items():
            writer.add_scalar(name, value, step=done.number)
        writer.flush()  # nobody says when it is the last

    return log


def mlflow() -> OnRound:
    """Log into the run of MLflow that is under way, or one that it begins; where runs are kept, `mlflow` itself is told."""
    package = _package("mlflow")
    return lambda done: package.log_metrics(_numbers(done), step=done.number)


def wandb(**options: Any) -> OnRound:  # noqa: ANN401 -- those of `wandb.init`
    """Log into the run of Weights & Biases that is under way, or into `wandb.init(**options)`."""
    package = _package("wandb")
    run = package.run or package.init(**options)
    return lambda done: run.log(_numbers(done), step=done.number)


def _numbers(done: RoundOfResult) -> dict[str, float]:
    """The round's row, but for its number: metrics, people, times and bytes; with `epsilon` also what noise cost and did."""
    return {name: value for name, value in done.row().items() if name != "round"}


def _package(module: str) -> Any:  # noqa: ANN401
    name = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != name:
            raise
        raise PackageMissing(f"`crowdfl.trackers.{name}` needs a package: `pip install 'crowdfl[{name}]'`") from None
