"""The requester's console: who may call it, and every call that its page makes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal

from crowdfl.cli.task.files import template
from crowdfl.disclosures import learnt_in, weaknesses_of
from crowdfl.documents.links import read_link
from crowdfl.errors import NotReady, ServiceUnavailable
from crowdfl.learning.models.files import from_npz, from_safetensors
from crowdfl.schema import settable
from crowdfl.settings import TaskFile, TaskSettings, TrainingSettings
from crowdfl.storage.model_files import read_model
from crowdfl.web.requester_console.form import contents, form, start_values
from crowdfl.web.requester_console.guard import HEADER, RequesterSession
from tests.cli.program import call
from tests.http.world import World
from tests.web.requesting import Browser, Office, ended, opened, small_values

SCRIPT = '<img src=x onerror="document.title=1"><script>alert(1)</script>'


@pytest.fixture(scope="module")
def portal() -> Iterator[Any]:
    """An event loop in a thread."""
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture
def place(portal, tmp_path, monkeypatch) -> Iterator[tuple[Office, Browser]]:
    """A page that is open, over a platform of its own."""
    world = World(tmp_path, portal)
    (tmp_path / "own").mkdir(mode=0o700)
    with opened(world, tmp_path / "own", monkeypatch) as both:
        yield both
    world.close()


@pytest.fixture
def office(place) -> Office:
    return place[0]


@pytest.fixture
def browser(place) -> Browser:
    return place[1]


@pytest.fixture(scope="module")
def campaign(portal, tmp_path_factory) -> Iterator[tuple[Office, Browser, str]]:
    """Two rounds, without rewards, of a task that was created by way of the page: with a server step and scaled inputs."""
    folder = tmp_path_factory.mktemp("campaign")
    world = World(folder, portal)
    (folder / "own").mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch, opened(world, folder / "own", patch) as (office, browser):
        step = {"budget": "", "server_step": "fedavgm", "server_rate": "0.9"}
        inputs = {"features": "spectral", "scale_inputs": True, "proximal": "0.1"}
        task = browser.create(small_values(settings=step, training=inputs))
        office.gather(task)
        for number in (1, 2):
            office.play(task, number)
        yield office, browser, task
    world.close()


# Who may call it.


@pytest.mark.parametrize(
    "host", ["localhost:7999", "evil.example", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:7999.evil.example"]
)
@pytest.mark.parametrize("path", ["/", "/requester/main.js", "/api/overview"])
def test_a_name_that_somebody_points_at_this_machine_opens_nothing(browser, host, path):
    """DNS rebinding: the browser would take another site's page for this one."""
    answer = browser.http.get(path, headers=browser.headers | {"Host": host})
    assert answer.status_code == 421
    assert "tasks" not in answer.text


def test_the_printed_secret_opens_one_session_once(office):
    session = RequesterSession(7999)
    first, second = Browser(office, session), Browser(office, session)
    address = session.address
    assert re.fullmatch(r"http://127\.0\.0\.1:7999/#open=[\w-]{40,}", address)
    assert first.post("session", {"secret": "wrong"}).status_code == 401
    answer = first.open()
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "Path=/api/" in cookie
    assert first.get("overview").status_code == 200
    again = second.post("session", {"secret": address.partition("=")[2]})
    assert again.status_code == 401
    assert "Ctrl-C" in again.json()["detail"]
    assert first.get("overview").status_code == 200


def test_neither_half_of_a_session_is_enough(office):
    """A browser sends cookies to every port of a host: whoever listens at another one has that half."""
    browser = Browser(office)
    answer = browser.open()
    half, cookie = answer.json()["half"], answer.cookies["crowdfl-console-7999"]
    assert half != cookie
    assert browser.get("overview", **{HEADER: cookie}).status_code == 401
    assert browser.get("overview", **{HEADER: "-"}).status_code == 401
    browser.http.cookies.clear()
    assert browser.get("overview").status_code == 401
    assert browser.get("overview", Cookie=f"crowdfl-console-7999={half}").status_code == 401
    assert browser.get("overview", Cookie=f"crowdfl-console-7999={cookie}").status_code == 200


