"""A phone's page in a real campaign over TLS: from the link to the payment, closed in between, offline for a while."""

import contextlib
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import TimeoutError as NotThere
from playwright.sync_api import expect

from crowdfl.documents.links import invitation_link
from crowdfl.errors import NotReady
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.recipe import Recipe
from crowdfl.learning.training import LocalTrainer
from crowdfl.roles.requester import Requester
from crowdfl.roles.sp.ledger import PAID_PEOPLE
from crowdfl.services.client.peers import SpClient
from crowdfl.settings import ParticipantSettings, TaskSettings
from tests.hosts import small_definition
from tests.http.processes import Loopback, serving, wait_for
from tests.web import browsers, firefox

LABELS = ("walking", "sitting", "climbing stairs")
TRAINING: dict[str, Any] = {
    "learner": "softmax",
    "labels": list(LABELS),
    "channels": 6,
    "window_samples": 50,
    "epochs": 5,
    "rate": 0.1,
    "seed": 7,
}
SETTINGS: dict[str, Any] = {
    "profile": "shares",
    "decimals": 5,
    "clip": 2.0,
    "max_samples": 200,
    "lanes": 256,
    "pay": "distance",
    "budget": "36.00",
    "window": 3600.0,
}
BUDGET = 36_000_000  # millionths
CENT = 10_000  # millionths
_HERTZ, _SECONDS = 50, 14
ROUNDS, PEOPLE = 2, 3  # one of them in a browser
CROWD = {"rounds": ROUNDS, "min_participants": PEOPLE, "max_participants": PEOPLE}
SPECTRAL = TRAINING | {"features": "spectral", "scale_inputs": True, "proximal": 0.1}
SPECTRAL |= {"batch": 1000, "epochs": 20}  # one batch: the order in which a phone keeps its recordings does not matter
NEAR = 2e-5  # two units of the task's five decimals
LATER = 4 * browsers.PATIENCE  # milliseconds


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("platform")) as platform:
        yield platform


@pytest.fixture
def requester(platform):
    return platform.requester()


@pytest.fixture
def task(platform, requester):
    return post(platform, requester, **CROWD)


@pytest.fixture
def stepped(platform, requester):
    """Another, with spectral features, scaled inputs, FedProx and FedAvgM."""
    return post(platform, requester, SPECTRAL, **CROWD, server_step="fedavgm", server_momentum=0.5)


def post(platform: Loopback, requester: Requester, training: dict[str, Any] = TRAINING, **settings: Any) -> str:
    """A funded task; as usual with a model of 54 inputs and three outputs."""
    learner = Recipe.of(training).make_learner()
    asked = TaskSettings.of(**(SETTINGS | settings))
    definition = replace(
        small_definition(asked, claim_window=10_000.0),
        purpose="Tell walking, sitting and stairs apart",
        shape=learner.shape,
        training=training,
    )
    task = requester.create(definition, learner.weights())
    requester.fund(task, asked.rounds * BUDGET, "all")
    platform.confirm(task, "all", asked.rounds * BUDGET)
    return task


def link(platform: Loopback, requester: Requester, task: str, replaces: str = "") -> str:
    assert isinstance(requester.sp, SpClient)
    (invitation,) = requester.invite(task, 1, 3600.0, replaces)
    where = {"kgc": platform.urls["kgc"], "sp": platform.urls["sp"]}
    keys = {"kgc_key": platform.kgc_key, "sp_key": requester.sp.key()}
    contents = ParticipantSettings(task=task, invitation=invitation, **where, **keys, ca=None, insecure_test_key=False)
    return invitation_link(f"{platform.urls['sp']}/join/", contents)


def csv(person: int) -> str:
    """What a sensor app would export: three activities, one after the other."""
    lines = ["time,ax,ay,az,gx,gy,gz,label"]
    for place, label in enumerate(LABELS):
        for step in range(_SECONDS * _HERTZ):
            lines.append(_row(person, place, step, label))
    return "\n".join(lines) + "\n"


def _row(person: int, place: int, step: int, label: str) -> str:
    turn = 2 * math.pi * (place + 0.5 + 0.05 * person) * step / _HERTZ
    moved = [0.2 * place * math.sin(turn), 0.1 * math.cos(turn), 1.0 - 0.1 * place]
    turned = [0.5 * place * math.cos(turn), 0.0, 0.3 * math.sin(2 * turn)]
    time = (place * (_SECONDS + 10) * _HERTZ + step) / _HERTZ
    return ",".join([f"{time:.2f}", *(f"{value:.5f}" for value in moved + turned), label])


