"""A campaign with a server step through the roles: everyone who reads holds one state, by its digest, and people can see it."""

import numpy as np
import pytest

from crowdfl.learning.models.learner import Update
from crowdfl.learning.server_steps import PlainStep
from crowdfl.simulation.federation import LocalFederation
from tests.hosts import ONE, Desk, heard, moved_by

SHARES = {"profile": "shares", "lanes": 128, "max_norm": 2.0, "min_participants": 3, "check": "none"}
STEPS = {
    "fedavgm": {"server_step": "fedavgm", "server_rate": 0.5},
    "fedadagrad": {"server_step": "fedadagrad", "server_rate": 0.1},
    "fedadam": {"server_step": "fedadam", "server_rate": 0.02},
    "fedyogi": {"server_step": "fedyogi", "server_rate": 0.02},
}
every_step = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())


def play_round(desk, number, people, *, enough=True):
    """With these, who look at what was before first; whoever is away is not waited for."""
    desk.run()
    for index, person in enumerate(people):
        person.step(moved_by(0.1 + 0.01 * index + 0.02 * number))
    while not desk.sp.store.round(desk.task, number).is_over:
        desk.later(100.0)
    assert desk.sp.store.round(desk.task, number).state == ("rewarded" if enough else "aborted")


def states_in(said):
    return {details["round"]: details["state"] for what, details in said if what == "read"}


@every_step
def test_everyone_holds_the_same_state_round_by_round(tmp_path, step):
    """One restarts in every round, one misses two, one joins late; round 2 is given up; the requester reads at the end."""
    desk = Desk(tmp_path, **SHARES | step | {"rounds": 5, "budget": None})
    first, away, restarts, fourth = desk.invite(4)
    said = [heard(person) for person in desk.crowd]
    play_round(desk, 1, [first, away, restarts])
    play_round(desk, 2, [first, fourth], enough=False)
    restarts._side = None
    play_round(desk, 3, [first, restarts, fourth])
    (late,) = desk.invite(1)[4:]
    said.append(heard(late))
    restarts._side = None
    play_round(desk, 4, [late, restarts, first])
    play_round(desk, 5, [late, away, fourth])
    for person in desk.crowd:
        person._side = None
        person.step(moved_by(0.0))
    desk.requester.model(desk.task)
    states = desk.requester.states(desk.task)
    assert states.keys() == {1, 3, 4, 5}
    for person, told in zip(desk.crowd, said, strict=True):
        assert states_in(told) == {number: states[number] for number in (1, 3, 4)}
        assert person.states() == states_in(told)
        for one, other in zip(person.model(), first.model(), strict=True):
            assert one.tolist() == other.tolist()


@every_step
def test_in_one_process_the_result_has_average_and_model(step):
    """Against the oracle in the clear; whoever trains next starts from the model."""
    fed = LocalFederation(backend=ONE, max_participants=4, max_samples=10, rounds=4, **SHARES | step)
    plain, model = PlainStep.of(fed.settings), [np.zeros((2, 3)), np.zeros(2)]
    for number in range(1, 5):
        trained = {f"p{i}": Update([a + 0.1 * i - 0.05 * number for a in model], i + 1) for i in range(3 + number % 2)}
        result = fed.round(trained)
        samples = [update.samples for update in trained.values()]
        for place in range(len(model)):
            mean = np.average([update.weights[place] for update in trained.values()], axis=0, weights=samples)
            np.testing.assert_allclose(result.average[place], mean, atol=1e-6)
        flat = [np.concatenate([array.reshape(-1) for array in arrays]) for arrays in (model, result.average)]
        wanted = plain.next_model(*flat)
        np.testing.assert_allclose(np.concatenate([a.reshape(-1) for a in result.model]), wanted, atol=5e-6)
        model = result.model
    assert result.state == fed.host.requester.states(fed.task)[4]


def test_without_a_step_the_model_is_the_average():
    fed = LocalFederation(backend=ONE, max_participants=4, max_samples=10, rounds=2, **SHARES)
    result = fed.round({f"p{i}": Update([np.full(3, 0.1 * i)], 2) for i in range(3)})
    assert result.model[0].tolist() == result.average[0].tolist()
    assert result.state is None
    assert fed.host.requester.states(fed.task) == {}