@pytest.mark.parametrize(
    "other", ['theirs={"a": 1}', "a[1]=2", "bare", 'open="a b', "path=/", "crowdfl-console-7999=theirs"]
)
def test_a_cookie_of_another_program_on_this_machine_does_not_close_the_page(office, other):
    """A browser sends those of all ports, whatever they look like."""
    browser = Browser(office)
    own = f"crowdfl-console-7999={browser.open().cookies['crowdfl-console-7999']}"
    browser.http.cookies.clear()
    for cookies in (f"{other}; {own}", f"{own}; {other}"):
        assert browser.get("form", Cookie=cookies).status_code == 200
    assert browser.get("form", Cookie=other).status_code == 401


def api_routes(browser_app) -> set[tuple[str, str]]:
    """Method and path of each call, with names filled in."""
    found = [(method, route.path) for route in browser_app.routes for method in getattr(route, "methods", ())]
    names = {"{task}": "0" * 32, "{name}": "0" * 16, "{form}": "npz"}
    filled = set()
    for method, path in found:
        for name, value in names.items():
            path = path.replace(name, value)  # noqa: PLW2901
        if path.startswith("/api/") and path != "/api/session":
            filled.add((method, path))
    return filled


def test_no_call_is_answered_without_a_session(office):
    session = RequesterSession(7999)
    routes = api_routes(office.app(session))
    assert len(routes) > 15
    browser = Browser(office, session)
    for method, path in sorted(routes):
        answer = browser.http.request(method, path, headers=browser.headers, json={})
        assert (answer.status_code, answer.json()["error"]) == (401, "NoSession"), (method, path)


