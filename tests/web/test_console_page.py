"""The console in a browser: log in, watch a round, decide about money, cancel a task; by keyboard, and for screen readers."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from playwright.sync_api import Page, expect

from crowdfl.roles.records import PaymentState, StoredPayment
from tests.hosts import INITIAL_MODEL
from tests.http import conftest as http
from tests.http.world import DEPOSIT, Person, task_definition
from tests.web import browsers
from tests.web.consoles import ConsoleWorld

portal, logged = http.portal, http.logged
NOW = 1_795_000_000.0
MARKUP = '<img src=x onerror="window.hurt = true"> & <b>bold</b>'
REFUSED = re.compile(r"status of (401|409|422) ")  # "am I logged in?", and what tests have refused on purpose
PATIENCE = browsers.PATIENCE
NUMBERS = itertools.count(1)

expect.set_options(timeout=PATIENCE)


@dataclass
class Seat:
    """A platform with its console, and an operator's browser."""

    world: ConsoleWorld
    url: str
    page: Page
    token: str = ""

    def log_in(self, token: str | None = None) -> None:
        self.page.get_by_label("Operator token").fill(token or self.token)
        self.page.get_by_role("button", name="Log in").click()

    def open(self, view: str = "") -> None:
        self.page.goto(f"{self.url}/console/{view}")
        self.log_in()
        expect(self.page.get_by_role("button", name="Log out")).to_be_visible()

    def start(self, purpose: str, people: int = 3) -> tuple[str, list[Person]]:
        task = self.announce(purpose)
        self.world.sp.deposits.confirm(task, "first", DEPOSIT, "EUR")
        joined = [self.world.add_person(task) for _ in range(people)]
        self.world.run()
        return task, joined

    def announce(self, purpose: str) -> str:
        task = self.world.create(replace(task_definition(), purpose=purpose), INITIAL_MODEL)
        self.world.requester.fund(task, DEPOSIT, "first")
        return task

    def owe(self, task: str) -> None:
        """A payment of which nobody knows whether it was made."""
        unknown = (PaymentState.UNKNOWN, self.world.clock.time)
        payment = StoredPayment(task, "b" * 20, 1, 7_000_000, 0, *unknown, attempts=1, error="it took too long")
        self.world.sp.store.add_payment(payment)

    def assert_fits(self) -> None:
        """On a phone, on a wide screen, and for everyone."""
        for width in (360, 1200):
            self.page.set_viewport_size({"width": width, "height": 900})
            assert browsers.sideways(self.page) == 0
        browsers.assert_usable_by_all(self.page)


@pytest.fixture(scope="module")
def served(tmp_path_factory, portal) -> Iterator[tuple[ConsoleWorld, str]]:
    """One platform for all, at a time of this century; over TLS."""
    world = ConsoleWorld(tmp_path_factory.mktemp("console"), portal)
    world.clock.time = world.console.overview.history.since = NOW
    with world.served(tls=True) as url:
        yield world, url
    world.close()


@pytest.fixture
def seat(served, desk_context) -> Iterator[Seat]:
    """Somebody with a token; whatever the page complains about fails the test."""
    page = desk_context.new_page()
    complaints = browsers.complaints(page)
    yield Seat(*served, page, served[0].tokens["sp"][0].add(f"ann-{next(NUMBERS)}", "operator"))
    assert [text for text in complaints if not REFUSED.search(text)] == []


