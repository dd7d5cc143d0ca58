"""A study as a group would run it: two hundred people, most of them scripted over the API, six in browsers with sensors.

They agree to a consent text, are reminded, and take part in two rounds at set times by a clock that the test moves. One
withdraws, one reads another language, and the payer alone learns where the others want to be paid.
"""

import contextlib
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
from playwright.sync_api import BrowserContext, Page, Playwright, Request, expect

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.documents.envelope import to_base64url
from crowdfl.errors import NotReady
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.payer import PayerRecord
from crowdfl.roles.requester import Requester
from crowdfl.services.client.peers import SpClient
from crowdfl.services.client.transport import SystemClock
from crowdfl.settings import ConsentSettings, PlanSettings, TaskSettings, TextsSettings
from tests.cli.program import call
from tests.crypto.test_webpush import AUTH, BROWSER, opened
from tests.hosts import small_definition
from tests.http.processes import Loopback, serving, wait_for, wait_for_round
from tests.web import browsers
from tests.web.motion import Motion, replay
from tests.web.test_phone_campaign import BUDGET, NEAR, flat, link

pytestmark = [pytest.mark.second, pytest.mark.timeout(2400)]  # six pages on a busy machine

PEOPLE, PHONES, ROUNDS = 200, 6, 2
LABELS = ("sitting", "jogging")
LATER = 6 * browsers.PATIENCE  # milliseconds
LEAVER, GERMAN = 0, 1  # of the phones
HOUR, WINDOW = 3600.0, 1800.0  # seconds
SECONDS, HERTZ = 15, 10  # of what the sensors show for each activity
PLACE = "@study.example"  # where people get their vouchers
IBAN = "DE89370400440532013000"  # one of them
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
    "pay": "equal",
    "budget": "36.00",
    "rounds": ROUNDS,
    "min_participants": 100,
    "max_participants": PEOPLE,
    "window": WINDOW,
}
CONSENT = ConsentSettings(version="2026-11", text="We measure how you move. You can withdraw at any time.")
TEXTS = TextsSettings(purpose="Sitzen und Joggen unterscheiden", words={"sitting": "Sitzen"})
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
PAY = 'until [ -e "$0/go" ]; do sleep 0.1; done; cat > "$0/$4" && mv "$0/$4" "$0/$4.json"'  # a payment program
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
    context: BrowserContext = field(init=False)
    page: Page = field(init=False)
    complaints: list[str] = field(default_factory=list)
    motion: Motion | None = None
    sent: dict[int, bytes] = field(default_factory=dict)  # uploads, by round
    trained: dict[int, tuple[Any, int]] = field(default_factory=dict)  # by round: weights, samples

    def open(self, url: str) -> None:
        self.context = browsers.open_profile(self.playwright, self.folder, browsers.PHONE)
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

    def join(self) -> None:
        self.page.get_by_label("I have read the consent text, version 2026-11, and I agree.").check()
        expect(self.page.get_by_role("heading", level=1)).to_have_text("You are invited")
        place = self.page.url.partition("#")[2]
        assert re.fullmatch("/campaigns|/about/[0-9a-f]{64}", place), "the secret is still shown"
        self.page.get_by_role("button", name="Join").click()
        expect(self.page.get_by_role("heading", level=1)).to_have_text("Record")
        self.motion = Motion(self.page, gyroscope=False)
        self.motion.show([0.0, 0.0, 1.0])  # it lies on a table

    def start(self, label: str) -> None:
        self.page.get_by_role("button", name=f"Record {label}").click()
        self.page.get_by_role("button", name="Start now").click()
        expect(self.page.get_by_role("button", name="Hold to stop")).to_be_visible()

    def has_stopped(self) -> None:
        """By itself: there is enough."""
        expect(self.page.get_by_role("dialog")).to_have_count(0)

    def send(self) -> None:
        self.page.get_by_role("button", name="Send my contribution").click()

    def says(self, words: str) -> None:
        expect(self.page.locator(".headline")).to_have_text(words, timeout=LATER)

    def come_back(self, task: str, ahead: float) -> None:
        """Hours later."""
        self.context.add_init_script(f"Date.now = () => performance.timeOrigin + performance.now() + {ahead * 1000};")
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
    opened: dict[Path, list[dict[str, str]]] = field(default_factory=dict)  # by the payer, of what SP handed over

    def now(self, _clock: object = None) -> float:
        return time.time() + self.ahead

    def forward(self, to: float) -> None:
        """To that moment, while no page is open."""
        for phone in self.phones:
            phone.page.goto("about:blank")
        self.ahead += max(0.0, to - self.now())
        for sp in (self.requester.sp, self.people[0].sp):
            assert isinstance(sp, SpClient)
            sp.service.server_time.ahead = self.ahead  # by which its callers sign

    def in_pages(self) -> list[Visitor]:
        """Those who still take part."""
        return [phone for phone in self.phones if phone.number != LEAVER]

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
        "on_paid": ("sh", "-c", PAY, str(payer)),
        "on_paid_time": 600.0,
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
        texts={"de": TEXTS},
    )
    study.task = requester.create(definition, learner.weights())
    requester.fund(study.task, ROUNDS * BUDGET, "all")
    study.platform.confirm(study.task, "all", ROUNDS * BUDGET)


def enrol(study: Study, playwright: Playwright) -> None:
    """The pages record and say that it may be sent; half of the scripted people, and two phones, want to be reminded."""
    for number in range(PHONES):
        folder, site = study.folder / f"phone-{number}", study.platform.urls["sp"]
        phone = Visitor(number, folder, playwright, site, push=f"{study.push}/phone-{number}")
        study.phones.append(phone)
        phone.open(link(study.platform, study.requester, study.task))
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


