"""`--try`: a task's recipe on somebody's data, before anyone is asked to take part."""

import json
import tomllib
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from crowdfl.cli.task.template import template
from crowdfl.documents.task_summary import task_summary
from crowdfl.roles.defining import defined
from crowdfl.services.client import opening
from tests.cli.program import call
from tests.learning.test_csv_files import samples, write

SOFTMAX = template.replace('learner = "network"', 'learner = "softmax"')


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """Windows of 30 samples and 3 channels of two people."""
    path, noise = tmp_path_factory.mktemp("mine") / "mine.npz", np.random.default_rng(1)
    labels = np.arange(80) % 2
    windows = noise.normal(size=(80, 30, 3)) + labels[:, None, None]
    names = np.array(["still", "moving"])
    train = np.arange(80) % 8 < 6
    np.savez(path, windows=windows, label=labels, user=np.repeat([1, 2], 40), train=train, label_names=names)
    return path


def task_file(folder, **training):
    text = SOFTMAX
    for name, value in training.items():
        (line,) = [
            line for line in text.splitlines() if line.startswith(f"{name} = ") and line in text.split("[training]")[1]
        ]
        before, section, after = text.partition("[training]")
        text = before + section + after.replace(line, f"{name} = {json.dumps(value)}")
    (folder / "task.toml").write_text(text)
    return folder / "task.toml"


FITTING = {"window_samples": 30, "channels": 3, "labels": ["moving", "still"]}


def test_data_that_fits_is_counted_by_label(mine, tmp_path):
    found = json.loads(call("task", "explain", task_file(tmp_path, **FITTING), "--try", f"npz:{mine}#2", "--json").out)
    (trial,) = found["tried"]
    assert (trial["person"], trial["window"]) == ("2", [30, 3])
    assert trial["train"] == {"moving": 15, "still": 15}
    assert trial["held_out"] == {"moving": 5, "still": 5}
    assert 0 <= trial["scores"]["accuracy"] <= 1
    told = call(
        "task", "explain", task_file(tmp_path, **FITTING), "--try", f"npz:{mine}#2", "--try", f"npz:{mine}#1"
    ).out
    assert f"tried on npz:{mine}#2: windows of 30 x 3, to train on + held out: moving 15 + 5, still 15 + 5" in told
    assert f"tried on npz:{mine}#1" in told


def test_a_task_is_tried_on_everyone_in_a_file_or_on_some(mine, tmp_path):
    task = task_file(tmp_path, **FITTING)
    for data, people in ((f"npz:{mine}", ["1", "2"]), (f"npz:{mine}#2,#1", ["2", "1"])):
        found = json.loads(call("task", "explain", task, "--try", data, "--json").out)
        assert [trial["person"] for trial in found["tried"]] == people


def test_a_task_is_tried_on_a_folder_of_people_that_data_show_takes(tmp_path):
    for person in ("anna", "ben"):
        for name in ("walking", "sitting"):
            write(tmp_path / "data" / person / f"{name}.csv", "time,x,y,z", samples(30))
    folder = f"csv:{tmp_path / 'data'}"
    assert json.loads(call("train", "--look", "--data", folder, "--json").out)["people"] == ["anna", "ben"]
    task = task_file(tmp_path, window_samples=50, channels=3, labels=["walking", "sitting"])
    found = json.loads(call("task", "explain", task, "--try", folder, "--json").out)
    assert [trial["data"] for trial in found["tried"]] == [f"{folder}#anna", f"{folder}#ben"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "windows of 30 x 3 (samples x channels) and the labels still, moving: say window_samples = 30, channels = 3, "
            'labels = ["s',
        ),
        ({"window_samples": 30, "labels": ["still", "moving"]}, "say channels = 3 in the task's [training]"),
        ({"window_samples": 30, "channels": 3}, 'say labels = ["still", "moving"] in the task'),
    ],
)
def test_data_that_does_not_fit_is_answered_with_what_to_write(mine, tmp_path, changes, said):
    result = call("task", "explain", task_file(tmp_path, **changes), "--try", f"npz:{mine}#2")
    assert result.code == 3
    assert said in result.err


def test_more_windows_than_the_task_takes_are_refused(mine, tmp_path):
    """Each such device would fail at its first upload."""
    path = task_file(tmp_path, **FITTING)
    assert call("task", "explain", path, "--try", f"npz:{mine}#2").code == 0  # where everyone counts once
    by_samples = path.read_text().replace('weighting = "equal"', 'weighting = "samples"')
    path.write_text(by_samples.replace("# max_samples = 100", "max_samples = 20"))
    result = call("task", "explain", path, "--try", f"npz:{mine}#2")
    assert result.code == 3
    assert "has 30 windows to train on, and the task takes 20" in result.err
    assert "say max_samples = 100 or more" in result.err


def test_what_is_left_out_or_missing_is_noted(mine, tmp_path):
    told = call(
        "task", "explain", task_file(tmp_path, **FITTING | {"labels": ["moving", "jumping"]}), "--try", f"npz:{mine}#2"
    )
    assert "note: windows with labels that the task does not have are left out: still (20)" in told.out
    assert "note: nothing to train on for jumping: somebody else's data must have it" in told.out


def test_a_task_that_does_not_fit_is_not_created(mine, tmp_path, monkeypatch):
    own = SimpleNamespace()
    monkeypatch.setattr(opening.RequesterFile, "read", lambda _path: own)
    monkeypatch.setattr(opening, "open_requester", lambda _own: pytest.fail("a service is asked"))
    for words in (("create",), ("run", tmp_path / "invitations", tmp_path / "model.npz")):
        refused = call("task", words[0], task_file(tmp_path), *words[1:], "--try", f"npz:{mine}#2")
        assert (refused.code, refused.out) == (3, "")
        assert "windows of 30 x 3" in refused.err


