"""A campaign that goes on: from a result, from a folder, after a crash or an interruption, as if it had never stopped."""

import os
import signal
import sys

import numpy as np
import pytest

import crowdfl
from crowdfl.errors import FormatError, SettingsError
from crowdfl.simulation.clear import fedavg
from tests import subprocesses
from tests.simulate.lines import START, evaluate, people, train

UNCHECKED = {"check": "none"}  # what goes on is the same
STEPS = {"none": {}, "fedavgm": {"server_step": "fedavgm"}, "fedadam": {"server_step": "fedadam", "server_rate": 0.1}}
NAMED = {"w": START[0].astype(np.float32), "b": np.array([0.25]), "calls": np.array(5)}


def train_named(model, own, info):
    """What it draws depends on the round, and the next model on how often somebody has trained."""
    noise = np.random.default_rng(info.seed).normal(scale=0.01, size=3)
    weights, offset = train([model["w"].astype(float) + noise, model["b"]], own)
    return {"w": weights, "b": offset + 0.01 * model["calls"], "calls": model["calls"] + 1}


def run(train=train_named, data=None, **given):
    def evaluate_named(model, own):
        return evaluate((model["w"], model["b"][0]), own)

    usual = {"rounds": 6, "initial": NAMED, "progress": False, "dropouts": {"p1": [2, 4], "p2": 5}} | UNCHECKED
    given = {name: value for name, value in (usual | given).items() if value is not None}
    return crowdfl.simulate(train, evaluate_named, people() if data is None else data, **given)


def facts(result):
    """All that does not depend on the machine."""
    rounds = [(one.number, dict(one.metrics), one.participants, one.dropped) for one in result.history]
    return {name: array.tolist() for name, array in result.model.items()}, rounds, result.settings


@pytest.mark.parametrize("step", STEPS)
def test_three_rounds_and_three_are_six_to_the_last_bit(step, tmp_path):
    """The model, the metrics, the people of each round; from the result itself, and from what it has saved."""
    whole = run(**STEPS[step])
    first = run(rounds=3, dropouts={"p1": 2}, **STEPS[step])
    for resumed in (first, first.save(tmp_path / "campaign")):
        second = run(resume=resumed, initial=None, **dict.fromkeys(UNCHECKED))
        assert facts(second) == facts(whole)
        assert second.model["w"].dtype == np.float32
        assert second.model["calls"] == 5
        assert second.notes == first.notes[:1], "no step has lost its memory"
        assert second.costs["SP"].messages > first.costs["SP"].messages


def test_whom_a_round_draws_goes_on_too():
    drawn = {"data": people(6), "per_round": 4, "dropouts": 0.0}
    whole, first = run(**drawn), run(rounds=3, **drawn)
    second = run(resume=first, **drawn)
    assert [one.sampled for one in second.history] == [one.sampled for one in whole.history]
    assert facts(second) == facts(whole)


def test_the_model_of_an_earlier_campaign_says_that_a_step_starts_at_zero(tmp_path):
    """A result's, or a file's; a first start says nothing."""
    first = run(rounds=1, dropouts=0.0, **STEPS["fedavgm"])
    assert "memory" not in str(first)
    drifts = lambda model, own: {"w": model["w"] + 0.1, "b": model["b"]}  # noqa: E731
    for model in (first.model, first.save(tmp_path / "model.npz")):
        again = run(drifts, rounds=1, dropouts=0.0, initial=model, **STEPS["fedavgm"])
        assert "starts without memory of earlier rounds: `resume=`" in again.notes[-1]
    other = run(rounds=2, dropouts=0.0, initial=None, resume=first, **STEPS["fedadam"])
    assert "starts without memory" in other.notes[-1]


def test_a_folder_is_used_by_one_campaign_at_a_time(tmp_path):
    """Two would overwrite each other's rounds."""
    given = {"rounds": 1, "dropouts": 0.0, "folder": tmp_path}

    def meanwhile(_done):
        with pytest.raises(SettingsError, match="another program is using the folder"):
            run(**given)

    assert run(on_round=meanwhile, **given).model["w"].tolist() == run(**given).model["w"].tolist()


CHILD = """
import os, signal, sys
from tests.simulate.test_resume import run, STEPS
def on_round(done):
    if done.number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
run(folder=sys.argv[1], on_round=on_round, **STEPS["fedadam"])
"""


def test_a_campaign_that_was_killed_goes_on_by_the_same_call(tmp_path):
    """While it was told of round 3, which is kept; run once more, nothing is left to do, and nobody trains."""
    folder, calls = tmp_path / "campaign", []
    killed = subprocesses.run([sys.executable, "-c", CHILD, folder], env=os.environ, timeout=900)
    assert killed.returncode == -signal.SIGKILL

    def train_noted(model, own, info):
        calls.append(info.round)
        return train_named(model, own, info)

    found = run(train_noted, folder=folder, **STEPS["fedadam"])
    assert sorted(set(calls)) == [4, 5, 6]
    assert facts(found) == facts(run(**STEPS["fedadam"]))
    calls.clear()
    again = run(train_noted, folder=folder, **STEPS["fedadam"])
    assert facts(again) == facts(found)
    assert calls == []
    longer = run(train_noted, folder=folder, rounds=7, **STEPS["fedadam"])
    assert set(calls) == {7}
    assert len(longer.history) == 7
    from safetensors.numpy import load_file

    assert load_file(folder / "model.safetensors")["w"].tolist() == longer.model["w"].tolist()


