"""The requester's page in a real browser: from the form to the evaluated model, at both widths, by keyboard and for readers."""

import csv
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect
from playwright.sync_api import TimeoutError as NotThere

from crowdfl.documents.links import read_link
from crowdfl.learning.models.forms import from_npz
from crowdfl.roles.defining import DECIDED
from crowdfl.web.requester_console.app import serving_requester
from crowdfl.web.shell import OneBrowser
from tests.http import conftest as http
from tests.web import browsers
from tests.web.consoles import Office, office_over, small_values, task_of

portal = http.portal
SCRIPT = '<img src=x onerror="document.title=1"> & "quotes"'
PURPOSE = "Recognise which exercise somebody is doing"

expect.set_options(timeout=browsers.PATIENCE)


@pytest.fixture(scope="module")
def office(tmp_path_factory, portal) -> Iterator[Office]:
    """A platform in this process, and the requester's own folder."""
    with office_over(tmp_path_factory.mktemp("office"), portal) as office:
        yield office


@pytest.fixture
def session(office) -> Iterator[OneBrowser]:
    with serving_requester(office.app) as session:
        yield session


def opened(context: BrowserContext, session: OneBrowser) -> tuple[Page, list[str]]:
    page = context.new_page()
    wrong = browsers.complaints(page)
    page.goto(session.address)
    expect(page.get_by_role("heading", name="Your tasks")).to_be_visible()
    return page, wrong


def typed_in(field: Locator, act: Callable[..., object]) -> None:
    """Unless it is hidden: a field that would do nothing is, at any moment after another one was typed."""
    end = time.monotonic() + browsers.PATIENCE / 1000
    while field.is_visible():
        try:
            act(timeout=2_000)
        except NotThere:
            if time.monotonic() > end:
                raise
        else:
            return


def type_all(page: Page, values: dict[str, dict[str, Any]]) -> None:
    """Every field of every step that does something, those under "more settings" too; lengths of time in seconds."""
    expect(page.locator(".answer .headline.good")).to_be_visible()
    expect(page.get_by_text("more settings")).to_have_count(5)
    page.locator("form section").evaluate_all("all => all.forEach(one => { one.hidden = false; })")
    page.locator("form details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    for section, typed in values.items():
        for name, value in sorted(typed.items(), key=lambda one: one[0] != "pay"):  # which shows `budget` or hides it
            field = page.locator(f"#field-{section}-{name}")
            unit = page.locator(f"#field-{section}-{name}-unit")
            if unit.count():
                typed_in(unit, partial(unit.select_option, "1"))
            if isinstance(value, bool):
                typed_in(field, partial(field.set_checked, value))
            elif field.is_visible() and field.evaluate("field => field.tagName") == "SELECT":
                typed_in(field, partial(field.select_option, value or ("atOnce" if name == "every" else "")))
                if name == "pay":
                    expect(page.locator("#field-settings-budget")).to_be_visible(visible=value != "fixed")
            elif field.is_visible() and field.evaluate("field => field.tagName") == "FIELDSET":
                assert value == "", "its own test edits it"
            elif field.is_visible() and field.get_attribute("type") != "file":
                typed_in(field, partial(field.fill, value))
    page.get_by_role("button", name="Check and create").click()


def card(page: Page, heading: str) -> Any:
    return page.locator("section.card").filter(has=page.get_by_role("heading", name=heading, exact=True))


def assert_fits(page: Page) -> None:
    """On a phone, on a desk, and for everyone."""
    for width in (360, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        assert browsers.sideways(page) == 0, width
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        browsers.assert_usable_by_all(page)
    page.emulate_media(color_scheme="null")


def test_the_secret_leaves_the_address_and_opens_one_browser_only(session, browser, desk_context):
    """A reload, a second tab and the same address again stay open; another browser with that address does not open."""
    address = session.address
    page, wrong = opened(desk_context, session)
    assert page.url == f"{session.origin}/#/"
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.get_by_role("heading", name="Your tasks")).to_be_visible()
    second = desk_context.new_page()
    second.goto(f"{session.origin}/#/new")
    expect(second.get_by_role("heading", name="New task")).to_be_visible()
    assert wrong == []
    second.goto(address)  # clicked once more in the terminal
    expect(second.get_by_role("heading", name="Your tasks")).to_be_visible()
    with browsers.opened(browser, browsers.DESK) as other:
        stranger = other.new_page()
        stranger.goto(address)
        expect(stranger.get_by_role("alert")).to_contain_text("was used before")
        assert "open=" not in stranger.url


def test_the_wizard_answers_as_it_is_filled_in_and_loses_nothing(session, desk_context):
    page, wrong = opened(desk_context, session)
    page.get_by_role("link", name="New task").first.click()
    said, widths = page.locator(".answer .headline"), page.locator("#widths")
    expect(said).to_have_text(re.compile("This can be done: a phone sends .* in each round."))
    page.get_by_role("button", name="People and time").click()
    most = page.get_by_label("Most people")
    most.fill("200")
    expect(page.locator("section:visible .timeline")).to_contain_text("at most 200 people")
    expect(widths).to_contain_text("200 participants")
    most.fill("100000000000000")
    expect(said).to_have_text("1 setting is wrong.")
    expect(most).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("button", name="People and time")).to_have_class(re.compile("wrong"))
    expect(page.locator("#field-settings-max_participants-fault")).to_contain_text("or “")
    most.fill("200")
    expect(said).to_have_class(re.compile("good"))

    rounds = page.get_by_label("Rounds", exact=True)
    rounds.fill("three")
    expect(said).to_have_text("1 setting is wrong.")
    expect(rounds).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#field-settings-rounds-fault")).to_contain_text("“Rounds” is 'three'; expected a whole number")
    page.get_by_role("button", name="Check and create").click()
    page.get_by_role("button", name="Create the task").click()
    expect(rounds).to_be_focused()
    expect(page.get_by_role("alert")).to_contain_text("some settings are wrong")
    page.get_by_role("button", name="What for").click()
    page.get_by_label("Purpose").fill(SCRIPT)
    assert_fits(page)
    page.reload()
    expect(page.get_by_label("Purpose")).to_have_value(SCRIPT)
    page.get_by_role("button", name="People and time").click()
    expect(rounds).to_have_value("three")

    page.get_by_text("Start from an example").click()
    page.get_by_label("Start from").select_option("watch")
    page.get_by_role("button", name="Fill the form in").click()
    expect(said).to_have_class(re.compile("good"))
    expect(page.locator("#field-settings-profile")).to_have_value("shares")
    expect(page.locator("#field-settings-weighting")).to_have_value("equal")
    assert [text for text in wrong if "422" not in text] == []  # a refused creation is one, by the browser's own word