class Trainer(LocalTrainer):
    def __init__(self, home, training):
        super().__init__(f"csv:{home}", training)
        self.trained = {}

    def train(self, arrays, settings, number):
        weights, samples = super().train(arrays, settings, number)
        self.trained[number] = flat(weights), samples
        return weights, samples


def flat(weights):
    return np.concatenate([array.reshape(-1) for array in weights])


def trainer_of(requester, task, folder, number):
    home = folder / f"person-{number}"
    home.mkdir()
    (home / "recordings.csv").write_text(csv(number))
    return Trainer(home, requester.definition(task).training)


def joined(platform, requester, task, folder, number):
    return platform.join(requester, task), trainer_of(requester, task, folder, number)


def require_the_oracles_averages(requester, task, folder, others):
    """Of what everyone has trained; what the phone has, Python trains again."""
    phone, definition = trainer_of(requester, task, folder, 0), requester.definition(task)
    model = flat(requester.initial(task))
    for number in range(1, ROUNDS + 1):
        phone.train(definition.shape.arrays(model), {}, number)
        models, samples = zip(*(trainer.trained[number] for trainer in (phone, *others)), strict=True)
        read = requester.read(task, number)
        assert np.abs(read.weights - fedavg(models, samples)).max() < NEAR
        assert np.abs(read.model - read.weights).max() > 10 * NEAR or number == 1  # the step took it further
        model = read.model


def take_part(person, trainer, number):

    def look():
        person.step(trainer.train, trainer.evaluate)
        if not person.blobs.has(f"rounds/{number}/receipt"):
            raise NotReady("not yet")

    wait_for(look)


def paid(person):

    def look():
        person.step(lambda *_: pytest.fail("there is no round left to train for"))
        return person.claim()

    return wait_for(look)


def amount_in(headline):
    """Millionths; shown rounded down to the cent."""
    return round(float(re.search(r"[0-9.]+[0-9]", headline)[0]) * 1_000_000)


def join(page, link, number):
    """What a person does once: read, accept the small crowd, join, import recordings."""
    page.goto(link)
    expect(page.get_by_role("heading", level=1)).to_have_text("You are invited")
    expect(page.get_by_text("Tell walking, sitting and stairs apart")).to_be_visible()
    page.get_by_label("I accept averages of as few as 3 people.").check()
    page.get_by_role("button", name="Join").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Record")
    page.get_by_text("No sensors? Import a CSV file").click()
    content = {"name": "mine.csv", "mimeType": "text/csv", "buffer": csv(number).encode()}
    page.get_by_label("CSV files").set_input_files(content)
    expect(page.get_by_text("mine.csv: 42 sec of walking, sitting, and climbing stairs.")).to_be_visible()
    expect(page.get_by_text("Nothing has been sent.")).to_be_visible()
    page.get_by_role("button", name="Send my contribution").click()


def test_a_phone_takes_part_is_closed_goes_offline_and_is_paid(platform, requester, stepped, phone_context, tmp_path):
    """Whoever closes the page between two rounds, or reloads it without a network, loses nothing.

    The averages are the oracle's, and the phone's model has the state that everyone's has.
    """
    task = stepped
    others = [joined(platform, requester, task, tmp_path, number) for number in range(1, PEOPLE)]
    page = phone_context.new_page()
    complaints, asked = browsers.complaints(page), set()
    page.on("request", lambda request: asked.add("/".join(request.url.split("/")[:3])))
    secret = link(platform, requester, task)
    join(page, secret, 0)
    expect(page.locator(".headline")).to_have_text("Your contribution to round 1 of 2 has arrived.", timeout=LATER)
    browsers.assert_usable_by_all(page)
    assert complaints == []
    assert asked == {platform.urls["sp"], platform.urls["kgc"]}

    phone_context.set_offline(True)
    page.reload()
    expect(page.locator(".headline")).to_have_text("Your contribution to round 1 of 2 has arrived.")
    expect(page.get_by_text("No connection. You can record")).to_be_visible()
    page.close()
    for person, trainer in others:
        take_part(person, trainer, 1)

    phone_context.set_offline(False)
    page = phone_context.new_page()
    page.goto(f"{platform.urls['sp']}/join/#/home/{task}")
    expect(page.locator(".headline")).to_have_text("Your contribution to round 2 of 2 has arrived.", timeout=LATER)
    for person, trainer in others:
        take_part(person, trainer, 2)
    expect(page.locator(".headline")).to_have_text("The campaign has ended.", timeout=LATER)
    page.get_by_role("link", name="Round by round, with receipts").click()
    rows = page.get_by_role("table", name="Rounds").get_by_role("row")
    expect(rows).to_have_count(ROUNDS + 1)
    assert "arrived" in rows.nth(1).inner_text()
    assert "%" in rows.nth(1).inner_text()
    require_the_oracles_averages(requester, task, tmp_path, [trainer for _, trainer in others])
    state = requester.states(task)[1]
    assert [person.states() for person, _ in others] == [{1: state}] * len(others)
    page.get_by_text("Does everyone have the same model?").click()
    states = page.get_by_role("table", name="State of the model").get_by_role("row")
    expect(states).to_have_count(2)  # the last average is for the requester
    assert states.nth(1).inner_text().split()[1:] == re.findall("....", state[:16])
    page.get_by_role("link", name="Back", exact=True).click()
    page.get_by_role("link", name="See my earnings").click()
    expect(page.get_by_text("It is claimed. Below is what became of it.")).to_be_visible()
    earned = amount_in(page.locator(".headline").inner_text())
    kept = page.evaluate(
        "async () => (await (await caches.open((await caches.keys())[0])).keys()).map(({ url }) => url)"
    )
    assert kept
    assert not [url for url in kept if "/v1/" in url]
    rest = sum(paid(person) for person, _ in others)
    assert ROUNDS * (BUDGET - 10) - CENT <= earned + rest <= ROUNDS * BUDGET


