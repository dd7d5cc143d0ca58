"""A study as a group would run it, from consent to the report: twenty people, fourteen scripted over the API, six in browsers
with sensors, with fixed pay.

They agree to a consent text, are reminded, and take part in two rounds at set times by a clock that the test moves. One
withdraws, one changes the page's language, one gets another phone, one has no network when it sends, and one reads from right
to left and has a clock that is a day ahead. The payer alone learns where they want to be paid; it makes one batch, and its
result comes back.
"""

import contextlib
import csv
import http.server
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, Playwright, Request, Route, expect

from crowdfl.campaigns.report import TaskReport
from crowdfl.catalogues import catalogue
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.documents.envelope import to_base64url
from crowdfl.errors import NotReady
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.payer import PayerRecord
from crowdfl.roles.requester import Requester
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import SystemClock
from crowdfl.settings import ConsentSettings, PlanSettings, TaskSettings, TextsSettings
from tests.cli.program import call
from tests.crypto.test_webpush import AUTH, BROWSER, opened
from tests.hosts import small_definition
from tests.http.processes import Loopback, serving, wait_for, wait_for_round
from tests.web import browsers
from tests.web.motion import Motion, replay
from tests.web.test_phone_campaign import NEAR, flat, link

pytestmark = [pytest.mark.second, pytest.mark.timeout(2400)]  # six pages on a busy machine

PEOPLE, PHONES, ROUNDS = 20, 6, 2
LABELS = ("sitting", "jogging")
LATER = 6 * browsers.PATIENCE  # milliseconds
LEAVER, GERMAN, LOST, OFFLINE, PERSIAN = range(5)  # of the phones
NEW = PHONES  # in the place of the lost one
HOUR, WINDOW = 3600.0, 1800.0  # seconds
SECONDS, HERTZ = 15, 10  # of what the sensors show for each activity
PLACE = "@study.example"  # where people get their vouchers
IBAN = "DE89370400440532013000"  # one of them
DEBTOR = "DE02120300000000202051"
TRAINING: dict[str, Any] = {
    "learner": "softmax",
    "labels": list(LABELS),
    "channels": 3,
    "hertz": 25.0,
    "window_samples": 25,
    "epochs": 2,
    "rate": 0.1,
}
SETTINGS: dict[str, Any] = {
    "profile": "shares",
    "decimals": 5,
    "clip": 2.0,
    "max_samples": 200,
    "lanes": 256,
    "pay": "fixed",
    "each": "2.00",
    "bonus": "1.00",
    "rounds": ROUNDS,
    "min_participants": 10,
    "max_participants": PEOPLE,
    "window": WINDOW,
}
CONSENT = ConsentSettings(version="2026-11", text="We measure how you move. You can withdraw at any time.")
TEXTS = TextsSettings(purpose="Sitzen und Joggen unterscheiden", words={"sitting": "Sitzen"})
FROM_RIGHT = TextsSettings(
    purpose="تشخیص نشستن از دویدن", consent="ما حرکت شما را ثبت می کنیم. هر زمان بخواهید کنار بروید."
)
AHEAD = """if (location.protocol === "http:" && !localStorage.clockIsSet) {
  const at = Date.now() + 90_000_000 - performance.now();
  Date.now = () => at + performance.now();
}"""
NOTE_TRAINED = """globalThis.Worker = class extends Worker {
  rounds = new Map();
  postMessage(order, ...rest) { this.rounds.set(order.id, order.round); super.postMessage(order, ...rest); }
  constructor(...given) { super(...given); this.addEventListener("message", ({ data: { id, result } }) => {
    if (result?.weights) noteTrained(this.rounds.get(id), [...result.weights], result.samples); }); }
};"""
SUBSCRIBE = """if (globalThis.PushManager) {
  const made = { options: {}, toJSON: () => (%s) };
  PushManager.prototype.getSubscription = async () => (localStorage.subscribed ? made : null);
  PushManager.prototype.subscribe = async () => { localStorage.subscribed = true; return made; };
}"""
WHOLE = re.compile(r"/rounds/([0-9]+)/uploads/[0-9a-f]+$")
KEY = "payer.key"
NOTIFIED = (
    "async () => (await (await navigator.serviceWorker.ready).getNotifications()).map(({ title }) => title).join()"
)

