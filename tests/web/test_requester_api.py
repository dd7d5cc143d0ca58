"""The requester's console: every call that its page makes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crowdfl.cli.task.template import template
from crowdfl.disclosures import learnt_in
from crowdfl.documents.invitations import Ticket
from crowdfl.documents.links import read_link
from crowdfl.errors import NotReady, ServiceUnavailable, SettingsError
from crowdfl.learning.models.forms import from_npz, from_safetensors
from crowdfl.schema import settable
from crowdfl.services.client.opening import read_invitation
from crowdfl.storage.model_files import read_model
from crowdfl.task_tables import OWN_SETTINGS
from crowdfl.web.requester_console.form import SECTIONS, contents, faults, form, start_values, values_of
from crowdfl.web.requester_console.model_evaluation import recipe_shown
from tests.cli.program import call
from tests.hosts import raising
from tests.http import conftest as http
from tests.web.consoles import Browser, Office, office_over, problem, small_values, task_of
from tests.web.pages import WEB

portal = http.portal
SCRIPT = '<img src=x onerror="document.title=1"><script>alert(1)</script>'


@pytest.fixture(scope="module")
def office(tmp_path_factory, portal) -> Iterator[Office]:
    """A requester's, over a platform in this process. Each test makes a task of its own, by its purpose."""
    with office_over(tmp_path_factory.mktemp("office"), portal) as office:
        yield office


@pytest.fixture(scope="module")
def browser(office) -> Browser:
    return office.browser()


@pytest.fixture
def task(browser, request) -> str:
    return browser.create(small_values(task={"purpose": request.node.name}))


@pytest.fixture(scope="module")
def campaign(office, browser) -> str:
    """Two rounds, without rewards, of a task that was created by way of the page: with a server step and scaled inputs."""
    step = {"budget": "", "server_step": "fedavgm", "server_rate": "0.9"}
    inputs = {"features": "spectral", "scale_inputs": True, "proximal": "0.1"}
    task = browser.create(small_values(settings=step, training=inputs))
    office.gather(task)
    for number in (1, 2):
        office.play(task, number)
    return task


# The form.


def test_the_form_has_every_setting_and_the_page_words_for_each():
    found = form()["fields"]
    words = (WEB / "requester/text/en.js").read_text()
    assert [one for one in found if words.count(f"    {one['section']}_{one['name']}: ") != 2] == []  # label and hint
    for section, model in SECTIONS.items():
        own = [one for one in found if one["section"] == section]
        assert {one["name"] for one in own} == set(settable(model)) - SECTIONS.keys() - OWN_SETTINGS.keys() - {"texts"}
    kinds = {f"{one['section']}.{one['name']}": one["kind"] for one in found}
    assert kinds["settings.window"] == "number"
    assert kinds["training.window_samples"] == "whole"
    assert kinds["settings.budget"] == "money"
    assert kinds["training.standardise"] == kinds["training.scale_inputs"] == "flag"
    assert kinds["settings.server_step"] == kinds["training.features"] == "choice"
    assert kinds["training.proximal"] == "number"
    assert next(one["choices"] for one in found if one["name"] == "profile") == ["shares", "hardened", "paper"]


def test_a_start_says_what_the_command_line_says_of_the_same_task(browser, tmp_path):
    """But for the pay: the page suggests a fixed amount, which people are told; a task file begins with a budget."""
    fixed = re.sub(r"^budget = .*\n", "", template, flags=re.MULTILINE)
    assert fixed != template
    fixed = fixed.replace("[shares]\n", '[shares]\npay = "fixed"\neach = "2.00"\nbonus = "1.00"\n')
    (tmp_path / "task.toml").write_text(fixed)
    told = json.loads(call("task", "explain", tmp_path / "task.toml", "--json").out)
    starts = {one["name"]: one["values"] for one in browser.get("form").json()["starts"]}
    answer = browser.post("explain", {"values": starts["watch"]}).json()
    assert (answer["errors"], answer["problem"]) == ({}, None)
    own, told = answer["explanation"], {name: said for name, said in told.items() if name != "tried"}
    plans = [re.sub(r"\d\d:\d\d(:\d\d)?", "", "\n".join(one.pop("plan"))) for one in (own, told)]
    assert plans[0] == plans[1]  # but for the moment at which each was asked
    assert own == told
    phones = browser.post("explain", {"values": starts["phones"]}).json()["explanation"]
    assert (phones["profile"], phones["parameters"], phones["warnings"]) == ("shares", 27 * 32 + 32 + 32 * 4 + 4, [])
    assert "SP" in phones["dealt"]