def test_questions_and_other_sensors_are_edited_where_they_are_seen_as_a_phone_asks_them(session, desk_context):
    """Not behind "more settings", and not as lines of a file."""
    page, wrong = opened(desk_context, session)
    page.goto(f"{session.origin}/#/new")
    said = page.locator(".answer .headline")
    expect(said).to_have_class(re.compile("good"))
    page.get_by_role("button", name="What phones record").click()
    page.get_by_label("Loudness, by the microphone").check()
    page.get_by_role("button", name="Add a question").click()
    page.get_by_label("Question", exact=True).fill("Does it hurt?")
    page.get_by_label("Answers to choose from").fill("no\na little\nmuch")
    expect(said).to_have_class(re.compile("good"))
    asked = page.frame_locator("iframe.phone").locator("#asked")
    expect(asked.get_by_role("group", name="Does it hurt?")).to_be_visible()
    expect(asked.get_by_role("radio", name="a little")).to_be_visible()
    page.reload()  # a draft keeps it
    page.get_by_role("button", name="What phones record").click()
    expect(page.get_by_label("Question", exact=True)).to_have_value("Does it hurt?")
    expect(page.get_by_label("Loudness, by the microphone")).to_be_checked()
    for _ in range(2):
        page.get_by_role("button", name="Add a question").click()
    expect(page.get_by_role("button", name="Add a question")).to_be_hidden()
    assert_fits(page)
    for _ in range(3):
        page.get_by_role("button", name="Remove this question").last.click()
    expect(page.get_by_role("button", name="Add a question")).to_be_focused()
    expect(asked).to_have_count(0)
    assert wrong == []


