"""A study as it is run, in processes' own words over HTTP: two hundred people, most of them scripted and some in browsers; two rounds
at set times; reminders that arrive; somebody who withdraws; another language; and pay, of which the payer alone learns where to.
"""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.documents.envelope import to_base64url
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.requester import Requester
from crowdfl.services.client.transport import SystemClock
from crowdfl.settings import ConsentSettings, PlanSettings, TaskSettings
from tests.cli.program import call
from tests.crypto.test_webpush import AUTH, BROWSER, opened
from tests.hosts import small_definition
from tests.http.processes import Loopback, serving, wait_for, wait_for_round
from tests.web import browsers
from tests.web.test_phone_campaign import BUDGET, LATER, SETTINGS, TRAINING, csv, link

pytestmark = [pytest.mark.second, pytest.mark.timeout(2400)]

PEOPLE, PHONES, ROUNDS = 200, 6, 2
HOUR = 3600.0
CONSENT = ConsentSettings(version="2026-11", text="We measure how you move. You can withdraw at any time.")
PAYER = ReaderKey.fresh()
LEAVER = 0  # of the phones
GERMAN = 1


class PushService(http.server.BaseHTTPRequestHandler):
    """One of the test's own, which keeps what came."""

    came: list[tuple[str, bytes]] = []

    def do_POST(self) -> None:
        self.came.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """In silence."""


@dataclass
class Study:
    platform: Loopback
    requester: Requester
    task: str
    start: float  # of the first round
    browser: Browser
    people: list[Participant] = field(default_factory=list)
    phones: list[BrowserContext] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    ahead: float = 0.0  # of the machine's clock

    def now(self, _clock: object = None) -> float:
        return time.time() + self.ahead

    def forward(self, to: float) -> None:
        """To that moment, for the platform and for everyone; phones are opened anew, as after hours."""
        self.ahead += max(0.0, to - self.now())
        for number, page in enumerate(self.pages):
            page.close()
            self.phones[number].add_init_script(f"Date.now = ((now) => () => now() + {self.ahead * 1000})(Date.now);")
            self.pages[number] = self.phones[number].new_page()
            self.pages[number].goto(f"{self.platform.urls['sp']}/join/#/home/{self.task}")

    def scripted(self, act: Any) -> list[Any]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(act, self.people))

    def status(self) -> dict[str, Any]:
        return self.requester.sp.status(self.task)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Study]:
    push = http.server.ThreadingHTTPServer(("127.0.0.1", 0), PushService)
    threading.Thread(target=push.serve_forever, daemon=True).start()
    more = {"payer_key": PAYER.public, "push_hosts": (f"127.0.0.1:{push.server_port}",), "max_clock_jump": 10 * HOUR}
    with serving(tmp_path_factory.mktemp("platform"), plain=True, **more) as platform, pytest.MonkeyPatch.context() as patch:
        made = posted(platform, browser)
        patch.setattr(SystemClock, "now", made.now)
        enrol(made, push.server_port)
        yield made
        for context in made.phones:
            context.close()
    push.shutdown()


def posted(platform: Loopback, browser: Browser) -> Study:
    """A funded task whose rounds begin an hour from now, and an hour after that."""
    requester, start = platform.requester(), float(int(time.time() + HOUR))
    crowd = {"rounds": ROUNDS, "min_participants": 100, "max_participants": PEOPLE, "pay": "equal", "window": HOUR / 2}
    at = datetime.fromtimestamp(start, UTC).isoformat()
    definition = replace(
        small_definition(TaskSettings.of(**(SETTINGS | crowd)), claim_window=48 * HOUR),
        purpose="Tell walking, sitting and stairs apart",
        shape=Recipe.of(TRAINING).make_learner().shape,
        training=TRAINING,
        plan=PlanSettings(start_at=at, every=HOUR, closes="everyone"),
        consent=CONSENT,
        payer=PAYER.public,
    )
    task = requester.create(definition, Recipe.of(TRAINING).make_learner().weights())
    requester.fund(task, ROUNDS * BUDGET, "all")
    platform.confirm(task, "all", ROUNDS * BUDGET)
    return Study(platform, requester, task, start, browser)


def enrol(study: Study, push: int) -> None:
    """Six in browsers; the rest by the same API. Half of these want to be reminded."""
    for number in range(PHONES):
        look = browsers.PHONE | ({"locale": "de"} if number == GERMAN else {})
        study.phones.append(browsers.patient(study.browser.new_context(**look)))
        study.pages.append(study.phones[-1].new_page())
        join(study, study.pages[-1], number)
    study.people = [study.platform.join(study.requester, study.task, agree=CONSENT.version) for _ in range(PEOPLE - PHONES)]
    for person in study.people[::2]:
        endpoint = f"http://127.0.0.1:{push}/{person.keys.who}"
        subscription = {"endpoint": endpoint, "p256dh": to_base64url(BROWSER.public), "auth": to_base64url(AUTH)}
        own = person.sp.signed(person.keys)  # type: ignore[attr-defined]
        own.service.send_json("PUT", f"/v1/tasks/{study.task}/participants/{person.keys.who}/push", subscription)