def test_what_is_typed_becomes_what_a_task_file_holds():
    typed = small_values(
        settings={"clip": "16", "late": "1.5", "pay": ""},
        training={"layers": "64\nrelu\n32", "learner": "network"},
    )
    found = contents(typed)
    assert found["settings"]["clip"] == 16
    assert isinstance(found["settings"]["clip"], int)
    assert found["settings"]["late"] == "1.5 s"
    assert not {"mask_bits", "pay"} & {*found["settings"], *found["shares"]}
    assert found["training"]["layers"] == [64, "relu", 32]
    assert found["training"]["labels"][:2] == ["PEN", "ABD"]
    assert found["training"]["standardise"] is False


def test_sensors_and_questions_are_typed_in_lines_and_shown_as_they_were():
    asked = "pain | Does it hurt? | no, a little, much | feature\nbusy | Were you busy? | no, yes | feature"
    values = small_values(training={"sensors": "speed\nloudness", "questions": asked, "features": "motion"})
    definition, _ = task_of(values)
    assert definition.training["sensors"] == ["speed", "loudness"]
    assert definition.training["questions"][0]["choices"] == ["no", "a little", "much"]
    again = values_of(definition)["training"]
    assert (again["sensors"], again["questions"]) == ("speed\nloudness", asked)
    assert "training.questions" in faults(small_values(training={"questions": "pain"}))


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"settings": {"rounds": "three"}}, "settings.rounds", "`rounds` is 'three'; expected a whole number"),
        ({"settings": {"rounds": "0"}}, "settings.rounds", "at least 1"),
        ({"settings": {"budget": "1.2345678"}}, "settings.budget", "amount of money"),
        ({"settings": {"min_participants": "9"}}, "settings.min_participants", "expected at most `max_participants`"),
        ({"settings": {"clip": "nan"}}, "settings.clip", "expected a number"),
        ({"task": {"purpose": ""}}, "task.purpose", "missing"),
        ({"task": {"claim_window": "soon"}}, "task.claim_window", "'soon'"),
        ({"training": {"labels": ""}}, "training.labels", "missing"),
        ({"training": {"labels": "a\na"}}, "training.labels", "different strings"),
        ({"training": {"learner": "mine"}}, "training.learner", "package.module:Class"),
        ({"training": {"rate": "-1"}}, "training.rate", "above 0"),
        ({"settings": {"profile": "shares", "roundz": "3"}}, "settings.rounds", "unknown setting `roundz`"),
    ],
)
def test_a_wrong_value_is_named_at_its_field_and_nothing_is_made(browser, office, typed, field, words):
    """The same when the page asks, and when it is told to create the task all the same."""
    values, before = small_values(**typed), office.world.requester.tasks()
    answer = browser.post("explain", {"values": values}).json()
    assert answer["explanation"] is None
    assert words in answer["errors"][field]
    refused = browser.post("tasks", {"values": values})
    assert (refused.status_code, problem(refused)) == (422, "settings-error")
    assert refused.json()["faults"] == answer["errors"]
    assert office.world.requester.tasks() == before


def test_all_wrong_values_are_named_at_once(browser):
    typed = {"settings": {"rounds": "x", "decimals": "99"}, "training": {"epochs": "-1"}, "task": {"terms": ""}}
    errors = browser.post("explain", {"values": small_values(**typed)}).json()["errors"]
    assert set(errors) == {"settings.rounds", "settings.decimals", "training.epochs", "task.terms"}


KEYED = {"weighting": "samples", "max_norm": ""}  # as profiles with a key have it


