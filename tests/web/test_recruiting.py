"""A task that SP lists, in browsers: the list, a look, "all the same", joining, uploading, a place that is freed, pay."""

from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from crowdfl.documents.signed import Definition
from crowdfl.errors import NotReady
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.participant.participant import Participant
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.settings import TaskSettings, TextsSettings
from crowdfl.storage.memory_blobs import MemoryBlobs
from tests.hosts import small_definition
from tests.http.processes import Loopback, serving, wait_for
from tests.web import browsers
from tests.web.test_phone_campaign import (
    BUDGET,
    LATER,
    SETTINGS,
    TRAINING,
    csv,
    paid,
    people_paid,
    take_part,
    trainer_of,
)

SENTENCE = "it could be everybody else here, so that no number of people protects you from it"
ROUND = 45.0  # seconds: whoever has not sent by then has lost the place


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("platform")) as platform:
        yield platform


def listed(**settings: Any) -> tuple[Definition, Weights]:
    """A task of two rounds, which begin when four have joined."""
    usual = SETTINGS | {"rounds": 2, "min_participants": 3, "max_participants": 4, "pay": "equal", "window": ROUND}
    learner = Recipe.of(TRAINING).make_learner()
    definition = small_definition(TaskSettings.of(**(usual | settings)), claim_window=10_000.0)
    start = max(4, int(usual["min_participants"]), int(settings.get("min_participants", 0)))
    plan = definition.plan.model_copy(update={"start_with": start})
    words = "Tell walking, sitting and stairs apart"
    made = replace(definition, purpose=words, shape=learner.shape, training=TRAINING, plan=plan, recruits=True)
    return made, learner.weights()


def come(platform: Loopback, task: str) -> Participant:
    """Somebody with the program, by the list."""
    sp = SpClient(platform._kept(platform._link("sp").open()))
    kgc = KgcClient(platform._kept(platform._link("kgc").open()))
    own = {"sp_key": sp.key(), "least_participants": 1, "all_the_same": True}
    person = Participant(task, MemoryBlobs(), kgc, sp, platform.kgc_key, platform.tools, **own)  # type: ignore[arg-type]
    person.join("")
    return person


def send(page: Page) -> None:
    """Recordings from a file, and the word to send them."""
    expect(page.get_by_role("heading", level=1)).to_have_text("Record")
    page.get_by_text("No sensors? Import a CSV file").click()
    content = {"name": "mine.csv", "mimeType": "text/csv", "buffer": csv(0).encode()}
    page.get_by_label("CSV files").set_input_files(content)  # type: ignore[arg-type]
    page.get_by_role("button", name="Send my contribution").click()


def test_a_phone_joins_from_the_list_takes_part_and_is_paid(platform, phone_context, tmp_path):
    requester = platform.requester()
    task = requester.create(*listed())
    requester.fund(task, 2 * BUDGET, "all")
    platform.confirm(task, "all", 2 * BUDGET)
    idle, *others = (come(platform, task) for _ in range(3))
    trainers = [trainer_of(requester, task, tmp_path, number) for number in (1, 2)]

    page = phone_context.new_page()
    complaints = browsers.complaints(page)
    page.goto(f"{platform.urls['sp']}/tasks")
    own = page.locator(f"#task-{task[:8]}")
    expect(own).to_contain_text("Tell walking, sitting and stairs apart")
    expect(own).to_contain_text("2 rounds. €36.00 in each round, for all together. 1 place left.")
    expect(page.locator("main")).to_contain_text("no number of people protects you from it")
    browsers.assert_usable_by_all(page)
    own.get_by_role("link", name="Look, and join").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("You are invited")
    assert task[:16] not in page.url  # and nothing of the link
    sentence, button = page.locator("#recruits"), page.get_by_role("button", name="Join")
    expect(sentence).to_be_visible()
    expect(sentence).to_contain_text(SENTENCE)
    assert sentence.bounding_box()["y"] < button.bounding_box()["y"]
    page.get_by_label("I accept averages of as few as 3 people.").check()
    expect(button).to_be_disabled()
    page.get_by_label("I take part all the same.").check()
    browsers.assert_usable_by_all(page)
    page.get_by_text("Learn more").click()
    page.get_by_text("Who learns what").first.click()
    expect(page.locator("#learnt")).to_contain_text("The platform (SP) alone; the second server (CSP) with readers")
    button.click()
    send(page)
    expect(page.locator(".headline")).to_have_text("Your contribution to round 1 of 2 has arrived.", timeout=LATER)
    for person, trainer in zip(others, trainers, strict=True):
        take_part(person, trainer, 1)

    def freed() -> None:
        if requester.sp.status(task)["places_left"] != 1:
            raise NotReady("not yet")

    wait_for(freed)
    came = {one["who"]: (one["came"], one["state"]) for one in requester.sp.compliance(task)["people"]}
    assert sorted(came.values()) == [("listed", "freed"), *[("listed", "in")] * 3]
    assert came[idle.keys.who] == ("listed", "freed")
    page.goto(f"{platform.urls['sp']}/tasks/")
    expect(page.locator(f"#task-{task[:8]}")).to_contain_text("1 place left.")
    page.goto(f"{platform.urls['sp']}/join/#/home/{task}")
    come(platform, task).leave()
    for person, trainer in zip(others, trainers, strict=True):
        take_part(person, trainer, 2)
    expect(page.locator(".headline")).to_have_text("The campaign has ended.", timeout=LATER)
    page.get_by_role("link", name="See my earnings").click()
    expect(page.get_by_text("€24.00: waiting for payment")).to_be_visible(timeout=LATER)
    assert sum(paid(person) for person in others) == 2 * 2 * BUDGET // 3
    assert wait_for(lambda: people_paid(requester, task)) == 2 * BUDGET
    assert complaints == []


