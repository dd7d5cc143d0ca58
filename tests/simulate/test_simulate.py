"""crowdfl.simulate: equal to plain federated averaging, whatever the form of the model, and what it says of mistakes."""

import inspect
import re
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest

import crowdfl
from crowdfl import partition
from crowdfl.errors import (
    EncodingError,
    LearningError,
    ModelMismatch,
    NotFinite,
    NothingToAverage,
    NothingToContribute,
    ServiceUnavailable,
    SettingsError,
    SlotOverflow,
    TooFewParticipants,
    WidthBudgetExceeded,
)
from crowdfl.simulation import arguments
from crowdfl.simulation.clear import fedavg
from tests.simulate.lines import START, evaluate, fit, people, plain, train

CLOSE = 2e-7  # of float32; the servers keep nine decimals


def run(train=train, evaluate=evaluate, data=None, **given):
    usual = {"rounds": 2, "initial": START, "progress": False, "lanes": 128}
    return crowdfl.simulate(train, evaluate, people() if data is None else data, **usual | given)


def test_a_list_of_arrays_is_averaged_as_in_the_clear():
    """Every round; the metrics are the mean over everyone, by samples."""
    data = people()
    result = run(data=data, rounds=3)
    models = plain(data, 3)
    assert np.append(*result.model) == pytest.approx(models[-1], abs=CLOSE)
    for round_, model in zip(result.history, models, strict=True):
        losses = [evaluate((model[:3], model[3]), own)["loss"] for own in data.values()]
        wanted = np.average(losses, weights=[len(own[1]) for own in data.values()])
        assert round_.metrics == {"loss": pytest.approx(wanted, abs=1e-4)}
        assert round_.participants == tuple(data)
    assert result.notes == ()


def test_a_dictionary_and_names_keep_their_order_and_types():
    """float32 in, float32 out; what `train` returns may come in another order."""
    data = people()
    start = {"w": START[0].astype(np.float32), "b": float(START[1]), "calls": np.array(5)}
    calls = Counter()

    def train_named(model, own, info):
        assert (model["w"].dtype, type(model["b"])) == (np.float32, float)
        calls[info.person, info.round] += 1
        assert model["calls"] == 5 + info.round - 1  # each person's own
        weights, offset = fit(model["w"].astype(float), model["b"], own)
        return {"b": offset, "calls": model["calls"] + 1, "w": weights}

    result = run(train_named, None, data, initial=start)
    assert list(result.model) == ["w", "b", "calls"]
    assert result.model["w"].dtype == np.float32
    assert np.append(result.model["w"], result.model["b"]) == pytest.approx(plain(data, 2)[-1], abs=CLOSE)
    assert result.model["calls"] == 5  # the initial one
    assert result.notes == ("integers, and what holds no number, are not averaged: calls",)
    assert calls == {(who, number): 1 for who in data for number in (1, 2)}, "trained once in each round"


def test_without_an_initial_model_the_first_person_makes_it():
    """`train(None, data)`; round 0."""
    seen = []

    def train_any(model, data, info):
        seen.append((info.person, info.round, model is None))
        return train([np.zeros(3), 0.0] if model is None else model, data)

    result = run(train_any, data=list(people().values()), initial=None, rounds=1)
    assert seen[:2] == [("person-1", 0, True), ("person-1", 1, False)]
    assert len(result.history) == 1


def test_updates_and_numbers_of_samples_are_taken():
    """(model, samples), and an Update, count as they say; a metric `samples` weighs the others."""
    values, counts = {"a": 1.0, "b": 2.0, "c": 6.0}, {"a": 1, "b": 1, "c": 2}

    def train_counted(_model, own, *, info):
        made = [np.full(2, own)]
        return crowdfl.Update(made, counts[info.person]) if info.person == "b" else (made, counts[info.person])

    result = run(
        train_counted, lambda _, own: {"own": own, "samples": 10 - own}, values, initial=[np.zeros(2)], rounds=1
    )
    assert result.model[0] == pytest.approx([3.75, 3.75], abs=CLOSE)
    assert result.history[0].metrics == {"own": pytest.approx((9 + 16 + 24) / 21), "samples": 21.0}