def test_a_task_that_does_not_fit_is_answered_with_the_numbers_before_anything_is_sent(browser):
    """Values that are right one by one: their widths together are not."""
    wide = {"profile": "hardened", "key_bits": "512", "decimals": "9", "clip": "1000", "lanes": "1024"} | KEYED
    answer = browser.post("explain", {"values": small_values(settings=wide)}).json()
    assert answer["errors"] == {}
    assert re.search(r"\d+ bits", answer["problem"])
    assert any(name.startswith("settings.") for name in answer["named"])


def test_the_answer_changes_with_the_form(browser):
    values = [small_values(settings={"max_participants": most}) for most in ("4", "4000")]
    few, many = (browser.post("explain", {"values": one}).json() for one in values)
    assert few["explanation"]["widths"] != many["explanation"]["widths"]
    assert few["cost"] == 72_000_000
    assert "people         count once" in few["explanation"]["widths"]
    bound = browser.post("explain", {"values": small_values(settings={"max_norm": ""})}).json()
    assert (bound["problem"][:14], bound["named"]) == ("the profile `s", ["settings.max_norm"])
    free = browser.post("explain", {"values": small_values(settings=KEYED | {"budget": ""})}).json()
    assert any("no norm bound" in words for words in free["explanation"]["warnings"])
    assert free["cost"] == 0


# Tasks.


def test_the_same_form_is_always_the_same_task(browser, task):
    made = browser.create(small_values(task={"purpose": SCRIPT}))
    assert browser.create(small_values(task={"purpose": SCRIPT})) == made
    assert {made, task} <= {one["task"] for one in browser.get("overview").json()["tasks"]}
    found = browser.get(f"tasks/{made}")
    assert found.headers["content-type"] == "application/json"
    assert found.json()["purpose"] == SCRIPT  # as it was typed: the page makes text of it
    assert found.json()["values"]["settings"]["rounds"] == "2"
    assert browser.create(found.json()["values"]) == made  # what was read back is the same task again


def test_a_creation_that_was_cut_off_can_be_finished(browser, office, monkeypatch):
    before = set(office.world.requester.tasks())
    with monkeypatch.context() as patch:
        away = raising(ServiceUnavailable("SP cannot be reached"))
        patch.setattr(type(office.world.requester.sp), "create_task", away)
        failed = browser.ended(browser.post("tasks", {"values": small_values(task={"purpose": "cut off"})}))
    assert (failed["state"], problem(failed["error"])) == ("failed", "service-unavailable")
    (task,) = set(office.world.requester.tasks()) - before
    status = browser.get(f"tasks/{task}/status")
    assert (status.status_code, problem(status)) == (404, "unknown-task")
    assert browser.done(f"tasks/{task}/post") == {"task": task}
    assert browser.get(f"tasks/{task}/status").status_code == 200


def test_a_report_is_a_page_in_the_readers_language(browser, task):
    found = browser.get(f"tasks/{task}/report.de.html")
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert '<html lang="de">' in found.text
    assert "Was jede Seite erfahren hat" in found.text
    refused = browser.get(f"tasks/{task}/report.fr.html")
    assert problem(refused) == "settings-error"
    assert "choose en, de, zh" in refused.json()["detail"]


def test_a_task_says_what_it_waits_for(browser, office, task):
    found = browser.get(f"tasks/{task}/status").json()
    people = {"code": "people", "count": 3, "joined": 0, "needed": 3}
    assert found["waits"] == [people, {"code": "unannounced", "amount": 36_000_000, "currency": "EUR"}]
    assert found["unpaid"] == 72_000_000
    made = browser.post(f"tasks/{task}/deposits", {"amount": "36", "name": "first"}).json()
    assert made == {"deposit": "first", "amount": 36_000_000, "state": "pending"}
    found = browser.get(f"tasks/{task}/status").json()
    assert found["report"]["deposits"] == [{"name": "first", "amount": 36_000_000, "state": "pending"}]
    assert (found["waits"][1]["code"], found["waits"][1]["name"]) == ("confirming", "first")
    assert found["unpaid"] == 36_000_000
    office.confirm(task, "first", 36_000_000)
    assert browser.get(f"tasks/{task}/status").json()["waits"] == [people]
    office.gather(task)
    assert browser.get(f"tasks/{task}/status").json()["waits"][0]["code"] == "uploads"


