"""One campaign, real processes over TLS: three phones in browsers, whose sensors replay real recordings, beside three Python
participants. One browser is killed in the middle of its upload and opened again, one has no network for a round.
"""

import csv
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, Playwright, Request, Route, expect

from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.npz_files import read_arrays
from crowdfl.learning.datasets.supplied import Watch
from tests.cli.test_campaign import Campaign, start_with_task
from tests.web import browsers
from tests.web.motion import Motion, replay

pytestmark = [pytest.mark.second, pytest.mark.timeout(2400)]  # three browsers on a busy machine

MOTIONSENSE = Path(__file__).parents[3] / "shared/data/motionsense_24subj_acc50hz.npz"
LABELS = ("sitting", "jogging")
PHONES, PEOPLE, ROUNDS = 3, 6, 3
SECONDS, SHOWN_HERTZ = 20, 25
KILLED, OFFLINE = 0, 1  # of the phones
PIECE = re.compile(r"/rounds/([0-9]+)/uploads/[0-9a-f]+\?offset=([0-9]+)$")
LATER = 6 * browsers.PATIENCE  # milliseconds
TASK = """
purpose = "Tell sitting from jogging"
terms = "Recordings stay on your phone. Only a share of what training changed leaves it."
readers = "The requester reads every average; every participant reads all but the last."
claim_window = 3600.0

[settings]
profile = "shares"
pay = "distance"  # pays everyone something
rounds = 3
budget = "36.00"
max_participants = 6
min_participants = 5
max_samples = 200
max_norm = 20.0
lanes = 256
window = 75.0  # one is away in round 2: nobody else may need longer than this, or twice this

[training]
learner = "network"
hidden = [1000]
features = "flat"
labels = ["sitting", "jogging"]
channels = 3
hertz = 20.0
window = 40
step = 10
epochs = 2
rate = 0.001
"""
GET = """async (key) => { const { openStore } = await import("/join/agent/store.js");
  const store = await openStore(); const [{ task }] = await store.tasks();
  const found = await store.get(task, key);
  store.close();
  return found; }"""


def real_recordings(person: int) -> dict[str, np.ndarray]:
    """Of one real person, by label: x, y, z in g, 50 a second. Without the shared data, those of our own watch data."""
    wanted = 2 * SECONDS * 50
    if MOTIONSENSE.exists():
        arrays = read_arrays(MOTIONSENSE)
        mine = arrays["subject"] == np.unique(arrays["subject"])[person]
        names = [str(name) for name in arrays["activity_names"]]
        return {
            label: arrays["acc"][mine & (arrays["activity"] == names.index(name))][500 : 500 + wanted]
            for label, name in zip(LABELS, ("sit", "jog"), strict=True)
        }
    split = Watch(cut=Cut(50, 50)).load_person(person).train
    return {
        label: split.windows[split.labels == place].reshape(-1, 6)[:wanted, :3] for place, label in enumerate(LABELS)
    }


@dataclass
class Phone:
    """A browser with a profile of its own, and what its owner does."""

    number: int
    folder: Path
    playwright: Playwright
    site: str
    context: BrowserContext = field(init=False)
    page: Page = field(init=False)
    complaints: list[str] = field(default_factory=list)
    motion: Motion | None = None
    offsets: list[int] = field(default_factory=list)  # of the pieces that it sent
    sent: dict[int, dict[int, bytes]] = field(default_factory=dict)  # these pieces, by round and offset

    def open(self, url: str) -> None:
        """As after a tap on a link, or on the icon."""
        self.context = browsers.open_profile(self.playwright, self.folder, browsers.PHONE)
        self.page = self.context.new_page()
        self.page.on("request", self._note)
        self.complaints = browsers.complaints(self.page)
        self.page.goto(url)

    def _note(self, request: Request) -> None:
        found = PIECE.search(request.url)
        if request.method == "PATCH" and found is not None:
            number, offset = int(found[1]), int(found[2])
            piece = request.post_data_buffer or b""
            assert self.sent.setdefault(number, {}).setdefault(offset, piece) == piece, (
                "another body for the same round"
            )
            self.offsets.append(offset)

    def upload(self, number: int) -> bytes | None:
        """What went to SP, piece by piece; a phone itself forgets it after the round."""
        whole = b""
        for offset, piece in sorted(self.sent.get(number, {}).items()):
            assert offset == len(whole)
            whole += piece
        return whole or None

    def join(self) -> None:
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

    def hold_second_piece(self) -> list[str]:
        """The first piece of an upload passes, the next never gets an answer; the list fills when that has happened."""
        held: list[str] = []

        def decide(route: Route) -> None:
            if route.request.method == "PATCH" and not route.request.url.endswith("offset=0"):
                held.append(route.request.url)
            else:
                route.continue_()

        self.page.route("**/uploads/**", decide)
        return held

    def send(self) -> None:
        """The owner's word; then one sees what becomes of the own update."""
        self.page.get_by_role("button", name="Send my contribution").click()

    def says(self, words: str) -> None:
        expect(self.page.locator(".headline")).to_have_text(words, timeout=LATER)

    def kept(self, key: str) -> Any:
        return self.page.evaluate(GET, key)


@dataclass
class PhoneCampaign(Campaign):
    phones: list[Phone] = field(default_factory=list)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, playwright: Playwright) -> Iterator[PhoneCampaign]:
    made = PhoneCampaign(tmp_path_factory.mktemp("campaign"))
    try:
        set_up(made)
        make_phones(made, playwright)
        play(made)
        yield made
    finally:
        for phone in made.phones:
            browsers.kill_profile(phone.folder)
        made.stop()


