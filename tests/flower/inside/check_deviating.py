"""A server that deviates: what it tells one client alone, asks for besides, or makes of the papers. Nothing leaves by it."""

import dataclasses
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from safetensors.numpy import load, save

from crowdfl.errors import ProtocolError, SettingsError
from crowdfl.flower import CrowdFLMod, CrowdFLStrategy, crowdfl_mod
from crowdfl.flower.admission import plain_settings
from crowdfl.flower.client_state import NodeInvitation
from crowdfl.flower.mod import _Client
from tests.flower.inside.grid import Replies, ServedGrid, average, distance, initial, make_app

NODES = range(1, 6)
VICTIM = 2


def steered_app(**options) -> ClientApp:
    """It trains as its settings say: a rate from the message, epochs from the run's configuration."""
    app = ClientApp(mods=[CrowdFLMod(**options)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        step = float(message.content["config"]["lr"]) * int(context.run_config["epochs"]) * context.node_id
        arrays = {name: Array(array.numpy() + np.float32(step)) for name, array in message.content["arrays"].items()}
        metrics = MetricRecord({"loss": 1.0, "num-examples": 10, "epochs": 1})
        return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)

    @app.train("other")
    def other(message: Message, _context: Context) -> Message:
        still = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 10})}
        return Message(RecordDict(still), reply_to=message)

    return app


class Prepared(CrowdFLStrategy):
    """As with a task that its owner has prepared: the clients' settings are in its definition."""

    def _made_here(self, *arguments):
        agreed = dataclasses.replace(self._template.agreed, train_config={"lr": 0.1}, run_config={"epochs": 1})
        self._template = dataclasses.replace(self._template, agreed=agreed)
        return super()._made_here(*arguments)


def start() -> ArrayRecord:
    return ArrayRecord({"weight": Array(np.zeros(30, np.float32))})


def steered(
    strategy: type[CrowdFLStrategy], tell: Callable[[Message], None]
) -> tuple[ServedGrid, CrowdFLStrategy, float]:
    """One round of five clients; how far the model has moved."""
    grid = ServedGrid(steered_app(), NODES)
    for context in grid.contexts.values():
        context.run_config = {"epochs": 1}
    grid.tell = tell
    made = strategy(FedAvg(fraction_evaluate=0.0), reveal=True)
    found = made.start(grid, start(), num_rounds=1, train_config=ConfigRecord({"lr": 0.1}))
    return grid, made, float(found.arrays["weight"].numpy()[0]) if found.arrays else 0.0


def isolating(message: Message) -> None:
    """Everyone but the victim is told to stand still: the average would then be the victim's update."""
    if message.metadata.dst_node_id != VICTIM and "config" in message.content:
        message.content["config"] = ConfigRecord({"lr": 0.0, "server-round": 1})


def test_a_server_that_has_the_others_stand_still_reads_an_update_off_the_average_of_a_trial():
    """Why a deployment prepares the settings."""
    assert steered(CrowdFLStrategy, isolating)[2] == pytest.approx(0.1 * VICTIM / len(NODES), abs=1e-5)


def test_clients_of_a_prepared_task_train_as_its_owner_says_whatever_the_server_says():
    grid, strategy, moved = steered(Prepared, isolating)
    assert moved == pytest.approx(0.1 * sum(NODES) / len(NODES), abs=1e-5)
    assert strategy.left_out == {1: {}}
    assert all(context.run_config == {"epochs": 1} for context in grid.contexts.values())  # Flower's again, afterwards


def test_a_run_configuration_of_the_servers_choice_is_not_the_apps():
    def still(message: Message) -> None:
        if message.metadata.dst_node_id != VICTIM:
            grids[0].contexts[message.metadata.dst_node_id].run_config = {"epochs": 0}

    grids = [ServedGrid(steered_app(), NODES)]
    grids[0].tell = still
    strategy = Prepared(FedAvg(fraction_evaluate=0.0), reveal=True)
    found = strategy.start(grids[0], start(), num_rounds=1, train_config=ConfigRecord({"lr": 0.1}))
    assert float(found.arrays["weight"].numpy()[0]) == pytest.approx(0.3, abs=1e-5)