def test_a_wrong_amount_announces_nothing_and_one_that_is_sent_twice_one_deposit(browser, task):
    for amount in ("", "abc", "-3", "1.0000001", "0", "1e99"):
        refused = browser.post(f"tasks/{task}/deposits", {"amount": amount, "name": "same"})
        assert (refused.status_code, problem(refused)) == (422, "settings-error"), amount
    for _ in range(2):
        assert browser.post(f"tasks/{task}/deposits", {"amount": "5.5", "name": "same"}).status_code == 200
    assert browser.get(f"tasks/{task}/status").json()["report"]["pending"] == 5_500_000
    assert browser.post(f"tasks/{task}/deposits", {"amount": "6", "name": "same"}).status_code == 409


def test_invitations_come_as_links_and_codes_and_stay_private(browser, office, task):
    place = f"tasks/{task}/invitations"
    for count, days, wrong in ((0, 3, "count"), (1001, 3, "count"), (1, -1, "days"), ("2", 3, "count")):
        refused = browser.post(place, {"count": count, "days": days})
        assert (refused.status_code, problem(refused)) == (422, "invalid-request")
        assert [one["at"] for one in refused.json()["errors"]] == [wrong]
    before = len(browser.get(place).json()["invitations"])
    assert browser.post(place, {"count": 2, "days": 3}).json()["made"] == [0, 1]
    assert "has no plan" in browser.post(place, {"count": 60, "days": 0.5}).json()["warning"]
    made = [one for one in browser.get(place).json()["invitations"] if one["number"] is not None]
    assert len(made) == 62
    whole = Path(made[1]["file"]).read_bytes()
    Path(made[1]["file"]).write_bytes(whole[:100])  # as after a full disk
    states = [one["state"] for one in browser.get(place).json()["invitations"] if one["number"] is not None]
    assert states == ["unused", "damaged", *["unused"] * 60]
    assert list(browser.get(f"tasks/{task}/codes/0").json())[:2] == ["0", "2"]
    Path(made[1]["file"]).write_bytes(whole)
    assert before + 62 == len(browser.get(place).json()["invitations"])
    for number, one in enumerate(made):
        assert (one["number"], one["state"], one["who"], one["sent"]) == (number, "unused", None, [])
        assert one["link"].startswith("https://sp.example:7102/join/#")
        assert read_link(one["link"]).task == task
        path = Path(one["file"])
        assert path.is_relative_to(office.folder)
        assert path.stat().st_mode & 0o077 == 0
    assert len({one["link"] for one in made}) == 62
    codes = [browser.get(f"tasks/{task}/codes/{first}").json() for first in (0, 50)]
    assert [len(some) for some in codes] == [50, 12]
    assert all(picture.startswith("data:image/svg+xml;base64,") for some in codes for picture in some.values())


def test_each_invitation_says_what_became_of_it(browser, office, monkeypatch):
    """Unused, joined, sent: by the name in the task. Somebody else's requester is told nothing."""
    task = browser.create(small_values())
    place = f"tasks/{task}/invitations"
    browser.post(place, {"count": 2, "days": 3})
    used = read_invitation(office.folder / "invitations" / task / "invitation-0.json").invitation
    monkeypatch.setattr(office.world.requester, "invite", lambda *_, **__: [used])
    person = office.world.join(task, "by the first")
    first, second = browser.get(place).json()["invitations"]
    assert (first["who"], first["state"], first["sent"]) == (person.keys.who, "in", [])
    assert (second["who"], second["state"]) == (None, "unused")
    person.leave()
    assert browser.get(place).json()["invitations"][0]["state"] == "left"