def test_no_other_page_can_change_anything(browser, office):
    """Another site's, or another port's on this machine, whose requests carry the cookie."""
    task = browser.create(small_values())
    foreign: list[tuple[str, str | None]] = [
        ("Origin", "http://evil.example"),
        ("Origin", "http://127.0.0.1:8000"),
        ("Origin", "null"),
        ("Origin", None),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Sec-Fetch-Site", "none"),
        (HEADER, None),
    ]
    for name, value in foreign:
        headers = {key: told for key, told in browser.headers.items() if key != name} | ({name: value} if value else {})
        for path, body in {f"tasks/{task}/orders": {"action": "pause"}, "tasks": {"values": small_values()}}.items():
            answer = browser.http.post(f"/api/{path}", json=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (403, "NotFromHere"), (name, value)
        if name != "Origin":  # a browser sends none when a page reads from its own origin
            assert browser.http.get("/api/overview", headers=headers).status_code == 403
    assert office.world.requester.sp.status(task)["state"] == "running"


@pytest.mark.parametrize(
    "path", ["/", "/requester/main.js", "/web/common/dom.js", "/api/overview", "/api/nothing", "/nothing"]
)
def test_every_answer_has_the_policy_of_the_page(browser, path):
    answer = browser.http.get(path, headers=browser.headers)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers


def test_the_page_holds_no_script_style_or_address_of_anyone_else(browser):
    page = browser.http.get("/").text
    assert not re.search(r"<script(?![^>]*\ssrc=)|\sstyle=|<style|\son\w+=|https?://", page)
    for name in re.findall(r'(?:src|href)="([^":]+)"', page):
        assert browser.http.get(f"/{name}").status_code == 200, name


def test_nothing_but_files_of_pages_is_served(browser):
    for path in (
        "/requester/../static.py",
        "/requester/%2e%2e/static.py",
        "/requester_console/app.py",
        "/web/common/.hidden",
    ):
        assert browser.http.get(path).status_code == 404


# The form.


def test_the_form_has_every_setting_with_its_help_and_the_usual_ones_first():
    found = form()["fields"]
    for section, model in {"task": TaskFile, "settings": TaskSettings, "training": TrainingSettings}.items():
        own = [one for one in found if one["section"] == section]
        assert {one["name"] for one in own} == set(settable(model)) - {"settings", "training"}
        assert [one["usual"] for one in own] == sorted((one["usual"] for one in own), reverse=True)
        assert all(one["help"] and one["expected"] for one in own)
    kinds = {f"{one['section']}.{one['name']}": one["kind"] for one in found}
    assert kinds["settings.window"] == "number"
    assert kinds["training.window"] == "whole"
    assert kinds["settings.budget"] == "money"
    assert kinds["training.standardise"] == kinds["training.scale_inputs"] == "flag"
    assert kinds["settings.server_step"] == kinds["training.features"] == "choice"
    assert kinds["training.proximal"] == "number"
    usual = {one["name"] for one in found if one["usual"]}
    assert {"server_step", "features", "scale_inputs", "proximal"} <= usual
    assert next(one["choices"] for one in found if one["name"] == "profile") == ["hardened", "paper", "shares"]


def test_a_start_says_what_the_command_line_says_of_the_same_task(browser, tmp_path):
    """Field by field, and in its widths."""
    (tmp_path / "task.toml").write_text(template)
    told = json.loads(call("task", "explain", tmp_path / "task.toml", "--json").out)
    starts = {one["name"]: one["values"] for one in browser.get("form").json()["starts"]}
    answer = browser.post("explain", {"values": starts["watch"]}).json()
    assert (answer["errors"], answer["problem"]) == ({}, None)
    assert answer["explanation"] == {name: said for name, said in told.items() if name != "tried"}
    phones = browser.post("explain", {"values": starts["phones"]}).json()["explanation"]
    assert (phones["profile"], phones["parameters"], phones["warnings"]) == ("shares", 27 * 32 + 32 + 32 * 4 + 4, [])
    assert "SP" in phones["dealt"]


def test_what_is_typed_becomes_what_a_task_file_holds():
    typed = small_values(
        settings={"clip": "16", "grace": "1.5", "sigma": "", "rule": ""}, training={"hidden": "64, 32"}
    )
    found = contents(typed)
    assert found["settings"]["clip"] == 16
    assert isinstance(found["settings"]["clip"], int)
    assert found["settings"]["grace"] == 1.5
    assert not {"sigma", "rule", "epsilon"} & set(found["settings"])
    assert found["training"]["hidden"] == [64, 32]
    assert found["training"]["labels"][:2] == ["PEN", "ABD"]
    assert found["training"]["standardise"] is False


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
        ({"training": {"hidden": "32, many"}}, "training.hidden", "a list of whole numbers"),
        ({"training": {"rate": "-1"}}, "training.rate", "above 0"),
        ({"settings": {"profile": "shares", "roundz": "3"}}, "settings.rounds", "unknown setting `roundz`"),
    ],
)
def test_a_wrong_value_is_named_at_its_field_and_nothing_is_made(browser, office, typed, field, words):
    """The same when the page asks, and when it is told to create the task all the same."""
    values = small_values(**typed)
    answer = browser.post("explain", {"values": values}).json()
    assert answer["explanation"] is None
    assert words in answer["errors"][field]
    refused = browser.post("tasks", {"values": values})
    assert (refused.status_code, refused.json()["error"]) == (422, "SettingsError")
    assert refused.json()["faults"] == answer["errors"]
    assert office.world.requester.tasks() == []


def test_all_wrong_values_are_named_at_once(browser):
    typed = {"settings": {"rounds": "x", "decimals": "99"}, "training": {"epochs": "-1"}, "task": {"terms": ""}}
    errors = browser.post("explain", {"values": small_values(**typed)}).json()["errors"]
    assert set(errors) == {"settings.rounds", "settings.decimals", "training.epochs", "task.terms"}


def test_a_task_that_does_not_fit_is_answered_with_the_numbers_before_anything_is_sent(browser):
    """Values that are right one by one: their widths together are not."""
    wide = {"profile": "hardened", "key_bits": "512", "decimals": "9", "max_norm": "", "clip": "1000", "lanes": "1024"}
    answer = browser.post("explain", {"values": small_values(settings=wide)}).json()
    assert answer["errors"] == {}
    assert re.search(r"\d+ bits", answer["problem"])
    assert any(name.startswith("settings.") for name in answer["named"])
    short = browser.post("explain", {"values": small_values(task={"claim_window": "1"})}).json()
    assert (short["problem"][:14], short["named"]) == ("`claim_window`", ["task.claim_window"])


