"""A campaign that an earlier version began is finished by this one: paid, and the books balanced.

The services are real, over copies of the corpus' folders, and live at the time at which it was made: signed ends pass.
"""

import json
import tarfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest
from playwright.sync_api import expect, sync_playwright

from crowdfl.errors import NotReady
from crowdfl.roles.sp.ledger import ESCROW, PAID_PEOPLE, REWARDS
from crowdfl.storage import upgrading
from crowdfl.storage.database_copy import put_database
from tests.corpus import dumps
from tests.corpus.campaign import ABOUT, OF_PROGRAMS, TASKS, OffsetClock, World, world
from tests.corpus.phone import live_at, put
from tests.http.processes import wait_for
from tests.storage.conftest import DATABASES, SERVER, empty_database
from tests.web import browsers

pytestmark = pytest.mark.second
VERSIONS = sorted(path.name for path in Path(__file__).parent.glob("v[0-9]*"))
PHONES = "phone.json"
DAY = 86400.0
FIXED = 5_000_000  # millionths, of two rounds and the bonus


@pytest.fixture(params=VERSIONS)
def place(request):
    return Path(__file__).parent / request.param


@pytest.fixture
def corpus(place, tmp_path):
    """The folders as they were left."""
    with tarfile.open(place / "folders.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return tmp_path


@contextmanager
def living(corpus, databases=MappingProxyType({})):
    """The services over them, by this version's code, a minute after the last that happened there."""
    about = json.loads((corpus / ABOUT).read_text())
    clock = OffsetClock()
    clock.offset = about["made_at"] + 60 - time.time()
    with world(corpus, clock, databases=databases) as here:
        yield here


@pytest.fixture
def finishing(corpus):
    with living(corpus) as here:
        yield here


@pytest.fixture
def dumped(corpus, place, tmp_path):
    """The services' databases, out of PostgreSQL's dumps."""
    with ExitStack() as stack:
        databases = {role: stack.enter_context(empty_database("postgresql", tmp_path)) for role in dumps.ROLES}
        for role, url in databases.items():
            dumps.put(url, place, role)
            (corpus / role / "state.db").unlink()
        yield databases


@pytest.mark.parametrize("kind", DATABASES)
@pytest.mark.parametrize("role", dumps.ROLES)
def test_this_version_reads_and_upgrades_all_of_it(corpus, tmp_path, role, kind):
    with empty_database(kind, tmp_path) as url:
        put_database(url, corpus / role / "state.db")
        found = upgrading.look(url)
        assert (found.tasks, found.unreadable) == (len(TASKS), {})
        upgrading.upgrade(url)
        assert upgrading.look(url).revision == found.newest


@pytest.mark.skipif(SERVER is None, reason="CROWDFL_TEST_POSTGRES names no server")
def test_postgresqls_dumps_are_read_upgraded_and_their_campaigns_finished(corpus, dumped):
    for url in dumped.values():
        found = upgrading.look(url)
        assert (found.tasks, found.unreadable) == (len(TASKS), {})
        upgrading.upgrade(url)
        assert upgrading.look(url).revision == found.newest
    with living(corpus, dumped) as here:
        require_finished(here)


def test_its_campaigns_are_finished_paid_and_balanced(finishing):
    require_finished(finishing)


def require_finished(here: World) -> None:
    for person in OF_PROGRAMS["open"]:
        invited = iter(here.requester.invite(here.tasks["open"], 3, DAY))
        here.person("open", person).join(next(invited))
    earned = {}
    for name in ("stuck", "keyed", "open"):
        for number in range(1, TASKS[name]["rounds"] + 1):
            for person in OF_PROGRAMS[name]:
                here.take_part(name, person, number)
        claims = [claimed(here, name, person) for person in OF_PROGRAMS[name]]
        assert all(claims)
        earned[name] = sum(claims)
    require_balanced(here, earned)


def test_a_phone_goes_on_from_what_it_had_stored(finishing):
    """In a browser, with its keys, its recordings and its receipt of round 1: it trains, sends, claims and is paid."""
    here, name = finishing, "phone"
    about = json.loads((here.folder / ABOUT).read_text())
    before = {about["addresses"][role]: here.platform.urls[role] for role in ("sp", "kgc")}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**browsers.options())
        with browsers.opened(browser, browsers.PHONE) as context:
            live_at(context, here.clock.offset)
            put(context, here.platform.urls["sp"], (here.folder / PHONES).read_text(), before)
            page = context.new_page()
            page.goto(f"{here.platform.urls['sp']}/join/#/home/{here.tasks[name]}")
            headline = page.locator(".headline")
            expect(headline).to_have_text("Your contribution to round 2 of 2 has arrived.", timeout=LONG)
            for person in OF_PROGRAMS[name]:
                here.take_part(name, person, 2)
            claims = [claimed(here, name, person, FIXED) for person in OF_PROGRAMS[name]]
            assert claims == [FIXED, FIXED]
            expect(headline).to_have_text("The campaign has ended.", timeout=LONG)
            wait_for(lambda: require_people_paid(here, name, 3 * FIXED))
        browser.close()
    require_balanced(here, {name: 3 * FIXED})


LONG = 4 * browsers.PATIENCE


def claimed(here: World, task: str, name: str, least: int = 1) -> int:
    """Millionths, once both rounds are rewarded."""
    person = here.person(task, name)

    def look() -> int:
        person.step(lambda *_: pytest.fail("there is no round left to train for"))
        booked = person.claim()  # a round at a time, where the pay is fixed
        if here.state(task) == "running" or booked < least:
            raise NotReady("not yet")
        return booked

    return wait_for(look)


def require_people_paid(here: World, name: str, amount: int) -> None:
    paid = sum(one["amount"] for one in here.requester.sp.movements(here.tasks[name]) if one["name"] == PAID_PEOPLE)
    if paid != amount:
        raise NotReady(f"{paid} is paid")


def require_balanced(here: World, earned: dict[str, int]) -> None:
    """After the last day of claims: people have what they claimed, the requester the rest, and nothing is left between."""
    last = max(here.requester.definition(here.tasks[name]).claims_until for name in earned)
    here.clock.offset = last + 3 * DAY - time.time()
    for name, amount in earned.items():

        def settled(name: str = name) -> None:
            if here.state(name) != "settled":
                raise NotReady("not yet")

        wait_for(settled)
        require_people_paid(here, name, amount)
        balances: Counter[str] = Counter()
        for one in here.requester.sp.movements(here.tasks[name]):
            balances[one["source"]] -= one["amount"]
            balances[one["target"]] += one["amount"]
        assert (balances[ESCROW], balances[REWARDS], sum(balances.values())) == (0, 0, 0)
        assert balances["participants"] == amount