def test_a_lost_phone_is_replaced_from_the_list(browser, office, task):
    """By one invitation that names whose place it takes, and by nothing that is no name in the task."""
    place, who = f"tasks/{task}/invitations", office.world.join(task, "with a phone that gets lost").keys.who
    (number,) = browser.post(place, {"count": 1, "days": 3, "replaces": who}).json()["made"]
    path = office.folder / "invitations" / task / f"invitation-{number}.json"
    found, (used,) = (
        Ticket.parse(read_invitation(path).invitation).opened,
        office.world.kgc.store.used_invitations(task),
    )
    assert (found.number, found.device, used.who) == (used.number, 2, who)
    rows = {one["number"]: one["replaces"] for one in browser.get(place).json()["invitations"]}
    assert rows == {number: who, None: None}, "its own file is not here: by the name in the task"
    assert browser.post(place, {"count": 1, "days": 3, "replaces": "../somebody"}).status_code == 422


def test_a_form_holds_the_consent_and_what_people_read_in_other_languages(browser, office):
    german = {
        "purpose": "Übungen erkennen",
        "terms": "",
        "readers": "",
        "consent": "Ich stimme zu.",
        "words": "PEN = Pendel",
    }
    values = small_values(consent={"version": "2", "text": "I agree."}) | {"texts.de": german}
    task = browser.create(values)
    definition = office.world.requester.definition(task)
    assert (definition.consent.version, definition.texts["de"].words) == ("2", {"PEN": "Pendel"})
    again = browser.get(f"tasks/{task}").json()["values"]
    assert again["texts.de"] == german
    assert again["consent"] == {"version": "2", "text": "I agree."}
    wrong = browser.post("explain", {"values": values | {"texts.de": german | {"words": "RUN = Lauf"}}}).json()
    assert "no label or question of this task" in wrong["problem"]


def test_an_invitation_to_what_phones_cannot_compute_is_a_file_alone(browser):
    task = browser.create(small_values(settings=KEYED | {"profile": "hardened", "key_bits": "1536", "budget": ""}))
    browser.post(f"tasks/{task}/invitations", {"count": 1, "days": 3})
    answer = browser.get(f"tasks/{task}/invitations").json()
    (made,) = answer["invitations"]
    assert made["link"] is None
    assert browser.get(f"tasks/{task}/codes/0").json() == {}
    assert "profile shares only" in answer["no_phones"]
    assert json.loads(Path(made["file"]).read_text())["task"] == task


def test_the_form_says_that_phones_cannot_take_part(browser):
    layers = {"learner": "network", "layers": "conv 4 5\nrelu", "features": "flat"}
    warnings = browser.post("explain", {"values": small_values(training=layers)}).json()["explanation"]["warnings"]
    assert warnings[-1] == "no phones: the task trains a convolutional network, which the page cannot"
    spectral = {"learner": "softmax", "features": "spectral", "scale_inputs": True, "proximal": "0.1"}
    step = {"server_step": "fedyogi", "server_rate": "0.05"}
    fits = browser.post("explain", {"values": small_values(training=spectral, settings=step)}).json()
    assert (fits["errors"], fits["problem"]) == ({}, None)
    assert not [words for words in fits["explanation"]["warnings"] if words.startswith("no phones")]


def test_orders_are_given_and_others_are_refused(browser, task):
    for action, after in {"pause": "paused", "resume": "running", "close": "running", "cancel": "cancelled"}.items():
        assert browser.post(f"tasks/{task}/orders", {"action": action}).status_code == 204
        assert browser.get(f"tasks/{task}/status").json()["status"]["state"] == after
    assert problem(browser.post(f"tasks/{task}/orders", {"action": "explode"})) == "campaign-error"
    assert problem(browser.post(f"tasks/{task}/orders", {"action": "pause"})) in ("task-not-running", "task-ended")


@pytest.mark.parametrize(
    "path",
    [
        "tasks/{}",
        "tasks/{}/status",
        "tasks/{}/invitations",
        "tasks/{}/known",
        "tasks/{}/consents",
        "tasks/{}/model.npz",
    ],
)
def test_a_task_of_somebody_else_is_not_here(browser, path):
    answer = browser.get(path.format("a" * 64))
    assert (answer.status_code, problem(answer)) == (404, "unknown-task")
    for name in ("../../x", "..", "%2e%2e", "x" * 32):
        assert browser.get(path.format(name)).status_code in (404, 422)


