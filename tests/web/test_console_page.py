"""The console in a browser: log in, watch a round, decide about money, cancel a task; by keyboard, and for screen readers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from playwright.sync_api import Browser, Page, expect

from crowdfl.roles.records import PaymentState, StoredPayment
from tests.hosts import INITIAL_MODEL
from tests.http import conftest as http
from tests.http.observed import SHORT
from tests.http.world import DEPOSIT, Person, task_definition
from tests.web import browsers
from tests.web.axe import assert_usable_by_all
from tests.web.consoles import ConsoleWorld

portal, logged = http.portal, http.logged
NOW = 1_795_000_000.0
MARKUP = '<img src=x onerror="window.hurt = true"> & <b>bold</b>'
REFUSED = re.compile(r"status of (401|409|422) ")  # "am I logged in?", and what tests have refused on purpose
PATIENCE = browsers.PATIENCE

expect.set_options(timeout=PATIENCE)


@dataclass
class Office:
    """A platform with its console, and an operator's browser."""

    world: ConsoleWorld
    url: str
    page: Page
    complaints: list[str]

    def log_in(self, token: str | None = None) -> None:
        """By the form."""
        self.page.get_by_label("Operator token").fill(token or self.world.token("sp", "operator").token)
        self.page.get_by_role("button", name="Log in").click()

    def open(self, view: str = "") -> None:
        """A view of somebody who is logged in."""
        self.page.goto(f"{self.url}/console/{view}")
        self.log_in()
        expect(self.page.get_by_role("button", name="Log out")).to_be_visible()

    def start(self, purpose: str = "Count steps", people: int = 3) -> tuple[str, list[Person]]:
        """A task whose first round is open."""
        task = self.announce(purpose)
        self.world.sp.confirm_deposit(task, "first", DEPOSIT)
        joined = [self.world.add_person(task) for _ in range(people)]
        self.world.run()
        return task, joined

    def announce(self, purpose: str) -> str:
        """A task whose deposit waits."""
        task = self.world.create(replace(task_definition(**SHORT), purpose=purpose), INITIAL_MODEL)
        self.world.requester.fund(task, DEPOSIT, "first")
        return task


@pytest.fixture
def world(tmp_path, portal) -> Iterator[ConsoleWorld]:
    """At a time of this century."""
    world = ConsoleWorld(tmp_path, portal)
    world.clock.time = world.console.overview.history.since = NOW
    yield world
    world.close()


@pytest.fixture(params=[browsers.DESK, browsers.PHONE], ids=["1200 px", "360 px"])
def office(request, world, browser: Browser) -> Iterator[Office]:
    """On a wide screen, and on a phone."""
    yield from seated(world, browser, request.param)


@pytest.fixture
def desk(world, browser: Browser) -> Iterator[Office]:
    """On a wide screen."""
    yield from seated(world, browser, browsers.DESK)


def seated(world: ConsoleWorld, browser: Browser, look: dict) -> Iterator[Office]:
    """At a desk over TLS, on a phone by plain HTTP on loopback; whatever the page complains about fails the test."""
    with world.served(tls=look is browsers.DESK) as url, browsers.opened(browser, look) as context:
        page = context.new_page()
        office = Office(world, url, page, browsers.complaints(page))
        yield office
        assert [said for said in office.complaints if not REFUSED.search(said)] == []


