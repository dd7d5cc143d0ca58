"""FedProx: training is held near the model that the round starts from, by the gradient that calculus gives."""

import numpy as np
import pytest

from crowdfl.errors import SettingsError
from crowdfl.learning.models.learner import Training
from crowdfl.learning.models.softmax import SoftmaxLearner
from crowdfl.learning.models.torch_models import Adam, TorchLearner, mlp
from crowdfl.learning.recipe import Recipe

GENERATOR = np.random.default_rng(3)
ROWS = GENERATOR.normal(size=(40, 4)).astype(np.float32)
LABELS = GENERATOR.integers(0, 3, 40)


def softmax() -> SoftmaxLearner:
    """Somewhere, not at zero."""
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
    start, once, twice = softmax().weights(), softmax(), softmax()
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


def test_a_strong_pull_keeps_softmax_near_its_start():
    """The more, the nearer."""
    ends = []
    for proximal in (0.0, 1.0, 5.0):
        learner = softmax()
        learner.train(ROWS, LABELS, Training(epochs=30, batch=8, rate=0.1, proximal=proximal))
        ends.append(np.linalg.norm(learner.shape.flat(learner.weights()) - learner.shape.flat(softmax().weights())))
    assert ends[0] > 1.5 * ends[1] > 2 * ends[2] > 0


def before_fedprox(learner: SoftmaxLearner, training: Training) -> None:
    """The training loop as it was, with the learner's own numbers."""
    from crowdfl.learning.models.learner import batches

    for batch in batches(len(LABELS), training):
        rows = ROWS[batch]
        error = learner.predict(rows)
        error[np.arange(len(batch)), LABELS[batch]] -= 1
        learner._matrix -= training.rate * (rows.T @ error) / len(batch)
        learner._bias -= training.rate * error.mean(axis=0)


def test_without_it_softmax_is_bit_for_bit_what_it_was():
    """Nothing is added, not even zero."""
    now, then, training = softmax(), softmax(), Training(epochs=5, batch=7, rate=0.1)
    now.train(ROWS, LABELS, training)
    before_fedprox(then, training)
    assert [a.tobytes() for a in now.weights()] == [a.tobytes() for a in then.weights()]


@pytest.mark.second
def test_a_network_follows_the_gradient_that_torch_finds_of_the_whole_loss():
    """Step by step beside torch's own Adam on the loss with the term written out."""
    torch = pytest.importorskip("torch")
    mine = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
    theirs = torch.nn.Parameter(mine.detach().clone())
    start, wanted = mine.detach().clone(), torch.tensor([3.0, 0.0, -1.0])
    ours, reference = Adam([mine], 0.05, proximal=0.7), torch.optim.Adam([theirs], lr=0.05)
    for _ in range(30):
        ours.zero_grad()
        ((mine - wanted) ** 2).sum().backward()
        ours.step()
        reference.zero_grad()
        (((theirs - wanted) ** 2).sum() + 0.7 / 2 * ((theirs - start) ** 2).sum()).backward()
        reference.step()
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-6)


@pytest.mark.second
def test_without_it_a_network_is_bit_for_bit_what_it_was():
    """A recipe that says 0 trains as one that says nothing; with it, the network ends nearer its start."""
    pytest.importorskip("torch")
    ends = []
    for training in (Training(), Training(proximal=0.0), Training(proximal=1.0)):
        learner = TorchLearner(4, mlp([5], 3), seed=2)
        start = learner.shape.flat(learner.weights())
        learner.train(ROWS, LABELS, training)
        ends.append(learner.shape.flat(learner.weights()) - start)
    assert ends[0].tobytes() == ends[1].tobytes()
    assert 0 < np.linalg.norm(ends[2]) < 0.8 * np.linalg.norm(ends[0])


def test_a_recipe_says_how_strong_it_is():
    """Everyone's training has it."""
    assert Recipe.of({"labels": ["a"], "proximal": 0.01}).training.at(2, "anna").proximal == 0.01
    assert Recipe.of({"labels": ["a"]}).training.proximal == 0.0


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_a_pull_that_makes_no_sense_is_refused(wrong):
    """When the settings are made."""
    with pytest.raises(SettingsError):
        Training(proximal=wrong)
    with pytest.raises(SettingsError):
        Recipe.of({"labels": ["a"], "proximal": wrong})