def test_the_answer_changes_with_the_form(browser):
    said = [
        browser.post("explain", {"values": small_values(settings={"max_participants": most})}).json()["explanation"][
            "widths"
        ]
        for most in ("4", "4000")
    ]
    assert said[0] != said[1]
    warned = browser.post("explain", {"values": small_values(settings={"max_norm": ""})}).json()["explanation"]
    assert any("no norm bound" in words for words in warned["warnings"])


# Tasks.


def test_the_same_form_is_always_the_same_task(browser):
    task = browser.create(small_values(task={"purpose": SCRIPT}))
    assert browser.create(small_values(task={"purpose": SCRIPT})) == task
    other = browser.create(small_values())
    listed = browser.get("overview").json()
    assert {one["task"] for one in listed["tasks"]} == {task, other}
    found = browser.get(f"tasks/{task}")
    assert found.headers["content-type"] == "application/json"
    assert found.json()["purpose"] == SCRIPT  # as it was typed: the page makes text of it
    assert found.json()["values"]["settings"]["rounds"] == "2"
    assert browser.create(found.json()["values"]) == task  # what was read back is the same task again


def test_a_creation_that_was_cut_off_can_be_finished(browser, office, monkeypatch):
    def away(*_args: object) -> str:
        raise ServiceUnavailable("SP cannot be reached")

    with monkeypatch.context() as patch:
        patch.setattr(type(office.world.requester.sp), "create_task", away)
        failed = ended(browser, browser.post("tasks", {"values": small_values()}))
    assert (failed["state"], failed["error"]["error"]) == ("failed", "ServiceUnavailable")
    (task,) = office.world.requester.tasks()
    status = browser.get(f"tasks/{task}/status")
    assert (status.status_code, status.json()["error"]) == (404, "UnknownTask")
    assert browser.done(f"tasks/{task}/post") == {"task": task}
    assert browser.get(f"tasks/{task}/status").status_code == 200


def test_a_task_says_what_it_waits_for(browser, office):
    task = browser.create(small_values())
    waits = browser.get(f"tasks/{task}/status").json()["waits"]
    people = "3 more participants (0 of 3 have joined): invite people"
    assert waits == [people, "money: 36.00 more for the next round; no payment is announced"]
    made = browser.post(f"tasks/{task}/deposits", {"amount": "36", "name": "first"}).json()
    assert made == {"deposit": "first", "amount": 36_000_000, "state": "pending"}
    found = browser.get(f"tasks/{task}/status").json()
    assert found["report"]["deposits"] == [{"name": "first", "amount": 36_000_000, "state": "pending"}]
    assert found["waits"][1] == "the platform's operator, who must confirm the deposit first of 36.00"
    office.confirm(task, "first", 36_000_000)
    assert browser.get(f"tasks/{task}/status").json()["waits"] == [people]
    office.gather(task)
    assert browser.get(f"tasks/{task}/status").json()["waits"] == ["uploads to round 1: 0 of 3 have come"]


def test_a_wrong_amount_announces_nothing(browser):
    task = browser.create(small_values())
    for amount in ("", "abc", "-3", "1.0000001", "0", "1e99"):
        refused = browser.post(f"tasks/{task}/deposits", {"amount": amount, "name": "first"})
        assert (refused.status_code, refused.json()["error"]) == (422, "SettingsError"), amount
    assert browser.get(f"tasks/{task}/status").json()["report"]["deposits"] == []


def test_a_deposit_that_is_sent_twice_is_one_deposit(browser):
    task = browser.create(small_values())
    for _ in range(2):
        assert browser.post(f"tasks/{task}/deposits", {"amount": "5.5", "name": "same"}).status_code == 200
    assert browser.get(f"tasks/{task}/status").json()["report"]["pending"] == 5_500_000
    assert browser.post(f"tasks/{task}/deposits", {"amount": "6", "name": "same"}).status_code == 409


