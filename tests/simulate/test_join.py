"""crowdfl.join: the same two functions in a real campaign, over HTTP and TLS, from the requester's file to being paid."""

import hashlib
import json
import sys
import threading
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import crowdfl
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.invitations import Certificate
from crowdfl.documents.signed import participant_name
from crowdfl.errors import ModelMismatch, PackageMissing, SettingsError, TooFewParticipants
from crowdfl.joining import AcceptedInvitation, JoinedRound, JoinResult, _form
from crowdfl.learning.models.shape import ModelShape
from crowdfl.roles.participant.participant import Participant
from crowdfl.services.client.opening import invited, read_invitation
from crowdfl.settings import ParticipantSettings
from tests.cli.program import call
from tests.cli.test_campaign import PATIENCE, Campaign
from tests.simulate.lines import START, evaluate, people, plain, train

TASK = """
purpose = "Fit a line"
terms = "Data stays with you."
readers = "Everyone who takes part."
claim_window = "10 min"

[settings]
decimals = 6
clip = 4.0
max_participants = 3
max_samples = 100
min_participants = 3
window = "5 min"
rounds = 2
budget = "9.00"

[shares]
max_norm = 8.0
lanes = 128
pay = "distance"

[training]
learner = "functions"
labels = ["value"]
"""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Three services and a task whose model is a file; people are invited, and the money is there."""
    made = Campaign(tmp_path_factory.mktemp("joined"))
    folder = made.folder
    try:
        made.serve()
        np.savez(folder / "start.npz", w=START[0], b=START[1], steps=np.array(7))
        made.post(TASK, "--initial", folder / "start.npz")
        made.do("invite", "task", "invite", made.task, folder / "invitations", "-n", 3, *made.settings)
        yield made
    finally:
        made.stop()


START_NAMED = {"w": START[0], "b": START[1]}


def invitation(campaign, person):
    return campaign.folder / f"invitations/invitation-{person}.json"


def pay_when_everyone_is_there(campaign):
    """As the requester and the platform's operator do."""
    campaign.gather(3)
    campaign.do("fund", "task", "fund", campaign.task, "18.00", "--name", "all", *campaign.settings)
    sp = campaign.folder / "roles/sp/settings.toml"
    campaign.do("confirm", "sp", "deposit", "confirm", sp, campaign.task, "all", "18.00", "EUR")


def fit_named(model, data, info):
    """Of a dictionary, as the requester's file has it."""
    assert info.rounds == 2
    weights, offset = train([model["w"], model["b"]], data)
    return {"w": weights, "b": offset}


class Interrupted(Exception):
    """Of a person's own function."""


def take_part(campaign, person, data, results):
    """One is interrupted in the second round, and goes on with a layer of its own; another hands over an example."""
    calls = []

    def train_own(model, own, info):
        calls.append(info.round)
        if person == 0 and calls == [1, 2]:
            raise Interrupted
        kept = {"head": model["head"] + info.round} if person == 0 else {}
        return fit_named(model, own, info) | kept

    given = {"yes": True, "least_participants": 3}
    example = {"b": np.float32(0), "w": np.zeros(3, dtype=np.float32), "steps": 3} if person == 1 else None
    own = (
        {"initial": START_NAMED | {"head": np.zeros(2)}, "personalize": "head"} if person == 0 else {"initial": example}
    )
    loss = lambda model, own: evaluate([model["w"], model["b"]], own)  # noqa: E731

    def run():
        joining = crowdfl.join(invitation(campaign, person), **given)
        return joining.run(train_own, loss, data, **own, progress=person == 2)

    try:
        results[person] = run()
    except Interrupted as error:
        results[person, "note"] = error.__notes__[0]
        results[person] = run()
    results[person, "calls"] = calls