def test_a_wrong_token_is_refused_in_words_and_the_right_one_opens_the_console(seat: Seat, shoot):
    """What was typed is gone afterwards; nothing of it is kept in the browser. Logging out is final."""
    seat.page.goto(f"{seat.url}/console/")
    browsers.assert_usable_by_all(seat.page)
    browsers.shoot_console(seat.page, shoot, {"console-login": (f"{seat.url}/console/", ".login")})
    seat.log_in("crowdfl_wrong")
    expect(seat.page.get_by_role("alert")).to_contain_text("make another with `crowdfl sp token add`")
    seat.log_in()
    expect(seat.page.get_by_role("heading", name="Tasks").first).to_be_visible()
    (cookie,) = seat.page.context.cookies()
    assert (cookie["name"], cookie["path"]) == ("__Secure-crowdfl-console", "/console")
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"], cookie["expires"]) == (True, True, "Strict", -1)
    kept = seat.page.evaluate("() => [document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
    assert kept == ["", '{"crowdfl language":"en"}', "{}"]
    assert seat.token not in seat.page.content()
    seat.page.get_by_role("button", name="Log out").click()
    expect(seat.page.get_by_text("You are logged out")).to_be_visible()
    seat.page.reload()
    expect(seat.page.get_by_label("Operator token")).to_be_visible()


def test_a_round_is_followed_from_its_first_upload_to_its_rewards(seat: Seat):
    """Without a reload, in the overview and on the task's own page; what a requester typed stays text. A reader of the page is
    not disturbed: focus stays when a part is drawn again, and a screen reader hears the news in one sentence."""
    task, people = seat.start(MARKUP)
    seat.open()
    link = seat.page.get_by_role("link", name=MARKUP).first
    card = seat.page.locator("article").filter(has=link)
    expect(card).to_contain_text("0 of 3 have uploaded")
    link.focus()
    for person in people[:2]:
        person.sp.upload(task, 1, person.update())
    expect(card).to_contain_text("2 of 3 have uploaded")
    expect(link).to_be_focused()
    expect(seat.page.locator("#arrivals").get_by_text(people[0].who)).to_be_visible()
    expect(seat.page.locator("#news")).to_contain_text("arrived.")
    seat.assert_fits()
    link.click()
    expect(seat.page.locator("h1")).to_have_text(MARKUP)
    steps = seat.page.locator(".steps li.done strong")
    expect(steps).to_have_text(["open"])
    expect(seat.page.locator("#uploads").get_by_text(people[2].who)).to_have_count(0)
    people[2].sp.upload(task, 1, people[2].update())
    expect(seat.page.locator("#uploads").get_by_text(people[2].who)).to_be_visible()
    seat.world.clock.time += 30.0
    seat.world.run()
    expect(steps).to_have_text(["open", "closed", "checked", "averaged", "published", "rewarded"])
    expect(seat.page.locator(".steps small").first).to_contain_text("2026")
    expect(seat.page.locator("#ledger")).to_contain_text("36.00")
    seat.assert_fits()
    assert seat.page.evaluate("window.hurt") is None
    assert seat.page.locator("img").count() == 0


def test_nothing_is_said_to_be_empty_before_it_is_known(seat: Seat):
    """The first look may take its time."""
    seat.page.route("**/console/events", lambda _: None)  # it is never answered
    for view in ("", "#/money"):
        seat.page.goto(f"{seat.url}/console/{view}")
        if not view:
            seat.log_in()
        expect(seat.page.get_by_role("heading", level=1)).to_have_text("Money" if view else "Tasks")
        assert seat.page.locator("section").evaluate_all("all => all.map((one) => one.textContent).join('')") == ""


def test_everything_is_marked_as_old_when_sp_is_gone(seat: Seat, desk_context):
    """At once, and in words; what was seen last stays."""
    task, _ = seat.start("Left alone")
    page = desk_context.new_page()
    with seat.world.served() as url:
        gone = Seat(seat.world, url, page, seat.token)
        gone.open()
        expect(page.get_by_text(task[:8]).first).to_be_visible()
        expect(page.locator("header .state.good")).to_have_text("live")
    expect(page.locator("header .state.bad")).to_have_text("SP does not answer")
    expect(page.get_by_role("alert")).to_contain_text("What you see is from before")
    red = "() => getComputedStyle(document.querySelector('.health li')).borderInlineStartColor"
    assert page.evaluate(red) == page.evaluate(
        "() => getComputedStyle(document.querySelector('.state.bad')).backgroundColor"
    )
    browsers.assert_usable_by_all(page)


def test_a_deposit_is_confirmed_by_typing_what_came_in(seat: Seat):
    task = seat.announce("Noise in the city")
    seat.owe(task)
    seat.open("#/money")
    row = seat.page.locator("#deposits tr").filter(has_text="Noise in the city")
    row.get_by_role("button", name="Confirm … deposit first").click()
    dialog = seat.page.get_by_role("dialog")
    dialog.get_by_label("Amount that came in").fill("79.00")
    dialog.get_by_label("Currency that came in").fill("EUR")
    dialog.get_by_role("button", name="Confirm").click()
    expect(dialog.get_by_role("alert")).to_contain_text("announced as")
    browsers.assert_usable_by_all(seat.page)
    dialog.get_by_label("Amount that came in").fill("80.00")
    dialog.get_by_role("button", name="Confirm").click()
    expect(dialog).to_have_count(0)
    expect(row).to_contain_text("confirmed")
    assert seat.world.sp.core.ledger(task).balance("escrow") == DEPOSIT
    seat.page.get_by_role("button", name=f"It was paid … payment 1 to {'b' * 20}").click()
    seat.page.get_by_role("dialog").get_by_role("button", name="It was paid").click()
    expect(seat.page.locator("#payouts").get_by_text("nothing is owed")).to_be_visible()
    seat.assert_fits()


def test_a_task_is_cancelled_after_its_name_is_typed_and_purged_when_settled(seat: Seat, shoot):
    task, people = seat.start("Count steps")
    people[0].sp.upload(task, 1, people[0].update())
    seat.open(f"#/tasks/{task}")
    button = seat.page.get_by_role("button", name="Cancel this task")
    button.focus()
    seat.page.keyboard.press("Enter")
    dialog = seat.page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    seat.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()
    seat.page.keyboard.press("Enter")
    seat.page.keyboard.type("the sensor lies")
    shoot(seat.page, "console-cancel", whole=False)
    seat.page.keyboard.press("Tab")
    seat.page.keyboard.type("wrong!")
    seat.page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("first 6 characters")
    dialog.get_by_label("Type the first 6 characters").fill(task[:6])
    seat.page.keyboard.press("Enter")
    expect(seat.page.locator("#about")).to_contain_text("cancelled by the operator of SP: the sensor lies")
    seat.world.clock.time += 2000.0
    seat.world.run()
    seat.page.get_by_role("button", name="Purge what is held").click()
    expect(dialog).to_contain_text("Held now")
    browsers.assert_usable_by_all(seat.page)
    dialog.get_by_label("Averages, rewards").check()
    dialog.get_by_label("Type the first 6 characters").fill(task[:6])
    dialog.get_by_role("button", name="Purge").click()
    expect(dialog).to_have_count(0)
    assert seat.world.console.actions.held(task) == {}


def test_every_view_can_be_read_in_light_and_dark_and_is_gone_when_the_session_ends(seat: Seat, shoot):
    """With something in each table. The session ends by a revoked token, without a click."""
    task, people = seat.start("Steps of commuters")
    seat.owe(seat.announce("Air on the way"))
    for person in people[:2]:
        person.sp.upload(task, 1, person.update())
    for _ in range(3):
        seat.world.breakers[1].record(answered=False)
    seat.open()
    expect(seat.page.locator("#arrivals").get_by_text(people[1].who)).to_be_visible()
    views = {"tasks": "#/", "money": "#/money", "task": f"#/tasks/{task}"}
    for view in views.values():
        seat.page.goto(f"{seat.url}/console/{view}")
        expect(seat.page.locator("main table").first).to_be_visible()
        for scheme in ("dark", "light"):
            seat.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            seat.assert_fits()
    places = {f"console-{name}": (f"{seat.url}/console/{view}", "main table") for name, view in views.items()}
    browsers.shoot_console(seat.page, shoot, places)
    seat.page.goto(f"{seat.url}/console/#/")
    expect(seat.page.get_by_text(task[:8]).first).to_be_visible()
    seat.world.tokens["sp"][0].revoke(seat.world.tokens["sp"][0].check(seat.token).name)
    expect(seat.page.get_by_label("Operator token")).to_be_visible()
    expect(seat.page.get_by_text("Your session has ended")).to_be_visible()
    assert task[:8] not in seat.page.content()
