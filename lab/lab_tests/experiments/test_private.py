"""What noise costs: the experiment's rounds are those of the protocol, and its crowds are what it says."""

import numpy as np
import pytest

import crowdfl
from crowdfl.protocols.shares.round import average
from crowdfl_lab.experiments.private import MEMBERSHIP, MODELS, PRIVACY, PrivateSettings, enough, fed_crowd, models_of
from lab_tests.experiments.running import MADE_UP, run, tiny

SETTINGS = PrivateSettings(rounds=2, windows=3)


def test_a_cell_of_the_grid_is_what_simulate_makes_of_the_same_people(monkeypatch):
    """By the noise that its servers drew, to the last unit; with FedAvgM, round after round."""
    fed = fed_crowd(MADE_UP, MODELS["motion"], 6, SETTINGS.windows, 0)
    draw, drawn = average.discrete_gaussian, []
    monkeypatch.setattr(average, "discrete_gaussian", lambda *given: drawn.append(draw(*given)) or drawn[-1])

    def train(model, place):
        return [model[0] + fed.updates(model[0], SETTINGS.steps, SETTINGS.rate)[place]], 1

    chosen = SETTINGS.task(6, 8.0).model_dump(exclude_none=True)
    names = "weighting", "max_norm", "rounds", "epsilon", "noise", "check", "server_step", "server_momentum"
    given = {name: chosen[name] for name in names}
    start = [np.zeros(fed.parameters)]
    found = crowdfl.simulate(train, None, list(range(6)), initial=start, progress=False, **given)
    assert len(drawn) == 4  # two servers, two rounds
    replayed = models_of(
        fed, SETTINGS, SETTINGS.task(6, 8.0), lambda place, _: drawn[2 * place - 2] + drawn[2 * place - 1]
    )
    assert np.abs(found.model[0] - replayed[-1]).max() <= 2.1 * 10.0 ** -SETTINGS.task(6, 8.0).decimals
    assert np.abs(found.model[0]).max() > 0.1  # there was noise


def test_made_people_have_the_windows_of_one_real_person_and_follow_from_the_seed():
    fed = fed_crowd(MADE_UP, MODELS["motion"], 40, 4, 1)
    again = fed_crowd(MADE_UP, MODELS["motion"], 40, 4, 1)
    assert np.array_equal(fed.inputs, again.inputs)
    real = fed_crowd(MADE_UP, MODELS["motion"], 5, len(MADE_UP.load_person(0).train), 0)
    owned = [{row.tobytes() for row in person} for person in real.inputs]
    assert all(any({row.tobytes() for row in person} <= own for own in owned) for person in fed.inputs)


def test_the_fewest_people_are_those_from_which_on_noise_is_cheap():
    rows = [
        {"model": "motion", "epsilon": 8.0, "servers": 2, "people": n, "cost": c} for n, c in [(10, 0.2), (20, 0.01)]
    ]
    assert enough(rows, "motion", 8.0) == 20
    rows.append({"model": "motion", "epsilon": 8.0, "servers": 2, "people": 30, "cost": 0.05})
    assert enough(rows, "motion", 8.0) is None


@pytest.mark.second
def test_both_experiments_run_to_their_tables(tmp_path):
    small = {"crowds": (5, 12), "epsilons": (1.0, 8.0), "rounds": 2, "windows": 3}
    rows = run(tiny(PRIVACY, **small), tmp_path)
    assert {(row["people"], row["made"]) for row in rows} == {("5", "False"), ("12", "True")}
    central = {row["epsilon"]: float(row["noise"]) for row in rows if (row["servers"], row["people"]) == ("1", "5")}
    both = {
        (row["epsilon"], row["model"]): float(row["noise"])
        for row in rows
        if (row["servers"], row["people"]) == ("2", "5")
    }
    assert all(both[epsilon, "spectral"] == pytest.approx(2**0.5 * one) for epsilon, one in central.items())
    members = run(tiny(MEMBERSHIP, crowds=(4,), epsilons=(1.0,), windows=3, shadows=5, victims=1, real=2), tmp_path)
    assert [row["epsilon"] for row in members] == ["no noise", "1"]