def test_a_task_that_cannot_be_read_leaves_the_others_in_sight(browser, office, task):
    """Such as one that a newer version has written."""
    bad = browser.create(small_values(task={"purpose": "damaged"}))
    own = office.world.requester.blobs
    definition = own.get(f"{bad}/definition")
    own.delete(f"{bad}/definition")
    own.put(f"{bad}/definition", definition.replace(b'"rounds"', b'"roundz"'))
    found = browser.get("overview").json()
    assert task in [one["task"] for one in found["tasks"]]
    (unread,) = found["unread"]
    assert (unread["task"], bool(unread["why"])) == (bad, True)


def test_what_the_page_would_not_send_is_refused(browser):
    """A body that is too long or of another form; an action that nobody started."""
    assert browser.post("explain", {"values": {"task": {"purpose": "x" * 300_000}}}).status_code == 413
    assert problem(browser.post("explain", {"values": {"task": {"purpose": 3}}})) == "invalid-request"
    assert browser.post("explain", {"values": {}, "more": 1}).status_code == 422
    assert browser.http.post("/api/explain", content=b"{", headers=browser.headers).status_code == 422
    assert problem(browser.get(f"jobs/{'0' * 16}")) == "not-ready"


def test_a_platform_that_is_away_is_named(browser, office, task, monkeypatch):
    away = ServiceUnavailable("https://sp.example:7102 cannot be reached (ConnectError)\nsecond line")
    monkeypatch.setattr(type(office.world.requester.sp), "status", raising(away))
    answer = browser.get(f"tasks/{task}/status")
    assert answer.status_code == 503
    assert "https://sp.example:7102 cannot be reached" in answer.json()["detail"]  # the one who reads this may know
    assert browser.get(f"tasks/{task}").status_code == 200


# What was learnt.


def test_accuracy_is_shown_by_round_with_its_baseline_and_computed_once(office, browser, campaign, monkeypatch):
    found = browser.done(f"tasks/{campaign}/accuracy", {"data": ["watch:0", " watch:5 ", ""]})
    assert [one["number"] for one in found["rounds"]] == [0, 1, 2]
    assert found["unread"] == []
    assert all(one["windows"] == found["rounds"][0]["windows"] for one in found["rounds"])
    assert found["rounds"][-1]["accuracy"] > found["rounds"][0]["accuracy"]
    monkeypatch.setattr(type(office.world.requester), "read", raising(AssertionError("this was computed before")))
    assert browser.done(f"tasks/{campaign}/accuracy", {"data": ["watch:0", "watch:5"]}) == found


def test_the_state_after_each_round_is_the_one_that_participants_have(office, browser, campaign):
    found = browser.done(f"tasks/{campaign}/accuracy", {"data": ["watch:2"]})
    states = [one["state"] for one in found["rounds"]]
    assert states[0] is None
    assert [person.states()[1] for person, _ in office.crowd] == [states[1]] * len(office.crowd)
    assert states[2] == office.world.requester.states(campaign)[2] != states[1]
    read = office.world.requester.read(campaign, 2)
    assert not np.array_equal(read.model, read.weights)
    shape = office.world.requester.definition(campaign).shape
    assert all(map(np.array_equal, office.actions.evaluation.model(campaign), shape.arrays(read.model)))


def test_a_round_that_the_requester_may_not_read_is_named(office, browser, campaign, monkeypatch):
    monkeypatch.setattr(type(office.world.requester), "read", raising(NotReady("round 1 is not for this reader")))
    found = browser.done(f"tasks/{campaign}/accuracy", {"data": ["watch:3"]})
    assert [one["number"] for one in found["rounds"]] == [0]
    assert [one["number"] for one in found["unread"]] == [1, 2]
    assert found["unread"][0]["why"] == "round 1 is not for this reader"