def test_the_wizard_asks_what_a_person_decides_and_hides_what_would_do_nothing(session, desk_context):
    """The same few as `crowdfl task new`; a setting appears once it acts."""
    page, wrong = opened(desk_context, session)
    page.goto(f"{session.origin}/#/new")
    expect(page.locator(".answer .headline.good")).to_be_visible()
    fields = "all => all.filter((one) => !one.closest('details')).map((one) => one.id)"
    shown = set(page.locator("form section:not([aria-labelledby='title-consent']) [id^='field-']").evaluate_all(fields))
    few = {f"field-{section}-{name}" for section, names in DECIDED.items() for name in names if section != "profile"}
    few |= {f"field-settings-{name}" for name in DECIDED["profile"]}
    few |= {"field-training-sensors", "field-training-questions"}  # which nobody finds who has to look for them
    assert {one for one in shown if one.count("-") == 2} == few
    page.get_by_role("button", name="Protection").click()
    page.locator("section:visible summary").click()
    expect(page.locator("#field-settings-cohort")).to_be_hidden()
    expect(page.locator("#field-settings-key_bits")).to_be_hidden()
    expect(page.locator("#field-settings-max_samples")).to_be_hidden()
    page.locator("#field-settings-weighting").select_option("samples")
    expect(page.locator("#field-settings-max_samples")).to_be_visible()
    page.locator("#field-settings-profile").select_option("hardened")
    expect(page.locator("#field-settings-key_bits")).to_be_visible()
    expect(page.locator("#field-settings-max_norm")).to_be_hidden()
    assert wrong == []


def test_a_wizard_speaks_in_days_and_shows_the_phones_own_page_in_each_language(session, desk_context):
    """What is typed in people's units is sent in seconds; the preview is the phone's code, and joins nothing."""
    page, wrong = opened(desk_context, session)
    page.goto(f"{session.origin}/#/new")
    page.get_by_label("Purpose").fill(SCRIPT)
    phone = page.frame_locator("iframe.phone")
    expect(phone.locator("main")).to_contain_text(SCRIPT)
    for code in browsers.LANGUAGES:
        page.get_by_label("As people see it").select_option(code)
        expect(phone.locator("html")).to_have_attribute("lang", code)
        expect(phone.locator("html")).to_have_attribute("dir", "rtl" if code == "ar" else "ltr")
    expect(phone.get_by_role("button", name="انضم")).to_be_visible()
    offered = page.get_by_label("Language", exact=True).locator("option")
    assert [one.get_attribute("value") for one in offered.all()] == list(browsers.CONSOLES)
    page.get_by_role("button", name="Pay", exact=True).click()
    page.locator("section:visible summary").click()
    page.get_by_label("Time to claim rewards").fill("2")
    page.locator("#field-task-claim_window-unit").select_option("86400")
    kept = "() => JSON.parse(sessionStorage.getItem('crowdfl-draft')).task.claim_window"
    assert page.evaluate(kept) == "172800"
    page.get_by_role("button", name="People and time").click()
    page.get_by_label("People can join until").fill("2030-12-01T18:00")
    expect(page.locator("section:visible .timeline")).to_contain_text("1 Dec 2030, 18:00")
    for step in ("What phones record", "Consent and languages", "Protection", "Check and create"):
        page.get_by_role("button", name=step).click()
        assert_fits(page)
    page.get_by_label("Language", exact=True).select_option("zh")
    expect(page.get_by_role("heading", level=1)).to_have_text("新任务")
    assert_fits(page)
    assert wrong == []


def shoot_steps(page: Page, shoot: Any) -> None:
    """Of the wizard, with everything open."""
    for code in browsers.CONSOLES:
        browsers.in_language(page, code)
        expect(page.locator(".answer .headline.good")).to_be_visible()
        page.locator("form details").evaluate_all("all => all.forEach(one => { one.open = true; })")
        for step in ("what", "record", "plan", "pay", "consent", "protect", "check"):
            page.locator(f"#step-{step}").click()
            if step == "check":
                browsers.assert_spoken(page.locator("#widths"), code)
            for width, scheme in ((1200, "light"), (420, "dark")):
                page.set_viewport_size({"width": width, "height": 900})
                assert browsers.sideways(page) == 0, (step, code, width)
                shoot(page, f"requester-{step}-{code}-{scheme}", scheme)


