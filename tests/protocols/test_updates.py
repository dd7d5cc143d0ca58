"""Update: what a participant trained is copied, whatever form it has."""

import numpy as np
import pytest

from crowdfl import Update
from crowdfl.errors import EncodingError, ModelMismatch
from tests.protocols.driving import federation

SHARES = {"profile": "shares", "check": "none", "pay": "none", "lanes": 0, "max_participants": 4}


def test_repro_updates_of_one_model_that_is_trained_on_stay_what_they_were():
    """Four updates that shared one array's memory became the last one, and the average was wrong."""
    model, updates = [np.zeros(2)], {}
    for number in range(1, 5):
        model[0] += 1.0
        updates[f"p{number}"] = Update(model, 1)
    assert federation(**SHARES).round(updates).average[0].tolist() == [2.5, 2.5]


def test_dictionaries_are_averaged_by_name():
    """Whatever order they come in; counts are left out."""
    updates = {
        "p1": Update({"w": np.full(2, 1.0), "b": 0.5, "steps": 3}, 1),
        "p2": Update({"b": 0.5, "w": np.full(2, 2.0), "steps": 4}, 1),
        "p3": Update({"w": np.full(2, 3.0), "b": 0.5}, 1),
    }
    assert updates["p1"].names == ("w", "b")
    average = federation(**SHARES).round(updates).average
    assert [array.tolist() for array in average] == [[2.0, 2.0], 0.5]


def test_other_names_are_another_model():
    fed, good = federation(**SHARES), Update({"w": np.zeros(2)}, 1)
    with pytest.raises(ModelMismatch, match="the update of p2 does not match the model"):
        fed.round({"p1": good, "p2": Update({"v": np.zeros(2)}, 1), "p3": good})


def test_what_cannot_be_taken_is_named_at_once():
    """Not in the round, where nobody knows whose it was."""
    with pytest.raises(EncodingError, match="array 1 holds object"):
        Update([np.zeros(2), np.array([None, 1.0])], 3)


@pytest.mark.second
def test_repro_updates_of_one_torch_network_stay_what_they_were():
    """A state_dict is a view of the network's memory."""
    torch = pytest.importorskip("torch")
    network, updates = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False), torch.nn.BatchNorm1d(1)), {}
    for number in range(1, 5):
        with torch.no_grad():
            network[0].weight.fill_(number)
        updates[f"p{number}"] = Update(network.state_dict(), 1)
    assert updates["p1"].names[0] == "0.weight"
    assert federation(**SHARES).round(updates).average[0].tolist() == [[2.5, 2.5]]