def test_a_phone_claims_while_the_task_runs_and_a_lost_reply_costs_nothing(
    platform, requester, phone_context, tmp_path
):
    """Equal parts: the first round is claimed while the second goes on. SP has heard the claim, and the phone no answer: the
    same one, sent again, is booked once. Nothing is called paid that nobody has handed over."""
    task = post(platform, requester, **CROWD, pay="equal")
    others = [joined(platform, requester, task, tmp_path, number) for number in range(1, PEOPLE)]
    claims: list[bytes] = []

    def lose_the_first(route):
        claims.append(route.request.post_data_buffer)
        answer = route.fetch()  # SP has booked it
        if len(claims) == 1:
            route.abort("connectionreset")
        else:
            route.fulfill(response=answer)

    phone_context.route("**/v1/tasks/*/claims", lose_the_first)
    page = phone_context.new_page()
    join(page, link(platform, requester, task), 0)
    expect(page.locator(".headline")).to_have_text("Your contribution to round 1 of 2 has arrived.", timeout=LATER)
    for person, trainer in others:
        take_part(person, trainer, 1)
    expect(page.locator(".headline")).to_have_text("Your contribution to round 2 of 2 has arrived.", timeout=LATER)
    page.get_by_role("link", name="Details of pay").click()
    booked = page.get_by_text("€12.00: waiting for payment")
    expect(booked).to_be_visible(timeout=LATER)
    assert requester.sp.status(task)["state"] == "running"
    assert len(claims) == 2
    assert claims[0] == claims[1]
    rows = page.get_by_role("table", name="Round by round").get_by_role("row")
    assert rows.nth(1).inner_text().split("\t")[1:3] == ["€12.00", "waiting for payment"]
    assert "Paid" not in page.locator("main").inner_text()
    browsers.assert_usable_by_all(page)
    for person, trainer in others:
        take_part(person, trainer, 2)
    expect(page.get_by_text("€24.00: waiting for payment")).to_be_visible(timeout=LATER)
    assert sum(paid(person) for person, _ in others) == 2 * ROUNDS * BUDGET // PEOPLE
    assert wait_for(lambda: people_paid(requester, task)) == ROUNDS * BUDGET


def people_paid(requester, task):
    """Millionths, in SP's books: these are closed as soon as nobody is owed anything."""
    if requester.sp.status(task)["state"] != "settled":
        raise NotReady("not yet")
    return sum(one["amount"] for one in requester.sp.movements(task) if one["name"] == PAID_PEOPLE)


@pytest.mark.second
def test_firefox_takes_part_from_the_link_to_the_pay(platform, requester, task, tmp_path):
    """The happy path, sensors aside: the other engine has keys, workers and storage of its own."""
    firefox.need_firefox()
    others = [joined(platform, requester, task, tmp_path, number) for number in range(1, PEOPLE)]
    (tmp_path / "mine.csv").write_text(csv(0))
    secret = link(platform, requester, task)
    with ThreadPoolExecutor(1) as beside:
        script = Path(__file__).with_name("firefox_phone.mjs")
        phone = beside.submit(firefox.in_firefox, script, secret, tmp_path / "mine.csv")
        for number in range(1, ROUNDS + 1):
            for person, trainer in others:
                take_part(person, trainer, number)
        rest = sum(paid(person) for person, _ in others)
        found = phone.result()
    assert secret.partition("#")[2] not in found["address"]
    assert ["arrived" in row for row in found["rounds"]][:ROUNDS] == [True] * ROUNDS
    assert "%" in found["rounds"][0]
    assert found["said"] == []
    earned = amount_in(found["headline"])
    assert ROUNDS * (BUDGET - 10) - CENT <= earned + rest <= ROUNDS * BUDGET