def test_a_wrong_token_is_refused_in_words_and_the_right_one_opens_the_console(desk: Office, shoot):
    """What was typed is gone afterwards; nothing of it is kept in the browser."""
    desk.page.goto(f"{desk.url}/console/")
    assert_usable_by_all(desk.page)
    shoot(desk.page, "console-login")
    desk.log_in("crowdfl_wrong")
    expect(desk.page.get_by_role("alert")).to_contain_text("make another with `crowdfl sp token add`")
    desk.log_in()
    expect(desk.page.get_by_role("heading", name="Tasks").first).to_be_visible()
    (cookie,) = desk.page.context.cookies()
    assert (cookie["name"], cookie["path"]) == ("__Secure-crowdfl-console", "/console")
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"], cookie["expires"]) == (True, True, "Strict", -1)
    kept = desk.page.evaluate("() => [document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
    assert kept == ["", "{}", "{}"]
    assert desk.world.token("sp", "operator").token not in desk.page.content()


def test_an_upload_appears_without_a_reload(office: Office, shoot):
    """In the overview and on the task's own page; what a requester typed stays text."""
    task, people = office.start(purpose=MARKUP)
    office.open()
    expect(office.page.get_by_text("0 of 3 have uploaded")).to_be_visible()
    people[0].sp.upload(task, 1, people[0].update())
    expect(office.page.get_by_text("1 of 3 have uploaded")).to_be_visible()
    expect(office.page.locator("#arrivals").get_by_text(people[0].who)).to_be_visible()
    assert_usable_by_all(office.page)
    office.page.get_by_role("link", name=MARKUP).first.click()
    expect(office.page.locator("h1")).to_have_text(MARKUP)
    expect(office.page.locator("#uploads").get_by_text(people[1].who)).to_have_count(0)
    people[1].sp.upload(task, 1, people[1].update())
    expect(office.page.locator("#uploads").get_by_text(people[1].who)).to_be_visible()
    assert_usable_by_all(office.page)
    assert browsers.sideways(office.page) == 0
    assert office.page.evaluate("window.hurt") is None
    assert office.page.locator("img").count() == 0


def test_a_round_is_followed_from_its_opening_to_its_rewards(office: Office, shoot):
    """Each step with its time."""
    task, people = office.start()
    office.open(f"#/tasks/{task}")
    steps = office.page.locator(".steps li.done strong")
    expect(steps).to_have_text(["open"])
    for person in people:
        person.sp.upload(task, 1, person.update())
    office.world.clock.time += 30.0
    office.world.run()
    expect(steps).to_have_text(["open", "closed", "checked", "averaged", "published", "rewarded"])
    expect(office.page.locator(".steps small").first).to_contain_text("2026")
    expect(office.page.locator("#ledger")).to_contain_text("36.00")
    assert_usable_by_all(office.page)
    assert browsers.sideways(office.page) == 0
    width = "wide" if office.page.viewport_size["width"] > 400 else "narrow"
    shoot(office.page, f"console-task-{width}", whole=width == "wide")


def test_a_deposit_is_confirmed_by_typing_what_came_in(office: Office, shoot):
    """Another amount is refused inside the dialog; the table follows."""
    task = office.announce("Noise in the city")
    office.world.sp.store.add_payment(
        StoredPayment(
            task, "b" * 20, 7_000_000, "c", "{}", PaymentState.UNKNOWN, NOW, attempts=1, error="it took too long"
        )
    )
    office.open("#/money")
    office.page.get_by_role("button", name="Confirm … deposit first").click()
    dialog = office.page.get_by_role("dialog")
    dialog.get_by_label("Amount that came in").fill("79.00")
    dialog.get_by_role("button", name="Confirm").click()
    expect(dialog.get_by_role("alert")).to_contain_text("announced as")
    assert_usable_by_all(office.page)
    dialog.get_by_label("Amount that came in").fill("80.00")
    dialog.get_by_role("button", name="Confirm").click()
    expect(dialog).to_have_count(0)
    expect(office.page.locator("#deposits").get_by_text("nothing to decide")).to_be_visible()
    assert office.world.sp.ledger(task).balance("escrow") == DEPOSIT
    office.page.get_by_role("button", name=f"It was paid … payment to {'b' * 20}").click()
    office.page.get_by_role("dialog").get_by_role("button", name="It was paid").click()
    expect(office.page.locator("#payouts").get_by_text("nothing is owed")).to_be_visible()
    assert browsers.sideways(office.page) == 0


def test_a_task_is_cancelled_after_its_name_is_typed_and_purged_when_settled(desk: Office, shoot):
    """By keyboard alone; the focus comes back."""
    task, people = desk.start()
    people[0].sp.upload(task, 1, people[0].update())
    desk.open(f"#/tasks/{task}")
    button = desk.page.get_by_role("button", name="Cancel this task")
    button.focus()
    desk.page.keyboard.press("Enter")
    dialog = desk.page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    desk.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.type("the sensor lies")
    shoot(desk.page, "console-cancel", whole=False)
    desk.page.keyboard.press("Tab")
    desk.page.keyboard.type("wrong!")
    desk.page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("first 6 characters")
    dialog.get_by_label("Type the first 6 characters").fill(task[:6])
    desk.page.keyboard.press("Enter")
    expect(desk.page.locator("#about")).to_contain_text("cancelled by the operator of SP: the sensor lies")
    desk.world.clock.time += 2000.0
    desk.world.run()
    desk.page.get_by_role("button", name="Purge what is held").click()
    expect(dialog).to_contain_text("Held now")
    assert_usable_by_all(desk.page)
    dialog.get_by_label("Averages, rewards").check()
    dialog.get_by_label("Type the first 6 characters").fill(task[:6])
    dialog.get_by_role("button", name="Purge").click()
    expect(dialog).to_have_count(0)
    assert desk.world.console.actions.held(task) == {}


def test_a_reader_of_the_page_is_not_disturbed_and_a_screen_reader_hears_the_news(desk: Office):
    """Focus and open parts stay when a part is drawn again; news is said in one sentence for several events."""
    task, people = desk.start()
    desk.open()
    link = desk.page.get_by_role("link", name="Count steps").first
    link.focus()
    for person in people[:2]:
        person.sp.upload(task, 1, person.update())
    expect(desk.page.get_by_text("2 of 3 have uploaded")).to_be_visible()
    expect(link).to_be_focused()
    expect(desk.page.locator("#news")).to_contain_text("arrived.")


def test_the_page_goes_back_to_the_login_when_the_session_ends(desk: Office):
    """By a revoked token, without a click; what was shown is gone."""
    task, _ = desk.start()
    desk.open()
    expect(desk.page.get_by_text(task[:8])).to_be_visible()
    desk.world.tokens["sp"][0].revoke("the operator")
    expect(desk.page.get_by_label("Operator token")).to_be_visible()
    expect(desk.page.get_by_text("Your session has ended")).to_be_visible()
    assert task[:8] not in desk.page.content()


def test_logging_out_is_final(desk: Office):
    """Going back shows the login."""
    desk.open("#/money")
    desk.page.get_by_role("button", name="Log out").click()
    expect(desk.page.get_by_text("You are logged out")).to_be_visible()
    desk.page.reload()
    expect(desk.page.get_by_label("Operator token")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_can_be_read_in_light_and_dark(office: Office, shoot, scheme):
    """With something in each table."""
    task, people = office.start("Steps of commuters")
    office.announce("Noise in the city")
    for person in people[:2]:
        person.sp.upload(task, 1, person.update())
    office.world.sp.store.add_payment(
        StoredPayment(
            task, "b" * 20, 7_000_000, "c", "{}", PaymentState.UNKNOWN, NOW, attempts=2, error="it took too long"
        )
    )
    for _ in range(3):
        office.world.breakers[1].record(answered=False)
    office.open()
    expect(office.page.locator("#arrivals code")).to_have_count(2)
    width = "wide" if office.page.viewport_size["width"] > 400 else "narrow"
    for view, name in (("#/", "tasks"), ("#/money", "money")):
        office.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        office.page.goto(f"{office.url}/console/{view}")
        expect(office.page.locator("main table").first).to_be_visible()
        assert_usable_by_all(office.page)
        assert browsers.sideways(office.page) == 0
        if scheme == "light" or (name, width) == ("tasks", "wide"):
            dark = "-dark" if scheme == "dark" else ""
            shoot(office.page, f"console-{name}-{width}{dark}", scheme, whole=width == "wide")
