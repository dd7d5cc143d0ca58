"""What every learner promises, asked of each of them."""

import importlib.util
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from crowdfl.errors import DataMalformed, LearningUnavailable, ModelMismatch, SettingsError
from crowdfl.learning.models.layers import convolutional, with_last
from crowdfl.learning.models.learner import Learner, Training, batches, score
from crowdfl.learning.models.network import NetworkLearner
from crowdfl.learning.models.softmax import SoftmaxLearner
from crowdfl.learning.models.torch_models import Adam, TorchLearner, built_in, own_module
from crowdfl.learning.recipe import Recipe
from crowdfl.settings import LOSSES
from tests import subprocesses

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
TRAINING = Training(epochs=10, batch=16, rate=0.05, seed=4)


def softmax() -> Learner:
    return SoftmaxLearner(5, 3)


def network() -> Learner:
    return NetworkLearner(5, with_last([8], 3), seed=1)


def torch_mlp() -> Learner:
    return TorchLearner(5, with_last([8], 3), seed=1)


def torch_conv() -> Learner:
    return TorchLearner(5, ["conv 8 3", "relu", "pool 2", "linear 3"], seed=1, channels=1)


def own_network() -> Learner:
    """A user's own module, with dropout and running means."""
    return TorchLearner.around(own_module("tests.learning.own_networks:Normed", 5, 3, seed=1), 5)


every_learner = pytest.mark.parametrize(
    "make",
    [softmax, network, *(pytest.param(make, marks=needs_torch) for make in (torch_mlp, torch_conv, own_network))],
)


def same(left, right) -> bool:
    return [a.tobytes() for a in left] == [b.tobytes() for b in right]


@pytest.fixture
def clouds() -> tuple[np.ndarray, np.ndarray]:
    """Three clouds of points in five dimensions, well apart."""
    generator = np.random.default_rng(8)
    labels = generator.integers(0, 3, 150)
    centres = 3 * np.eye(3, 5)
    return (centres[labels] + 0.5 * generator.normal(size=(150, 5))).astype(np.float32), labels


@every_learner
def test_training_learns_and_its_weights_move_over_whole(make, clouds):
    """From a third to nearly all, the loss going down. Weights are copies: neither an upload nor training changes the other."""
    learner, fresh = make(), make()
    before, kept = learner.evaluate(*clouds), learner.weights()
    start = [array.copy() for array in kept]
    learner.load(kept)
    assert learner.train(*clouds, TRAINING) == 150
    after = learner.evaluate(*clouds)
    assert (after.accuracy > 0.95, after.loss < before.loss / 2, after.samples) == (True, True, 150)
    assert same(kept, start)
    kept[0][:] = 9
    assert not (learner.weights()[0] == 9).any()
    fresh.load(learner.weights())
    assert same(fresh.weights(), learner.weights())
    assert fresh.evaluate(*clouds) == after


@every_learner
def test_the_same_seed_gives_the_same_weights(make, clouds):
    """In every bit; without epochs they stay, as of a participant that does not train."""
    results = []
    for training in (replace(TRAINING, epochs=0), *(replace(TRAINING, epochs=2, seed=seed) for seed in (4, 4, 5))):
        learner = make()
        learner.train(*clouds, training)
        results.append(learner.shape.flat(learner.weights()).tobytes())
    assert results[0] == make().shape.flat(make().weights()).tobytes()
    assert results[1] == results[2] != results[3]


@every_learner
def test_what_does_not_fit_is_refused_and_changes_nothing(make, clouds):
    learner = make()
    before, wrong = learner.weights(), learner.weights()
    wrong[1] = np.zeros(99)
    with pytest.raises(ModelMismatch, match=learner.shape.names[1]):
        learner.load(wrong)
    with pytest.raises(DataMalformed, match="takes 5 inputs"):
        learner.train(np.zeros((4, 6), dtype=np.float32), np.zeros(4, dtype=np.int64), TRAINING)
    with pytest.raises(DataMalformed, match="do not match"):
        learner.train(clouds[0], clouds[1][:-1], TRAINING)
    assert same(before, learner.weights())
    assert learner.predict(clouds[0]).sum(axis=1) == pytest.approx(np.ones(150))