KEPT_WORDS = "async () => (await (await caches.match('words.json'))?.json())?.opened.title"


class PushService(http.server.BaseHTTPRequestHandler):
    """One of the test's own. It keeps who was told what, as only the browser that subscribed can read it."""

    told: ClassVar[list[tuple[str, str]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.told.append((self.path, opened(body).decode()))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@dataclass
class Visitor:
    """A browser with a profile of its own, what its owner does, a push service of the test's, and what was trained in it."""

    number: int
    folder: Path
    playwright: Playwright
    site: str
    push: str
    context: BrowserContext = field(init=False, repr=False)
    page: Page = field(init=False, repr=False)
    complaints: list[str] = field(default_factory=list)
    motion: Motion | None = None
    look: dict[str, Any] = field(default_factory=dict)
    sent: dict[int, bytes] = field(default_factory=dict)  # uploads, by round
    trained: dict[int, tuple[Any, int]] = field(default_factory=dict)  # by round: weights, samples

    def open(self, url: str) -> None:
        self.context = browsers.open_profile(self.playwright, self.folder, browsers.PHONE, **self.look)
        self.context.grant_permissions(["notifications", "accelerometer", "gyroscope"], origin=self.site)
        self.context.expose_function("noteTrained", self._note_trained)
        self.context.add_init_script(NOTE_TRAINED)
        self.context.add_init_script(SUBSCRIBE % json.dumps(subscription(self.push, keys=True)))
        self.page = self.context.new_page()
        self.page.on("request", self._note)
        self.complaints = browsers.complaints(self.page)
        self.page.goto(url)

    def _note(self, request: Request) -> None:
        """A short upload goes in one piece; a phone itself forgets it after the round."""
        found = WHOLE.search(request.url)
        if request.method == "PUT" and found is not None:
            self.sent[int(found[1])] = request.post_data_buffer or b""

    def _note_trained(self, number: int, weights: list[float], samples: int) -> None:
        self.trained[number] = np.array(weights), min(samples, SETTINGS["max_samples"])

    def t(self, key: str, **values: object) -> str:
        """As the page says it, in the language that it speaks."""
        section, name = key.split(".")
        language = self.page.locator("html").get_attribute("lang") or "en"
        said = next(found[section][name] for found in self._catalogues(language) if name in found.get(section, {}))
        return re.sub(r"\{(\w+)\}", lambda place: str(values[place[1]]), said)

    @staticmethod
    def _catalogues(language: str) -> list[Any]:
        return [catalogue(page, language) for page in ("phone", "common")]

    def join(self) -> None:
        self.page.locator("#consent summary").click()
        for box in ("#replaces", "#agree"):
            if self.page.locator(box).count():
                self.page.locator(box).check()
        expect(self.page.get_by_role("heading", level=1)).to_have_text(self.t("invite.title"))
        place = self.page.url.partition("#")[2]
        assert re.fullmatch("/campaigns|/about/[0-9a-f]{64}", place), "the secret is still shown"
        self.page.get_by_role("button", name=self.t("invite.join"), exact=True).click()
        expect(self.page.get_by_role("heading", level=1)).to_have_text(self.t("record.title"))
        self.motion = Motion(self.page, gyroscope=False)
        self.motion.show([0.0, 0.0, 1.0])  # it lies on a table

    def start(self, label: str) -> None:
        self.page.get_by_role("button", name=self.t("record.recordOf", activity=label)).click()
        self.page.get_by_role("button", name=self.t("record.startNow")).click()
        expect(self.page.get_by_role("button", name=self.t("record.hold"))).to_be_visible()

    def has_stopped(self) -> None:
        """By itself: there is enough."""
        expect(self.page.get_by_role("dialog")).to_have_count(0)

    def send(self) -> None:
        self.page.get_by_role("button", name=self.t("record.send")).click()

    def says(self, words: str) -> None:
        expect(self.page.locator(".headline")).to_have_text(words, timeout=LATER)

    def later(self, ahead: float) -> None:
        """For pages from now on."""
        self.context.add_init_script(f"Date.now = () => performance.timeOrigin + performance.now() + {ahead * 1000};")

    def come_back(self, task: str, ahead: float) -> None:
        """Hours later."""
        self.later(ahead)
        self.page.goto(f"{self.site}/join/#/home/{task}")

    def take_from_menu(self, place: str) -> None:
        self.page.locator("#open-menu").click()
        self.page.get_by_role("link", name=place).click()


def subscription(endpoint: str, *, keys: bool = False) -> dict[str, Any]:
    """As a browser gives it out to a page, or as the page gives it to SP."""
    secret = {"p256dh": to_base64url(BROWSER.public), "auth": to_base64url(AUTH)}
    return {"endpoint": endpoint, **({"keys": secret} if keys else secret)}


@dataclass
class Study:
    folder: Path
    payer: Path  # of another machine
    platform: Loopback
    requester: Requester
    push: str
    task: str = ""
    start: float = 0.0  # of the first round
    ahead: float = 0.0  # of the machine's clock
    people: list[Participant] = field(default_factory=list)
    phones: list[Visitor] = field(default_factory=list)
    trained: dict[tuple[int, int], tuple[Any, int]] = field(default_factory=dict)  # by round and person

    def now(self, _clock: object = None) -> float:
        return time.time() + self.ahead

    def forward(self, to: float) -> None:
        """To that moment, while no page is open."""
        for phone in self.phones:
            phone.page.goto("about:blank")
        self.ahead += max(0.0, to - self.now())
        for server in (self.requester.sp, self.requester.kgc, self.people[0].sp):
            assert isinstance(server, SpClient | KgcClient)
            server.service.server_time.ahead = self.ahead  # by which its callers sign

    def in_pages(self) -> list[Visitor]:
        """Those who still take part."""
        gone = {LEAVER, LOST} if len(self.phones) > NEW else {LEAVER}
        return [phone for phone in self.phones if phone.number not in gone]

    def come_back(self) -> None:
        for phone in self.in_pages():
            phone.come_back(self.task, self.ahead)

    def train(self, person: int) -> Callable[..., tuple[Weights, int]]:
        """A scripted person's: it moves the model somewhere, by nobody's data."""

        def train(arrays: Weights, _settings: object, number: int) -> tuple[Weights, int]:
            chance = np.random.default_rng([person, number])
            moved = [array + chance.normal(0, 0.05, array.shape) for array in arrays]
            self.trained[number, person] = flat(moved), int(chance.integers(1, 200))
            return moved, self.trained[number, person][1]

        return train

    def send(self, number: int, people: range) -> None:
        def one(person: int) -> None:
            self.people[person].step(self.train(person))
            assert self.people[person].blobs.has(f"rounds/{number}/receipt")

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, people))

    def holds(self, wanted: bytes, role: str = "sp") -> list[str]:
        """Files of a role with these bytes."""
        files = [path for path in (self.folder / role).rglob("*") if path.is_file()]
        return [path.name for path in files if wanted in path.read_bytes()]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, playwright: Playwright) -> Iterator[Study]:
    folder, payer = tmp_path_factory.mktemp("platform"), tmp_path_factory.mktemp("payer")
    key = bytes.fromhex(call("payer", "key", payer / KEY).out)
    more: dict[str, Any] = {
        "payer_key": key,
        "max_clock_jump": 10 * HOUR,
    }
    with (
        push_service() as push,
        serving(folder, plain=True, push_hosts=(push,), **more) as platform,
        pytest.MonkeyPatch.context() as patch,
    ):
        made = Study(folder, payer, platform, platform.requester(), f"http://{push}")
        made.requester.payer = key
        patch.setattr(SystemClock, "now", made.now)
        try:
            post(made)
            enrol(made, playwright)
            yield made
        finally:
            for phone in made.phones:
                browsers.kill_profile(phone.folder)


