"""What a result says of noise: epsilon and delta against another program's accountant, lengths against the noise itself."""

import math
from decimal import Decimal

import numpy as np
import pytest
from prv_accountant import GaussianMechanism, PRVAccountant

import crowdfl
from crowdfl.errors import SettingsError
from crowdfl.joining import JoinResult, _Pause, _Taking
from crowdfl.privacy import NEIGHBOURS, AverageNoise, PrivacyLedger, RoundPrivacy
from crowdfl.settings import TaskSettings
from tests import hosts
from tests.hosts import Desk, moved_by
from tests.simulate.lines import START, evaluate, people, train

NOISY = {"weighting": "equal", "max_norm": 2.0, "epsilon": 8.0, "noise": "any", "check": "none"}
WIDE = [np.zeros(4000)]  # noise of so many weights is as long as is to be expected, within a few hundredths
STEP = 1.9  # what everyone's training moves it by


def run(start=START, train=train, evaluate=evaluate, data=None, **given):
    usual = {"rounds": 3, "initial": start, "progress": False} | NOISY
    return crowdfl.simulate(train, evaluate, people() if data is None else data, **usual | given)


def forward(model, _data):
    """Everyone by the same, so that all the rest is noise."""
    return [model[0] + STEP / math.sqrt(len(model[0]))], 1


@pytest.fixture(scope="module")
def result():
    return run(dropouts={"p3": 1})


def by_another_program(z, rounds, delta):
    """The least and the most that so many Gaussian mechanisms cost, by the privacy loss itself."""
    accountant = PRVAccountant([GaussianMechanism(z)], max_self_compositions=[rounds], eps_error=0.01, delta_error=1e-9)
    least, _, most = accountant.compute_epsilon(delta=delta, num_self_compositions=[rounds])
    return least, most


def test_what_is_spent_is_what_another_accountant_finds(result):
    """From the figures of the result alone: one server's noise in a weight, beside what one person moves an average by."""
    ledger = result.privacy
    for number, one in enumerate(ledger.history, 1):
        z = one.noise.deviation / math.sqrt(2) / (result.settings.max_norm / one.noise.people)
        least, _ = by_another_program(z, number, ledger.delta)
        _, most = by_another_program(z, number, 0.9 * ledger.delta)  # a tenth is kept for rejections
        assert least <= one.so_far <= 1.1 * most, "never less than the truth, and hardly more"
        alone = by_another_program(z, 1, ledger.delta)
        assert alone[0] <= one.epsilon <= 1.1 * by_another_program(z, 1, 0.9 * ledger.delta)[1]
    assert ledger.history[-1].so_far <= ledger.epsilon < 1.001 * ledger.history[-1].so_far


def test_who_was_charged_and_who_has_spent(result):
    """A device charges all at its first upload; rounds that it is not in spend nothing of it."""
    ledger, names = result.privacy, tuple(people())
    assert (ledger.epsilon, ledger.delta, ledger.rounds, ledger.neighbours) == (8.0, 1e-5, 3, NEIGHBOURS)
    assert ledger.charged == dict.fromkeys(names, 8.0)
    assert [one.charged for one in ledger.history] == [names[:3], names, names]
    assert [one.spent_by for one in ledger.history] == [names[:3], names, names]
    assert {name: ledger.spent[name] for name in names[:3]} == dict.fromkeys(names[:3], ledger.history[-1].so_far)
    assert ledger.spent["p3"] == result.settings.epsilon_spent(2) < ledger.spent["p0"]
    assert ledger.spent["p0"] == result.settings.epsilon_spent(3)


def test_a_round_that_is_given_up_is_charged_and_has_spent_nothing():
    """What has left a device does not come back."""
    result = run(rounds=2, dropouts={"p2": 1, "p3": 1}, data=people(4))
    first, second = result.privacy.history
    assert (result.history[0].is_averaged, first.charged, first.spent_by) == (False, ("p0", "p1"), ())
    assert (first.epsilon, first.so_far, first.noise) == (0, 0, None)
    assert second.so_far == second.epsilon == result.settings.epsilon_spent(1)
    assert result.rows()[0]["epsilon"] == 0
    assert "noise_length" not in result.rows()[0]