def from_menu(page, name):
    """Once a phone has joined, the bar is made anew, and a menu that was open is closed."""
    for _ in range(5):
        page.get_by_role("button", name="Menu").click()
        with contextlib.suppress(NotThere):
            page.get_by_role("link", name=name).click(timeout=browsers.PATIENCE / 5)
            return
    pytest.fail(f"the menu never showed {name}")


def test_a_phone_leaves_and_forgets_everything(platform, requester, task, phone_context):
    """SP is told, and nothing of the campaign is left in the browser."""
    page = phone_context.new_page()
    join(page, link(platform, requester, task), 0)
    from_menu(page, "Leave or withdraw")
    page.get_by_role("button", name="Forget this campaign").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget it").click()
    expect(page.get_by_text("No invitation yet")).to_be_visible()
    assert requester.sp.status(task)["enrolled"] == 0
    left = """async () => { const all = await indexedDB.databases(); const found = [];
      for (const { name } of all) { const db = await new Promise((done) => { const ask = indexedDB.open(name);
        ask.onsuccess = () => done(ask.result); });
        for (const table of db.objectStoreNames) { found.push(...await new Promise((done) => {
          const ask = db.transaction(table).objectStore(table).getAllKeys(); ask.onsuccess = () => done(ask.result); })); }
        db.close(); }
      return found; }"""
    assert page.evaluate(left) == []
    assert page.evaluate("localStorage.length") == 0
    page.evaluate("localStorage.setItem('crowdfl language', 'en')")
    page.evaluate("async () => { await navigator.serviceWorker.ready; }")
    from_menu(page, "This phone")
    page.get_by_role("button", name="Delete everything").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete everything").click()
    expect(page.get_by_text("No invitation yet")).to_be_visible()
    workers = "async () => (await navigator.serviceWorker.getRegistrations()).length"
    files = """async () => { const found = []; for (const name of await caches.keys()) {
      found.push(name, ...(await (await caches.open(name)).keys()).map(({ url }) => url)); } return found; }"""
    assert page.evaluate(files) == []
    assert page.evaluate(workers) == 0
    assert page.evaluate(left) == []
    assert page.evaluate("localStorage.length") == 0


MOST_BYTES, MOST_REQUESTS = 95_000, 10  # until somebody can join
REQUESTS_IN_ALL, MOST_KEPT = (
    60,
    1_350_000,
)  # with what is fetched behind the invitation and kept for later; bytes as they are read
SLOW = {
    "offline": False,
    "latency": 150,
    "downloadThroughput": 1_600_000 / 8,
    "uploadThroughput": 750_000 / 8,
}  # as Lighthouse's phone


@pytest.mark.parametrize("slow", [False, True])
def test_little_is_loaded_before_somebody_can_join(platform, requester, task, phone_context, slow):
    """Bytes on the wire and requests, as the DevTools count them: until there is a button, and while somebody reads.

    How long they take depends on this machine. The worker's own requests are counted by what it keeps: each file once.
    """
    page = phone_context.new_page()
    tools = phone_context.new_cdp_session(page)
    tools.send("Network.enable")
    if slow:
        tools.send("Network.emulateNetworkConditions", SLOW)
        tools.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    asked: list[str] = []
    sizes: list[float] = []
    tools.on("Network.requestWillBeSent", lambda event: asked.append(event["request"]["url"]))
    tools.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    held = []
    page.route("**/join/page.js", lambda route: held.append(route))  # noqa: PLW0108 -- Playwright marks what it is given
    page.goto(link(platform, requester, task))
    page.locator(".joining button.main").wait_for()
    before = len([url for url in asked if not url.endswith("/page.js")]), sum(sizes)
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    kept = """async () => { await navigator.serviceWorker.ready; const [name] = await caches.keys();
      const all = await (await caches.open(name)).matchAll();
      return Promise.all(all.map(async (one) => (await one.blob()).size)); }"""
    files = page.evaluate(kept)
    whole = len(asked) + len(files)
    assert before[0] <= MOST_REQUESTS, asked
    assert before[1] <= MOST_BYTES, sizes
    assert whole <= REQUESTS_IN_ALL, (asked, len(files))
    assert sum(files) <= MOST_KEPT, files