def test_invitations_come_as_links_and_codes_and_stay_private(browser, office):
    task = browser.create(small_values())
    assert browser.get(f"tasks/{task}/invitations").json()["invitations"] == []
    made = browser.post(f"tasks/{task}/invitations", {"count": 2, "days": 3}).json()["invitations"]
    more = browser.post(f"tasks/{task}/invitations", {"count": 1, "days": 0.5}).json()["invitations"]
    assert browser.get(f"tasks/{task}/invitations").json()["invitations"] == made + more
    for number, one in enumerate(made + more):
        assert one["number"] == number
        assert one["link"].startswith("https://sp.example:7102/join/#")
        assert read_link(one["link"]).task == task
        assert one["picture"].startswith("data:image/svg+xml;base64,")
        path = Path(one["file"])
        assert path.is_relative_to(office.folder)
        assert path.stat().st_mode & 0o077 == 0
    assert len({one["link"] for one in made + more}) == 3


def test_an_invitation_to_what_phones_cannot_compute_is_a_file_alone(browser):
    task = browser.create(
        small_values(settings={"profile": "hardened", "key_bits": "1536", "max_norm": "", "budget": ""})
    )
    answer = browser.post(f"tasks/{task}/invitations", {"count": 1, "days": 3}).json()
    (made,) = answer["invitations"]
    assert (made["link"], made["picture"]) == (None, None)
    assert "profile shares only" in answer["no_phones"]
    assert json.loads(Path(made["file"]).read_text())["task"] == task


def test_the_form_says_that_phones_cannot_take_part(browser):
    """In the profile that is theirs, and only there."""
    layers = {"learner": "network", "layers": "conv 4 5\nlinear 7", "features": "flat"}
    said = browser.post("explain", {"values": small_values(training=layers)}).json()["explanation"]["warnings"]
    assert said[-1] == "no phones: the task trains a convolutional network, which the page cannot"
    spectral = {"learner": "softmax", "features": "spectral", "scale_inputs": True, "proximal": "0.1"}
    step = {"server_step": "fedadam", "server_rate": "0.05"}
    fits = browser.post("explain", {"values": small_values(training=spectral, settings=step)}).json()
    assert (fits["errors"], fits["problem"]) == ({}, None)
    assert not [words for words in fits["explanation"]["warnings"] if words.startswith("no phones")]


def test_a_wrong_number_of_invitations_makes_none(browser):
    task = browser.create(small_values())
    for count, days, wrong in ((0, 3, "count"), (101, 3, "count"), (1, -1, "days"), ("2", 3, "count")):
        refused = browser.post(f"tasks/{task}/invitations", {"count": count, "days": days})
        assert (refused.status_code, refused.json()["error"]) == (422, "InvalidRequest")
        assert set(refused.json()["faults"]) == {wrong}
    assert browser.get(f"tasks/{task}/invitations").json()["invitations"] == []


def test_orders_are_given_and_others_are_refused(browser):
    task = browser.create(small_values())

    def state() -> str:
        return str(browser.get(f"tasks/{task}/status").json()["status"]["state"])

    for action, after in {"pause": "paused", "resume": "running", "close": "running", "cancel": "cancelled"}.items():
        assert browser.post(f"tasks/{task}/orders", {"action": action}).status_code == 204
        assert state() == after
    assert browser.post(f"tasks/{task}/orders", {"action": "explode"}).json()["error"] == "CampaignError"
    assert browser.post(f"tasks/{task}/orders", {"action": "pause"}).json()["error"] in ("TaskNotRunning", "TaskEnded")


@pytest.mark.parametrize(
    "path", ["tasks/{}", "tasks/{}/status", "tasks/{}/invitations", "tasks/{}/disclosures", "tasks/{}/model.npz"]
)
def test_a_task_of_somebody_else_is_not_here(browser, path):
    answer = browser.get(path.format("a" * 32))
    assert (answer.status_code, answer.json()["error"]) == (404, "UnknownTask")
    assert browser.get(path.format("../../x")).status_code in (404, 422)