def test_lengths_are_those_of_the_noise_that_is_in_the_averages():
    """Not by any seed: of 4,000 weights, a length is a fifth off once in 10^70."""
    seen = list(WIDE)
    keep = lambda done: seen.append(done.model[0]) or False  # noqa: E731
    result = run(WIDE, forward, None, rounds=2, epsilon=1000.0, on_round=keep)  # about as long as what is learnt
    for before, after, row, one in zip(seen[:-1], seen[1:], result.rows(), result.privacy.history, strict=True):
        noise = after - before - STEP / math.sqrt(4000)
        assert row["noise_deviation"] == pytest.approx(float(np.std(noise)), rel=0.2)
        assert row["noise_length"] == pytest.approx(float(np.linalg.norm(noise)), rel=0.2)
        assert row["change_length"] == pytest.approx(float(np.linalg.norm(after - before)), rel=1e-3)
        assert row["update_length"] == pytest.approx(STEP, rel=1e-6)
        measured = float(np.linalg.norm(noise) / np.linalg.norm(after - before)) ** 2
        assert row["noise_share"] == pytest.approx(measured, abs=0.1)
        assert 0.2 < measured < 0.8
        assert one.noise.people == 4


def test_a_usual_update_is_what_was_sent_and_one_in_the_middle():
    """Scaled down to `max_norm`; not the mean, which one of them could move."""
    lengths = {"a": 0.5, "b": 1.0, "c": 1.25, "d": 900.0}
    result = run(WIDE, lambda model, own: ([model[0] + own / math.sqrt(4000)], 1), None, lengths, rounds=1)
    assert result.privacy.history[0].update == pytest.approx((1.0 + 1.25) / 2)
    assert result.history[0].scaled.keys() == {"d"}
    shorter = run(
        WIDE, lambda model, own: ([model[0] + own / math.sqrt(4000)], 1), None, lengths, rounds=1, max_norm=0.5
    )
    assert shorter.privacy.history[0].update == pytest.approx(0.5)


def test_the_average_of_a_server_step_is_what_has_noise():
    """The step moves the model by less than the average has moved."""
    seen = []
    given = {"server_step": "fedavgm", "server_rate": 0.1, "on_round": lambda done: seen.append(done.model[0]) or False}
    (one,) = run(WIDE, forward, None, rounds=1, **given).privacy.history
    assert float(np.linalg.norm(seen[0])) < 0.2 * one.noise.change
    assert one.noise.change == pytest.approx(math.hypot(one.noise.length, STEP), rel=0.2)


def test_with_noise_nothing_says_that_averages_are_exact(result):
    """In the table, the notebook, the rows and the settings, whose `sigma` has its unit."""
    for told in (str(result), repr(result), result._repr_html_()):
        assert "exact" not in told
        assert "privacy: epsilon 8, delta 1e-05 over 3 rounds; neighbours: one person" in told
        assert "charged: to 4 people at the first upload; opened rounds have spent" in told
        assert "noise: of standard deviation" in told
    head = str(result).splitlines()[0]
    assert head.split()[4:12] == ["epsilon", "noise", "usual", "update", "change", "of", "it", "noise"]
    assert {"epsilon", "delta", "noise_deviation", "noise_length", "noise_share"} < result.rows()[0].keys()
    sigma = result.settings.sigma
    assert f"sigma='{sigma} units of 10^-4, which are {sigma / 10**4:.4g} in the model's own'" in repr(
        result.settings
    ).replace('"', "'")
    plain = run(epsilon=None, noise=None, max_norm=None, weighting="samples", rounds=1)
    assert plain.privacy is None
    assert plain.history[0].privacy is None
    assert "averages are exact to" in str(plain)
    assert "averages are exact to" in plain._repr_html_()
    assert not {"epsilon", "noise_length"} & plain.rows()[0].keys()
    assert "sigma=None" in repr(plain.settings)


def test_a_folder_keeps_the_ledger_and_a_campaign_that_goes_on_adds_to_it(tmp_path, result):
    """Of the rounds after a stop too: one promise for all of them."""
    stopping = {"folder": tmp_path, "on_round": lambda done: done.number == 2}
    stopped = run(**stopping)
    assert run(**stopping).privacy == stopped.privacy
    assert stopped.privacy.spent["p0"] == stopped.settings.epsilon_spent(2)
    longer = run(resume=stopped)
    assert longer.privacy.history[:2] == stopped.privacy.history
    assert longer.privacy.spent["p0"] == longer.settings.epsilon_spent(3) == result.privacy.spent["p0"]
    with pytest.raises(SettingsError, match="too little for epsilon"):  # more rounds than were promised for
        run(resume=longer, rounds=4)