def test_two_hundred_people_from_consent_to_pay(study: Study):
    task, requester, phones = study.task, study.requester, study.phones
    leaver, german, rest = phones[LEAVER], phones[GERMAN], range(1, len(study.people))
    assert requester.sp.status(task)["enrolled"] == PEOPLE
    assert {(row["version"], row["state"]) for row in requester.consents(task)} == {(CONSENT.version, "in")}
    for phone in phones:
        expect(phone.page.locator(".headline")).to_contain_text("The first round begins")
    german.page.locator("#open-menu").click()
    german.page.get_by_label("Language").select_option("de")
    expect(german.page.get_by_role("heading", level=1)).to_have_text(TEXTS.purpose)

    study.forward(study.start + 1)
    wait_for_round(requester.sp, task, "open")
    everyone = {f"/person-{number}" for number in range(0, len(study.people), 2)} | {f"/phone-{GERMAN}"}
    assert reminded("opened", len(everyone) + 1) == everyone | {f"/phone-{LEAVER}"}
    leaver.come_back(task, study.ahead)
    study.come_back()
    show_reminder(german)
    for phone in phones:
        phone.says(arrived(phone, 1))
    withdraw(study, leaver)
    study.send(1, rest)
    study.forward(study.start + 0.8 * WINDOW)  # one is missing
    assert reminded("closing", 1) == {"/person-0"}
    study.send(1, range(1))
    wait_for_round(requester.sp, task, "rewarded")

    study.forward(study.start + HOUR + 60)
    wait_for(lambda: require_round(requester, task, 2))
    assert reminded("opened", len(everyone)) == everyone
    study.come_back()
    for phone in study.in_pages():
        phone.says(arrived(phone, 2))
    study.send(2, range(len(study.people)))
    require_the_oracles_averages(study)
    pay(study)
    assert [words for phone in phones for words in phone.complaints if words.startswith("error:")] == []


def arrived(phone: Visitor, number: int) -> str:
    if phone.number == GERMAN:
        return f"Ihr Beitrag zu Runde {number} von {ROUNDS} ist angekommen."
    return f"Your contribution to round {number} of {ROUNDS} has arrived."


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
    browsers.until(phone.page, "() => true")
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
    """Of what everyone but the one who withdrew has trained."""
    wait_for_round(study.requester.sp, study.task, "rewarded")
    for number in range(1, ROUNDS + 1):
        mine = [phone.trained[number] for phone in study.in_pages()]
        made = mine + [study.trained[number, person] for person in range(len(study.people))]
        assert len(made) == PEOPLE - 1
        read = study.requester.read(study.task, number)
        assert np.abs(read.weights - fedavg(*zip(*made, strict=True))).max() < NEAR


def pay(study: Study) -> None:
    """While SP holds all destinations, nothing of them can be read there; then the payment program gets them, still sealed."""
    tell_where(study)
    assert study.holds(study.people[0].keys.who.encode())  # what is there would be found
    for role in ("sp", "csp", "kgc"):
        assert study.holds(PLACE.encode(), role) == study.holds(IBAN.encode(), role) == []
    record = PayerRecord([study.platform.kgc_key.hex()], [study.task])
    (study.payer / f"{KEY}.record.json").write_text(json.dumps(record.body()))
    (study.payer / "go").touch()
    names = [f"person-{number}{PLACE}" for number in range(len(study.people))]
    names += [where(phone) for phone in study.in_pages()]
    files = wait_for(lambda: handed_over(study, dict.fromkeys(names, Decimal("0.36"))))
    assert not [file for file in files if PLACE in file.read_text() or IBAN in file.read_text()]
    (study.payer / "another.key").write_bytes(ReaderKey.fresh().private)
    (study.payer / "another.key").chmod(0o600)
    (study.payer / "another.key.record.json").write_text((study.payer / f"{KEY}.record.json").read_text())
    (study.payer / "another.key.record.json").chmod(0o600)
    refused = call("payer", "open", study.payer / "another.key", files[0])
    assert (refused.code, refused.out.count(PLACE)) == (1, 0)


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
        phone.says("Die Kampagne ist zu Ende." if phone.number == GERMAN else "The campaign has ended.")
        phone.page.locator("#to-earnings").click()
        phone.page.locator("#pay-kind").select_option("iban" if where(phone) == IBAN else "email")
        phone.page.locator("#pay-where").fill(where(phone))
        phone.page.locator("#pay-where").press("Enter")
        expect(phone.page.locator("#correct")).to_be_visible()


def where(phone: Visitor) -> str:
    return IBAN if phone.number == PHONES - 1 else f"phone-{phone.number}{PLACE}"


def handed_over(study: Study, wanted: dict[str, Decimal]) -> list[Path]:
    """What the payment program got: people who claimed round by round are paid in instalments."""
    files = sorted(study.payer.glob("*.json"))
    files = [file for file in files if not file.name.endswith(".record.json")]
    for file in [one for one in files if one not in study.opened]:
        shown = call("payer", "open", study.payer / KEY, file, "--json")
        assert shown.code == 0, shown.err
        lines = [
            line for line in shown.out.splitlines() if not re.match(r"\d{4}-", line)
        ]  # the platform logs beside it
        study.opened[file] = json.loads("\n".join(lines))
    found: dict[str, Decimal] = {}
    for row in [row for rows in study.opened.values() for row in rows]:
        assert row["currency"] == "EUR"
        found[row["to"]] = found.get(row["to"], Decimal(0)) + Decimal(row["amount"])
    if found != wanted:
        raise NotReady(f"{len(files)} files, {len(found)} people of {len(wanted)}")
    return files