@contextlib.contextmanager
def push_service() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), PushService) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def post(study: Study) -> None:
    """A funded task whose rounds begin an hour from now, and an hour after that."""
    requester, learner = study.requester, Recipe.of(TRAINING).make_learner()
    study.start = float(int(study.now() + HOUR))
    at = datetime.fromtimestamp(study.start, UTC).isoformat()
    definition = replace(
        small_definition(TaskSettings.of(**SETTINGS), claim_window=48 * HOUR),
        purpose="Tell sitting from jogging",
        shape=learner.shape,
        training=TRAINING,
        plan=PlanSettings(start_at=at, every=HOUR, closes="everyone"),
        consent=CONSENT,
        texts={"de": TEXTS, "fa": FROM_RIGHT},
    )
    study.task = requester.create(definition, learner.weights())
    whole = definition.plan.whole_cost(definition.settings)
    assert whole == PEOPLE * 5_000_000
    requester.fund(study.task, whole, "all")
    study.platform.confirm(study.task, "all", whole)


def enrol(study: Study, playwright: Playwright) -> None:
    """The pages record and say that it may be sent; half of the scripted people, and two phones, want to be reminded."""
    for number in range(PHONES):
        look = {"locale": "fa"} if number == PERSIAN else {}
        phone = visitor(study, playwright, number, look)
        address = link(study.platform, study.requester, study.task)
        phone.open("about:blank")
        if number == PERSIAN:
            set_its_clock(phone, address)
        phone.page.goto(address)
        if number == PERSIAN:
            read_from_the_right(phone)
        phone.join()
    record(study.phones)
    scripted = PEOPLE - PHONES
    study.people = study.platform.join_all(study.requester, study.task, scripted, agree=CONSENT.version)
    for number, person in enumerate(study.people[::2]):
        assert isinstance(person.sp, SpClient)
        own = person.sp._as(person.keys).service
        place = f"/v1/tasks/{study.task}/participants/{person.keys.who}/push"
        own.send_json("PUT", place, subscription(f"{study.push}/person-{2 * number}"))
    for number in (LEAVER, GERMAN):
        study.phones[number].page.get_by_role("button", name="Remind me").click()
        expect(study.phones[number].page.get_by_text("You are reminded when a round begins")).to_be_visible()