def test_before_anyone_trains_the_cost_is_told_and_too_much_noise_refused(capsys):
    """For this model and this crowd."""
    calls = []
    with pytest.raises(SettingsError, match="puts noise of length"):
        run(WIDE, lambda model, own: calls.append(own) or model, None, noise=None)
    assert calls == []

    def told_already(model, data):
        calls.append(capsys.readouterr().err)
        return train(model, data)

    note = next(note for note in run(train=told_already, progress=True, rounds=1).notes if "will put noise" in note)
    assert calls[0].strip() == note
    assert note.startswith("epsilon 8, delta 1e-05 for each person over 1 rounds will put noise of length")
    assert "on an average of 4 people, where an update is at most 2 long" in note
    assert "crowdfl privacy plan --parameters 4 --rounds 1" in note
    length = float(note.split("noise of length ")[1].split()[0])
    assert length == pytest.approx(run(rounds=1).privacy.history[0].noise.length, rel=0.01)


@pytest.mark.second
def test_whoever_joins_has_a_ledger_of_its_own(tmp_path, monkeypatch):
    """What its device has charged and spent; the last average is not read, and what it costs is counted."""
    monkeypatch.delitem(hosts.SMALL_TASK, "decimals", raising=False)
    desk = Desk.funded(tmp_path, 3, **NOISY | {"budget": None, "min_participants": 3, "rounds": 2, "pay": "none"})
    person, told = desk.crowd[0], []
    person.charged_elsewhere = 4.0
    taking = _Taking(person, told.append, _Pause(None, lambda: False))
    person.on_event = taking._note
    desk.run()
    for one in desk.crowd:
        one.step(moved_by(0.1))
    (sent,) = taking._rounds(person.definition)  # and nothing is opened yet
    assert (sent.privacy.charged, sent.privacy.spent_by, sent.privacy.so_far) == ((person.keys.who,), (), 0)
    while desk.sp.tasks.status(desk.task)["state"] == "running":
        desk.run()
        for one in desk.crowd:
            one.step(moved_by(0.1))
        desk.later(100.0)
    for one in desk.crowd:
        one.step(moved_by(0.1))
    rounds = taking._rounds(person.definition)
    ledger = PrivacyLedger.of(desk.settings, (one.privacy for one in rounds), person.charged_elsewhere)
    who, mine = person.keys.who, person.epsilon()
    assert (ledger.charged, ledger.spent, ledger.others) == ({who: 8.0}, {who: mine["spent"]}, 4.0)
    assert mine["spent"] == desk.settings.epsilon_spent(2)
    first, last = ledger.history
    assert first.update == pytest.approx(0.1 * math.sqrt(8))
    assert (first.noise.people, last.noise) == (3, None)
    assert first.noise.length == pytest.approx(math.sqrt(2 * 8) * desk.settings.sigma / 3 / 10**desk.settings.decimals)
    assert any("noise of about" in line for line in told)
    result = JoinResult("task", who, "finished", tuple(rounds), [], Decimal(0), ledger)
    for shown in (str(result), result._repr_html_()):
        assert f"charged: to {who} at the first upload, beside epsilon 4 of other tasks" in shown
    assert result.rows()[0]["epsilon"] == desk.settings.epsilon_spent(1)


def test_lengths_that_nobody_knows_are_left_out():
    """Of a server that cannot read the averages."""
    settings = TaskSettings.of(**NOISY, max_participants=4)
    noise = AverageNoise.of(settings, 100, 4, None)
    one = RoundPrivacy.of(settings, [], charged="abcd", spent_by="abcd", noise=noise)
    assert one.row().keys() == {"epsilon", "delta", "noise_deviation", "noise_length"}
    (*_, words) = PrivacyLedger.of(settings, [one]).lines()
    assert words.endswith(f"{noise.deviation:.3g} in each weight of an average, {noise.length:.3g} long over all")
    unread = RoundPrivacy.of(settings, [], charged="abcd", spent_by="abcd")
    assert PrivacyLedger.of(settings, [unread]).lines()[-1] == "noise: on every average, which is not exact"
    still = AverageNoise.of(settings, 100, 4, 0.0)
    assert still.share == 1