@pytest.mark.second
def test_a_campaign_of_functions_is_averaged_as_in_the_clear_and_paid(campaign, tmp_path, capsys):
    """Three people, two rounds; whoever was interrupted goes on."""
    data, results = list(people(3).values()), {}
    threads = [
        threading.Thread(target=take_part, args=(campaign, person, own, results), daemon=True)
        for person, own in enumerate(data)
    ]
    for thread in threads:
        thread.start()
    pay_when_everyone_is_there(campaign)
    for thread in threads:
        thread.join(PATIENCE)
    assert [results[person, "calls"] for person in range(3)] == [[1, 2, 2], [1, 2], [1, 2]], campaign.logs()
    assert "round 2" in results[0, "note"]
    assert results[0].model["head"].tolist() == [3.0, 3.0]  # from round to round, and never sent
    models = plain({str(place): own for place, own in enumerate(data)}, 2)
    for person in range(3):
        result = results[person]
        assert (result.task, result.state) == (campaign.task, "finished")
        assert [one.samples for one in result.history] == [len(data[person][1])] * 2
        assert list(result.history[0].metrics) == ["loss"]
        assert np.append(result.model["w"], result.model["b"]) == pytest.approx(models[0], abs=2e-6)
        assert result.paid == sum(result.rewards.values()) > 0
    again = crowdfl.join(invitation(campaign, 2), yes=True).run(pytest.fail, data=data[2], progress=False)
    assert (again.history, again.paid) == (results[2].history, results[2].paid)  # what happened, not an empty table
    assert results[1].model["w"].dtype == np.float32
    assert results[1].model["steps"] == 3
    assert "uploaded" not in capsys.readouterr().out  # words, not events
    fetched = call("task", "fetch", campaign.task, tmp_path / "model.npz", "--json", *campaign.settings)
    assert fetched.code == 0, fetched
    with np.load(tmp_path / "model.npz") as model:
        assert np.append(model["w"], model["b"]) == pytest.approx(models[1], abs=2e-6)
    earned = sum(results[person].paid for person in range(3))
    assert Decimal("17.9999") <= earned <= 18


@pytest.mark.second
def test_nobody_joins_without_having_agreed(campaign, tmp_path, monkeypatch):
    """Where nobody can be asked the error shows the task and says what to write; a no is a no."""
    home = {"home": tmp_path / "me", "least_participants": 3}
    with pytest.raises(SettingsError) as asked:
        crowdfl.join(invitation(campaign, 0), **home)
    for words in ("Purpose: Fit a line", "by a function of your own", "Noise: none", "invitation-0.json", "yes=True"):
        assert words in str(asked.value)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _words: "no")
    with pytest.raises(SettingsError, match="the answer was no"):
        crowdfl.join(invitation(campaign, 0), **home)
    monkeypatch.setattr("builtins.input", lambda _words: "Y")
    assert "Fit a line" in crowdfl.join(invitation(campaign, 0), **home).look()
    assert not (tmp_path / "me/keys").exists()
    with pytest.raises(TooFewParticipants):
        crowdfl.join(invitation(campaign, 0), home=tmp_path / "other", yes=True)


def test_an_invitation_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match="no invitation at"):
        crowdfl.join(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("[")
    with pytest.raises(SettingsError, match="not an invitation"):
        crowdfl.join(tmp_path / "bad.json")
    assert not (tmp_path / "bad.home").exists()
    with pytest.raises(SettingsError, match="cannot be read: Not a directory"):
        crowdfl.join(tmp_path / "bad.json/invitation.json")


@pytest.mark.parametrize("least", [0, -1, True, 2.5, "5"])
def test_a_least_number_of_people_that_cannot_be_is_named(tmp_path, least):
    """And not kept: a later run would take it up."""
    mine = made_up_invitation(tmp_path, "mine", SigningKey.fresh())
    with pytest.raises(SettingsError, match="least_participants"):
        crowdfl.join(mine, least_participants=least)
    assert list((tmp_path / "mine.home").iterdir()) == []


def test_an_invitation_is_not_in_what_is_printed():
    """Whoever has it can join in somebody's place."""
    settings = ParticipantSettings.model_construct(task="t", invitation="secret")
    assert "secret" not in repr(settings) + str(AcceptedInvitation(settings, Path("home")))


def made_up_invitation(folder, name, key):
    places = {"kgc": "https://127.0.0.1:1", "sp": "https://127.0.0.1:1", "ca": None, "insecure_test_key": False}
    keys = {"kgc_key": key.public.hex(), "sp_key": key.public.hex()}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"task": "b" * 64, "invitation": name, **places, **keys}))
    return path