def test_another_of_the_apps_functions_cannot_be_asked_for_in_a_prepared_task():
    def other(message: Message) -> None:
        if message.metadata.dst_node_id == VICTIM and "config" in message.content:
            message.metadata.message_type = "train.other"

    strategy = steered(Prepared, other)[1]
    assert "default function" in strategy.left_out[1][VICTIM]


def test_a_server_that_sends_other_settings_than_the_task_has_is_told_so():
    with pytest.raises(SettingsError, match="give the same to `prepare`"):
        Prepared(FedAvg(), reveal=True).start(
            ServedGrid(steered_app(), NODES), start(), num_rounds=1, train_config=ConfigRecord({"lr": 0.2})
        )
    with pytest.raises(SettingsError, match="train_config"):
        plain_settings("train_config", {"secret": b"bytes"})


def test_an_app_that_needs_a_setting_which_was_not_prepared_says_which():
    class Bare(CrowdFLStrategy):
        def _made_here(self, *arguments):
            agreed = dataclasses.replace(self._template.agreed, train_config={"lr": 0.1}, run_config={})
            self._template = dataclasses.replace(self._template, agreed=agreed)
            return super()._made_here(*arguments)

    left_out = steered(Bare, lambda _message: None)[1].left_out[1]
    assert all("'epochs'" in why and "run_config" in why for why in left_out.values())
    assert set(left_out) == set(NODES)


def test_arrays_that_are_not_averaged_are_the_tasks():
    def other(message: Message) -> None:
        if message.metadata.dst_node_id == VICTIM and "arrays" in message.content:
            message.content["arrays"] = ArrayRecord({"steps": Array(np.array(8))})

    grid = ServedGrid(make_app(mods=[crowdfl_mod]), NODES)
    grid.tell = other
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert list(strategy.left_out[1]) == [VICTIM]
    assert "not averaged" in strategy.left_out[1][VICTIM]


def test_a_server_cannot_choose_which_metric_is_hidden():
    def renamed(message: Message) -> None:
        told = dict(message.content["crowdfl"]) | {"weight-key": "epochs"}
        message.content["crowdfl"] = ConfigRecord(told)

    grid = steered(CrowdFLStrategy, renamed)[0]
    trained = [message for message in grid.seen if b"loss" in message]
    assert len(trained) == len(NODES)
    assert not any(b"num-examples" in message for message in trained)


class Probing:
    """A server that puts a model of its own where the app looks for one: `instead` of the task's, and says where that is; or
    `besides`. Or it asks for `another` of the app's functions."""

    def __init__(self, secret: np.ndarray, way: str) -> None:
        self.probes, self.way = [np.zeros_like(secret), *np.eye(len(secret), dtype=np.float32)], way
        self.losses: list[float] = []

    def tell(self, message: Message) -> None:
        if message.metadata.message_type != "evaluate" or message.metadata.dst_node_id != VICTIM:
            return
        records, probe = dict(message.content), ArrayRecord({"weight": Array(self.probes[len(self.losses)])})
        if self.way == "instead":
            records |= {"elsewhere": records["arrays"], "arrays": probe}
            records["crowdfl"] = ConfigRecord(dict(message.content["crowdfl"]) | {"arrays-key": "elsewhere"})
        elif self.way == "besides":
            records["probe"] = probe
        else:
            message.metadata.message_type = "evaluate.other"
            records["config"] = ConfigRecord({"probe": self.probes[len(self.losses)].tolist()})
        message.content = RecordDict(records)

    def hear(self, replies: Replies) -> Replies:
        reply = replies.get(VICTIM)
        if reply is not None and reply.metadata.message_type.startswith("evaluate") and reply.has_content():
            self.losses += [float(loss) for name, loss in reply.content.get("metrics", {}).items() if name == "loss"]
        return replies