@pytest.mark.parametrize("weights", [{"a": 0.5, "b": 2.25, "c": 1}, {"a": 1 / 3, "b": 2.0, "c": 1e-2}])
def test_any_positive_number_is_a_weight(weights):
    """Exact with few digits; else each within a thousandth of itself. Metrics are weighted by it too, and people paid."""
    values = {"a": 1.0, "b": 2.0, "c": 6.0}
    weighted = lambda _model, own, info: ([np.full(2, own)], weights[info.person])  # noqa: E731
    given = {"initial": [np.zeros(2)], "rounds": 2, "budget": "3.00", "pay": "samples", "max_samples": 4}
    result = run(weighted, lambda _, own: own, values, **given)
    wanted = np.average(list(values.values()), weights=list(weights.values()))
    exact = weights["a"] == 0.5
    assert result.model[0] == pytest.approx([wanted] * 2, abs=CLOSE if exact else 1e-3)
    assert result.history[0].metrics["score"] == pytest.approx(wanted)
    shares = {who: weight / sum(weights.values()) for who, weight in weights.items()}
    assert {who: float(one) / 6 for who, one in result.rewards.items()} == pytest.approx(shares, abs=1e-3)


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_weights_of_ones_own_count_in_the_papers_cryptosystem_too(profile):
    values, weights = {"a": 1.0, "b": 2.0, "c": 6.0}, {"a": 0.5, "b": 2.25, "c": 1}
    weighted = lambda _model, own, info: ([np.full(2, own)], weights[info.person])  # noqa: E731
    given = {"profile": profile, "key_bits": 512, "lanes": 0, "insecure_test_key": True}
    result = run(weighted, None, values, initial=[np.zeros(2)], rounds=1, **given)
    wanted = np.average(list(values.values()), weights=list(weights.values()))
    assert result.model[0] == pytest.approx([wanted] * 2, abs=CLOSE * 100)


def test_a_fraction_that_comes_after_whole_numbers_is_named():
    later = lambda model, own, info: (train(model, own), 3 if info.round == 1 else 2.5)  # noqa: E731
    with pytest.raises(LearningError, match=r"p0, round 2: samples are counted in whole numbers here, not 2\.5"):
        run(later)


def test_where_everyone_counts_once_the_mean_is_taken_whatever_anyone_declares():
    """From what was trained, within `max_norm`; a number of samples moves nothing."""
    data, flat = people(), np.append(*START)
    declared = {"p0": 1, "p1": 10**6, "p2": 7, "p3": 50}

    def train_counted(model, own, *, info):
        return train(model, own), declared[info.person]

    result = run(train_counted, data=data, weighting="equal", max_norm=4.0)
    for _ in result.history:
        fitted = [np.append(*fit(flat[:3], flat[3], own)) for own in data.values()]
        assert max(np.linalg.norm(one - flat) for one in fitted) < 4.0  # else they would be scaled down
        flat = np.mean(fitted, axis=0)
    assert np.append(*result.model) == pytest.approx(flat, abs=CLOSE)
    assert np.append(*result.model) != pytest.approx(plain(data, 2)[-1], abs=1e-3)


def test_where_everyone_counts_once_a_longer_update_counts_as_one_of_max_norm():
    values, counted_once = {"a": 0.0, "b": 0.3, "c": 400.0}, {"weighting": "equal", "max_norm": 0.5}

    def train_to(_model, own):
        return [np.array([own, 0.0])], 1

    result = run(train_to, None, values, initial=[np.zeros(2)], rounds=1, **counted_once)
    assert result.model[0] == pytest.approx([(0.3 + 0.5) / 3, 0], abs=CLOSE)


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_noise_is_of_shares_alone_and_a_crowd_too_small_for_it_is_refused(profile):
    private = {"weighting": "equal", "max_norm": 4.0, "epsilon": 1.0, "lanes": 1024}
    with pytest.raises(SettingsError, match="noise of length"):
        run(**private)
    with pytest.raises(SettingsError, match="the profile shares"):
        run(**private, noise="any", profile=profile, insecure_test_key=True)