def visitor(study: Study, playwright: Playwright, number: int, look: dict[str, Any]) -> Visitor:
    folder, push = study.folder / f"phone-{number}", f"{study.push}/phone-{number}"
    phone = Visitor(number, folder, playwright, study.platform.urls["sp"], push=push, look=look)
    study.phones.append(phone)
    return phone


def set_its_clock(phone: Visitor, address: str) -> None:
    """A clock that is 25 hours ahead is said before anybody joins; set right, the same link opens."""
    phone.context.add_init_script(AHEAD)
    phone.page.goto(address)
    hours = phone.page.get_by_text(phone.t("invite.clockAhead", by="25")[:20])
    expect(hours.first).to_be_visible()
    phone.page.evaluate("localStorage.clockIsSet = '1'")
    phone.page.goto("about:blank")


def read_from_the_right(phone: Visitor) -> None:
    """What the requester wrote in the reader's language, from the right; the page itself speaks what it can."""
    phone.page.locator("#consent summary").click()
    for words in (FROM_RIGHT.purpose, FROM_RIGHT.consent):
        said = (
            phone.page.locator('[lang="fa"]')
            .get_by_text(words, exact=True)
            .or_(phone.page.locator('[lang="fa"]', has_text=words))
        )
        expect(said.first).to_be_visible()
        assert said.first.evaluate("one => getComputedStyle(one).direction") == "rtl"
    phone.page.locator("#consent summary").click()


def record(phones: list[Visitor]) -> None:
    chance = np.random.default_rng(1)
    for place, label in enumerate(LABELS):
        for phone in phones:
            phone.start(label)
        shown = chance.normal([0, 0, 1], 0.02 + 0.5 * place, (len(phones), SECONDS * HERTZ, 3)).tolist()
        replay({phone.motion: its for phone, its in zip(phones, shown, strict=True) if phone.motion}, HERTZ)
        for phone in phones:
            phone.has_stopped()
    for phone in phones:
        phone.send()


def reminded(message: str, count: int) -> set[str]:
    """Who was, since this was last asked."""

    def look() -> set[str]:
        told = [who for who, said in PushService.told if said == message]
        if len(told) < count:
            raise NotReady("not yet")
        assert len(told) == len(set(told)) == len(PushService.told)
        return set(told)

    found = wait_for(look)
    PushService.told.clear()
    return found