def test_a_campaign_from_the_form_to_its_evaluated_model(session, office, desk_context, shoot, tmp_path):
    """Created, funded, filled with people, watched and evaluated: all by the page."""
    desk_context.grant_permissions(["clipboard-read", "clipboard-write"], origin=session.origin)
    page, wrong = opened(desk_context, session)
    page.goto(f"{session.origin}/#/new")
    type_all(page, small_values(task={"purpose": PURPOSE}, settings={"max_participants": "30"}))
    page.get_by_role("button", name="Create the task").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(PURPOSE)
    task = page.url.rpartition("/")[2]
    page.get_by_role("link", name="Tasks").click()
    expect(page.get_by_role("row").filter(has_text=PURPOSE).get_by_role("cell", name="running")).to_be_visible()
    assert_fits(page)
    page.get_by_role("link", name=PURPOSE).click()
    expect_funding(page, office, task)
    expect_invitations(page, task)
    office.gather(task)
    office.play(task, 1)
    expect_people(page)
    expect_scores(page, office, task)
    expect(card(page, "Where it stands").get_by_role("cell", name="rewarded")).to_have_count(2)
    expect_model(page, office, task, tmp_path / "model.npz")
    page.get_by_role("button", name="Show what each party learns").click()
    expect(page.get_by_role("region", name=re.compile("parties that follow"))).to_contain_text("round 2: 3 uploads")
    assert_fits(page)
    expect_report(page, task)
    views = {
        "tasks": ("", "main table"),
        "task": (f"tasks/{task}", "#people-filter"),
        "sheet": (f"tasks/{task}/sheet", "main img"),
        "report": (f"tasks/{task}/report", ".report h1"),
    }
    places = {f"requester-{name}": (f"{session.origin}/#/{place}", wanted) for name, (place, wanted) in views.items()}
    browsers.shoot_console(page, shoot, places)
    page.goto(f"{session.origin}/#/new/{task}")
    shoot_steps(page, shoot)
    assert [text for text in wrong if "422" not in text] == []  # the refused amount is one, by the browser's own word


def expect_funding(page: Page, office: Office, task: str) -> None:
    """Refused at first, then pending, then confirmed by the operator."""
    waits, money = card(page, "Where it stands").get_by_text("It waits for:"), card(page, "Money")
    expect(waits).to_contain_text("money: €36.00 more")
    page.get_by_label("Amount").fill("seventy")
    page.get_by_role("button", name="Announce the deposit").click()
    expect(money.get_by_role("alert")).to_contain_text("'seventy' is not an amount of money")
    page.get_by_label("Amount").fill("72.00")
    page.get_by_role("button", name="Announce the deposit").click()
    expect(money.get_by_role("cell", name="pending")).to_be_visible()
    expect(waits).to_contain_text("who must confirm the deposit page-")
    (deposit,) = office.world.requester.sp.deposits(task)
    office.confirm(task, deposit["name"], deposit["amount"])
    expect(money.get_by_role("cell", name="confirmed")).to_be_visible()
    expect(page.get_by_label("Amount")).to_have_value("")  # all is paid: nothing more is suggested


def expect_invitations(page: Page, task: str) -> None:
    """Many at once, each with its state; codes that can be seen, links that can be copied, a sheet, a CSV file."""
    invite = card(page, "People")
    invite.get_by_label("How many").fill("60")
    invite.get_by_role("button", name="Make invitations").click()
    expect(invite.get_by_text("60 invitations made.")).to_be_visible()
    expect(invite.get_by_text("This task waits for nobody")).to_be_visible()
    expect(invite.get_by_text("60 invited · 0 joined")).to_be_visible()
    expect(invite.get_by_role("cell", name="unused")).to_have_count(25)
    invite.get_by_role("button", name="Show the QR code of invitation 0").click()
    expect(invite.get_by_role("img")).to_have_count(1)
    assert invite.get_by_role("img").first.evaluate("image => image.naturalWidth") > 100
    invite.get_by_role("button", name="Copy the link of invitation 0").click()
    expect(invite.get_by_text("copied")).to_be_visible()
    assert read_link(page.evaluate("navigator.clipboard.readText()")).task == task
    with page.expect_download() as fetched:
        invite.get_by_role("button", name="Invitations as CSV").click()
    rows = list(csv.DictReader(fetched.value.path().read_text().splitlines()))
    assert [row["state"] for row in rows] == ["unused"] * 60
    assert all(read_link(row["link"]).task == task for row in rows)
    assert_fits(page)
    page.get_by_role("link", name="A sheet to print").click()
    expect(page.get_by_role("img")).to_have_count(60)
    assert_fits(page)
    page.get_by_role("link", name="Back to the task").click()


