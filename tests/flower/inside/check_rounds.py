"""Rounds of a run: as FedAvg has them, with clients that come and go, sealed unless it is asked otherwise."""

import random
import re
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp import mod as mods_of_flower
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, arrays_size_mod, fixedclipping_mod, message_size_mod
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi

from crowdfl.errors import FormatError, ModelMismatch, NotReady, SettingsError
from crowdfl.flower import CrowdFLMod, CrowdFLStrategy, crowdfl_mod, open_model
from crowdfl.flower.client_state import open_blobs
from crowdfl.protocols.shares.round import average as noisy
from tests.flower.inside.grid import ServedGrid, average, distance, initial, make_app, samples

NODES = range(1, 6)
CLOSE = 1e-5
PAGE = Path(__file__).parents[3] / "docs/flower.md"


def protected(**options):
    return ServedGrid(make_app(mods=[CrowdFLMod(**options)]), NODES)


def test_the_average_is_fedavgs():
    plain = FedAvg().start(ServedGrid(make_app(), NODES), initial(), num_rounds=2)
    strategy = CrowdFLStrategy(FedAvg(), reveal=True)
    found = strategy.start(protected(), initial(), num_rounds=2)
    assert distance(found.arrays, plain.arrays) < CLOSE
    assert distance(found.arrays, initial()) > 0.01  # it has moved
    types = [{name: array.dtype for name, array in arrays.items()} for arrays in (found.arrays, initial())]
    assert types[0] == types[1]
    sums = found.evaluate_metrics_clientapp, plain.evaluate_metrics_clientapp
    for number in (1, 2):  # clients evaluate the last average too
        assert float(sums[0][number]["sum"]) == pytest.approx(float(sums[1][number]["sum"]), abs=1e-3)
    assert found.train_metrics_clientapp[2]["loss"] == pytest.approx(3.0)  # of nodes 1 to 5, each counts once
    assert found.train_metrics_clientapp[2]["crowdfl-averaged"] == 5
    assert strategy.left_out == {1: {}, 2: {}}


def test_where_everyone_counts_once_it_is_the_mean():
    """One that declares far more samples than the others moves it no further."""
    settings = {"weighting": "equal", "max_norm": 5.0}
    strategy = CrowdFLStrategy(FedAvg(), reveal=True, **settings)
    found = strategy.start(protected(), initial(), num_rounds=2)
    expected = average(average(initial(), NODES, equally=True), NODES, equally=True)
    assert distance(found.arrays, expected) < CLOSE
    assert distance(found.arrays, average(average(initial(), NODES), NODES)) > 100 * CLOSE
    assert strategy.left_out == {1: {}, 2: {}}


def test_with_epsilon_the_average_has_both_servers_noise_and_nothing_else(monkeypatch):
    """A crowd that is too small for it says so, unless told otherwise."""
    draw, drawn = noisy.discrete_gaussian, []
    monkeypatch.setattr(noisy, "discrete_gaussian", lambda *given: drawn.append(draw(*given)) or drawn[-1])
    settings = {"weighting": "equal", "max_norm": 5.0, "epsilon": 8.0, "delta": 1e-6}
    with pytest.raises(SettingsError, match="noise of length"):
        CrowdFLStrategy(FedAvg(), reveal=True, **settings).start(protected(), initial(), num_rounds=1)
    strategy = CrowdFLStrategy(FedAvg(), reveal=True, noise="any", **settings)
    found = strategy.start(protected(), initial(), num_rounds=1)
    assert len(drawn) == 2
    expected = average(initial(), NODES, equally=True)
    noise = (drawn[0] + drawn[1]) / len(NODES) / 10**4  # decimals: the longest update has at most 2^16 units
    names = [name for name in initial() if name != "steps"]
    change = [(found.arrays[name].numpy() - expected[name].numpy()).reshape(-1) for name in names]
    assert np.abs(np.concatenate(change) - noise).max() < 2e-4
    assert np.abs(noise).max() > 1
    told = found.train_metrics_clientapp[1]
    assert told["crowdfl-noise-length"] == pytest.approx(told["crowdfl-noise-deviation"] * len(noise) ** 0.5)
    moved = [(found.arrays[name].numpy() - initial()[name].numpy()).reshape(-1) for name in names]
    assert told["crowdfl-change-length"] == pytest.approx(float(np.linalg.norm(np.concatenate(moved))), rel=1e-3)
    assert told["crowdfl-noise-share"] == min(1, (told["crowdfl-noise-length"] / told["crowdfl-change-length"]) ** 2)
    assert (told["crowdfl-charged"], told["crowdfl-max-norm"]) == (sorted(NODES), 5.0)
    assert (told["crowdfl-epsilon"], told["crowdfl-delta"]) == (strategy.privacy.spent["1"], 1e-6)
    assert 0 < told["crowdfl-epsilon"] < 8 == strategy.privacy.charged["1"]