def test_a_study_from_consent_to_pay_and_report(study: Study, playwright: Playwright, tmp_path: Path):
    task, requester, phones = study.task, study.requester, study.phones
    leaver, german, rest = phones[LEAVER], phones[GERMAN], range(1, len(study.people))
    assert requester.sp.status(task)["enrolled"] == PEOPLE
    assert {(row["version"], row["state"]) for row in requester.consents(task)} == {(CONSENT.version, "in")}
    assert [row["language"] for row in requester.consents(task)].count("fa") == 1
    agreed = [row["agreed"] for row in requester.consents(task)]
    assert max(agreed) - min(agreed) < 0.5 * HOUR, "the time is the platform's, whatever a phone's clock said"
    german.page.locator("#open-menu").click()
    german.page.get_by_label("Language").select_option("de")
    expect(german.page.get_by_role("heading", level=1)).to_have_text(TEXTS.purpose)

    study.forward(study.start + 1)
    wait_for_round(requester.sp, task, "open")
    everyone = {f"/person-{number}" for number in range(0, len(study.people), 2)} | {f"/phone-{GERMAN}"}
    assert reminded("opened", len(everyone) + 1) == everyone | {f"/phone-{LEAVER}"}
    leaver.come_back(task, study.ahead)
    for phone in study.in_pages():
        (send_without_network if phone.number == OFFLINE else Visitor.come_back)(phone, task, study.ahead)
    show_reminder(german)
    for phone in phones:
        phone.says(arrived(phone, 1))
    withdraw(study, leaver)
    study.send(1, rest)
    study.forward(study.start + 0.8 * WINDOW)  # one is missing
    assert reminded("closing", 1) == {"/person-0"}
    study.send(1, range(1))
    wait_for_round(requester.sp, task, "rewarded")
    replace_phone(study, playwright)

    study.forward(study.start + HOUR + 60)
    wait_for(lambda: require_round(requester, task, 2))
    assert reminded("opened", len(everyone)) == everyone
    study.come_back()
    for phone in study.in_pages():
        phone.says(arrived(phone, 2))
    study.send(2, range(len(study.people)))
    require_the_oracles_averages(study)
    pay(study)
    report(study, tmp_path)
    assert [words for phone in phones for words in phone.complaints if words.startswith("error:")] == []


def arrived(phone: Visitor, number: int) -> str:
    return phone.t("standing.arrived", round=number, of=ROUNDS)


def send_without_network(phone: Visitor, task: str, ahead: float) -> None:
    """What is made is kept and said to be; it goes on by itself."""
    refused: list[str] = []

    def refuse(route: Route) -> None:
        refused.append(route.request.url)
        route.abort()

    phone.context.route(re.compile("/uploads/"), refuse)
    phone.come_back(task, ahead)
    browsers.until(phone.page, "() => true")
    wait_for(lambda: require(bool(refused), phone))
    phone.context.set_offline(True)
    phone.says(phone.t("standing.kept", round=1, of=ROUNDS))
    phone.context.unroute(re.compile("/uploads/"))
    phone.context.set_offline(False)


def require(there: bool, phone: Visitor) -> None:
    phone.page.evaluate("1")  # lets what has happened there be told
    if not there:
        raise NotReady("not yet")


def replace_phone(study: Study, playwright: Playwright) -> None:
    """The lost phone's person goes on with another, which says so before it joins, and records anew."""
    lost = study.requester.sp.compliance(study.task)["people"][LOST]["who"]
    new = visitor(study, playwright, NEW, {})
    new.open("about:blank")
    new.later(study.ahead)
    new.page.goto(link(study.platform, study.requester, study.task, replaces=lost))
    expect(new.page.get_by_text("this phone takes the place of the one before").first).to_be_visible()
    new.join()
    record([new])
    people = {one["who"]: one for one in study.requester.sp.compliance(study.task)["people"]}
    assert people[lost]["state"] == "replaced"
    assert (people[people[lost]["replaced_by"]]["sent"], people[lost]["missing"]) == ([], [])