def set_up(made: PhoneCampaign) -> None:
    """Three services, a task, an invitation for each, Python people who wait for the first round."""
    folder = made.folder
    start_with_task(made, TASK)
    invite = ("task", "invite", made.task, folder / "invitations", "-n", PEOPLE, "--links", "--json")
    made.do("invite", *invite, *made.settings)
    for person in range(PHONES, PEOPLE):
        data, home = folder / f"data-{person}", folder / f"person-{person}"
        write_csv(data, real_recordings(person))
        options = ("--data", f"csv:{data}", "--home", home, "--yes", "--json")
        made.start(f"person-{person}", "participant", "run", folder / f"invitations/invitation-{person}.json", *options)


def write_csv(folder: Path, recordings: Mapping[str, np.ndarray]) -> None:
    folder.mkdir()
    for label, signal in recordings.items():
        with (folder / f"{label}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["time (s)", "x (g)", "y (g)", "z (g)"])
            rows.writerows([f"{place / 50:.2f}", *map(float, sample)] for place, sample in enumerate(signal))


def make_phones(made: PhoneCampaign, playwright: Playwright) -> None:
    links = [(made.folder / f"invitations/invitation-{number}.txt").read_text().strip() for number in range(PHONES)]
    for number, link in enumerate(links):
        phone = Phone(number, made.folder / f"phone-{number}", playwright, link.partition("#")[0])
        made.phones.append(phone)
        phone.open(link)
        phone.join()
    shown = [real_recordings(number) for number in range(PHONES)]
    for label in LABELS:
        for phone in made.phones:
            phone.start(label)
        samples = {
            phone.motion: shown[phone.number][label][: SECONDS * 50 : 50 // SHOWN_HERTZ].tolist()
            for phone in made.phones
        }
        replay({motion: its for motion, its in samples.items() if motion is not None}, SHOWN_HERTZ)
        for phone in made.phones:
            phone.has_stopped()


def play(made: PhoneCampaign) -> None:
    killed, offline = made.phones[KILLED], made.phones[OFFLINE]
    held = killed.hold_second_piece()
    for phone in made.phones:
        phone.send()
    wait_until(made, lambda: made.status()["enrolled"] == PEOPLE)
    made.do("fund", "task", "fund", made.task, "108.00", "--name", "all", *made.settings)
    sp = made.folder / "roles/sp/settings.toml"
    made.do("confirm", "sp", "deposit", "confirm", sp, made.task, "all", "108.00")
    wait_until(made, lambda: bool(held), killed.page)
    browsers.kill_profile(killed.folder)
    offline.says("Your contribution to round 1 of 3 has arrived.")
    offline.context.set_offline(True)
    killed.offsets.clear()
    killed.open(killed.site + f"#/home/{made.task}")
    wait_until(made, lambda: states(made).get(2) == "open", killed.page)
    wait_until(made, lambda: states(made).get(3) == "open", killed.page)
    offline.context.set_offline(False)
    for phone in made.phones:
        phone.says("The campaign has ended.")
    made.wait(*(f"person-{person}" for person in range(PHONES, PEOPLE)))


def states(made: Campaign) -> dict[int, str]:
    return {entry["number"]: entry["state"] for entry in made.status()["rounds"]}


def wait_until(made: Campaign, is_true: Callable[[], bool], page: Page | None = None) -> None:
    """While browsers go on: a page's events come while one waits for a page."""
    until = time.monotonic() + LATER / 1000
    while not is_true():
        assert time.monotonic() < until, made.logs()
        page.wait_for_timeout(200) if page is not None else time.sleep(0.2)


def test_a_killed_upload_went_on_where_it_stopped(campaign: PhoneCampaign):
    offsets = campaign.phones[KILLED].offsets
    assert offsets[0] == 256 * 1024
    digest = json.loads(campaign.phones[KILLED].kept("rounds/1/receipt").split(" ", 3)[3])["digest"]
    upload = campaign.phones[KILLED].upload(1)
    assert upload is not None
    assert hashlib.sha256(upload).hexdigest() == digest


def test_everyone_is_paid_and_the_books_balance(campaign: PhoneCampaign):
    """Three phones and three Python participants; never more than was paid in."""
    paid = []
    for phone in campaign.phones:
        phone.page.get_by_role("link", name="See my earnings").click()
        expect(phone.page.get_by_text("is booked for you")).to_be_visible(timeout=LATER)
        paid.append(int(phone.kept("paid")))
    for person in range(PHONES, PEOPLE):
        lines = (campaign.folder / f"person-{person}.log").read_text().splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{")]
        paid += [event["millionths"] for event in said if event["event"] == "paid"]
    assert len(paid) == PEOPLE
    assert min(paid) > 0
    assert 3 * 36_000_000 - 3 * 2 * PEOPLE <= sum(paid) <= 3 * 36_000_000


def test_no_script_failed_and_no_policy_was_broken(campaign: PhoneCampaign):
    """A phone without a network may complain of that, and of nothing else."""
    said = [words for phone in campaign.phones for words in phone.complaints]
    assert [words for words in said if words.startswith("error:") or "Content Security Policy" in words] == []


def test_no_invitation_was_logged(campaign: PhoneCampaign):
    logs = "".join((campaign.folder / f"{role}.log").read_text() for role in ("kgc", "sp", "csp"))
    assert campaign.task in logs
    for number in range(PHONES):
        place = campaign.folder / f"invitations/invitation-{number}"
        secret = place.with_suffix(".txt").read_text().strip().partition("#")[2]
        signature = json.loads(place.with_suffix(".json").read_text())["invitation"].split()[2]
        assert min(len(secret), len(signature)) > 80
        assert secret not in logs
        assert signature not in logs