def probed(way: str) -> tuple[list[float], np.ndarray, list[set[str]]]:
    """The losses that a server gets, the client's one sample, and the records that the app was shown in evaluations."""
    shown: list[set[str]] = []
    secret = {node: np.random.default_rng(node).uniform(-1, 1, 4).astype(np.float32) for node in NODES}
    app = ClientApp(mods=[CrowdFLMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        weight = message.content["arrays"]["weight"].numpy()
        arrays = ArrayRecord({"weight": Array(weight + np.float32(0.1) * (secret[context.node_id] - weight))})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        shown.append(set(message.content))
        model = message.content.array_records.get("probe", message.content["arrays"])
        loss = float(((model["weight"].numpy() - secret[context.node_id]) ** 2).sum())
        return Message(RecordDict({"metrics": MetricRecord({"loss": loss, "num-examples": 10})}), reply_to=message)

    @app.evaluate("other")
    def other(message: Message, context: Context) -> Message:
        loss = float(((np.array(message.content["config"]["probe"]) - secret[context.node_id]) ** 2).sum())
        return Message(RecordDict({"metrics": MetricRecord({"loss": loss, "num-examples": 10})}), reply_to=message)

    probing = Probing(secret[VICTIM], way)
    grid = ServedGrid(app, NODES, probing.hear)
    grid.tell = probing.tell
    model = ArrayRecord({"weight": Array(np.zeros(4, np.float32))})
    config = ConfigRecord({"lr": 0.1})
    Prepared(FedAvg(), reveal=True).start(grid, model, num_rounds=len(probing.probes), train_config=config)
    return probing.losses, secret[VICTIM], shown


def read_off(losses: list[float]) -> list[float]:
    """Those of zero and of the unit vectors give a sample."""
    return [(losses[0] + 1 - loss) / 2 for loss in losses[1:]]


@pytest.mark.parametrize("way", ["instead", "besides", "another"])
def test_a_server_cannot_have_models_of_its_own_evaluated(way: str):
    """What is evaluated is the average, or nothing."""
    losses, secret, shown = probed(way)
    assert all(records == {"arrays", "config"} for records in shown)
    assert len(losses) == (5 if way == "besides" else 0)
    assert losses == [] or not np.allclose(read_off(losses), secret, atol=0.1)


@pytest.mark.parametrize("way", ["instead", "besides"])
def test_a_client_that_evaluates_what_it_is_sent_gives_its_data_away(way: str, monkeypatch: pytest.MonkeyPatch):
    built = _Client._plain

    def as_sent(client: _Client, message: Message, model: list[np.ndarray], kind: str, number: int) -> Message:
        return message if kind == "evaluate" else built(client, message, model, kind, number)

    monkeypatch.setattr(_Client, "_plain", as_sent)
    losses, secret, _ = probed(way)
    assert np.allclose(read_off(losses), secret, atol=1e-5)


def test_a_query_shows_the_app_no_arrays_of_the_servers():
    app, seen = ClientApp(mods=[CrowdFLMod()]), []

    @app.query()
    def query(message: Message, _context: Context) -> Message:
        seen.append(sorted(message.content))
        return Message(RecordDict(), reply_to=message)

    content = RecordDict({"arrays": ArrayRecord({"weight": Array(np.zeros(4))}), "config": ConfigRecord({"lr": 1.0})})
    context = ServedGrid(app, [1]).contexts[1]
    app(Message(content, 1, "query"), context)
    assert seen == [["config"]]


class Asked(CrowdFLStrategy):
    """As with a task whose owner has signed what its clients' app sees."""

    query_config: dict[str, object] | None = None

    def _made_here(self, *arguments):
        signed = {"train_config": {}, "run_config": {"epochs": 1}, "query_config": self.query_config}
        self._template = dataclasses.replace(
            self._template, agreed=dataclasses.replace(self._template.agreed, **signed)
        )
        return super()._made_here(*arguments)


def answering() -> ClientApp:
    app = make_app(mods=[CrowdFLMod()])

    @app.query()
    def query(_message: Message, _context: Context) -> Message:
        raise AssertionError("the app was asked")

    return app


def asked(grid: ServedGrid, node: int, kind: str = "query", **config: object) -> Message:
    content = RecordDict({"config": ConfigRecord(config), "metrics": MetricRecord({"from": 18})})
    return grid.app(Message(content, node, kind), grid.contexts[node])


@pytest.mark.parametrize("home", [False, True])
def test_a_prepared_task_answers_the_signed_query_alone(home: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Else a server reads a client's data, one question after the other: each age, say."""
    app, seen = make_app(mods=[CrowdFLMod()]), []

    @app.query()
    def count(message: Message, context: Context) -> Message:
        seen.append(({name: dict(one) for name, one in message.content.items()}, dict(context.run_config)))
        return Message(RecordDict({"metrics": MetricRecord({"count": 3})}), reply_to=message)

    @app.query("other")
    def other(message: Message, _context: Context) -> Message:
        raise AssertionError("this function was asked")

    grid = ServedGrid(app, NODES)
    for node, context in grid.contexts.items():
        if home:
            context.node_config["crowdfl-home"] = str(tmp_path / str(node))
    monkeypatch.setattr(Asked, "query_config", {"from": 18, "to": 90})
    Asked(FedAvg(fraction_evaluate=0.0), reveal=True).start(grid, initial(), num_rounds=1)
    grid.contexts[1].run_config = {"epochs": 99}
    for kind, config in (("query", {"from": 18, "to": 19}), ("query", {}), ("query.other", {"from": 18, "to": 90})):
        with pytest.raises(ProtocolError, match="query"):
            asked(grid, 1, kind, **config)
    assert seen == []
    assert asked(grid, 1, **{"from": 18, "to": 90}).content["metrics"]["count"] == 3
    assert seen == [({"config": {"from": 18, "to": 90}}, {"epochs": 1})]
    assert grid.contexts[1].run_config == {"epochs": 99}


def test_a_prepared_task_without_a_signed_query_answers_none():
    grid = ServedGrid(answering(), NODES)
    Asked(FedAvg(fraction_evaluate=0.0), reveal=True).start(grid, initial(), num_rounds=1)
    with pytest.raises(ProtocolError, match="query_config"):
        asked(grid, 1)


@pytest.mark.parametrize("trial", [False, True])
def test_a_node_answers_no_query_before_it_has_joined(trial: bool, tmp_path: Path):
    """Unless it is one of a trial, and not invited to a task."""
    config: dict[str, object] = {"crowdfl-trial": trial}
    if trial:
        (tmp_path / "invitation.json").write_text(NodeInvitation("0" * 64, "", "https://127.0.0.1:1", "").text())
        config["crowdfl-invitation"] = str(tmp_path / "invitation.json")
    with pytest.raises(ProtocolError, match="has joined"):
        answering()(Message(RecordDict(), 1, "query"), Context(1, 1, config, RecordDict(), {}))


@pytest.mark.parametrize("kind", ["get_parameters", "get_properties", "reconnect"])
def test_a_client_of_the_older_api_shows_no_model_of_its_own(kind: str):
    """`get_parameters` asks such a client for its weights, which its last training may have left there."""
    message = Message(RecordDict(), 1, "query")
    message.metadata.__dict__["_message_type"] = kind
    with pytest.raises(ProtocolError, match=kind):
        crowdfl_mod(message, Context(1, 1, {}, RecordDict(), {}), lambda *_: pytest.fail("the app was asked"))


@pytest.mark.parametrize("kind", ["query", "evaluate"])
def test_only_training_returns_arrays(kind: str):
    app = make_app(mods=[crowdfl_mod])

    @app.query()
    def query(message: Message, _context: Context) -> Message:
        return Message(RecordDict({"arrays": initial()}), reply_to=message)

    if kind == "query":
        message = Message(RecordDict(), 1, "query")
        with pytest.raises(ProtocolError, match="sealed"):
            app(message, Context(1, 1, {"crowdfl-trial": True}, RecordDict(), {}))
        return
    open_handed = ClientApp(mods=[crowdfl_mod])
    open_handed._registered_funcs["train.default"] = app._registered_funcs["train.default"]

    @open_handed.evaluate()
    def evaluate(message: Message, _context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)

    grid = ServedGrid(open_handed, NODES)
    found = CrowdFLStrategy(FedAvg(), reveal=True).start(grid, initial(), num_rounds=1)
    assert distance(found.arrays, average(initial(), NODES)) < 1e-5
    assert found.evaluate_metrics_clientapp == {}


def test_a_refusal_does_not_tell_the_number_of_samples():
    def many(message, context, call_next):
        reply = call_next(message, context)
        if context.node_id == VICTIM:
            reply.content["metrics"] = MetricRecord({"num-examples": 987_654_321})
        return reply

    grid = ServedGrid(make_app(mods=[crowdfl_mod, many]), NODES)
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert "SlotOverflow" in strategy.left_out[1][VICTIM]
    assert not any(b"987654321" in message for message in grid.seen)


def ray(*, actor: str | None) -> types.ModuleType:
    made = types.ModuleType("ray")
    made.is_initialized = lambda: True
    made.get_runtime_context = lambda: types.SimpleNamespace(get_actor_id=lambda: actor)
    return made


def test_a_node_whose_app_uses_ray_is_in_no_simulation(monkeypatch: pytest.MonkeyPatch):
    grid = ServedGrid(make_app(mods=[crowdfl_mod]), NODES)
    for context in grid.contexts.values():
        del context.node_config["crowdfl-trial"]
    monkeypatch.setitem(sys.modules, "ray", ray(actor=None))
    strategy = CrowdFLStrategy(FedAvg(), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert all("does not know KGC's public key" in why for why in strategy.left_out[1].values())
    assert set(strategy.left_out[1]) == set(NODES)


def test_a_round_of_an_endless_number_does_not_keep_a_client_busy():
    def far(message: Message) -> None:
        told = dict(message.content["crowdfl"])
        if message.metadata.dst_node_id == VICTIM and told["number"]:
            message.content["crowdfl"] = ConfigRecord(told | {"number": 2**62})

    grid = ServedGrid(make_app(mods=[crowdfl_mod]), NODES)
    grid.tell = far
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert list(strategy.left_out[1]) == [VICTIM]


def other_initial(told: dict, _kept: dict) -> dict:
    """Weights of the server's choice, for one client alone."""
    if "initial" not in told:
        return told
    return told | {"initial": save({name: np.asarray(array + 1) for name, array in load(told["initial"]).items()})}


def old_publication(told: dict, kept: dict) -> dict:
    """In place of the second average the first one again, which the client has read."""
    if told.get("numbers") == [1]:
        kept["publication"] = told["publications"]
    return told | {"publications": kept["publication"]} if told.get("numbers") == [2] else told


def altered_publication(told: dict, _kept: dict) -> dict:
    if told.get("numbers") != [2]:
        return told
    (right,) = told["publications"]
    return told | {"publications": [right[:100] + bytes([right[100] ^ 1]) + right[101:]]}


def hidden_publication(told: dict, _kept: dict) -> dict:
    """As if the second round had never been."""
    if told.get("numbers") != [2]:
        return told
    return {name: value for name, value in told.items() if name not in ("numbers", "publications", "states")} | {
        "states": "[]"
    }


def other_task(told: dict, _kept: dict) -> dict:
    return told | {"task": "0" * 64}


def other_definition(told: dict, _kept: dict) -> dict:
    """The same task with a smaller crowd."""
    if "definition" not in told:
        return told
    assert '"min_participants":3' in told["definition"]
    return told | {"definition": told["definition"].replace('"min_participants":3', '"min_participants":1')}


LIES = (other_initial, old_publication, altered_publication, hidden_publication, other_task, other_definition)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_client_that_is_lied_to_is_in_no_average(lie: Callable[[dict, dict], dict]):
    """What it was told is in its upload's base, or it says no; the others' average is as it would be."""
    kept: dict = {}

    def tell(message: Message) -> None:
        if message.metadata.dst_node_id == VICTIM:
            message.content["crowdfl"] = ConfigRecord(lie(dict(message.content["crowdfl"]), kept))

    grid = ServedGrid(make_app(mods=[crowdfl_mod]), NODES)
    grid.tell = tell
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
    rounds = 3 if "publication" in lie.__name__ else 1
    found = strategy.start(grid, initial(), num_rounds=rounds)
    assert list(strategy.left_out[rounds]) == [VICTIM]
    model = initial()
    for outcome in strategy.outcomes.values():
        model = average(model, outcome.averaged)
    assert distance(found.arrays, model) < 1e-5


def test_a_client_that_is_asked_twice_makes_one_upload():
    """With other bytes for the same round, the difference of two shares would be known to a server with both."""
    uploads: list[bytes] = []

    class Asking(ServedGrid):
        def _served(self, message: Message) -> Message:
            first, second = super()._served(message), super()._served(message)
            if first.has_content() and "upload" in first.content["crowdfl"]:
                uploads.extend(reply.content["crowdfl"]["upload"] for reply in (first, second))
            return first

    CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True).start(
        Asking(make_app(mods=[crowdfl_mod]), NODES), initial(), num_rounds=1
    )
    assert len(uploads) == 2 * len(NODES)
    assert uploads[::2] == uploads[1::2]
