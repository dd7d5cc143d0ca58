"""What the owner of a task fixes besides the model, so that the server cannot tell one client something else than the rest.

A server that has all clients but one train with a learning rate of 0 would read that one's update off the average. So a
prepared task has its training settings in its definition, and a client's app sees no others. A trial takes the server's.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context

from crowdfl.errors import DocumentError, ModelMismatch, SettingsError

WEIGHT_KEY = "num-examples"  # FedAvg's default
_ROUND = "server-round"  # FedAvg puts it into every configuration
_KINDS = (bool, int, float, str)


@dataclass(frozen=True)
class Agreed:
    """`weight_key`: the metric that is a client's number of samples. `kept`: a digest of the arrays that are not averaged.

    `train_config` and `run_config` are all that a client's app sees of either while it trains; None: whatever the server says.
    """

    weight_key: str = WEIGHT_KEY
    kept: str = ""
    train_config: Mapping[str, Any] | None = field(default=None)
    run_config: Mapping[str, Any] | None = field(default=None)

    @classmethod
    def from_json(cls, found: object) -> "Agreed":
        texts = isinstance(found, dict) and all(isinstance(found.get(name), str) for name in ("weight_key", "kept"))
        if not texts or not isinstance(found, dict):
            raise DocumentError("this task's definition does not say how its clients train: make it anew")
        configs = [found.get(name) for name in ("train_config", "run_config")]
        if not all(one is None or isinstance(one, dict) for one in configs):
            raise DocumentError("this task's definition has settings for its clients that cannot be read")
        return cls(found["weight_key"], found["kept"], *configs)

    def to_json(self) -> dict[str, Any]:
        configs = {"train_config": self.train_config, "run_config": self.run_config}
        return {"weight_key": self.weight_key, "kept": self.kept, **configs}

    def require_kept(self, arrays: ArrayRecord) -> None:
        """Arrays that are not averaged could steer one client's training too."""
        if kept_digest(arrays) != self.kept:
            raise ModelMismatch("the server sent other arrays than the task has, of those that are not averaged")

    def require_config(self, sent: Mapping[str, Any]) -> None:
        """For the server's own sake: a setting that no client would see is an error, and not a riddle."""
        own = {name: value for name, value in sent.items() if name != _ROUND}
        if self.train_config is not None and own != self.train_config:
            raise SettingsError(
                f"the task was prepared with train_config={dict(self.train_config)}, and this server sends {own}: clients take "
                "the task's alone; give the same to `prepare`"
            )

    def configured(self, sent: ConfigRecord, number: int) -> ConfigRecord:
        """What the app is told in a round."""
        return sent if self.train_config is None else ConfigRecord({**self.train_config, _ROUND: number})

    @contextlib.contextmanager
    def in_force(self, context: Context) -> Iterator[None]:
        """While the app works. What is kept of the context afterwards is as Flower knows it."""
        sent = context.run_config
        if self.run_config is not None:
            context.run_config = _Prepared(self.run_config)
        try:
            yield
        finally:
            context.run_config = sent


class _Prepared(dict[str, Any]):
    def __missing__(self, name: str) -> object:
        raise SettingsError(
            f"the app asks for {name!r} of its run configuration, and the task has none: give run_config to `prepare`"
        )


def plain_settings(name: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """As a definition can hold them: numbers, texts, truth values, and lists of these."""
    found = dict(given or {})
    for key, value in found.items():
        parts = value if isinstance(value, list) else [value]
        if not isinstance(key, str) or not all(isinstance(part, _KINDS) for part in parts):
            raise SettingsError(
                f"{name}[{key!r}] is {value!r}: expected a number, a text, a truth value, or a list of one"
            )
    return found


def kept_digest(arrays: ArrayRecord) -> str:
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        head = json.dumps([name, array.dtype, list(array.shape), array.stype, len(array.data)])
        found.update(len(head).to_bytes(8, "big") + head.encode() + array.data)
    return found.hexdigest()