def test_rewards_are_paid_and_claimed():
    """Exact money, by person and round; costs are those of all roles."""
    data = people(4)
    result = run(data=data, budget="9.00", pay="distance", engine="roles")
    assert set(result.rewards) == set(data)
    assert Decimal("17.9999") <= sum(result.rewards.values()) <= 18
    for who, total in result.rewards.items():
        assert total == sum(round_.rewards.get(who, 0) for round_ in result.history)
    assert set(result.costs) == {"SP", "CSP", "requester", "participants"}
    assert result.costs["participants"].bytes_sent > sum(round_.bytes_up for round_ in result.history) > 0  # and claims
    assert result.settings.budget == "9.00"


@pytest.mark.second
def test_bounds_follow_from_everyones_first_training():
    """With room to spare; what was asked for stands, and whoever it clips is named."""
    data = people()
    settings = run(data=data, rounds=1).settings
    assert (settings.max_participants, settings.max_samples) == (4, 2 * 19)
    norms = [np.linalg.norm(np.append(*fit(*START, own)) - np.append(*START)) for own in data.values()]
    assert 4 * max(norms) <= settings.max_norm <= 4.5 * max(norms)
    assert run(lambda model, _: (model, 5), data=data, rounds=1).settings.max_norm == 1.0  # nothing has changed
    tight = run(data=data, rounds=1, max_norm=0.01)
    assert set(tight.history[0].scaled) == set(data)
    assert "scaled down to `max_norm`" in tight.notes[0]
    clipped = run(data=data, rounds=1, clip=0.01)
    assert clipped.history[0].clipped["p0"] >= 1
    assert "had weights clipped" in clipped.notes[0]


def failing(number, error):
    def train_failing(model, data, info):
        if (info.round, info.person) == (number, "p1"):
            raise error
        return train(model, data)

    return train_failing


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("error", [ValueError("mine"), ServiceUnavailable("my database"), StopIteration()])
def test_an_error_of_your_function_is_raised_as_it_is(number, error):
    """Once, never waited out as a platform's would be; a note says where."""
    with pytest.raises(type(error)) as raised:
        run(failing(number, error))
    assert raised.value is error
    assert any(f"p1, round {number}" in note for note in error.__notes__)


def test_an_error_of_evaluating_is_raised_as_it_is():
    def evaluate_failing(_model, _data):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError) as raised:
        run(evaluate=evaluate_failing)
    assert "the data of p0" in raised.value.__notes__[0]


@pytest.mark.second
@pytest.mark.parametrize("number", [1, 2])
def test_whoever_has_no_data_stays_out_of_a_round(number):
    """As on a phone: by NothingToContribute, or with no samples."""
    data = people()
    result = run(failing(number, NothingToContribute("nothing was sensed")), data=data)
    assert result.history[number - 1].participants == ("p0", "p2", "p3")
    assert result.history[2 - number].participants == tuple(data)
    assert np.append(*result.model) == pytest.approx(plain(data, 2, {number: ["p1"]})[-1], abs=CLOSE)
    nobody = run(lambda model, own: (train(model, own), 0 if len(own[1]) == 13 else 1), rounds=1)
    assert nobody.history[0].participants == ("p0", "p2", "p3")


class Batches(list):
    """As torch's DataLoader: it can be iterated over, and its entries are not people."""

    dataset = ()


class Estimator:
    """As scikit-learn's."""

    def fit(self, *_):
        return self

    def get_params(self):
        return {}


MEASURED = np.zeros((9, 2)), np.linspace(0.1, 0.9, 9)  # numbers where labels are wanted


def returning(result):
    def train_other(model, data, info):
        return result(model) if info.person == "p1" else train(model, data)

    return train_other