def test_a_server_that_cannot_read_says_what_noise_costs_and_is(tmp_path: Path):
    """Its share of the change is for whoever reads the averages."""
    settings = {"weighting": "equal", "max_norm": 5.0, "epsilon": 8.0, "noise": "any"}
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), home=tmp_path / "home", **settings)
    told = strategy.start(protected(), initial(), num_rounds=2).train_metrics_clientapp
    assert 0 < told[1]["crowdfl-epsilon"] < told[2]["crowdfl-epsilon"] <= 8
    assert told[2]["crowdfl-noise-deviation"] > 0
    assert "crowdfl-noise-share" not in told[2]
    assert strategy.privacy.spent == {str(node): told[2]["crowdfl-epsilon"] for node in NODES}


def forward(arrays: ArrayRecord, _number: int = 0, by: float = 0.1) -> ArrayRecord:
    """Everything that is averaged, by the same."""
    moved = {name: np.asarray(array.numpy() + (name != "steps") * by, array.dtype) for name, array in arrays.items()}
    return ArrayRecord({name: Array(array) for name, array in moved.items()})


def test_a_node_that_goes_against_the_owners_own_data_is_left_out():
    """The owner trains in the server's process, where the keys of a trial are; node 5 goes back where all others go forward."""
    app = ClientApp(mods=[CrowdFLMod()])

    @app.train()
    def train(message, context):
        trained = forward(message.content["arrays"], by=-0.1 if context.node_id == 5 else 0.1)
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True, reference=forward, max_norm=5.0)
    found = strategy.start(ServedGrid(app, NODES), initial(), num_rounds=2)
    assert [list(out) for out in strategy.left_out.values()] == [[5], [5]]
    assert "not in line with the task" in strategy.left_out[1][5]
    assert distance(found.arrays, forward(initial(), by=0.2)) < CLOSE


def test_a_reference_without_what_it_needs_is_refused(tmp_path: Path):
    settings = {"reference": True, "weighting": "equal"}
    with pytest.raises(SettingsError, match="keys of the task's owner"):
        CrowdFLStrategy(FedAvg(), csp="sp.toml", task=tmp_path, home=tmp_path, reference=forward)
    with pytest.raises(SettingsError, match="`reference` is a function"):
        CrowdFLStrategy(FedAvg(), home=tmp_path, **settings)


def test_some_clients_a_round_and_those_who_come_later_read_what_they_have_missed():
    grid = ServedGrid(make_app(mods=[crowdfl_mod]), NODES)

    def change(replies):  # after each exchange: node 1 goes, node 9 comes
        if any("upload" in reply.content.config_records["crowdfl"] for reply in replies.values()):
            grid.nodes = [2, 3, 4, 5, 9]
        return replies

    grid.change = change
    random.seed(3)
    strategy = CrowdFLStrategy(FedAvg(fraction_train=0.6, fraction_evaluate=0.0), reveal=True)
    found = strategy.start(grid, initial(), num_rounds=4)
    model, seen = initial(), set()
    for number in (1, 2, 3, 4):
        nodes = strategy.outcomes[number].averaged
        assert len(nodes) == 3
        seen |= set(nodes)
        model = average(model, nodes)
    assert 9 in seen  # else nobody had to catch up
    assert distance(found.arrays, model) < CLOSE