def test_the_model_is_fetched_in_either_format_or_written_to_a_file(office, browser, campaign, tmp_path):
    definition, wanted = office.world.requester.definition(campaign), office.actions.evaluation.model(campaign)
    for form_, read in {"npz": from_npz, "safetensors": from_safetensors}.items():
        answer = browser.get(f"tasks/{campaign}/model.{form_}")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert all(map(np.array_equal, read(definition.shape, answer.content), wanted))
    assert browser.get(f"tasks/{campaign}/model.json").json()["task"] == campaign
    assert browser.get(f"tasks/{campaign}/model.pkl").status_code == 422
    written = browser.post(f"tasks/{campaign}/model", {"path": str(tmp_path / "m.npz")}).json()["model"]
    assert all(map(np.array_equal, read_model(Path(written))[1], wanted))
    for path in (
        tmp_path / "m.pkl",
        tmp_path / "nowhere" / "m.npz",
        tmp_path,
        "~nobody-of-this-name/m.npz",
        "a\0b.npz",
    ):
        refused = browser.post(f"tasks/{campaign}/model", {"path": str(path)})
        assert (refused.status_code, problem(refused)) == (422, "settings-error")


def test_the_model_is_evaluated_class_by_class(office, browser, campaign, tmp_path):
    found = browser.done(f"tasks/{campaign}/evaluation", {"data": ["watch:1", "watch:6"]})
    assert found["labels"] == list(found["classes"])
    assert np.sum(found["confusion"]) == found["windows"]
    browser.post(f"tasks/{campaign}/model", {"path": str(tmp_path / "m.npz")})
    told = json.loads(call("evaluate", tmp_path / "m.npz", "--data", "watch:1", "--data", "watch:6", "--json").out)
    assert {name: found[name] for name in told} == told


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([], "settings-error"),
        (["nonsense"], "settings-error"),
        (["npz:/nowhere.npz#1"], "data-missing"),
        (["watch:77"], "data-missing"),
        (["csv:a\0b"], "settings-error"),
    ],
)
def test_data_that_is_not_there_is_named(office, browser, campaign, data, error):
    for action in ("accuracy", "evaluation"):
        answer = browser.post(f"tasks/{campaign}/{action}", {"data": data})
        assert problem(answer if answer.status_code == 422 else browser.ended(answer)["error"]) == error


def test_there_is_no_model_before_a_round_is_through(browser, task):
    refused = browser.get(f"tasks/{task}/model.npz")
    assert (refused.status_code, problem(refused)) == (404, "not-ready")
    found = browser.done(f"tasks/{task}/accuracy", {"data": ["watch:0"]})
    assert [one["number"] for one in found["rounds"]] == [0]


def test_what_each_party_learns_is_shown_with_this_tasks_numbers(office, browser, campaign):
    found = browser.get(f"tasks/{campaign}/known").json()
    assert set(found) <= {row.key for row in learnt_in("shares")}  # by which the page has their words
    uploads = [{"code": "uploads", "number": number, "count": 3} for number in (1, 2)]
    assert [one for one in found["shares_sp"] if one["code"] == "uploads"] == uploads
    assert found["shares_csp"][0] == {"code": "enrolled", "count": 3}


def test_every_start_is_a_whole_form():
    names = {(one["section"], one["name"]) for one in form()["fields"]}
    for start in form()["starts"]:
        assert {(section, name) for section, typed in start["values"].items() for name in typed} == names
    assert start_values({})["settings"]["profile"] == "shares"


@pytest.mark.parametrize("change", [{"target": "value"}, {"learner": "functions"}, {"learner": "a:B"}])
def test_values_and_code_of_others_are_left_to_the_command_line(change):
    """Which says how well they do, and runs code that its user names. A loss of its own does not matter any more."""
    training = {"labels": ["pace"], "channels": 3}
    with pytest.raises(SettingsError, match="for this task use `crowdfl task fetch`, then `crowdfl evaluate`"):
        recipe_shown(training | change)
    assert recipe_shown(training | {"loss": "mine:loss"}).loss is None