def require_round(requester: Requester, task: str, number: int) -> None:
    found = requester.sp.status(task)["rounds"][-1]
    if (found["number"], found["state"]) != (number, "open"):
        raise NotReady("not yet")


def show_reminder(phone: Visitor) -> None:
    """What came for it, as Chromium's test interface delivers it: in the language that its owner has chosen since."""
    phone.page.evaluate("navigator.serviceWorker.ready")
    browsers.until(phone.page, f"async () => (await ({KEPT_WORDS})()) === 'Eine Runde hat begonnen'")
    session, registrations = phone.context.new_cdp_session(phone.page), []
    session.on("ServiceWorker.workerRegistrationUpdated", lambda found: registrations.extend(found["registrations"]))
    session.send("ServiceWorker.enable")
    wait_for(lambda: require(bool(registrations), phone))
    (identity,) = {one["registrationId"] for one in registrations if not one["isDeleted"]}
    push = {"origin": phone.site, "registrationId": identity, "data": "opened"}
    session.send("ServiceWorker.deliverPushMessage", push)
    browsers.until(phone.page, f"async () => (await ({NOTIFIED})()) === 'Eine Runde hat begonnen'")


def withdraw(study: Study, phone: Visitor) -> None:
    """What it had sent is gone from SP's disk, and the other rows of the consents stand."""
    upload = phone.sent[1]
    assert study.holds(upload)
    phone.take_from_menu("Leave or withdraw")
    phone.page.get_by_role("button", name="Withdraw").click()
    phone.page.get_by_role("dialog").get_by_role("button", name="Withdraw").click()
    expect(phone.page.get_by_text("Rounds whose contribution was deleted: 1.")).to_be_visible()
    assert study.holds(upload) == study.holds(upload[len(upload) // 2 :][:64]) == []  # nor a part of it
    states = [row["state"] for row in study.requester.consents(study.task)]
    assert sorted(states) == ["in"] * (PEOPLE - 1) + ["withdrawn"]


def require_the_oracles_averages(study: Study) -> None:
    """Of what everyone but the one who withdrew has trained; a person with two phones is one."""
    wait_for_round(study.requester.sp, study.task, "rewarded")
    for number in range(1, ROUNDS + 1):
        others = [phone for phone in study.phones if phone.number != LEAVER]
        mine = [phone.trained[number] for phone in others if number in phone.trained]
        made = mine + [study.trained[number, person] for person in range(len(study.people))]
        assert len(made) == PEOPLE - 1
        read = study.requester.read(study.task, number)
        assert np.abs(read.weights - fedavg(*zip(*made, strict=True))).max() < NEAR


def pay(study: Study) -> None:
    """While SP holds all destinations, nothing of them can be read there; the payer opens one batch, and one file goes back."""
    tell_where(study)
    assert study.holds(study.people[0].keys.who.encode())  # what is there would be found
    for role in ("sp", "csp", "kgc"):
        assert study.holds(PLACE.encode(), role) == study.holds(IBAN.encode(), role) == []
    wanted = {f"person-{number}{PLACE}": Decimal(5) for number in range(len(study.people))}
    wanted |= {where(phone): Decimal(3 if phone.number == NEW else 5) for phone in study.in_pages()}
    settings = settings_file(study)
    wait_for(lambda: require_waiting(study, settings, sum(wanted.values())))
    batch, office, results = (study.payer / name for name in ("batch", "office", "results"))
    done("sp", "batch", settings, study.task, batch)
    assert PLACE.encode() not in batch.read_bytes()
    (study.payer / f"{KEY}.record.json").write_text(
        json.dumps(PayerRecord([study.platform.kgc_key.hex()], [study.task]).body())
    )
    done("payer", "batch", study.payer / KEY, batch, office, "--debtor", "University", "--iban", DEBTOR)
    found: dict[str, Decimal] = {}
    for row in csv.DictReader((office / "payments.csv").read_text().splitlines()):
        assert row["currency"] == "EUR"
        found[row["to"]] = found.get(row["to"], Decimal(0)) + Decimal(row["amount"])
    assert found == wanted
    assert IBAN in (office / "bank.pain.001.xml").read_text()
    done("payer", "result", study.payer / KEY, office, results)
    assert PLACE not in results.read_text()
    done("sp", "results", settings, study.task, results)
    states = {row["state"] for row in payouts(study, settings) if Decimal(row["amount"])}
    assert states == {"paid"}
    (study.payer / "another.key").write_bytes(ReaderKey.fresh().private)
    (study.payer / "another.key").chmod(0o600)
    (study.payer / "another.key.record.json").write_text((study.payer / f"{KEY}.record.json").read_text())
    (study.payer / "another.key.record.json").chmod(0o600)
    refused = call("payer", "batch", study.payer / "another.key", batch, study.payer / "nobody's")
    assert (refused.code != 0, refused.out.count(PLACE)) == (True, 0)


def done(*command: str | Path) -> str:
    ended = call(*command)
    assert ended.code == 0, ended.err
    return ended.out


def settings_file(study: Study) -> Path:
    """SP's, as its operator's commands read it beside the running server."""
    folder, urls = study.folder / "sp", study.platform.urls
    peers = "".join(f'[{name}]\nurl = "{urls[name]}"\ntoken = "{folder / name}.token"\n' for name in ("kgc", "csp"))
    path = folder / "settings.toml"
    path.write_text(
        'host = "127.0.0.1"\nport = 0\nmax_clock_jump = "10 h"\nplain_http = true\ninsecure_test_key = true\n'
        f'kgc_key = "{study.platform.kgc_key.hex()}"\npayer_key = "{study.requester.payer.hex()}"\n{peers}'
    )
    return path


def payouts(study: Study, settings: Path) -> list[dict[str, str]]:
    shown = done("sp", "payouts", settings, study.task, "--json")
    return list(json.loads("\n".join(line for line in shown.splitlines() if not re.match(r"\d{4}-", line))))


def require_waiting(study: Study, settings: Path, wanted: Decimal | int) -> None:
    """Everyone has claimed all, and the payer can know where."""
    for person in study.people:  # the bonus is known once CSP has said who gets it
        with contextlib.suppress(NotReady):
            person.claim()
    due = sum(Decimal(row["amount"]) for row in payouts(study, settings) if row["state"] == "waiting")
    if due != wanted:
        raise NotReady(f"{due} of {wanted} wait for the payer")


def tell_where(study: Study) -> None:
    def claim(person: Participant) -> None:
        def look() -> int:
            person.step(lambda *_: pytest.fail("there is no round left to train for"))
            return person.claim()

        person.pay_to("email", f"person-{study.people.index(person)}{PLACE}")  # the claim names it
        assert wait_for(look) > 0

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(claim, study.people))
    for phone in study.in_pages():
        phone.says(phone.t("standing.ended"))
        phone.page.locator("#to-earnings").click()
        phone.page.locator("#pay-kind").select_option("iban" if where(phone) == IBAN else "email")
        phone.page.locator("#pay-where").fill(where(phone))
        phone.page.locator("#pay-where").press("Enter")
        expect(phone.page.locator("#correct")).to_be_visible()


def where(phone: Visitor) -> str:
    return IBAN if phone.number == PHONES - 1 else f"phone-{phone.number}{PLACE}"


def report(study: Study, folder: Path) -> None:
    """For an ethics board and a funder: what happened, on paper."""
    told = TaskReport.of(study.requester, study.task)
    text = told.text()
    for said in (
        "20 people have joined: 20 by an invitation",
        "Round 1: 1 upload was left out. Its owner has withdrawn it.",
        "1 person has withdrawn:",
        "1 phone was replaced by another of the same person.",
        "Pay is fixed: 2.00 EUR for each round that counts a person.",
    ):
        assert said in text, said
    rounds = [one.split()[-6:] for one in text.splitlines() if re.match(r" +[12]  \d{4}-", one)]
    assert rounds == [["rewarded", "20", "20", "0", "1", "19"], ["rewarded", "19", "19", "0", "0", "19"]]
    (page := folder / "report.html").write_text(told.html(), encoding="utf-8")
    paper = study.phones[GERMAN].context.new_page()
    paper.goto(page.as_uri())
    paper.pdf(path=folder / "report.pdf", prefer_css_page_size=True)
    assert (folder / "report.pdf").read_bytes().startswith(b"%PDF")
    paper.close()