def test_with_noise_nothing_is_ticked_and_the_sentence_stays_in_every_language(platform, phone_context):
    requester = platform.requester()
    own = {
        "epsilon": 8.0,
        "weighting": "equal",
        "max_norm": 5.0,
        "noise": "any",
        "budget": None,
        "pay": None,
        "lanes": 1024,
    }
    definition, weights = listed(min_participants=5, max_participants=9, decimals=4, **own)
    arabic = TextsSettings(purpose="ميّز المشي من الجلوس")
    task = requester.create(replace(definition, texts={"ar": arabic}), weights)
    page = phone_context.new_page()
    page.goto(f"{platform.urls['sp']}/tasks/")
    link = page.locator(f"#task-{task[:8]}").get_by_role("link").get_attribute("href")
    said = {
        "en": "only the noise",
        "de": "nur das Rauschen",
        "zh": "噪声",
        "fr": "le bruit",
        "es": "solo el ruido",
        "ar": "ضجيج",
    }
    for code, words in said.items():
        browsers.in_language(page, code)
        heading = page.locator(f"#task-{task[:8]} h2")
        expect(heading).to_have_text(arabic.purpose if code == "ar" else definition.purpose)
        assert heading.evaluate("one => [one.lang, one.dir]") == (["ar", "rtl"] if code == "ar" else ["en", "ltr"])
        page.goto(f"{platform.urls['sp']}{link}")
        expect(page.locator("#recruits")).to_contain_text(words)
        expect(page.locator(".joining button.main")).to_be_enabled()
        expect(page.locator("#all-the-same")).to_have_count(0)
        page.goto(f"{platform.urls['sp']}/tasks/")


def test_the_same_phone_that_opens_the_list_again_goes_on_with_its_campaign(platform, phone_context):
    requester = platform.requester()
    task = requester.create(*listed(min_participants=5, max_participants=9, budget=None))
    page = phone_context.new_page()
    page.goto(f"{platform.urls['sp']}/tasks/")
    look = page.locator(f"#task-{task[:8]}").get_by_role("link")
    link = look.get_attribute("href")
    look.click()
    page.get_by_label("I take part all the same.").check()
    page.get_by_role("button", name="Join").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Record")
    page.goto(f"{platform.urls['sp']}/tasks/")
    page.goto(f"{platform.urls['sp']}{link}")
    expect(page.locator(".headline")).to_be_visible()
    expect(page.get_by_role("button", name="Join", exact=True)).to_have_count(0)
    assert requester.sp.status(task)["enrolled"] == 1


def test_a_page_that_forgets_to_ask_joins_nobody(platform, phone_context):
    """What a page shows may change; the agent behind it refuses, and nothing leaves the phone."""
    requester = platform.requester()
    task = requester.create(*listed(min_participants=5, max_participants=9, budget=None))
    page = phone_context.new_page()
    page.goto(f"{platform.urls['sp']}/tasks/")
    page.locator(f"#task-{task[:8]}").get_by_role("link").click()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    expect(page.locator("#recruits")).to_be_visible()
    refusal = page.evaluate(
        """async (task) => {
          const { openModel } = await import("/join/app/model.js");
          const model = await openModel();
          await model.look(task);
          return model.join(task, 5).then(() => "joined", (wrong) => wrong.name);
        }""",
        task,
    )
    assert refusal == "TooFewParticipants"
    assert asked == []