def test_without_reveal_only_the_owner_of_the_model_opens_it(tmp_path: Path):
    strategy = CrowdFLStrategy(FedAvg(), home=tmp_path)
    found = strategy.start(protected(), initial(), num_rounds=2)
    with pytest.raises(NotReady, match="open_model"):
        found.arrays.to_torch_state_dict()
    assert not found.arrays
    opened = open_model(tmp_path / "requester", tmp_path / "published")
    expected = average(average(initial(), NODES), NODES)
    del expected["steps"]  # what is not averaged is nobody's secret, and the app has it
    assert distance(opened, expected) < CLOSE
    with pytest.raises(SettingsError, match="another run"):
        CrowdFLStrategy(FedAvg(), home=tmp_path).start(protected(), initial(), num_rounds=2)


def test_each_client_learns_its_own_reward_and_the_server_the_budget():
    grid = ServedGrid(make_app(mods=[crowdfl_mod]), NODES)
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True, budget="5.00")
    found = strategy.start(grid, initial(), num_rounds=2)
    earned = [dict(context.state["crowdfl.rewards"]) for context in grid.contexts.values()]
    for name in ("round-1", "round-2"):  # the last one too, though nobody evaluates
        assert all(one[name] > 0 for one in earned)
        assert sum(one[name] for one in earned) <= 5_000_000
    assert found.train_metrics_clientapp[1]["crowdfl-budget-millionths"] == 5_000_000


def test_keys_lie_in_the_folder_that_a_node_names(tmp_path: Path):
    grid = protected()
    for node, context in grid.contexts.items():
        context.node_config["crowdfl-home"] = str(tmp_path / str(node))
    CrowdFLStrategy(FedAvg(), reveal=True).start(grid, initial(), num_rounds=1)
    for node, context in grid.contexts.items():
        assert list(context.state.config_records) == ["crowdfl.joined"]  # the task, and no key
        (keys,) = (tmp_path / str(node)).glob("*/keys")
        assert keys.stat().st_mode & 0o077 == 0


def test_a_client_that_has_lost_its_keys_enrols_again():
    grid = protected()
    asked = []

    def change(replies):
        asked.append(set(replies))
        if len(asked) == 3:  # after the first evaluation
            grid.contexts[2].state.clear()
        return replies

    grid.change = change
    strategy = CrowdFLStrategy(FedAvg(), reveal=True)
    strategy.start(grid, initial(), num_rounds=3)
    assert "lost its keys" in strategy.left_out[2][2]
    assert set(strategy.outcomes[3].averaged) == set(NODES)


def test_too_few_replies_leave_the_model_as_it_was():
    grid = protected()
    grid.change = lambda replies: dict(list(replies.items())[:2])
    strategy = CrowdFLStrategy(FedAvg(), reveal=True)
    found = strategy.start(grid, initial(), num_rounds=1)
    assert distance(found.arrays, initial()) == 0  # never an empty model
    assert strategy.outcomes[1].number is None
    assert len(strategy.left_out[1]) == 3


def test_a_run_with_fewer_nodes_than_an_average_needs_ends_before_it_begins():
    grid = ServedGrid(make_app(mods=[crowdfl_mod]), [1, 2])
    with pytest.raises(SettingsError, match="asks 2 nodes, and an average is of at least 3: start more nodes"):
        CrowdFLStrategy(FedAvg(), reveal=True).start(grid, initial(), num_rounds=2)
    assert grid.seen == []
    with pytest.raises(SettingsError, match="asks 2 nodes"):  # of five
        CrowdFLStrategy(FedAvg(fraction_train=0.4), reveal=True).start(protected(), initial(), num_rounds=2)