def test_a_task_that_cannot_be_read_leaves_the_others_in_sight(browser, office):
    """Such as one that a newer version has written."""
    good, bad = (browser.create(small_values(settings={"rounds": rounds})) for rounds in ("1", "2"))
    own = office.world.requester.blobs
    definition = own.get(f"{bad}/definition").replace(b'"rounds"', b'"roundz"')
    own.delete(f"{bad}/definition")
    own.put(f"{bad}/definition", definition)
    found = browser.get("overview").json()
    assert [one["task"] for one in found["tasks"]] == [good]
    (unread,) = found["unread"]
    assert unread["task"] == bad
    assert unread["why"]


def test_an_action_that_nobody_started_is_not_known(browser):
    assert browser.get(f"jobs/{'0' * 16}").json()["error"] == "NotReady"


def test_a_body_that_is_too_long_or_of_another_form_is_refused(browser):
    assert browser.post("explain", {"values": {"task": {"purpose": "x" * 300_000}}}).status_code == 413
    assert browser.post("explain", {"values": {"task": {"purpose": 3}}}).json()["error"] == "InvalidRequest"
    assert browser.post("explain", {"values": {}, "more": 1}).status_code == 422
    assert browser.http.post("/api/explain", content=b"{", headers=browser.headers).status_code == 422


def test_a_platform_that_is_away_is_named(browser, office, monkeypatch):
    task = browser.create(small_values())

    def away(*_args: object) -> dict[str, Any]:
        raise ServiceUnavailable("https://sp.example:7102 cannot be reached (ConnectError)\nsecond line")

    monkeypatch.setattr(type(office.world.requester.sp), "status", away)
    answer = browser.get(f"tasks/{task}/status")
    assert answer.status_code == 503
    assert "https://sp.example:7102 cannot be reached" in answer.json()["detail"]  # the one who reads this may know
    assert browser.get(f"tasks/{task}").status_code == 200


# What was learnt.


def test_accuracy_is_shown_by_round_with_its_baseline_and_computed_once(campaign, monkeypatch):
    office, browser, task = campaign
    found = browser.done(f"tasks/{task}/accuracy", {"data": ["watch:0", " watch:5 ", ""]})
    assert [one["number"] for one in found["rounds"]] == [0, 1, 2]
    assert found["unread"] == []
    assert all(one["windows"] == found["rounds"][0]["windows"] for one in found["rounds"])
    assert found["rounds"][-1]["accuracy"] > found["rounds"][0]["accuracy"]

    def never(*_args: object) -> None:
        raise AssertionError("this was computed before")

    monkeypatch.setattr(type(office.world.requester), "read", never)
    assert browser.done(f"tasks/{task}/accuracy", {"data": ["watch:0", "watch:5"]}) == found


def test_the_state_after_each_round_is_the_one_that_participants_have(campaign):
    office, browser, task = campaign
    found = browser.done(f"tasks/{task}/accuracy", {"data": ["watch:2"]})
    states = [one["state"] for one in found["rounds"]]
    assert states[0] is None
    assert [person.states()[1] for person, _ in office.crowd] == [states[1]] * len(office.crowd)
    assert states[2] == office.world.requester.states(task)[2] != states[1]
    read = office.world.requester.read(task, 2)
    assert not np.array_equal(read.model, read.weights)
    shape = office.world.requester.definition(task).shape
    assert all(map(np.array_equal, office.desk.learned.model(task), shape.arrays(read.model)))


def test_a_round_that_the_requester_may_not_read_is_named(campaign, monkeypatch):
    """As every round but the last is, in the other profiles."""
    office, browser, task = campaign

    def refuse(*_args: object) -> None:
        raise NotReady("round 1 is not for this reader")

    monkeypatch.setattr(type(office.world.requester), "read", refuse)
    found = browser.done(f"tasks/{task}/accuracy", {"data": ["watch:3"]})
    assert [one["number"] for one in found["rounds"]] == [0]
    assert [one["number"] for one in found["unread"]] == [1, 2]
    assert found["unread"][0]["why"] == "round 1 is not for this reader"


