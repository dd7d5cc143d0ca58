"""KGC and CSP as services of their own: nodes bring invitations, and the server has no key that opens anything."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from crowdfl.errors import CrowdFLError, SettingsError
from crowdfl.flower import CrowdFLStrategy, crowdfl_mod, open_model
from tests.cli.program import call
from tests.flower.inside.grid import ServedGrid, average, distance, initial, make_app, update
from tests.flower.inside.organisations import organisations, prepared

NODES = range(1, 6)


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with organisations(tmp_path_factory.mktemp("organisations")) as made:
        yield made


def invited(task: Path, nodes=NODES) -> ServedGrid:
    """Nodes whose operators got a file each from the owner of the task."""
    grid = ServedGrid(make_app(mods=[crowdfl_mod]), NODES)
    for node in nodes:
        grid.contexts[node].node_config["crowdfl-invitation"] = str(task / f"nodes/node-{node - 1}.json")
    return grid


def test_a_run_with_services_is_sealed_from_its_server_and_the_owner_opens_it(roles: Path, tmp_path: Path):
    task = prepared(roles, tmp_path / "task", len(NODES), budget="5.00")
    grid = invited(task, nodes=(1, 2, 3, 4))  # node 5 knows no KGC
    options = {"csp": roles / "sp/settings.toml", "task": task / "run", "home": tmp_path / "home"}
    with pytest.raises(SettingsError, match="asks 2 nodes"):  # and the task is not used up by it
        CrowdFLStrategy(FedAvg(fraction_train=0.5), **options).start(grid, initial(), num_rounds=2)
    strategy = CrowdFLStrategy(FedAvg(), **options)
    strategy.start(grid, initial(), num_rounds=2)
    assert list(strategy.left_out[1]) == list(strategy.left_out[2]) == [5]
    assert "does not know KGC's public key" in strategy.left_out[1][5]
    for role, state in (("kgc", "ended"), ("csp", "claims")):  # what claims need stays until the last day
        listed = json.loads(call(role, "task", "list", roles / role / "settings.toml", "--json").out)
        assert [one["state"] for one in listed if one["task"] == strategy.federation.task] == [state]
    opened = open_model(roles / "requester/settings.toml", tmp_path / "home/published")
    expected = average(average(initial(), (1, 2, 3, 4)), (1, 2, 3, 4))
    del expected["steps"]
    assert distance(opened, expected) < 1e-5
    kept = strategy.federation.sp
    with pytest.raises(SettingsError, match="no folder of a requester"):  # nothing in the home opens anything
        open_model(tmp_path / "home/requester", tmp_path / "home/published")
    assert not any("requester" in name for name in kept.ports.bundles.listing())
    again = CrowdFLStrategy(FedAvg(), **options | {"home": tmp_path / "again"})
    with pytest.raises(CrowdFLError, match="has ended"):  # a task serves one run
        again.start(invited(task), initial(), num_rounds=2)


def test_with_the_owners_keys_averages_are_opened_on_the_server(roles: Path, tmp_path: Path):
    task = prepared(roles, tmp_path / "task", len(NODES))
    options = {"csp": roles / "sp/settings.toml", "task": task / "run"}
    strategy = CrowdFLStrategy(FedAvg(), reveal=True, requester=roles / "requester/settings.toml", **options)
    found = strategy.start(invited(task), initial(), num_rounds=2)
    assert distance(found.arrays, average(average(initial(), NODES), NODES)) < 1e-5
    sealed = CrowdFLStrategy(FedAvg(), home=tmp_path / "home", **options)
    with pytest.raises(CrowdFLError):
        sealed.start(invited(task), initial(), num_rounds=7)


def cosine(node: int, other: int) -> float:
    made = [update(one, initial()) for one in (node, other)]
    names = [name for name in initial() if name != "steps"]
    flat = [np.concatenate([(one[name] - initial()[name].numpy()).ravel() for name in names]) for one in made]
    return float(flat[0] @ flat[1] / np.linalg.norm(flat[0]) / np.linalg.norm(flat[1]))


def test_with_the_owners_keys_a_reference_is_trained_on_the_server(roles: Path, tmp_path: Path):
    """And without one the prepared task says what is missing, before anything is used up."""
    task = prepared(roles, tmp_path / "task", len(NODES), reference=True, weighting="equal", max_norm=5.0)
    options = {"csp": roles / "sp/settings.toml", "task": task / "run", "home": tmp_path / "home"}
    with pytest.raises(SettingsError, match=r"needs reference=\.\.\."):
        CrowdFLStrategy(FedAvg(), **options).start(invited(task), initial(), num_rounds=1)
    as_node_1 = partial(average, nodes=[1], equally=True)
    options |= {"requester": roles / "requester/settings.toml", "reference": lambda arrays, _number: as_node_1(arrays)}
    strategy = CrowdFLStrategy(FedAvg(), **options)
    strategy.start(invited(task), initial(), num_rounds=1)
    goes = {node: cosine(node, 1) for node in NODES}  # of random updates; none is near a threshold
    assert set(strategy.left_out[1]) == {node for node in NODES if goes[node] < 0}


def test_a_node_invited_to_another_task_stays_out(roles: Path, tmp_path: Path):
    task = prepared(roles, tmp_path / "task", len(NODES), rounds=1)
    other = prepared(roles, tmp_path / "other", len(NODES), rounds=1, decimals=5)
    grid = invited(task)
    grid.contexts[2].node_config["crowdfl-invitation"] = str(other / "nodes/node-1.json")
    strategy = CrowdFLStrategy(FedAvg(), csp=roles / "sp/settings.toml", task=task / "run", home=tmp_path / "home")
    strategy.start(grid, initial(), num_rounds=1)
    assert "InvitationRefused" in strategy.left_out[1][2]


def test_a_run_that_cannot_reach_csp_says_so(roles: Path, tmp_path: Path):
    with pytest.raises(SettingsError, match="settings file of SP"):
        CrowdFLStrategy(FedAvg(), csp="nowhere.toml", task="run", home=tmp_path / "home").start(
            invited(tmp_path), initial(), num_rounds=1
        )