def test_softmax_takes_the_step_that_calculus_gives():
    """One sample (1, 2) of class 0 from zero: the error is (-1/2, 1/2)."""
    learner = SoftmaxLearner(2, 2)
    learner.train(np.array([[1.0, 2.0]], dtype=np.float32), np.array([0]), Training(epochs=1, batch=1, rate=1.0))
    matrix, bias = learner.weights()
    assert matrix.tolist() == [[0.5, -0.5], [1.0, -1.0]]
    assert bias.tolist() == [0.5, -0.5]


def test_metrics_are_those_worked_out_by_hand():
    """Two of three right; -(log 0.5 + log 0.8 + log 0.1) / 3. Of nothing there is no accuracy."""
    metrics = score(np.array([[0.5, 0.4], [0.2, 0.8], [0.9, 0.1]]), np.array([0, 1, 1]))
    assert metrics.accuracy == pytest.approx(2 / 3)
    assert metrics.loss == pytest.approx(-np.log([0.5, 0.8, 0.1]).mean())
    with pytest.raises(DataMalformed, match="nothing to evaluate"):
        score(np.zeros((0, 3)), np.zeros(0, dtype=np.int64))


def test_every_epoch_sees_each_sample_once_in_a_new_order():
    made = list(batches(10, Training(epochs=3, batch=4)))
    epochs = [np.concatenate(made[start : start + 3]).tolist() for start in (0, 3, 6)]
    assert [len(batch) for batch in made] == [4, 4, 2] * 3
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert all(first != second for first, second in pairwise(epochs))


def test_rounds_and_people_shuffle_differently_and_repeatably():
    seeds = {TRAINING.at(number, who).seed for number in (1, 2) for who in ("anna", "bert")}
    assert len(seeds) == 4
    assert TRAINING.at(1, "anna") == TRAINING.at(1, "anna")


@pytest.mark.parametrize("wrong", [{"epochs": -1}, {"batch": 0}, {"rate": 0.0}, {"rate": float("nan")}])
def test_training_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(SettingsError):
        Training(**wrong)


def test_any_stack_of_layers_can_be_written():
    shape = NetworkLearner(4, ["linear 6", "tanh", "linear 5", "relu", "linear 2"]).shape
    assert shape.names == ("0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias")
    assert shape.shapes == ((6, 4), (6,), (5, 6), (5,), (2, 5), (2,))


@pytest.mark.parametrize(
    "layers",
    [[], ["relu"], ["linear"], ["linear 0"], ["linear x", "linear 2"], ["conv 3", "linear 2"], ["pool 2", "linear 2"]],
)
def test_layers_that_cannot_be_built_are_refused(layers):
    """By either learner, before torch is asked for."""
    for make in (NetworkLearner, TorchLearner):
        with pytest.raises(SettingsError):
            make(4, layers)


@needs_torch
def test_a_convolution_slides_over_time():
    """Its answer is the same wherever a bump lies, and its channels are the window's: laid out by hand here."""
    learner = TorchLearner(6, ["conv 1 2", "linear 2"], channels=2)  # three samples of two channels
    kernel = np.array([[[1.0, 0.0], [0.0, 10.0]]])  # channel 0 now, channel 1 a sample later
    learner.load([kernel, [0.0], [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]])
    first, second = np.log(learner.predict(np.array([[1, 2, 3, 4, 5, 6]], dtype=np.float32)))[0]
    assert second - first == pytest.approx((3 + 10 * 6) - (1 + 10 * 4), rel=1e-5)


@needs_torch
def test_the_papers_network_and_the_small_convolutional_one():
    """277,006 and 6,502 parameters for 90 samples of 3 channels and 6 labels."""
    assert NetworkLearner(270, with_last([1000], 6)).shape.parameters == 277_006
    assert TorchLearner(270, convolutional(6), channels=3).shape.parameters == 6_502


@pytest.mark.parametrize(
    ("layers", "channels", "said"),
    [
        (["conv 4 9", "linear 2"], 2, "4 samples are left"),
        (["conv 4 3", "pool 4", "linear 2"], 2, "2 samples are left"),
        (["conv 4 3", "linear 2"], 3, "3 channels"),
        (["linear 4", "conv 4 3", "linear 2"], 2, "no samples are left"),
    ],
)
def test_a_convolution_that_does_not_fit_is_refused(layers, channels, said):
    with pytest.raises(SettingsError, match=said):
        TorchLearner(8, layers, channels=channels)