def test_the_model_is_fetched_in_either_format_or_written_to_a_file(campaign, tmp_path):
    office, browser, task = campaign
    definition, wanted = office.world.requester.definition(task), office.desk.learned.model(task)
    for form_, read in {"npz": from_npz, "safetensors": from_safetensors}.items():
        answer = browser.get(f"tasks/{task}/model.{form_}")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert all(map(np.array_equal, read(definition.shape, answer.content), wanted))
    assert browser.get(f"tasks/{task}/model.json").json()["task"] == task
    assert browser.get(f"tasks/{task}/model.pkl").status_code == 422
    written = browser.post(f"tasks/{task}/model", {"path": str(tmp_path / "m.npz")}).json()["model"]
    assert all(map(np.array_equal, read_model(Path(written))[1], wanted))
    for path in (
        tmp_path / "m.pkl",
        tmp_path / "nowhere" / "m.npz",
        tmp_path,
        "~nobody-of-this-name/m.npz",
        "a\0b.npz",
    ):
        refused = browser.post(f"tasks/{task}/model", {"path": str(path)})
        assert (refused.status_code, refused.json()["error"]) == (422, "SettingsError")


def test_the_model_is_evaluated_class_by_class(campaign, tmp_path):
    """As the command says it of the same model."""
    _, browser, task = campaign
    found = browser.done(f"tasks/{task}/evaluation", {"data": ["watch:1", "watch:6"]})
    assert found["labels"] == list(found["classes"])
    assert np.sum(found["confusion"]) == found["windows"]
    browser.post(f"tasks/{task}/model", {"path": str(tmp_path / "m.npz")})
    told = json.loads(call("evaluate", tmp_path / "m.npz", "--data", "watch:1", "--data", "watch:6", "--json").out)
    assert {name: found[name] for name in told} == told


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([], "SettingsError"),
        (["nonsense"], "SettingsError"),
        (["npz:/nowhere.npz#1"], "DataMissing"),
        (["watch:77"], "DataMissing"),
        (["csv:a\0b"], "SettingsError"),
    ],
)
def test_data_that_is_not_there_is_named(campaign, data, error):
    _, browser, task = campaign
    for action in ("accuracy", "evaluation"):
        answer = browser.post(f"tasks/{task}/{action}", {"data": data})
        told = answer.json() if answer.status_code == 422 else ended(browser, answer)["error"]
        assert told["error"] == error


def test_there_is_no_model_before_a_round_is_through(browser):
    task = browser.create(small_values())
    refused = browser.get(f"tasks/{task}/model.npz")
    assert (refused.status_code, refused.json()["error"]) == (404, "NotReady")
    found = browser.done(f"tasks/{task}/accuracy", {"data": ["watch:0"]})
    assert [one["number"] for one in found["rounds"]] == [0]


def test_what_each_party_learns_is_shown_with_this_tasks_numbers(campaign):
    _, browser, task = campaign
    found = browser.get(f"tasks/{task}/disclosures").json()
    rows = {row["party"]: row for row in found["rows"]}
    assert found["profile"] == "shares"
    assert [row["learns"] for row in found["rows"]] == [row.learns for row in learnt_in("shares")]
    assert len(found["weak"]) == len(weaknesses_of("shares"))
    assert re.search(r"uploads of [\d,]+ bytes, round 1: 3 uploads, round 2: 3 uploads", rows["SP"]["known"])
    assert rows["CSP"]["known"].startswith("3 enrolled")


def test_every_start_is_a_whole_form():
    names = {(one["section"], one["name"]) for one in form()["fields"]}
    for start in form()["starts"]:
        assert {(section, name) for section, typed in start["values"].items() for name in typed} == names
    assert start_values({})["settings"]["profile"] == "hardened"
