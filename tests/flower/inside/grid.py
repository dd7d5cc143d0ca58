"""Flower's grid without processes. Every message is bytes on its way; the bytes are kept, as a SuperLink could."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Replies = dict[int, Message]
Change = Callable[[Replies], Replies]


class ServedGrid(Grid):
    """Nodes are numbers; `change` may alter or lose replies, as cheating or failing clients would."""

    def __init__(self, app: ClientApp, nodes: Iterable[int], change: Change = lambda replies: replies) -> None:
        self.app, self.nodes, self.change = app, list(nodes), change
        self.contexts = {node: _context(node) for node in self.nodes}
        self.seen: list[bytes] = []  # what passed through the server
        self.tell: Callable[[Message], None] = lambda _message: None  # what a server that deviates makes of a message
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = (
            1,
            1,
            1,
        )  # a server's process has them from Flower

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *_args: Any, **_options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[Any]:
        return []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        del timeout
        replies = {message.metadata.dst_node_id: self._served(message) for message in messages}
        return [self._carried(reply) for reply in self.change(replies).values()]

    def _served(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        self.tell(message)
        asked = self._carried(message)
        try:
            return self.app(asked, self.contexts.setdefault(node, _context(node)))
        except Exception as wrong:  # noqa: BLE001 -- as a SuperNode does
            return Message(Error(0, f"{type(wrong).__name__}: {wrong}"), reply_to=asked)

    def _carried(self, message: Message) -> Message:
        message.metadata.__dict__["_message_id"] = message.metadata.message_id or f"message {len(self.seen)}"
        carried = message_to_proto(message).SerializeToString()
        self.seen.append(carried)
        return message_from_proto(type(message_to_proto(message)).FromString(carried))


def _context(node: int) -> Context:
    return Context(run_id=1, node_id=node, node_config={"crowdfl-trial": True}, state=RecordDict(), run_config={})


def initial() -> ArrayRecord:
    """A model of float arrays, one a single number, and a counter, which is not averaged."""
    arrays = {
        "scale": np.array(0.5, np.float32),
        "weight": np.linspace(-1, 1, 60, dtype=np.float32).reshape(6, 10),
        "bias": np.zeros(10, np.float32),
    }
    return ArrayRecord({name: Array(array) for name, array in arrays.items()} | {"steps": Array(np.array(7))})


def update(node: int, arrays: ArrayRecord) -> dict[str, Any]:
    """What a node makes of a model: the same each time."""
    rng = np.random.default_rng(node)
    found = {name: array.numpy() for name, array in arrays.items()}
    return {
        name: array + np.asarray(rng.normal(0, 0.1, array.shape), np.float32) if array.dtype == np.float32 else array
        for name, array in found.items()
    }


def samples(node: int) -> int:
    return 10 + 3 * node


def average(arrays: ArrayRecord, nodes: Iterable[int], *, equally: bool = False) -> ArrayRecord:
    """By samples, or each counts once."""
    made = {node: update(node, arrays) for node in nodes}
    counts = {node: 1 if equally else samples(node) for node in made}
    mean = {
        name: sum(one[name].astype(np.float64) * counts[node] for node, one in made.items()) / sum(counts.values())
        for name in arrays
    }
    return ArrayRecord({name: Array(np.asarray(mean[name], arrays[name].dtype)) for name in arrays})


def distance(one: ArrayRecord, other: ArrayRecord) -> float:
    assert list(one) == list(other)
    return max(float(np.abs(one[name].numpy() - other[name].numpy()).max()) for name in one)


def make_app(**options: Any) -> ClientApp:
    """An app as its author writes it; `options` are ClientApp's."""
    app = ClientApp(**options)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        trained = update(context.node_id, message.content["arrays"])
        metrics = MetricRecord({"loss": float(context.node_id), "num-examples": samples(context.node_id)})
        made = ArrayRecord({name: Array(np.asarray(array)) for name, array in trained.items()})
        return Message(RecordDict({"arrays": made, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        total = sum(float(np.sum(array.numpy())) for array in message.content["arrays"].values())
        metrics = MetricRecord({"sum": total, "num-examples": samples(context.node_id)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app