@pytest.mark.parametrize(
    ("result", "error", "named"),
    [
        (lambda model: [model[0] * np.nan, model[1]], NotFinite, "p1, round 1: array 0 holds NaN"),
        (lambda model: [model[0][:2], model[1]], ModelMismatch, r"p1, round 1: .*'array 0' has the shape \(2,\)"),
        (lambda model: None, LearningError, "p1, round 1: the training function returned nothing: return"),
        (lambda model: (model, float("nan")), LearningError, "p1, round 1: nan samples: .* a weight is finite"),
        (lambda model: (model, 1e-6), LearningError, "p1, round 1: the weight 1e-06 is too small beside the others"),
        (lambda model: (model, -1), LearningError, "p1, round 1: -1 samples"),
        (lambda model: [object(), 1.0], EncodingError, "p1, round 1: array 0 is a object"),
        (lambda model: (part for part in model), EncodingError, "p1, round 1: array 0 is a generator"),
    ],
)
def test_what_cannot_be_averaged_is_named_with_its_person(result, error, named):
    with pytest.raises(error, match=named):
        run(returning(result))


def test_more_samples_than_there_is_room_for_name_their_person():
    grows = lambda model, own, info: (train(model, own), 10**info.round)  # noqa: E731
    with pytest.raises(SlotOverflow, match="100 samples") as raised:
        run(grows)
    assert "p0; `max_samples` of `simulate` makes room" in raised.value.__notes__[0]


@pytest.mark.parametrize("budget", [0, "0.00"])
def test_a_budget_of_nothing_is_none(budget):
    """It pays nobody, and the rounds go on."""
    assert run(rounds=1, budget=budget).rewards == {}