def test_with_enough_nodes_asked_for_flower_waits_for_them():
    grid = protected()
    here = iter([[1, 2], [1, 2], [1, 2], [1, 2]])
    grid.get_node_ids = lambda: next(here, list(NODES))
    strategy = CrowdFLStrategy(FedAvg(min_train_nodes=3, fraction_evaluate=0.0), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert len(strategy.outcomes[1].averaged) == 3


def test_evaluations_are_of_those_sampled_and_metrics_are_averaged_by_functions_of_the_apps():
    seen = []

    def largest(records, key):
        seen.append([dict(next(iter(record.metric_records.values()))) for record in records])
        return MetricRecord({"largest": max(one.get("loss", one.get("sum", 0.0)) for one in seen[-1]), "key": len(key)})

    inner = FedAvg(fraction_train=0.6, fraction_evaluate=0.4)
    inner.train_metrics_aggr_fn = inner.evaluate_metrics_aggr_fn = largest
    strategy = CrowdFLStrategy(inner, reveal=True)
    found = strategy.start(protected(), initial(), num_rounds=1)
    trained, evaluated = seen
    assert [len(trained), len(evaluated)] == [3, 2]
    assert found.train_metrics_clientapp[1]["largest"] == max(strategy.outcomes[1].averaged)
    assert {one["num-examples"] for one in trained} == {1}  # each counts once
    assert {one["num-examples"] for one in evaluated} <= {samples(node) for node in NODES}
    assert "largest" in found.evaluate_metrics_clientapp[1]


def test_metrics_of_training_are_weighted_where_every_client_shows_its_number_of_samples():
    grid = protected(train_metrics="weighted")
    found = CrowdFLStrategy(FedAvg(), reveal=True).start(grid, initial(), num_rounds=1)
    total = sum(samples(node) for node in NODES)
    mean = sum(node * samples(node) for node in NODES) / total
    assert found.train_metrics_clientapp[1]["loss"] == pytest.approx(mean)
    assert sum(b"num-examples" in message and b"loss" in message for message in grid.seen) == len(NODES)
    with pytest.raises(SettingsError, match="weighted"):
        CrowdFLMod(train_metrics="all")


def test_a_central_evaluation_gets_every_average():
    seen = {}

    def evaluate(number, arrays):
        seen[number] = arrays
        return MetricRecord({"round": number})

    found = CrowdFLStrategy(FedAvg(), reveal=True).start(protected(), initial(), num_rounds=2, evaluate_fn=evaluate)
    assert list(seen) == list(found.evaluate_metrics_serverapp) == [0, 1, 2]
    once = average(initial(), NODES)
    assert distance(seen[0], initial()) == 0
    assert distance(seen[1], once) < CLOSE
    assert distance(seen[2], average(once, NODES)) < CLOSE


def test_a_client_with_the_mod_sends_a_plain_server_nothing():
    grid = protected()
    assert not FedAvg().start(grid, initial(), num_rounds=1).arrays
    assert not any(b"num-examples" in message for message in grid.seen)


EXACT = {"decimals": 8, "max_samples": 100, "max_norm": 3.0}
STEPS = {
    "fedavgm": (FedAvgM(server_learning_rate=1.0, server_momentum=0.5), {"server_momentum": 0.5}),
    "fedadagrad": (FedAdagrad(eta=0.1), {"server_rate": 0.1, "server_momentum": 0}),
    "fedyogi": (FedYogi(eta=0.1), {"server_rate": 0.1}),
}


@pytest.mark.parametrize("kind", STEPS)
def test_steps_that_every_reader_takes_are_flowers(kind):
    """The model of Flower's own strategy, whose floats have 24 bits, and which divides by a small root."""
    plain, settings = STEPS[kind]
    expected = plain.start(ServedGrid(make_app(), NODES), initial(), num_rounds=3).arrays
    strategy = CrowdFLStrategy(FedAvg(), reveal=True, server_step=kind, **EXACT, **settings)
    found = strategy.start(protected(), initial(), num_rounds=3).arrays
    assert distance(found, expected) < 20 * CLOSE
    assert distance(found, initial()) > 0.01


def test_fedadam_is_the_papers_which_flower_corrects_in_its_first_rounds():
    corrected = FedAdam(eta=0.1).start(ServedGrid(make_app(), NODES), initial(), num_rounds=1).arrays
    strategy = CrowdFLStrategy(FedAvg(), reveal=True, server_step="fedadam", server_rate=0.1, **EXACT)
    found = strategy.start(protected(), initial(), num_rounds=1).arrays
    ratio = (1 - 0.99**2) ** 0.5 / (1 - 0.9**2)  # what Flower multiplies the first rate by
    moved = [one["weight"].numpy() - initial()["weight"].numpy() for one in (found, corrected)]
    assert np.abs(ratio * moved[0] - moved[1]).max() < 20 * CLOSE


def rows() -> dict[str, str]:
    """What docs/flower.md says of each name of Flower's."""
    cells = [line.split("|")[1:3] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return {name: word.split()[0].strip(".,:") for first, word in cells for name in re.findall(r"`(\w+)`", first)}


def test_the_page_says_of_every_strategy_whether_it_works():
    told = rows()
    for name in set(strategies.__all__) - {"Result", "Strategy"}:
        made = getattr(strategies, name)
        strategy = FedProx(proximal_mu=0.1) if made is FedProx else made.__new__(made)
        if told[name] == "yes":
            assert CrowdFLStrategy(strategy, reveal=True)
        else:
            assert told[name] == "refused"
            with pytest.raises(SettingsError, match=r"single update|goes around a FedAvg"):
                CrowdFLStrategy(strategy, reveal=True)


def test_settings_that_do_not_fit_together_are_refused():
    for wrong, words in (
        ({}, "nobody could read the model"),
        ({"max_nrom": 2.0}, "unknown setting `max_nrom`.*did you mean `max_norm`"),
        ({"csp": "sp.toml", "reveal": True}, "task="),
        ({"task": "run", "reveal": True}, "csp="),
        ({"csp": "sp.toml", "task": "run", "reveal": True}, "requester="),
        ({"csp": "sp.toml", "task": "run", "home": "here", "budget": "1.00"}, "budget"),
    ):
        with pytest.raises(SettingsError, match=words):
            CrowdFLStrategy(FedAvg(), **wrong)
    with pytest.raises(SettingsError, match="evaluate_fn"):
        CrowdFLStrategy(FedAvg(), home="here").start(protected(), initial(), evaluate_fn=lambda _n, _a: None)
    with pytest.raises(SettingsError, match="profile"):
        CrowdFLStrategy(FedAvg(), reveal=True, profile="paper").start(protected(), initial())
    with pytest.raises(SettingsError, match="`key_bits` would do nothing in this task"):
        CrowdFLStrategy(FedAvg(), reveal=True, key_bits=2048).start(protected(), initial())


def test_a_node_asks_for_more_company_than_the_task_has():
    grid = protected()
    grid.contexts[2].node_config["crowdfl-least-participants"] = 10
    strategy = CrowdFLStrategy(FedAvg(), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert "TooFewParticipants" in strategy.left_out[1][2]


def test_a_node_that_knows_another_kgc_sends_nothing():
    grid = protected()
    grid.contexts[2].node_config["crowdfl-kgc-key"] = "00" * 32
    strategy = CrowdFLStrategy(FedAvg(), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert "KeyMismatch" in strategy.left_out[1][2]


def test_training_metrics_can_stay_at_home():
    found = CrowdFLStrategy(FedAvg(), reveal=True).start(protected(train_metrics=False), initial(), num_rounds=1)
    assert "loss" not in found.train_metrics_clientapp[1]


def test_an_app_that_returns_no_samples_is_named():
    def empty(message, context, call_next):
        reply = call_next(message, context)
        if context.node_id == 2 and reply.content.array_records:
            reply.content = RecordDict(
                {"arrays": reply.content["arrays"], "metrics": MetricRecord({"num-examples": 0})}
            )
        return reply

    grid = ServedGrid(make_app(mods=[crowdfl_mod, empty]), NODES)
    strategy = CrowdFLStrategy(FedAvg(), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert "no samples" in strategy.left_out[1][2]


def test_a_server_cannot_talk_a_node_into_a_trial():
    grid = protected()
    del grid.contexts[2].node_config["crowdfl-trial"]
    strategy = CrowdFLStrategy(FedAvg(), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert "does not know KGC's public key" in strategy.left_out[1][2]
    assert 2 not in strategy.outcomes[1].averaged


def test_one_client_with_odd_metrics_does_not_end_the_run():
    def odd(message, context, call_next):
        reply = call_next(message, context)
        if context.node_id == 2:
            reply.content = RecordDict({"other": MetricRecord({"x": [1, 2]}), **reply.content.array_records})
        return reply

    grid = ServedGrid(make_app(mods=[odd, crowdfl_mod]), NODES)
    grid.change = lambda replies: replies
    strategy = CrowdFLStrategy(FedAvg(), reveal=True)
    strategy.start(grid, initial(), num_rounds=1)
    assert "lacks CrowdFL's mod" in strategy.left_out[1][2]  # it has thrown away what the mod added

    def kept(message, context, call_next):
        reply = call_next(message, context)
        if context.node_id == 2 and "evaluate" in message.metadata.message_type:
            reply.content["more"] = MetricRecord({"x": [1, 2]})
        return reply

    grid = ServedGrid(make_app(mods=[kept, crowdfl_mod]), NODES)
    found = CrowdFLStrategy(FedAvg(), reveal=True).start(grid, initial(), num_rounds=1)
    assert found.arrays
    assert found.evaluate_metrics_clientapp == {}


def test_flowers_own_mods_go_with_it_noise_goes_after_it():
    noise = LocalDpMod(clipping_norm=5.0, sensitivity=1e-9, epsilon=10.0, delta=1e-5)
    counted = [message_size_mod, crowdfl_mod, message_size_mod, arrays_size_mod]
    for mods, averaged in ((counted, 5), ([crowdfl_mod, noise], 5), ([noise, crowdfl_mod], 0)):
        strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
        strategy.start(ServedGrid(make_app(mods=mods), NODES), initial(), num_rounds=1)
        assert len(strategy.outcomes[1].averaged) == averaged
    # Before CrowdFL's it finds no arrays, and nothing leaves without noise.
    assert "LocalDpMod" in strategy.left_out[1][1]
    for mod in (fixedclipping_mod, adaptiveclipping_mod):  # these wait for a strategy that sends a norm
        strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
        strategy.start(ServedGrid(make_app(mods=[crowdfl_mod, mod]), NODES), initial(), num_rounds=1)
        assert all(mod.__name__ in why for why in strategy.left_out[1].values()), strategy.left_out
    worked = {"LocalDpMod", "arrays_size_mod", "message_size_mod"}
    told = rows()
    assert {name: told[name] for name in mods_of_flower.__all__} == {
        name: "yes" if name in worked else "refused" for name in mods_of_flower.__all__
    }


def test_an_app_of_the_older_api_is_in_no_average():
    class Older(NumPyClient):
        def fit(self, parameters, config):
            del config
            return parameters, 10, {}

    app = ClientApp(client_fn=lambda _context: Older().to_client(), mods=[crowdfl_mod])
    grid = ServedGrid(app, NODES)
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
    found = strategy.start(grid, initial(), num_rounds=1)
    assert set(strategy.left_out[1]) == set(NODES)
    assert distance(found.arrays, initial()) == 0


def test_weights_of_an_evaluation_that_add_up_to_nothing_do_not_end_the_run():
    def negative(message, context, call_next):
        reply = call_next(message, context)
        if context.node_id == 2 and "evaluate" in message.metadata.message_type:
            others = sum(samples(node) for node in NODES if node != 2)
            reply.content["metrics"] = MetricRecord({"sum": 1.0, "num-examples": -others})
        return reply

    grid = ServedGrid(make_app(mods=[negative, crowdfl_mod]), NODES)
    found = CrowdFLStrategy(FedAvg(), reveal=True).start(grid, initial(), num_rounds=1)
    assert distance(found.arrays, average(initial(), NODES)) < CLOSE


def test_arrays_without_entries_stay_as_they_were():
    start = initial()
    start["none"] = Array(np.zeros((0, 3), np.float32))
    found = CrowdFLStrategy(FedAvg(), reveal=True).start(protected(), start, num_rounds=1)
    assert found.arrays["none"].numpy().shape == (0, 3)
    del found.arrays["none"]
    assert distance(found.arrays, average(initial(), NODES)) < CLOSE


def test_a_model_that_cannot_be_averaged_is_refused_at_once():
    odd = {
        "NaN": Array(np.full(3, np.nan, np.float32)),
        "bfloat16": Array("bfloat16", (2,), "numpy.ndarray", b"1234"),
        "no floating-point": Array(np.zeros(3, np.int64)),
    }
    for words, array in odd.items():
        with pytest.raises(ModelMismatch, match=words):
            CrowdFLStrategy(FedAvg(), reveal=True).start(protected(), ArrayRecord({"odd": array}), num_rounds=1)


def test_a_node_cannot_use_up_the_invitations_of_others():
    grid = protected()

    def forgetful(replies):
        grid.contexts[2].state.clear()
        return replies

    grid.change = forgetful
    strategy = CrowdFLStrategy(FedAvg(fraction_evaluate=0.0), reveal=True)
    strategy.start(grid, initial(), num_rounds=6)
    assert all(2 in left for left in strategy.left_out.values())
    assert "no invitation left" in strategy.left_out[6][2]
    assert len(strategy.outcomes[6].averaged) == 4


def test_a_server_cannot_name_a_folder_outside_of_the_nodes_own(tmp_path: Path):
    context = protected().contexts[1]
    context.node_config["crowdfl-home"] = str(tmp_path / "own")
    for task in ("../other", "/etc", "", "A" * 64, "0" * 63):
        with pytest.raises(FormatError):
            open_blobs(context, task)
    assert not (tmp_path / "other").exists()


def held(strategy: CrowdFLStrategy) -> tuple[object, ...]:
    """What the three servers of a trial keep of its task: states, and keys."""
    host, task = strategy.federation.servers._host, strategy.federation.task
    stores = [one.store.task(task).state for one in (host.sp, host.csp, host.kgc)]
    keys = [name for name in host.kgc.bundles.listing() if name.endswith((".participant", ".source"))]
    keys += [name for one in (host.sp.ports, host.csp) for name in one.bundles.listing()]
    return *stores, keys


def test_a_run_ends_its_task_everywhere(tmp_path: Path):
    """CSP answers nothing more, and nobody can join: the key that newcomers get is gone."""
    strategy = CrowdFLStrategy(FedAvg(), home=tmp_path)
    strategy.start(protected(), initial(), num_rounds=2)
    assert held(strategy) == ("settled", "ended", "ended", [])
    definition = strategy.federation.sp.core.definition(strategy.federation.task)
    assert definition.claim_window == 3600
    assert distance(open_model(tmp_path / "requester", tmp_path / "published"), without_steps()) < 1e-5


def test_of_a_run_with_rewards_csp_keeps_what_claims_need_and_nothing_else():
    """Until its last day, by its own clock, whatever SP says."""
    strategy = CrowdFLStrategy(FedAvg(), reveal=True, budget="5.00")
    strategy.start(protected(), initial(), num_rounds=1)
    *states, keys = held(strategy)
    assert (states, [name.partition(".")[2] for name in keys]) == (["settled", "claims", "ended"], ["claims.csp"])


def without_steps() -> ArrayRecord:
    expected = average(average(initial(), NODES), NODES)
    del expected["steps"]
    return expected


def test_a_run_that_breaks_off_ends_its_task_too(tmp_path: Path):
    def breaks(_server_round: int, _arrays: ArrayRecord) -> None:
        raise RuntimeError("out of memory")

    strategy = CrowdFLStrategy(FedAvg(), reveal=True)
    with pytest.raises(RuntimeError, match="memory"):
        strategy.start(protected(), initial(), num_rounds=2, evaluate_fn=breaks)
    assert held(strategy) == ("settled", "ended", "ended", [])


def test_who_does_not_hear_that_the_run_is_over_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    strategy = CrowdFLStrategy(FedAvg(), home=tmp_path)
    made = strategy._federation

    def deaf(*given):
        federation = made(*given)
        federation.servers.ending.notices.peers["csp"].sp_key = None
        federation._end_patience, federation._sleep = 0.0, lambda _seconds: None
        return federation

    strategy._federation = deaf
    with caplog.at_level("WARNING", logger="flwr.crowdfl"):
        strategy.start(protected(), initial(), num_rounds=1)
    assert held(strategy)[:3] == ("settled", "open", "ended")
    assert any("CSP was not told" in record.getMessage() for record in caplog.records)