@pytest.mark.parametrize(("task", "of"), [("a", "task"), ("b", "invitation, and so of another person")])
def test_a_home_is_of_one_task_and_one_person(tmp_path, task, of):
    """Another is refused before anybody is asked whether to take part, with keys that cannot."""
    key = SigningKey.fresh()
    mine, home = made_up_invitation(tmp_path, "mine", key), tmp_path / "me"
    home.mkdir()
    (home / "certificate").write_text(Certificate(task * 64, participant_name(key.public), "", "").sign(key))
    (home / "invitation").write_text(hashlib.sha256(b"another").hexdigest())
    with pytest.raises(SettingsError, match=f"me is the home of another {of}: name another folder"):
        crowdfl.join(mine, home=home, yes=True)


def test_a_home_is_used_by_one_program_at_a_time(tmp_path):
    """Whoever only reads there may do so beside it."""
    found = read_invitation(made_up_invitation(tmp_path, "mine", SigningKey.fresh()))
    with invited(found, tmp_path / "me", Participant):
        with pytest.raises(SettingsError, match="another program is using the home folder"):
            invited(found, tmp_path / "me", Participant).__enter__()
        with invited(found, tmp_path / "me", Participant, reads=True) as person:
            assert person.task == found.task
    with invited(found, tmp_path / "me", Participant):
        pass


def test_without_httpx_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("crowdfl.services.client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("crowdfl.services.client.opening", raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(PackageMissing, match=r"crowdfl\[participant\]"):
        crowdfl.join("invitation.json")


def test_a_result_is_a_table():
    """As text and in a notebook; what another party said is escaped."""
    rounds = (
        JoinedRound(1, 40, {"loss": 0.25}, Decimal("1.5")),
        JoinedRound(2, None, {}, None, "the upload was not taken: <b>too late</b>"),
    )
    result = JoinResult("task", "me", "finished", rounds, [0.0], Decimal("1.5"))
    head, first, second, *rest = str(result).splitlines()
    assert head.split() == ["round", "samples", "loss", "reward"]
    assert first.split() == ["1", "40", "0.25", "1.5"]
    assert second.split()[:4] == ["2", "-", "-", "-"]
    assert rest == ["the task is finished", "paid: 1.5"]
    assert "&lt;b&gt;too late" in result._repr_html_()
    assert result.rewards == {1: Decimal("1.5")}


def test_a_result_has_rows_a_picture_and_a_file_as_a_simulation_has(tmp_path):
    rounds = JoinedRound(1, 40, {"loss": 0.25}, Decimal("1.5")), JoinedRound(2, trouble="too late")
    result = JoinResult("task", "me", "finished", rounds, {"w": np.arange(3.0)}, None)
    assert result.rows() == [{"round": 1, "samples": 40, "loss": 0.25, "reward": 1.5}, {"round": 2}]
    assert np.array_equal(np.load(result.save(tmp_path / "m.npz"))["w"], np.arange(3.0))
    pytest.importorskip("matplotlib")
    assert [axes.get_ylabel() for axes in result.plot(tmp_path / "h.png").axes] == ["loss", "samples"]
    assert (tmp_path / "h.png").stat().st_size > 1000


def test_layers_that_stay_here_are_of_an_example():
    shape = ModelShape(("w",), ((3,),))
    definition = SimpleNamespace(shape=shape, training={})
    with pytest.raises(SettingsError, match="`personalize` needs `initial`"):
        _form(definition, None, ["head"])
    form = _form(definition, {"head": np.ones(2), "w": np.zeros(3)}, ["head"])
    assert (form.shape, form.personal) == (shape, ("head",))
    with pytest.raises(ModelMismatch, match="head"):
        form.counts_like({"head": np.zeros(5)})