def test_a_rounds_metrics_are_weighted_by_the_samples_of_that_round():
    """Also after later rounds, of other numbers of samples."""
    counts = {"p0": [1, 9], "p1": [3, 3], "p2": [3, 3], "p3": [3, 3]}
    varying = lambda model, own, info: (train(model, own), counts[info.person][info.round - 1])  # noqa: E731
    score = {len(own[1]): place for place, own in enumerate(people().values())}
    found = run(varying, lambda _, own: score[len(own[1])], max_samples=20)
    assert [one.metrics["score"] for one in found.history] == pytest.approx([18 / 10, 18 / 18])


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        ({"data": people(2)}, TooFewParticipants, "2 people"),
        ({"data": {1: None, 2: None, 3: None}}, SettingsError, "1 is not a name"),
        ({"data": 7}, SettingsError, "`data` is a int"),
        ({"data": "watch:0"}, SettingsError, "`data` is a str"),
        ({"data": Batches([1, 2, 3])}, SettingsError, "`data` is a Batches; .* an entry for each person"),
        ({"train": None}, SettingsError, "`train` is of the type NoneType; expected a function train.model, data."),
        ({"train": lambda a, b, c, d: a}, SettingsError, r"`train` takes a, b, c, d; expected train\(model, data\) or"),
        (
            {"train": lambda model, data, *, rate: model},
            SettingsError,
            "`train` takes model, data, rate; .*partial binds what else",
        ),
        ({"train": lambda: None}, SettingsError, "`train` takes no argument"),
        ({"evaluate": lambda a, b, c, d: a}, SettingsError, "`evaluate` takes a, b, c, d"),
        (
            {"evaluate_central": lambda a, b, c: a},
            SettingsError,
            r"`evaluate_central` takes a, b, c; .*central\(model\)",
        ),
        ({"on_round": 3}, SettingsError, r"`on_round` is of the type int; expected a function on_round\(done\)"),
        ({"on_round": lambda a, b: a}, SettingsError, r"`on_round` takes a, b; expected on_round\(done\)"),
        ({"pay": "samples"}, SettingsError, "`pay` would do nothing in this task: it needs a `budget`"),
        ({"seed": "x"}, SettingsError, "`seed` is 'x'; expected a whole number"),
        ({"seed": 1.5}, SettingsError, "`seed` is 1.5"),
        (
            {"initial": [np.array([0.0, np.nan])]},
            NotFinite,
            "array 0 holds NaN or infinity: `initial` is what everyone",
        ),
        (
            {"initial": None, "train": lambda model, _: [np.array([np.inf])] if model is None else model},
            NotFinite,
            r"array 0 holds NaN or infinity: train\(None, data\) made is what everyone",
        ),
        ({"train": lambda model, _: [model[0] * np.nan, model[1]]}, NotFinite, "p0, round 1: array 0 .* has diverged"),
        ({"initial": Estimator()}, EncodingError, r"Estimator is an estimator: .* `\[model.coef_, model.intercept_\]`"),
        ({"train": lambda model, _: Estimator()}, EncodingError, r"p0, round 1: Estimator is an estimator"),
        ({"initial": Estimator}, EncodingError, "^Estimator is an estimator"),
        ({"evaluate": lambda *_: np.nan}, None, "`score` is NaN or infinite, and so is its mean, for p0 .round 1, 2.,"),
        ({"evaluate_central": lambda _: np.inf}, None, "`central_score` is NaN or infinite"),
        ({"data": lambda: partition.shards(MEASURED, 3)}, SettingsError, "these are measured numbers: take `iid`, or"),
        (
            {"data": lambda: partition.iid(MEASURED, 3, seed="x")},
            SettingsError,
            "`seed` is 'x'; expected a whole number",
        ),
        ({"data": lambda: partition.iid(MEASURED, 3, seed=-1)}, SettingsError, "`seed` is -1; expected a whole"),
        ({"profile": "nobody's"}, SettingsError, "nobody's"),
        ({"clips": 3}, SettingsError, "unknown argument `clips`: did you mean `clip`?"),
        ({"model": 3}, SettingsError, "unknown argument `model`: did you mean `initial`?"),
        ({"n_jobs": 3, "lr": 1}, SettingsError, "`n_jobs`: did you mean `workers`.*`lr`: that is yours, in `train`"),
        ({"epochs": 3}, SettingsError, "`epochs`: that is yours, in `train`"),
        ({"callbacks": []}, SettingsError, "`callbacks`: did you mean `on_round`?"),
        ({"fraction_fit": 0.5}, SettingsError, "`fraction_fit`: did you mean `fraction`?"),
        ({"num_clients": 4}, SettingsError, "`num_clients`: each entry of `data` is a person"),
        ({"evaluate_centrally": len}, SettingsError, "`evaluate_centrally`: did you mean `evaluate_central`?"),
        ({"sigma": 3}, SettingsError, "`sigma`: did you mean `epsilon`?"),
        ({"nothing_like_it": 1}, SettingsError, r"`nothing_like_it`: `help\(crowdfl.simulate\)`"),
        ({"rounds": 0}, SettingsError, "rounds"),
        ({"initial": [np.array([1, 2])]}, EncodingError, "array 0 holds integers"),
        (
            {"data": dict.fromkeys("abc", object()), "train": lambda model: model},
            LearningError,
            r"return \(model, samples\)",
        ),
        ({"evaluate": lambda *_: {"loss": "low"}}, LearningError, "p0: the metric 'loss' is a str"),
        ({"evaluate": lambda *_: {"round": 1}}, LearningError, "cannot be called 'round'"),
        ({"train": lambda model, _: [model[0] + 1e12, model[1]]}, SettingsError, "lower its learning rate"),
        ({"train": lambda model, _: [model[0] + 1e7, model[1]]}, WidthBudgetExceeded, "Is the learning rate too large"),
    ],
)
def test_mistakes_are_named(given, error, named):
    """Before anything is trained for nothing, where that is possible; where it may be meant, in a note."""
    if error is None:
        assert re.search(named, "\n".join(run(**given).notes))
        return
    with pytest.raises(error, match=named):
        run(**given | {"data": made()} if callable(made := given.get("data")) else given)


def test_every_word_of_other_programs_leads_to_one_of_ours():
    own = {*inspect.signature(crowdfl.simulate).parameters, *crowdfl.TaskOptions.__annotations__}
    assert {meant for meant in arguments._ELSEWHERE if " " not in meant} <= own
    assert own.isdisjoint(arguments._MEANT)