@needs_torch
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tests.learning.own_networks", "written package.module:Class"),
        ("os;system:x", "written package.module:Class"),
        ("no_such_package.nets:Net", "'no_such_package' is not installed"),
        ("tests.learning.own_networks:Missing", "cannot be loaded"),
        ("tests.learning.own_networks:Narrow", r"returns \(2, 1\) for two rows; expected \(2, 3\)"),
        ("tests.learning.own_networks:Stubborn", "does not take rows of 5"),
    ],
)
def test_a_module_that_cannot_be_used_is_refused(name, said):
    with pytest.raises(SettingsError, match=said):
        own_module(name, 5, 3, seed=0)


@needs_torch
def test_what_a_module_keeps_besides_its_parameters_is_averaged_too():
    """Running means are arrays of the model; counters are not."""
    names = own_network().shape.names
    assert "normal.running_mean" in names
    assert "normal.num_batches_tracked" not in names


@needs_torch
@pytest.mark.parametrize("name", ["Altering", "Normed"])
def test_a_module_answers_the_same_twice(name):
    """One that alters its inputs alters a copy, for the next round needs them; nothing is dropped but in training."""
    rows = np.random.default_rng(1).normal(size=(20, 5)).astype(np.float32)
    before, learner = (
        rows.copy(),
        TorchLearner.around(own_module(f"tests.learning.own_networks:{name}", 5, 3, seed=1), 5),
    )
    assert learner.predict(rows).tobytes() == learner.predict(rows).tobytes()
    assert (rows == before).all()


@needs_torch
def test_the_initial_weights_follow_from_the_seed_alone():
    import torch

    torch.manual_seed(3)
    expected = torch.rand(1).item()
    torch.manual_seed(3)
    for make in (NetworkLearner, TorchLearner):
        one, same, other = (make(4, with_last([3], 2), seed).weights()[0].tobytes() for seed in (7, 7, 8))
        assert one == same != other
    assert torch.rand(1).item() == expected


@needs_torch
def test_torch_runs_on_one_thread():
    """Ten participants share a small machine."""
    import torch

    torch_mlp()
    assert torch.get_num_threads() == 1


STACKS = {
    "relu": ["linear 24", "relu", "linear 3"],
    "two hidden layers": ["linear 12", "relu", "linear 9", "relu", "linear 3"],
    "no hidden layer": ["linear 3"],
    "tanh": ["linear 10", "tanh", "linear 3"],
    "nothing to train below": ["tanh", "relu", "linear 5", "relu", "tanh", "linear 3"],
}
PACE = Training(epochs=3, batch=16, rate=0.01, seed=4)


@needs_torch
@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**63 - 1])
@pytest.mark.parametrize("layers", STACKS.values(), ids=STACKS)
def test_a_network_starts_where_torchs_does(layers, seed):
    """To the last bit: a task's initial model is the same whoever makes it."""
    ours, theirs = NetworkLearner(5, layers, seed), TorchLearner(5, layers, seed)
    assert ours.shape == theirs.shape
    assert same(ours.weights(), theirs.weights())


@needs_torch
@pytest.mark.parametrize("training", [PACE, replace(PACE, proximal=0.5)], ids=["plain", "held near its start"])
@pytest.mark.parametrize("layers", STACKS.values(), ids=STACKS)
def test_a_network_trains_as_torch_does(layers, training, clouds):
    """Within the 1e-4 that phones keep; they add in another order. What it answers follows."""
    ours, theirs = NetworkLearner(5, layers, 2), TorchLearner(5, layers, 2)
    start = ours.shape.flat(ours.weights())
    for learner in (ours, theirs):
        learner.train(*clouds, training)
    found, wanted = (one.shape.flat(one.weights()) for one in (ours, theirs))
    assert np.abs(found - wanted).max() < 1e-4 < np.abs(wanted - start).max()
    assert ours.predict(clouds[0]) == pytest.approx(theirs.predict(clouds[0]), abs=1e-3)


@needs_torch
@pytest.mark.parametrize("loss", LOSSES)
def test_a_network_learns_values_as_torch_does(loss, clouds):
    """By each loss; of several values at once."""
    rows, values = clouds[0], 3 * clouds[0][:, :2] - 1
    ours = NetworkLearner(5, with_last([8], 2), 2, loss)
    theirs = TorchLearner(5, with_last([8], 2), 2).aimed(built_in(loss, values=True), values=True)
    for learner in (ours, theirs):
        learner.train(rows, values, PACE)
    found, wanted = (one.shape.flat(one.weights()) for one in (ours, theirs))
    assert np.abs(found - wanted).max() < 1e-4
    assert ours.predict(rows) == pytest.approx(theirs.predict(rows), abs=1e-3)