def test_that_nothing_was_tried_is_said_and_what_comes_next(tmp_path, monkeypatch):
    own = SimpleNamespace()
    requester = SimpleNamespace(create=lambda _definition, _initial: "0123")
    monkeypatch.setattr(opening.RequesterFile, "read", lambda _path: own)
    monkeypatch.setattr(opening, "open_requester", lambda _own: nullcontext(requester))
    made = call("task", "create", task_file(tmp_path))
    assert made.out == "0123\n", "the id alone, for a script"
    assert "the task was not tried on any data: `--try DATA`" in made.err
    assert "crowdfl task invite 0123" in made.err
    assert json.loads(call("task", "create", task_file(tmp_path), "--json").out)["tried"] == []


class TestLook:
    def test_sensors_windows_training_rounds_and_time_to_claim_are_said(self):
        late = SOFTMAX.replace('late = "no"', 'late = "10 min"')
        told = task_summary(defined("task", tomllib.loads(late))[0], 5)
        assert "Recorded: 6 channels (acceleration and rotation, three axes each), 50 samples a second" in told
        assert "a window is 100 samples, 2 s; labels: PEN, ABD, FEL, IR, ER, TRAP, ROW" in told
        assert (
            "Trained: softmax regression, fed with nine numbers per channel and window; in each round 20 passes" in told
        )
        assert "32 at a time" in told
        assert "Rounds: 3; each takes uploads for 60 min, and late ones for 10 min more" in told
        assert "Rewards: 36.00 EUR a round" in told
        assert "can be claimed for 7 days after the last round" in told
        assert "at least 5 participants; you accept 5 or more" in told

    @pytest.mark.parametrize(
        ("training", "said"),
        [
            ({"learner": "network", "layers": [64, 8]}, "a network with hidden layers: 64, 8"),
            ({"learner": "network", "layers": []}, "a network without hidden layers, fed"),
            ({"learner": "conv", "features": "flat"}, "a small convolutional network, fed with all samples"),
            ({"learner": "own:Net"}, "code that you install yourself (own:Net)"),
            ({"window_samples": 0}, "Training: your device cannot do it"),
        ],
    )
    def test_a_strangers_recipe_is_put_into_words(self, training, said):
        found = defined("task", tomllib.loads(SOFTMAX))[0]
        object.__setattr__(found, "training", {**found.training, **training})
        assert said in task_summary(found, 5)

    @pytest.mark.parametrize(
        ("profile", "pay", "said"),
        [
            ("shares", "equal", "For one person: about "),
            (
                "shares",
                "samples",
                "For one person: by how much you recorded: from nothing to a whole round's. Equal parts",
            ),
            ("shares", "distance", "how close your model is to the average (the paper's Eq. 10): from nothing to"),
            ("hardened", None, "how close your model is to the average (the paper's Eq. 10): from nothing to"),
            ("paper", None, "how close your model is to the average (the paper's Eq. 10): from nothing to"),
        ],
    )
    def test_what_one_person_may_earn_is_said_as_unequal_as_it_is(self, profile, pay, said):
        found = defined("task", tomllib.loads(SOFTMAX))[0]
        object.__setattr__(found, "settings", found.settings.changed(profile=profile, pay=pay))
        assert said in task_summary(found, 5)

    @pytest.mark.parametrize(
        ("pay", "payer", "said"),
        [
            ("fixed", b"p" * 32, "Unclaimed then: it is paid where you have said, or returns to the requester"),
            ("equal", b"p" * 32, "Unclaimed then: it is paid where you have said, or returns to the requester"),
            ("equal", b"", "Unclaimed then: it returns to the requester\n"),
            ("samples", b"p" * 32, "Unclaimed then: it returns to the requester; only your device knows"),
        ],
    )
    def test_what_becomes_of_unclaimed_pay_is_said_before_joining(self, pay, payer, said):
        found = defined("task", tomllib.loads(SOFTMAX))[0]
        more = {"each": "2.00", "budget": None} if pay == "fixed" else {}
        object.__setattr__(found, "settings", found.settings.changed(profile="shares", pay=pay, **more))
        object.__setattr__(found, "payer", payer)
        assert said in task_summary(found, 5)

    def test_a_task_without_rewards_says_so(self):
        text = SOFTMAX.replace('budget = "36.00"', '# budget = "36.00"').replace("\ncurrency", "\n# currency")
        assert "Rewards: none" in task_summary(defined("task", tomllib.loads(text))[0], 5)


def test_a_plan_suggests_a_norm_from_a_trial_and_says_which_crowds_are_too_small(tmp_path):
    trial = tmp_path / "trial.json"
    trial.write_text(json.dumps({"parameters": 582, "update_norm": {"largest": 3.0, "last": 2.0}}))
    found = call(
        "privacy", "plan", "--trial", trial, "--people", 36, "--people", 3600, "--json", "--plot", tmp_path / "plan.svg"
    )
    told = json.loads(found.out)
    assert (told["parameters"], told["max_norm"]) == (582, pytest.approx(0.3))
    assert told["noise"]["8.0"] == pytest.approx([2.714, 0.02714], rel=0.01)  # sqrt(2 * 582) z / people
    assert (tmp_path / "plan.svg").stat().st_size > 1000
    words = " ".join(call("privacy", "plan", "--trial", trial, "--people", 36, "--people", 3600).out.split())
    assert "A crowd of 36 is too small for this model" in words
    assert "take max_norm = 0.3" in words
    for wrong in ("{", json.dumps({"parameters": 3})):
        trial.write_text(wrong)
        assert "is not what `crowdfl train" in call("privacy", "plan", "--trial", trial).err
    assert "--parameters N, or --trial FILE" in call("privacy", "plan").err