def test_a_metric_that_is_no_number_is_noted(tmp_path):
    """It may be of somebody without data to evaluate on: the campaign goes on, and is kept."""
    score = lambda _, own, info: {"loss": np.nan if info.person in ("p1", "p3") and info.round == 2 else 1.0}  # noqa: E731
    result = run(evaluate=score, folder=tmp_path, evaluate_central=lambda _: np.inf)
    assert result.notes == (
        "`central_score` is NaN or infinite, and so is its mean, for the test set (round 1, 2)",
        "`loss` is NaN or infinite, and so is its mean, for p1 (round 2), p3 (round 2)",
    )
    assert np.isnan(run(evaluate=score, folder=tmp_path, evaluate_central=lambda _: np.inf).history[1].metrics["loss"])
    clear = crowdfl.simulate(train, score, people(), rounds=2, initial=START, progress=False, in_the_clear=fedavg)
    assert clear.notes == result.notes[1:]


def test_a_mistake_in_the_settings_costs_no_training():
    calls = []
    for wrong in ({"profile": "x"}, {"dropouts": 2.0}, {"rounds": -1}, {"nothing": 1}, {"pay": "equal"}, {"seed": "x"}):
        with pytest.raises(SettingsError):
            run(lambda model, own: calls.append(1) or train(model, own), **wrong)
    assert calls == []


@pytest.mark.second
def test_a_hundred_people_take_seconds():
    """Nothing grows with the square of them: as many messages as people."""
    result = run(data=people(100), rounds=2, lanes=128)
    assert len(result.history[1].participants) == 100
    assert np.append(*result.model) == pytest.approx(plain(people(100), 2)[-1], abs=CLOSE)
    assert result.costs["participants"].messages == 200


@pytest.mark.second
class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def test_a_state_dict_with_batch_norm_is_averaged_as_in_the_clear(self, torch, tmp_path):
        """Running means too; the counts of batches are everyone's own."""
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        start = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        data = {who: tuple(torch.tensor(part, dtype=torch.float32) for part in own) for who, own in people().items()}

        def train_network(state, own):
            network.load_state_dict(state)
            network.train()
            optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
            for _ in range(2):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(network(own[0])[:, 0], own[1]).backward()
                optimizer.step()
            return network.state_dict()  # a view of the network's memory

        result = run(train_network, None, data, initial=network.state_dict())
        state = start
        for _ in range(2):
            trained = [{k: v.clone() for k, v in train_network(state, own).items()} for own in data.values()]
            total = sum(len(own[1]) for own in data.values())
            pairs = list(zip(trained, data.values(), strict=True))
            state = {k: sum(t[k] * len(own[1]) for t, own in pairs) / total for k in start if "num" not in k}
            state |= {k: start[k] for k in start if "num" in k}
        for name, tensor in state.items():
            assert result.model[name].dtype == start[name].dtype
            assert result.model[name].numpy() == pytest.approx(tensor.numpy(), abs=1e-5), name
        assert result.notes == ("integers, and what holds no number, are not averaged: 1.num_batches_tracked",)
        network.load_state_dict(result.model)
        from safetensors.torch import load_file

        network.load_state_dict(load_file(result.save(tmp_path / "model.safetensors")))


def test_a_simulation_starts_from_a_file(tmp_path):
    result = run(train, evaluate, people(), initial=START, rounds=1)
    path = result.save(tmp_path / "start.npz")
    again = run(train, evaluate, people(), initial=path, rounds=1)
    assert [array.tolist() for array in again.model] == [
        array.tolist() for array in run(train, evaluate, people(), initial=result.model, rounds=1).model
    ]
    with pytest.raises(SettingsError, match="there is no model at"):
        run(train, evaluate, people(), initial=str(tmp_path / "none.npz"))


def test_a_file_of_one_array_is_that_array(tmp_path):
    np.savez(tmp_path / "start.npz", np.arange(3.0))
    result = run(lambda model, _own: model + 1, None, people(), initial=tmp_path / "start.npz", rounds=1)
    assert result.model == pytest.approx([1.0, 2.0, 3.0], abs=CLOSE)


def test_people_without_samples_are_named():
    with pytest.raises(NothingToAverage, match="p0, p1, p2 had no samples"):
        run(lambda model, _: (model, 0), None, people(), initial=START)