def test_a_network_that_diverges_says_nothing_while_it_trains(clouds):
    """As torch's: whoever sends the update looks at its weights, and a warning of NumPy's helps nobody."""
    learner = NetworkLearner(5, with_last([8], 3), 1)
    learner.load([array * 1e38 for array in learner.weights()])
    learner.train(*clouds, TRAINING)
    assert not np.isfinite(learner.shape.flat(learner.weights())).all()


def test_a_missing_torch_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LearningUnavailable, match=r"pip install 'crowdfl\[learning\]'"):
        TorchLearner(4, with_last([3], 2))


def test_torch_is_not_imported_before_it_is_needed():
    """A command that only lists tasks starts fast."""
    code = (
        "import sys, crowdfl.learning.models.torch_models, crowdfl.learning.training; sys.exit('torch' in sys.modules)"
    )
    done = subprocesses.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0


GENERATOR = np.random.default_rng(3)
ROWS = GENERATOR.normal(size=(40, 4)).astype(np.float32)
LABELS = GENERATOR.integers(0, 3, 40)


def started_softmax() -> SoftmaxLearner:
    learner = SoftmaxLearner(4, 3)
    learner.load([np.linspace(-1, 1, 12).reshape(4, 3), [0.1, -0.2, 0.3]])
    return learner


def loss_at(weights, start, proximal) -> float:
    """What FedProx makes small: the mean negative log-likelihood and mu / 2 * |w - start|^2."""
    learner = SoftmaxLearner(4, 3)
    learner.load(weights)
    apart = sum(((a - b) ** 2).sum() for a, b in zip(weights, start, strict=True))
    return learner.evaluate(ROWS, LABELS).loss + proximal / 2 * float(apart)


def test_the_second_step_of_softmax_follows_the_gradient_of_the_whole_loss():
    """By finite differences: at the first step the pull is zero, at the second it is not."""
    rate, proximal = 0.3, 2.0
    start, once, twice = started_softmax().weights(), started_softmax(), started_softmax()
    once.train(ROWS, LABELS, Training(epochs=1, batch=40, rate=rate, proximal=proximal))
    twice.train(ROWS, LABELS, Training(epochs=2, batch=40, rate=rate, proximal=proximal))
    here, there = once.weights(), twice.weights()
    for place, array in enumerate(here):
        for index in np.ndindex(array.shape):
            sides = []
            for by in (1e-5, -1e-5):
                moved = [one.copy() for one in here]
                moved[place][index] += by
                sides.append(loss_at(moved, start, proximal))
            slope = (sides[0] - sides[1]) / 2e-5
            assert (array[index] - there[place][index]) / rate == pytest.approx(slope, abs=1e-5)


@pytest.mark.second  # the first step of torch's own class loads a compiler
@pytest.mark.parametrize(("proximal", "apart"), [(0.0, 0.0), (0.7, 1e-6)])
def test_every_step_of_adam_is_torchs(proximal, apart):
    """To the last bit; with FedProx, beside the loss with the term written out. A parameter without a gradient stays."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    start, wanted = [torch.randn(5, 3), torch.randn(3), torch.randn(2)], [torch.randn(5, 3), torch.randn(3)]
    ours, theirs = ([torch.nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    mine, reference = Adam(ours, 0.005, proximal), torch.optim.Adam(theirs, lr=0.005)
    for _ in range(30):
        for optimizer, tensors, pull in ((mine, ours, 0.0), (reference, theirs, proximal)):
            optimizer.zero_grad()
            assert all(tensor.grad is None for tensor in tensors)
            triples = zip(tensors, wanted, start, strict=False)
            losses = [((a - b) ** 2).sum() + pull / 2 * ((a - c) ** 2).sum() for a, b, c in triples]
            sum(losses).backward()
            optimizer.step()
        assert all(torch.allclose(a, b, rtol=0, atol=apart) for a, b in zip(ours, theirs, strict=True))
    assert torch.equal(ours[2], start[2])


def test_a_recipe_says_how_strong_it_is():
    assert Recipe.of({"labels": ["a"], "proximal": 0.01}).training.at(2, "anna").proximal == 0.01
    assert Recipe.of({"labels": ["a"]}).training.proximal == 0.0


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_a_pull_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(SettingsError):
        Training(proximal=wrong)
    with pytest.raises(SettingsError):
        Recipe.of({"labels": ["a"], "proximal": wrong})