def expect_people(page: Page) -> None:
    """Who joined by other invitations is listed too; who sent when is a table for each person and round."""
    people = card(page, "People")
    expect(people.get_by_text("63 invited · 3 joined")).to_be_visible()
    people.get_by_label("Show", exact=True).select_option("joined")
    expect(people.get_by_role("cell", name="sent in round 1")).to_have_count(3)
    with page.expect_download() as fetched:
        people.get_by_role("button", name="Who sent when, as CSV").click()
    rows = list(csv.DictReader(fetched.value.path().read_text().splitlines()))
    assert [(row["round"], row["sent"]) for row in rows if row["round"] == "1"] == [("1", "1")] * 3
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", row["day"]) for row in rows)


def expect_scores(page: Page, office: Office, task: str) -> None:
    """Accuracy of rounds 0 and 1, as a picture and as a table; the next round comes by itself."""
    expect(card(page, "Where it stands").get_by_role("cell", name="rewarded")).to_have_count(1)
    page.get_by_label("Data to test on").first.fill("watch:0\nwatch:5")
    page.get_by_role("button", name="Compute").click()
    accuracy = card(page, "Accuracy by round")
    expect(accuracy.locator("canvas")).to_be_visible()
    rows = accuracy.get_by_role("region", name="Scores, of 2 rounds").locator("tbody tr td:first-child")
    expect(rows).to_have_text(["0", "1"])
    office.play(task, 2)
    expect(rows).to_have_text(["0", "1", "2"])


def expect_model(page: Page, office: Office, task: str, path: Path) -> None:
    page.get_by_label("Data to test on").last.fill("watch:6")
    page.get_by_role("button", name="Evaluate the model").click()
    expect(page.get_by_role("region", name=re.compile("Confusion matrix"))).to_be_visible()
    with page.expect_download() as fetched:
        page.get_by_role("button", name="Download .npz").click()
    fetched.value.save_as(path)
    shape = office.world.requester.definition(task).shape
    assert from_npz(shape, path.read_bytes())[0].shape == shape.shapes[0]


def expect_report(page: Page, task: str) -> None:
    """As a page to print, and as the same page in a file."""
    page.get_by_role("link", name="Open the report").click()
    expect(page.locator(".report h1")).to_have_text(PURPOSE)
    scores = page.get_by_role("table", name="By round and class").get_by_role("row")
    expect(scores).to_have_count(4)  # its names, and rounds 0 to 2
    expect(page.get_by_text("data that the requester named: watch:0, watch:5.")).to_be_visible()
    assert_fits(page)
    with page.expect_download() as fetched:
        page.get_by_role("button", name="Save as a file").click()
    assert f"<h1>{PURPOSE}</h1>" in fetched.value.path().read_text()
    page.emulate_media(media="print")
    expect(page.get_by_role("button", name="Print")).to_be_hidden()
    page.emulate_media(media="screen")
    page.get_by_role("link", name="Back to the task").click()
    expect(page.get_by_role("link", name="Open the report")).to_be_visible()


def test_orders_are_given_after_a_question_by_keyboard_alone(session, office, desk_context):
    page, _ = opened(desk_context, session)
    task = office.world.create(*task_of(small_values(task={"purpose": SCRIPT})))
    page.reload()
    page.get_by_role("link", name=SCRIPT).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(SCRIPT)
    pause = page.get_by_role("button", name="Pause")
    expect(pause).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_be_hidden()
    pause.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Pause this task?")
    expect(dialog).to_be_visible()
    browsers.assert_usable_by_all(page)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(pause).to_be_focused()
    assert office.world.requester.sp.status(task)["state"] == "running"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert office.world.requester.sp.status(task)["state"] == "paused"
    assert page.title() != "1"


def test_a_console_that_has_ended_is_said_so_and_the_page_stays(office, desk_context):
    with serving_requester(office.app) as session:
        page, _ = opened(desk_context, session)
        task = office.world.create(*task_of(small_values(task={"purpose": "Left open"})))
        page.goto(f"{session.origin}/#/tasks/{task}")
        expect(card(page, "Where it stands")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("Does `crowdfl task console` still run?")
    expect(page.get_by_role("heading", level=1)).to_have_text("Left open")
