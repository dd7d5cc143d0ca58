"""What of a server's message reaches a client's app: the task's model, and the settings that its owner has signed.

Nothing here needs Flower, so that `crowdfl audit` can attack it anywhere.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from crowdfl.errors import DocumentError, ModelMismatch, ProtocolError, SettingsError

RECORD = "crowdfl"  # the record that passes between the strategy and the mod
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"  # the forms of Flower's records
TRAINING, AGREED = "flower", "agreed"  # where a task's definition has what is agreed
WEIGHT_KEY = "num-examples"  # FedAvg's default
_ROUND = "server-round"  # FedAvg puts it into every configuration
_KINDS = (bool, int, float, str)
_CONFIGS = ("train_config", "run_config", "query_config")


class _Running(Protocol):
    """Flower's Context, as far as it matters here."""

    run_config: Any


@dataclass(frozen=True)
class Agreed:
    """`weight_key`: the metric that is a client's number of samples. `arrays_key`: the record that the app finds the model in.
    `kept`: a digest of the arrays that are not averaged.

    `train_config` and `run_config` are all that a client's app sees of either while it trains or evaluates; None: whatever the
    server says, of a task that no owner has prepared. `query_config` is the one that a prepared task's clients answer a query
    with; None: they answer none.
    """

    weight_key: str = WEIGHT_KEY
    arrays_key: str = "arrays"
    kept: str = ""
    train_config: Mapping[str, Any] | None = field(default=None)
    run_config: Mapping[str, Any] | None = field(default=None)
    query_config: Mapping[str, Any] | None = field(default=None)

    @classmethod
    def from_json(cls, found: object) -> "Agreed":
        names = ("weight_key", "arrays_key", "kept")
        if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in names):
            raise DocumentError("this task's definition does not say how its clients train: make it anew")
        configs = [found.get(name) for name in _CONFIGS]
        if not all(one is None or isinstance(one, dict) for one in configs):
            raise DocumentError("this task's definition has settings for its clients that cannot be read")
        return cls(*(found[name] for name in names), *configs)

    def to_json(self) -> dict[str, Any]:
        configs = {name: getattr(self, name) for name in _CONFIGS}
        return {"weight_key": self.weight_key, "arrays_key": self.arrays_key, "kept": self.kept, **configs}

    @property
    def is_prepared(self) -> bool:
        """Whether the task's owner has signed what its clients' app sees."""
        return self.train_config is not None

    def require_kept(self, arrays: Mapping[str, Any]) -> None:
        """Arrays that are not averaged could steer one client's training too."""
        if kept_digest(arrays) != self.kept:
            raise ModelMismatch("the server sent other arrays than the task has, of those that are not averaged")

    def require_config(self, sent: Mapping[str, Any], *, training: bool) -> None:
        """For the server's own sake: a setting that no client would see is an error, and not a riddle."""
        own = {name: value for name, value in sent.items() if name != _ROUND}
        if self.train_config is not None and own != self.train_config and (training or own):
            raise SettingsError(
                f"the task was prepared with train_config={dict(self.train_config)}, and this server sends {own}: clients take "
                "the task's alone; give the same to `prepare`"
            )

    def configured(self, sent: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        """What the app is told in a round."""
        return sent if self.train_config is None else {**self.train_config, _ROUND: number}

    @contextlib.contextmanager
    def in_force(self, context: _Running) -> Iterator[None]:
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


def kept_digest(arrays: Mapping[str, Any]) -> str:
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        head = json.dumps([name, array.dtype, list(array.shape), array.stype, len(array.data)])
        found.update(len(head).to_bytes(8, "big") + head.encode() + array.data)
    return found.hexdigest()


def shown_to_app(
    agreed: Agreed,
    kind: str,
    asked: str,
    number: int,
    sent: Mapping[str, tuple[str, Any]],
    model: Callable[[Mapping[str, Any]], Any],
) -> dict[str, Any]:
    """The records of a message to "train" or "evaluate" by, from those that were `sent`: by name, the form and the record.

    This task's model is in the record that its definition names, and no other array is shown: whoever could have a model of its
    own evaluated would read data off the metrics. Nor is another of the app's functions run than the one `asked` for by
    default, where the task's owner has signed the settings. `model` makes the record, from the arrays that are not averaged.
    """
    if agreed.is_prepared and asked != kind:
        raise ProtocolError(
            f"this task's clients {kind} with the app's default function, and the server asks for another one"
        )
    form, found = sent.get(agreed.arrays_key, (ARRAYS, {}))
    kept = found if form == ARRAYS else {}
    agreed.require_kept(kept)
    shown = {agreed.arrays_key: model(kept)}
    for name, (form, record) in sent.items():
        if name in (RECORD, agreed.arrays_key):
            continue
        if form == CONFIG:
            shown[name] = agreed.configured(record, number)
        elif form == METRICS and not agreed.is_prepared:
            shown[name] = record
    return shown


def shown_to_query(agreed: Agreed | None, asked: str, sent: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """The same of a query, which has no round and no model. A prepared task answers one question alone, by the app's default
    function; `agreed` None: a trial, whose clients answer any, and see no arrays."""
    if agreed is None or not agreed.is_prepared:
        return {name: record for name, (form, record) in sent.items() if form != ARRAYS}
    if agreed.query_config is None or asked != "query":
        raise ProtocolError(
            "this task's clients answer no such query: its owner has to sign its configuration (`query_config` of `prepare`), "
            "and the app's default query function answers it"
        )
    shown = {name: record for name, (form, record) in sent.items() if form == CONFIG}
    if any(dict(one) != agreed.query_config for one in shown.values()):
        raise ProtocolError(
            f"this task's clients answer a query with the configuration {dict(agreed.query_config)} alone, which its owner has "
            "signed, and the server sends another"
        )
    return shown