def test_a_campaign_that_was_stopped_stays_so_until_it_is_resumed(tmp_path):
    given = {"folder": tmp_path / "campaign", "on_round": lambda done: done.number == 2}
    stopped, again = run(**given), run(**given)
    assert len(stopped.history) == len(again.history) == 2
    assert "`on_round` has stopped" in again.notes[-1]
    assert facts(run(resume=tmp_path / "campaign"))[:2] == facts(run())[:2]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"data": people(5)}, "its people are p0, p1, p2, p3, not p0, p1, p2, p3, p4"),
        ({"clip": 3.0}, "its `clip` is None, not 3.0"),
        ({"seed": 4}, "its `seed` is 0, not 4"),
        ({"initial": NAMED | {"w": np.zeros(2)}}, r"its model has the arrays w \(3,\), b \(1,\), not w \(2,\)"),
    ],
)
def test_the_folder_of_another_campaign_is_refused(given, named, tmp_path):
    run(rounds=1, dropouts=0.0, folder=tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(SettingsError, match=f"holds another campaign: {named}"):
        run(**{"rounds": 2, "dropouts": 0.0, "folder": tmp_path} | given)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before


def test_what_cannot_be_resumed_is_named(tmp_path):
    result = run(rounds=1, dropouts=0.0)
    with pytest.raises(SettingsError, match="has had 1 rounds: `rounds` counts those too, and is 1"):
        run(resume=result, rounds=1)
    with pytest.raises(SettingsError, match="holds no campaign"):
        run(resume=tmp_path)
    with pytest.raises(SettingsError, match="is a file: a campaign is kept in a folder"):
        run(resume=result.save(tmp_path / "model.npz"))
    result.save(tmp_path / "campaign")
    (tmp_path / "campaign" / "checkpoint.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(FormatError, match="does not hold a campaign that can be read"):
        run(resume=tmp_path / "campaign")


def test_an_interruption_keeps_what_was_done():
    """It is raised all the same; its `result` goes on."""

    def train_interrupted(model, own, info):
        if (info.round, info.person) == (3, "p2"):
            raise KeyboardInterrupt
        return train_named(model, own, info)

    with pytest.raises(KeyboardInterrupt) as raised:
        run(train_interrupted, **STEPS["fedavgm"])
    kept = raised.value.result
    assert [one.number for one in kept.history] == [1, 2]
    assert "2 rounds are kept" in raised.value.__notes__[0]
    assert facts(run(resume=kept, **STEPS["fedavgm"])) == facts(run(**STEPS["fedavgm"]))


@pytest.mark.second
@pytest.mark.parametrize("profile", ["hardened", "shares"])
def test_rewards_and_profiles_are_carried(profile):
    """What was earned before counts; a task of the other profile goes on as well."""
    small = {"key_bits": 768, "decimals": 4, "insecure_test_key": True}
    paid = {"lanes": 128, "budget": "4.00"}
    usual = dict.fromkeys(UNCHECKED) | {"dropouts": 0.0, "insecure_test_key": True}
    first = run(rounds=1, profile=profile, **usual | (small if profile == "hardened" else paid))
    second = run(rounds=2, initial=None, resume=first, **usual)
    assert (second.settings.profile, second.settings.decimals) == (profile, first.settings.decimals)
    assert sum(second.rewards.values()) == (8 if profile == "shares" else 0)
    assert [one.number for one in second.history] == [1, 2]


def test_an_error_keeps_what_was_done():
    """A function's, in a worker too, and one of CrowdFL's own; with its `result` the campaign goes on."""

    def train_failing(model, own, info):
        if (info.round, info.person) == (3, "p2"):
            return None if own is None else 1 / 0
        return train_named(model, own, info)

    for workers in (None, 2):
        with pytest.raises(ZeroDivisionError) as raised:
            run(train_failing, workers=workers, **STEPS["fedavgm"])
        assert [one.number for one in raised.value.result.history] == [1, 2]
        assert any("2 rounds are kept in this error's `result`" in note for note in raised.value.__notes__)
    assert facts(run(resume=raised.value.result, **STEPS["fedavgm"])) == facts(run(**STEPS["fedavgm"]))
    with pytest.raises(SettingsError, match="returned a str") as refused:
        run(on_round=lambda _: "no")
    assert [one.number for one in refused.value.result.history] == [1]
    with pytest.raises(SettingsError) as early:
        run(rounds=0)
    assert not hasattr(early.value, "result")


@pytest.mark.parametrize("told", ["on_round", "evaluate_central"])
def test_what_a_logger_or_a_test_set_raises_costs_no_round(told, tmp_path):
    """The round is kept before either is called: nobody trains for it again."""
    calls = []

    def train_noted(model, own, info):
        calls.append(info.round)
        return train_named(model, own, info)

    fails = {told: lambda _: 1 / 0}
    with pytest.raises(ZeroDivisionError) as raised:
        run(train_noted, folder=tmp_path, **fails)
    assert [one.number for one in raised.value.result.history] == [1]
    found = run(train_noted, folder=tmp_path)
    assert facts(found) == facts(run())
    assert calls.count(1) == 4
    calls.clear()
    with pytest.raises(ZeroDivisionError):
        run(train_noted, rounds=1, folder=tmp_path / "last", dropouts=0.0, **fails)
    assert len(run(train_noted, rounds=1, folder=tmp_path / "last", dropouts=0.0).history) == 1
    assert calls == [1, 1, 1, 1]


def test_a_rule_in_the_clear_keeps_its_rounds_too():
    with pytest.raises(ZeroDivisionError) as raised:
        crowdfl.simulate(
            train, None, people(), initial=START, rounds=3, progress=False, in_the_clear=fedavg,
            on_round=lambda done: done.number == 2 and 1 / 0,
        )  # fmt: skip
    assert [one.number for one in raised.value.result.history] == [1, 2]
    assert "NOT PRIVATE" in str(raised.value.result)
