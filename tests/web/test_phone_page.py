"""The phone's page in a browser: each view with invented campaigns, by eye, keyboard and screen reader; sensors; no network."""

import json
import math
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from crowdfl.services.server import running
from tests.web import browsers, motion, phone_states
from tests.web.browsers import until
from tests.web.phone_states import JOINED, RECORDINGS, STATES, TASK, UNSAID, WINDOWS, campaign, definition, task_round
from tests.web.sites import opened_sp, sp_settings

image = pytest.importorskip("PIL.Image")
FAKE = (Path(__file__).parent / "fake_model.js").read_text(encoding="utf-8")
SECRET = "Q0ZMTQJG" + "s3cr3t" * 20
PATIENCE = browsers.PATIENCE
LONG = ("invitation", "small-crowd", "refused")  # pages whose pictures would be large
SHIFTED = """() => new Promise((done) => new PerformanceObserver((list) => done(list.getEntries().reduce(
  (sum, one) => sum + (one.hadRecentInput ? 0 : one.value), 0))).observe({type: "layout-shift", buffered: true})
  || setTimeout(() => done(0), 100))"""
_LARGEST = 120_000  # bytes of a picture in the documents


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    settings = sp_settings(tmp_path_factory.mktemp("site"))
    with opened_sp(settings) as app, running(app, settings) as address:
        yield address


@pytest.fixture
def show(browser, site):
    """`show(campaigns, hash)`: a phone with a page whose campaigns are these, and what it complains about."""
    contexts = []

    def show_one(campaigns, place="", *, recordings=(), windows=None, fails=None, lost=(), reminders="off", **look):
        context = browsers.patient(browser.new_context(**(browsers.PHONE | {"service_workers": "block"} | look)))
        contexts.append(context)
        page = context.new_page()
        page.complaints = browsers.complaints(page)
        page.requests = []
        page.on("request", lambda request: page.requests.append(request.url))
        given = {"campaigns": campaigns, "recordings": list(recordings), "windows": windows, "fails": fails or {}}
        given |= {"lost": list(lost), "reminders": reminders}
        page.add_init_script(f"globalThis.given = {json.dumps(given)};")
        page.route("**/join/model.js", lambda route: route.fulfill(body=FAKE, content_type="text/javascript"))
        page.goto(f"{site}/join/{place}")
        page.wait_for_selector("h1")
        return page

    yield show_one
    for context in contexts:
        context.close()


def shown(show, name, **look):
    place, campaigns = STATES[name]
    recorded = {"recordings": RECORDINGS, "windows": WINDOWS} if name == "record" else {}
    return show(campaigns, place, **recorded, **look)


def shrink(path):
    """Few colours are enough for a page: the documents stay small."""
    if path is None:
        return
    image.open(path).convert("RGB").quantize(40, dither=image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size < _LARGEST


def change(page, **changes):
    """The one campaign that is shown, from now on."""
    page.evaluate("([task, changes]) => change(task, changes)", [TASK, changes])


@pytest.mark.parametrize("name", STATES)
def test_a_view_is_usable_by_all_at_360_pixels_in_every_language(show, shoot, name):
    """No sideways scrolling, nothing that axe-core calls serious in light or dark, nothing blocked, nobody else asked, nothing
    that moves once it is shown; from right to left too."""
    page = shown(show, name, **({"device_scale_factor": 1} if name in LONG else {}))
    for code in browsers.LANGUAGES:
        browsers.in_language(page, code)
        page.wait_for_selector("h1")
        assert browsers.sideways(page) == 0, code
        assert page.evaluate(SHIFTED) < 0.1
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            if code in ("en", "ar"):
                browsers.assert_usable_by_all(page)
            shrink(shoot(page, f"phone-{name}-{code}-{scheme}", scheme))
    assert page.complaints == []
    assert {urlsplit(url).netloc for url in page.requests} == {urlsplit(page.url).netloc}


def test_a_link_shows_its_invitation_and_leaves_the_address_bar_at_once(show):
    """No request carries the secret, and going back does not bring it back."""
    page = show([campaign()], f"#{SECRET}")
    expect(page.get_by_role("heading", level=1)).to_have_text("You are invited")
    until(page, "asked.length === 2")
    assert page.evaluate("asked") == [["accept", SECRET], ["look", TASK]]
    assert page.evaluate("location.href + history.length").count("s3cr3t") == 0
    page.go_back()
    assert "s3cr3t" not in page.url
    assert not [url for url in page.requests if "s3cr3t" in url]


def test_a_link_is_taken_by_an_open_page_and_can_be_pasted_into_an_installed_one(show, site):
    """Which has no address bar."""
    page = show([campaign()], "#/campaigns")
    page.evaluate(f"location.hash = '{SECRET}'")
    expect(page.get_by_role("heading", level=1)).to_have_text("You are invited")
    assert page.evaluate("asked.splice(0)") == [["accept", SECRET], ["look", TASK]]
    assert "s3cr3t" not in page.url
    page.evaluate("location.hash = '#/campaigns'")
    page.get_by_text("Paste a link").click()
    page.get_by_label("Invitation link").fill(f"{site}/join/#{SECRET}")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("You are invited")
    assert page.evaluate("asked") == [["accept", SECRET], ["look", TASK]]
    assert not [url for url in page.requests if "s3cr3t" in url]


def test_a_damaged_link_says_what_to_do(show):
    page = show([], "#Q0ZMTQ", fails={"accept": "this link is damaged"})
    expect(page.get_by_role("alert")).to_contain_text("This invitation cannot be opened. This link is damaged.")
    expect(page.get_by_role("heading", level=1)).to_have_text("Your campaigns")


FACTS = (
    "3 activities, about 2 minutes",
    "begins with 3fa2 c1d4 e5f6 0718",  # who asks
    "The study group of the university hospital.",
    "walking, sitting, and climbing stairs",
    "The accelerometer and the gyroscope",
    "There are 5 rounds. They begin at 18:00 Europe/Berlin",
    "A round is open for 1 hr.",
    "With fewer than 6 contributions by then, it stays open once more as long.",
    "The platform (SP) and the second server (CSP) together Everything",
    "The key centre (KGC) deals the keys",
    "€36.00 for each round",
    "About €15.00",
    "The last day of rounds is 18 Nov 2054",
    "once it has been counted, until 2 Dec 2054",
    "Whoever pays you sees when you claim",
    "at least 6 people's updates",
    "It can be used until",
    "A dishonest platform could send you other code",
)


def test_an_invitation_says_everything_before_one_joins(show):
    """What a stranger wrote stays text; an invitation whose time is over says so."""
    page = shown(show, "invitation")
    page.get_by_text("Learn more").click()
    page.get_by_text("Who learns what").click()
    text = page.inner_text("main").replace("\n", " ")
    assert [fact for fact in FACTS if fact not in text] == []
    picture = page.get_by_role("img", name="What leaves your phone")
    assert "Your recordings stay on your phone" in (picture.locator("desc").text_content() or "")
    evil = "<img src=x onerror=alert(1)><b>bold</b>"
    change(page, definition=phone_states.DEFINITION | {"purpose": evil}, expires=1_700_000_000)
    expect(page.locator(".headline")).to_have_text(evil)
    assert page.locator("main b, main img:not(.logo)").count() == 0
    expect(page.get_by_text("It could be used until 14 Nov 2023")).to_be_visible()


def test_an_invitation_fits_one_screen_in_every_language(show):
    """Join is in reach of a thumb: at the lower edge, whatever is open above it; of a task with noise too."""
    noisy = campaign(definition=phone_states.definition(phone_states.NOISE), noise=phone_states.CHARGED)
    for locale in browsers.LANGUAGES:
        page = show([noisy], f"#/about/{TASK}", locale=locale)
        join = page.locator(".joining button.main")
        page.locator("#more > summary").wait_for()
        assert page.evaluate("document.documentElement.scrollHeight - innerHeight") <= 0, locale
        for _ in range(2):
            box = join.bounding_box()
            assert 740 - 120 < box["y"] < 740 - box["height"], (locale, box)
            page.locator("#more > summary").click()
            page.evaluate("scrollTo(0, 0)")


def test_epsilon_is_told_before_joining_and_on_home_with_that_of_other_campaigns(show):
    noisy = campaign(
        definition=phone_states.definition(phone_states.NOISE), noise=phone_states.CHARGED | {"charged": False}
    )
    page = show([noisy], f"#/about/{TASK}")
    expect(page.locator(".points")).to_contain_text("epsilon 8, with your other campaigns 11.5")
    page.locator("#more > summary").click()
    expect(page.locator("#more")).to_contain_text("with your other ones this makes 11.5")
    page = show([phone_states.JOINED | {"noise": phone_states.CHARGED | {"charged": False}}], f"#/home/{TASK}")
    expect(page.locator("#spent")).to_have_text("With your first update it will be 8.")
    change(page, noise=phone_states.CHARGED)
    expect(page.locator("#spent")).to_contain_text(
        "opened rounds have spent 3.14 of it. With your other campaigns: 11.5."
    )


def test_someone_joins_and_is_led_to_recording_by_keyboard_alone(show):
    """The focus goes to the heading of the view that opens; a dialog gives it back."""
    page = shown(show, "invitation")
    for _ in range(6):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Join":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Record", exact=True)).to_be_focused()
    assert page.evaluate("asked") == [["join", TASK, 5, None]]
    page.get_by_role("button", name="Menu").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Leave or withdraw").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Leave or withdraw")).to_be_focused()
    leave = page.get_by_role("button", name="Leave", exact=True)
    leave.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Not now")).to_be_focused()
    page.keyboard.press("Escape")
    expect(leave).to_be_focused()
    assert [one[0] for one in page.evaluate("asked")] == ["join"]


def test_the_skip_link_leads_to_the_content(show):
    page = shown(show, "earnings")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    expect(page.get_by_role("heading", level=1)).to_have_text("Earnings")


def test_a_small_crowd_must_be_accepted_first(show):
    page = shown(show, "small-crowd")
    join = page.get_by_role("button", name="Join")
    expect(join).to_be_disabled()
    page.get_by_label("I accept averages of as few as 3 people.").check()
    join.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Record")
    assert page.evaluate("asked") == [["join", TASK, 3, None]]


def test_a_consent_is_read_in_the_readers_language_and_agreed_to_before_one_joins(show):
    german = {"purpose": "Gehen erkennen", "terms": "", "readers": "", "consent": "Wir messen.\nSie dürfen gehen."}
    texts = {"de": german | {"words": {"walking": "Gehen"}}}
    asked = definition() | {"consent": {"version": "2", "text": "We measure."}, "texts": texts}
    page = show([campaign(definition=asked)], f"#/about/{TASK}", locale="de-AT")
    expect(page.locator(".headline")).to_have_text("Gehen erkennen")
    expect(page.locator(".points")).to_contain_text("Gehen, sitting")
    join = page.get_by_role("button", name="Teilnehmen")
    expect(join).to_be_disabled()
    page.locator("#consent summary").click()
    expect(page.locator("#consent")).to_contain_text("Sie dürfen gehen.")
    page.get_by_label("Ich habe den Einwilligungstext, Version 2, gelesen").check()
    expect(join).to_be_enabled()
    assert not page.complaints


def test_a_task_is_read_in_the_reader_s_first_language_also_where_the_page_does_not_speak_it(show, shoot):
    """Each text with its own `lang` and `dir`; one agrees below the end of the text, in the language that was read."""
    persian = {
        "purpose": "تشخیص راه رفتن",
        "terms": "",
        "readers": "",
        "consent": "ما اندازه می‌گیریم.\n" * 40,
        "words": {},
    }
    question = {"id": "pain", "text": "Does it hurt?", "choices": ["no", "yes"], "use": "feature"}
    persian["words"] = {"walking": "راه رفتن", "Does it hurt?": "درد دارد؟"}
    training = phone_states.DEFINITION["training"] | {"questions": [question], "sensors": ["loudness"]}
    asked = definition(training=training) | {
        "consent": {"version": "2", "text": "We measure."},
        "texts": {"fa": persian},
    }
    page = show([campaign(definition=asked)], f"#/about/{TASK}", locale="fa-IR")
    expect(page.locator(".headline")).to_have_text("تشخیص راه رفتن")
    assert page.locator(".headline").evaluate("one => [one.lang, one.dir]") == ["fa", "rtl"]
    expect(page.locator("html")).to_have_attribute("lang", "en")
    expect(page.locator("#extra-sensors")).to_contain_text("microphone (loudness)")
    assert page.get_by_text("The study group of").evaluate("one => one.lang") == "en", "what is not translated"
    agrees = page.get_by_label("I have read the consent text, version 2, and I agree.")
    expect(agrees).to_be_hidden()
    page.locator("#consent summary").click()
    text = page.locator("#consent .said")
    assert text.evaluate("one => [one.lang, one.dir]") == ["fa", "rtl"]
    end = "one => one.getBoundingClientRect().bottom"
    assert agrees.evaluate(end) > text.evaluate(end)
    agrees.check()
    for scheme in ("light", "dark"):
        shoot(page, f"phone-other-language-{scheme}", scheme)
    page.get_by_role("button", name="Join").click()
    until(page, "asked.length === 1")
    assert page.evaluate("asked") == [["join", TASK, 5, "fa"]]


def test_an_invitation_in_another_phone_s_place_says_whose_and_asks(show, shoot):
    """A newcomer who got it by mistake does not take somebody's place without a word."""
    page = show([campaign(place="0123abcd", replaces=True)], f"#/about/{TASK}")
    expect(page.get_by_text("somebody who takes part already, in place 0123 abcd")).to_be_visible()
    shoot(page, "phone-replaces")
    join = page.get_by_role("button", name="Join")
    expect(join).to_be_disabled()
    page.get_by_label("I take part already. This phone takes the place of my other one.").check()
    expect(join).to_be_enabled()


def test_the_bar_below_an_invitation_covers_a_fifth_at_most_when_the_page_is_zoomed(show):
    """At 200% a window has half as many pixels each way."""
    asked = definition() | {"consent": {"version": "2", "text": "We measure.\n" * 40}}
    wide, high = browsers.PHONE["viewport"].values()
    for zoom in (1, 2):
        page = show(
            [campaign(definition=asked)], f"#/about/{TASK}", viewport={"width": wide // zoom, "height": high // zoom}
        )
        bar = page.locator(".joining").evaluate("one => [one.offsetHeight, getComputedStyle(one).position]")
        assert bar[1] == "static" or bar[0] <= high / zoom / 5, (zoom, bar)
        assert browsers.sideways(page) == 0


def test_a_wrong_clock_is_told_before_one_joins(show):
    page = show([campaign(ahead=90_000)], f"#/about/{TASK}")
    expect(page.get_by_text("Your phone's clock is 1 day 1 hr ahead. Set your clock")).to_be_visible()
    expect(page.get_by_role("button", name="Join")).to_have_count(0)
    change(page, ahead=-600)
    expect(page.get_by_text("Your phone's clock is 10 min behind.")).to_be_visible()
    expect(page.get_by_role("button", name="Join")).to_be_enabled()


def test_nothing_disputed_is_not_told_as_a_number(show):
    page = shown(show, "earnings")
    change(page, claim={"state": "later", "amount": "0n", "claimed": "0n", "until": None, "short": [], "disputed": []})
    assert "0" not in page.locator("section[aria-label=Claim]").inner_text().split()


def test_a_task_that_this_page_cannot_take_part_in_can_only_be_deleted(show):
    """Nothing of a definition that is nonsense is shown: no view may break over what a stranger wrote."""
    page = shown(show, "refused")
    expect(page.get_by_role("alert")).to_contain_text("This page cannot take part.")
    nonsense = phone_states.DEFINITION | {"training": {"labels": 5, "channels": {}}}
    change(page, definition=nonsense, refusal="Its labels are 5.")
    expect(page.get_by_role("alert")).to_contain_text("Its labels are 5.")
    expect(page.get_by_role("button", name="Join")).to_have_count(0)
    page.get_by_role("button", name="Delete this invitation").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No invitation yet")).to_be_visible()


def test_a_campaign_that_nobody_can_join_says_so_in_the_place_of_join(show):
    page = show([campaign(closed="over")], f"#/about/{TASK}")
    expect(page.get_by_text("You cannot join any more. The time to join this campaign is over.")).to_be_visible()
    expect(page.get_by_role("button", name="Join")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete this invitation")).to_be_visible()


def test_the_invitation_says_who_asks_and_the_rounds_when_the_next_one_is(show):
    page = show([campaign(phase="joined", next=2_678_612_800)], f"#/about/{TASK}")
    expect(page.get_by_text("study@hospital.example")).to_be_visible()
    expect(page.get_by_text("They begin at 18:00 Europe/Berlin, one a day at most.").first).to_be_visible()
    page.goto(page.url.replace("about", "home"))
    expect(page.get_by_text("The first round begins on 18 Nov 2054")).to_be_visible()


def test_a_refusal_to_join_is_shown_where_it_was_asked(show):
    page = show([campaign()], f"#/about/{TASK}", fails={"join": "the invitation was used already"})
    page.get_by_role("button", name="Join").click()
    expect(page.get_by_role("alert")).to_have_text("The invitation was used already.")
    expect(page.get_by_role("button", name="Join")).to_be_enabled()


def test_training_shows_its_progress_and_then_that_the_contribution_arrived(show):
    """A link that has the focus keeps it while training goes on."""
    page = shown(show, "training")
    expect(page.get_by_role("progressbar", name="Learning")).to_have_attribute("value", "7")
    live = page.locator("[aria-live=polite]").filter(has_text="learns from your recordings for round 3 of 5.")
    expect(live).to_have_count(1)
    page.get_by_role("link", name="Record more").focus()
    change(page, now=phone_states.TRAINING["now"] | {"done": 9})
    expect(page.get_by_role("progressbar", name="Learning")).to_have_attribute("value", "9")
    expect(page.get_by_role("link", name="Record more")).to_be_focused()
    change(page, now=phone_states.IDLE, rounds=phone_states.ARRIVED, receipts=phone_states.RECEIPTS)
    expect(page.locator("[aria-live=polite] .headline")).to_have_text("Your contribution to round 3 of 5 has arrived.")
    page.get_by_role("link", name="Round by round, with receipts").click()
    page.get_by_text("Receipt of round 2").click()
    expect(page.get_by_label("Receipt of round 2")).to_contain_text("crowdfl receipt")


def test_home_says_what_stopped_it_and_the_details_what_each_round_was(show):
    page = show([JOINED], f"#/home/{TASK}")
    expect(page.get_by_text("The round takes contributions until 18 Nov 2054, 14:06.")).to_be_visible()
    change(page, problem="The platform does not know you.")
    expect(page.get_by_role("alert")).to_have_text("The platform does not know you.")
    page.get_by_role("button", name="Try again").click()
    assert page.evaluate("asked") == [["retry", TASK]]
    change(page, **phone_states.OVER)
    page.get_by_role("link", name="Round by round, with receipts").click()
    cells = page.get_by_role("table", name="Rounds").get_by_role("row").nth(1).get_by_role("cell")
    expect(cells.nth(1)).to_contain_text("arrived")
    assert [text.split("\n")[0] for text in cells.all_inner_texts()] == ["1", "arrived", "42.0%", "54.0%"]
    expect(page.get_by_text("Round 3: The contribution came after the round had closed.")).to_be_visible()


def test_whoever_was_left_out_twice_is_led_to_the_recordings(show):
    """Not after once: anybody may be out of line by chance."""
    out = [task_round(number, "refused", leftOut="not_in_line", reason="not_in_line", reward=None) for number in (1, 2)]
    page = show([JOINED | {"rounds": out[:1]}], f"#/home/{TASK}", recordings=RECORDINGS, windows=WINDOWS)
    notice = page.get_by_text("Your recordings or labels may be mixed up.")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(notice).to_have_count(0)
    change(page, rounds=out)
    expect(notice).to_be_visible()
    browsers.assert_usable_by_all(page)
    page.locator("#to-check").click()
    expect(page.get_by_text("Walking").first).to_be_visible()
    assert page.url.endswith(f"#/record/{TASK}")


def test_a_phone_with_one_campaign_opens_at_it_and_says_at_once_that_there_is_no_network(show):
    page = show([JOINED])
    expect(page.get_by_role("heading", level=1)).to_have_text(phone_states.DEFINITION["purpose"])
    page.context.set_offline(True)
    expect(page.get_by_text("No connection. You can record")).to_be_visible()
    change(page, now=phone_states.IDLE | {"kind": "sending", "round": 3})
    change(page, rounds=[*phone_states.UNDER_WAY[:2], task_round(3, "sending", state="open")])
    expect(page.locator(".headline")).to_contain_text("is sent when the connection is back.")
    page.context.set_offline(False)
    expect(page.locator(".headline")).to_have_text("Your contribution to round 3 of 5 is being sent.")
    expect(page.get_by_text("No connection.")).to_have_count(0)


def test_a_campaign_that_the_browser_has_deleted_has_a_page_that_says_so(show):
    """By its address, and by what was noted outside of the database."""
    page = show([], f"#/home/{TASK}")
    expect(page.get_by_role("heading", level=1)).to_have_text("This phone no longer has this campaign")
    expect(page.get_by_text("ask whoever invited you for a new invitation")).to_be_visible()
    page = show([], lost=[TASK])
    expect(page.get_by_role("heading", level=2)).to_have_text("This phone no longer has this campaign")
    page.get_by_role("button", name="I understand").click()
    expect(page.get_by_text("No invitation yet")).to_be_visible()


def test_the_menu_leads_everywhere_and_changes_the_language_for_good(show):
    page = show([JOINED], f"#/home/{TASK}")
    menu = page.get_by_role("button", name="Menu")
    menu.click()
    browsers.assert_usable_by_all(page)
    for place in (
        "About this campaign",
        "Earnings",
        "Round by round",
        "Leave or withdraw",
        "All campaigns",
        "This phone",
    ):
        expect(page.get_by_role("link", name=place, exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="This phone")).to_be_hidden()
    menu.click()
    with page.expect_navigation():
        page.get_by_label("Language").select_option("Deutsch")
    expect(page.get_by_role("button", name="Menü")).to_be_visible()
    assert page.evaluate("document.documentElement.lang") == "de"
    page.reload()
    expect(page.locator(".headline")).to_have_text("Runde 3 von 5 ist offen: Ihr Telefon nimmt von selbst teil.")


def test_a_claim_can_be_sent_and_sent_again_after_the_platform_has_said_no(show):
    place, campaigns = STATES["earnings"]
    page = show(campaigns, place, fails={"claim": "come back later"})
    expect(page.get_by_text("You can claim €8.75 now.")).to_be_visible()
    page.get_by_role("button", name="Claim now").click()
    expect(page.get_by_role("alert")).to_have_text("Come back later.")
    for state in ("refused", "expired"):
        change(page, claim=phone_states.DUE | {"state": state, "why": f"it is {state}"})
        expect(page.get_by_text(f"It is {state}.")).to_be_visible()
        page.get_by_role("button", name="Claim now").click()
    assert page.evaluate("asked") == [["payKinds", TASK], *[["claim", TASK]] * 3]


def test_leaving_and_forgetting_are_asked_twice(show):
    page = shown(show, "leave")
    page.get_by_role("button", name="Leave", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("What you have sent stays in the sums")
    dialog.get_by_role("button", name="Leave").click()
    expect(page.get_by_text("You have left. You can still claim what you earned.")).to_be_visible()
    page.get_by_role("button", name="Forget this campaign").click()
    expect(page.get_by_role("dialog")).to_contain_text("You have not claimed €3.50 yet.")
    page.get_by_role("dialog").get_by_role("button", name="Forget it").click()
    expect(page.get_by_role("heading", name="Your campaigns")).to_be_focused()
    open_menu(page, "This phone")
    page.get_by_role("button", name="Delete everything").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete everything").click()
    expect(page.get_by_text("No invitation yet")).to_be_visible()
    assert page.evaluate("asked") == [["leave", TASK], ["forget", TASK], ["forgetAll"]]


def test_where_to_be_paid_is_asked_from_joining_on_and_can_be_corrected(show):
    """With who can read it; what was typed wrongly is said in words; a round that pays nothing says why, and blames nobody."""
    place, campaigns = STATES["earnings"]
    page = show(campaigns, place)
    expect(
        page.get_by_text("only it can read it. The platform, the second server and whoever asked cannot.")
    ).to_be_visible()
    page.get_by_label("How").select_option("Bank account (IBAN)")
    page.get_by_label("Where to", exact=True).fill("DE02 1203 0000 0000 2020 52")
    page.get_by_role("button", name="Save and send").click()
    expect(page.get_by_role("alert")).to_have_text("This is no IBAN: a digit may be wrong or missing.")
    page.get_by_label("Where to", exact=True).fill("DE02 1203 0000 0000 2020 51")
    page.get_by_role("button", name="Save and send").click()
    expect(page.get_by_text("Sent. It counts from your next claim on.")).to_be_visible()
    page.get_by_role("button", name="Correct it").click()
    page.get_by_label("How").select_option("Voucher by e-mail")
    page.get_by_label("Where to", exact=True).fill("ada@example.org")
    page.get_by_role("button", name="Save and send").click()
    expect(page.get_by_text("Voucher by e-mail: ada@example.org")).to_be_visible()
    assert [one[2] for one in page.evaluate("asked") if one[0] == "payTo"] == ["iban", "email"]
    rows = page.get_by_role("table", name="Round by round").get_by_role("row").all_inner_texts()
    assert rows[3].split("\t")[1:] == ["€0.00", "", "The contribution came after the round had closed."]
    change(page, claim=phone_states.CLAIM)
    expect(page.get_by_role("heading", name="Where to be paid")).to_be_visible()  # at any time after joining


def test_what_is_claimed_is_not_called_paid_and_what_is_disputed_is_said(show):
    """Nobody knows here whether anything was handed over."""
    page = shown(show, "claimed")
    expect(page.get_by_text("It is claimed. Below is what became of it.")).to_be_visible()
    assert "paid" not in page.locator("main").inner_text().lower().replace("where to be paid", "")
    change(page, claim=phone_states.CLAIMED | {"disputed": [2], "short": [5]})
    expect(page.get_by_text("The platform does not agree with your claim for round 2.")).to_be_visible()
    expect(page.get_by_text("The platform has booked less than you earned in round 5.")).to_be_visible()
    said = {1: ("paid", "voucher"), 2: ("no_destination", ""), 5: ("failed", "account closed")}
    pays = {number: {"state": state, "note": note} for number, (state, note) in said.items()}
    change(page, rounds=[one | {"pay": pays.get(one["number"])} for one in phone_states.ENDED])
    rows = page.get_by_role("table", name="Round by round").get_by_role("row").all_inner_texts()
    found = [row.split("\t")[2] for row in rows[1:]]
    assert found == ["paid: voucher", "say where to be paid", "", "", "failed: account closed"]
    sums = page.locator("#sums li").all_inner_texts()
    assert sums == ["€2.25: say where to be paid", "€1.25: paid", "€5.25: failed"]
    browsers.assert_usable_by_all(page)


def test_a_round_is_claimed_while_the_campaign_goes_on(show):
    page = show([phone_states.JOINED], f"#/earnings/{TASK}")
    expect(page.get_by_text("You can claim €3.50 now.")).to_be_visible()
    change(page, claim=phone_states.CLAIM | {"claimed": "3500000n", "amount": "1000000n", "state": "sent"})
    expect(page.get_by_text("Your claim of €1.00 is on its way.")).to_be_visible()
    change(page, claim=phone_states.CLAIM | {"early": False})
    expect(page.get_by_text("You can claim after the last round, until")).to_be_visible()


def test_withdrawing_says_first_what_is_deleted_and_what_cannot_be_undone(show):
    page = shown(show, "leave")
    page.get_by_role("button", name="Withdraw").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(
        "Deleted: its recordings on this phone, and contributions that are not in an average yet."
    )
    expect(dialog).to_contain_text("Nobody can take one person out of them.")
    dialog.get_by_role("button", name="Withdraw").click()
    expect(page.get_by_text("Rounds whose contribution was deleted: 3.")).to_be_visible()
    expect(page.get_by_text("Rounds whose average holds it for good: 1 and 2.")).to_be_visible()
    page.get_by_role("link", name="Back", exact=True).click()
    expect(page.locator(".headline")).to_have_text("You have withdrawn from this campaign.")


def test_rounds_go_into_a_calendar_and_reminders_are_asked_for_by_a_tap(show):
    """What the browser's maker learns is said before; a phone that must install the page first is told so."""
    place, campaigns = STATES["between"]
    page = show(campaigns, place, reminders="off")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Add to calendar").click()
    text = saved.value.path().read_text()
    assert saved.value.suggested_filename == "crowdfl.ics"
    assert text.count("BEGIN:VEVENT") == 4  # rounds 3, 4 and 5, and to claim in time
    assert "claim before" in text
    assert "SUMMARY:Tell seven shoulder exercises apart" in text
    expect(page.get_by_text("your browser's maker learns that this phone uses this platform")).to_be_visible()
    page.get_by_role("button", name="Remind me").click()
    until(page, "asked.length === 1")
    assert page.evaluate("asked") == [["remind", TASK, "A round has begun"]]
    page = show(campaigns, place, reminders="needs-install")
    expect(page.get_by_text("On an iPhone, messages need the page on the home screen")).to_be_visible()
    expect(page.get_by_role("button", name="Remind me")).to_have_count(0)


def test_a_consent_can_be_saved_by_its_owner(show):
    there = JOINED | {"consent": {"version": "2", "language": "", "at": 2_678_612_800}}
    page = show([there], f"#/details/{TASK}")
    expect(page.get_by_text("You agreed to version 2 on 18 Nov 2054")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save a copy").click()
    assert saved.value.suggested_filename == "consent-0123.json"


def open_menu(page, place):
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name=place, exact=True).click()


def give_csv(page, name, content):
    page.get_by_label("CSV files").set_input_files({"name": name, "mimeType": "text/csv", "buffer": content})


def test_nothing_is_sent_before_the_owner_says_so_and_then_only_what_was_meant(show):
    page = show([UNSAID], f"#/record/{TASK}", recordings=RECORDINGS, windows=WINDOWS)
    expect(page.get_by_text("Nothing has been sent. Your phone waits for your word.")).to_be_visible()
    expect(page.get_by_text("4 of 15 s")).to_be_visible()
    page.get_by_role("button", name="Send my contribution").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Send without sitting?")
    dialog.get_by_role("button", name="Not now").click()
    assert page.evaluate("asked") == []
    page.get_by_role("button", name="Send my contribution").click()
    dialog.get_by_role("button", name="Send my contribution").click()
    until(page, "asked.length === 1")
    assert page.evaluate("asked") == [["contribute", TASK]]


def test_recordings_that_come_later_wait_for_another_word(show):
    said = [*RECORDINGS[:1], *({**one, "said": True} for one in RECORDINGS[1:])]
    page = show([JOINED | {"contributed": 2}], f"#/record/{TASK}", recordings=said, windows=WINDOWS)
    expect(page.get_by_text("You have said that 2 recordings may be used.")).to_be_visible()
    expect(page.get_by_text("1 recording is new since then, and is not used before you say so.")).to_be_visible()
    expect(page.get_by_role("button", name="Use the new ones too")).to_be_visible()


def test_a_recording_is_corrected_deleted_and_imported(show):
    page = show([JOINED], f"#/record/{TASK}", recordings=RECORDINGS, windows=WINDOWS)
    page.get_by_text("Your 3 recordings").click()
    page.get_by_role("button", name="Change sitting, 4.2 sec").click()
    expect(page.get_by_role("radio", name="sitting")).to_be_checked()
    browsers.assert_usable_by_all(page)
    page.get_by_role("radio", name="walking").check()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Delete walking, 4.2 sec").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Your 2 recordings")).to_be_focused()
    page.get_by_text("No sensors? Import a CSV file").click()
    give_csv(page, "walking.csv", b"time,x,y,z\n")
    expect(page.get_by_text("walking.csv: 1 recording.")).to_be_visible()
    corrected = ["changeRecording", TASK, "b", {"label": "walking", "answers": {}}]
    imported = ["importCsv", TASK, "walking.csv", "time,x,y,z\n"]
    assert page.evaluate("asked") == [corrected, ["deleteRecording", TASK, "b"], imported]


def test_a_csv_file_that_cannot_be_used_is_named_once(show):
    page = shown(show, "record", fails={"importCsv": "what.csv: the header is a, b"})
    page.get_by_text("No sensors? Import a CSV file").click()
    give_csv(page, "what.csv", b"a,b")
    expect(page.get_by_text("what.csv: the header is a, b.", exact=True)).to_be_visible()


FINAL = (0.5, 0.0, 1.0, 1.0, 0.0, -2.0)
WAVES = [
    (0.8 * math.sin(step / 3), 0.5 * math.cos(step / 5), 1.0 + 0.4 * math.sin(step / 4), 0, 0, 0) for step in range(90)
]


SHORT = {"window_samples": 5, "held_out": 0.5}  # two seconds of each activity


def record(page, name="Record sitting"):
    """Tap on an activity, and do not wait until the phone is in a pocket."""
    page.get_by_role("button", name=name).click()
    page.get_by_role("button", name="Start now").click()
    expect(page.get_by_role("button", name="Hold to stop")).to_be_visible()


def hold(page):
    """Press on the lock for as long as it wants."""
    page.get_by_role("button", name="Hold to stop").hover()
    page.mouse.down()
    expect(page.get_by_role("button", name="Hold to stop")).to_have_count(0)
    page.mouse.up()


@pytest.mark.parametrize("channels", [3, 6])
def test_sensors_become_a_recording_at_their_rate(show, shoot, channels):
    """In g and 2 rad/s, with the browser's times; kept bit by bit, whole at the end, without its first and last seconds."""
    long = {"channels": channels, "window_samples": 1500}  # it must not end by itself on a busy machine
    page = show([JOINED | {"definition": definition(training=long)}], f"#/record/{TASK}")
    sensors = motion.Motion(page)
    sensors.show(FINAL)
    record(page)
    motion.replay({sensors: [*WAVES, FINAL]}, hertz=30)
    until(page, "kept.length === 1 && !kept[0].whole")
    page.get_by_role("button", name="Hold to stop").click()  # as cloth does
    if channels == len(FINAL):
        browsers.assert_usable_by_all(page)
        shrink(shoot(page, "phone-recording"))
    expect(page.get_by_role("button", name="Hold to stop")).to_be_visible()
    hold(page)
    until(page, "kept[0].whole")
    recording = page.evaluate("kept[0]")
    assert (recording["label"], recording["channels"]) == ("sitting", channels)
    assert 5 < (recording["samples"] - 1) / recording["seconds"] < 70  # 60 on an idle machine
    assert len(recording["signal"]) == recording["samples"] * channels
    tolerance = motion.RESOLUTION / motion.STANDARD_GRAVITY
    wanted = pytest.approx([0.5, 0.0, 1.0, 0.5, 0.0, -1.0][:channels], abs=tolerance)
    assert any(recording["signal"][at : at + channels] == wanted for at in range(0, len(recording["signal"]), channels))
    expect(page.get_by_text(f"{math.floor(recording['seconds'])} of 201 s")).to_be_visible()


BESIDE = """() => {
  navigator.geolocation.watchPosition = (found) => { found({ coords: { speed: 5 } }); return 1; };
  navigator.mediaDevices.getUserMedia = async () => {
    const context = new AudioContext();
    const [tone, half, out] = [context.createOscillator(), context.createGain(), context.createMediaStreamDestination()];
    half.gain.value = 0.5;
    tone.connect(half).connect(out);
    tone.start();
    return (globalThis.heard = out.stream);
  };
}"""


def test_speed_and_loudness_are_recorded_beside_motion_and_a_question_is_asked_at_the_end(show, shoot):
    """In 10 m/s and 50 dB, levels alone; the microphone is let go, and the answer stays with the recording."""
    asked = [{"id": "pain", "text": "Does it hurt?", "choices": ["no", "a little"], "use": "feature"}]
    beside = {"channels": 3, "labels": ["sitting"], "sensors": ["speed", "loudness"], "questions": asked}
    page = show([UNSAID | {"definition": definition(training=SHORT | beside)}], f"#/record/{TASK}", windows=WINDOWS)
    page.evaluate(BESIDE)
    motion.Motion(page).show(FINAL)
    page.get_by_role("button", name="Start").first.click()
    for what in ("never where it is", "how loud it is"):  # each is asked for by itself
        expect(page.get_by_role("dialog").last).to_contain_text(what)
        page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Start now").click()
    expect(page.get_by_role("dialog").get_by_role("heading")).to_have_text("A short question")
    browsers.assert_usable_by_all(page)
    shrink(shoot(page, "phone-question"))
    page.get_by_role("radio", name="a little").check()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    until(page, "kept[0]?.answers.pain === 'a little' && kept[0].whole")
    recording = page.evaluate("kept[0]")
    assert recording["channels"] == 5
    speeds, levels = recording["signal"][3::5], recording["signal"][4::5]
    assert set(speeds) == {0.5}
    assert any(level == pytest.approx(-9 / 50, abs=0.02) for level in levels)  # a sine of half the largest size
    until(page, "heard.getTracks().every(({ readyState }) => readyState === 'ended')")


def test_one_activity_follows_the_other_by_itself(show):
    """Each stops once there is enough of it; then the owner is asked to send. Nothing leaves the phone by itself."""
    training = SHORT | {"labels": ["sitting", "walking"]}
    page = show([UNSAID | {"definition": definition(training=training)}], f"#/record/{TASK}", windows=WINDOWS)
    motion.Motion(page).show(FINAL)
    page.get_by_role("button", name="Start: 2 activities").click()
    stage = page.get_by_role("dialog")
    for label in training["labels"]:
        expect(stage.get_by_role("heading")).to_have_text(label)
        page.get_by_role("button", name="Start now").click()
        expect(page.get_by_role("button", name="Hold to stop")).to_be_visible()
    expect(page.get_by_role("button", name="Send my contribution")).to_be_focused()
    kept = page.evaluate("kept.map(({label, seconds, whole}) => [label, Math.floor(seconds) >= 2, whole])")
    assert kept == [["sitting", True, True], ["walking", True, True]]
    assert page.evaluate("asked") == []


def test_a_recording_that_is_all_edge_is_not_kept(show):
    page = show([JOINED], f"#/record/{TASK}")
    motion.Motion(page).show(FINAL)
    record(page)
    page.get_by_role("button", name="Hold to stop").press("Enter")  # a keyboard is in no pocket
    expect(page.get_by_text("That was too short: the first and last 2 sec are left out.")).to_be_visible()
    assert page.evaluate("kept") == []


def test_a_device_without_sensors_is_told_so_and_offered_files(show):
    page = show([JOINED], f"#/record/{TASK}")
    page.get_by_role("button", name="Start: 3 activities").click()
    expect(page.get_by_role("alert")).to_contain_text("import a CSV file", timeout=PATIENCE)
    expect(page.get_by_role("button", name="Start: 3 activities")).to_be_enabled()


IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_4 like Mac OS X) AppleWebKit/605.1.15 Version/18.4 Mobile/15E148 Safari/604.1"
IOS = """globalThis.permissions = [];
DeviceMotionEvent.requestPermission = async () => { permissions.push(navigator.userActivation.isActive); return "%s"; };
0;"""


@pytest.mark.parametrize("answer", ["granted", "denied"])
def test_ios_asks_by_a_tap_before_it_shows_motion(show, answer):
    """And counts acceleration the other way round."""
    page = show([JOINED], f"#/record/{TASK}", user_agent=IPHONE)
    page.evaluate(IOS % answer)
    sensors = motion.Motion(page)
    sensors.show([0.0, 0.0, -1.0, 0.0, 0.0, 0.0])
    page.get_by_role("button", name="Start: 3 activities").click()
    if answer == "denied":
        expect(page.get_by_role("alert")).to_contain_text("You did not allow motion sensors.")
    else:
        page.get_by_role("button", name="Start now").click()
        until(page, "kept.length === 1")
        assert page.evaluate("kept[0].signal[2]") == pytest.approx(1.0, abs=0.02)
    assert page.evaluate("permissions") == [True]


def test_a_page_in_the_background_warns_that_time_is_missing(show):
    page = show([JOINED], f"#/record/{TASK}")
    sensors = motion.Motion(page)
    sensors.show([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    record(page)
    until(page, "!['0', '0 sec'].includes(document.querySelector('.big').textContent)")
    hide = "Object.defineProperty(document, 'visibilityState', {value: '%s', configurable: true}); "
    hide += "document.dispatchEvent(new Event('visibilitychange'));"
    page.evaluate(hide % "hidden")
    until(page, "kept.length === 1")  # it may never come back
    page.evaluate(hide % "visible")
    hold(page)
    expect(page.get_by_text("This page was in the background.")).to_be_visible()


def test_sensors_that_wake_after_the_view_was_left_record_nothing(show):
    page = show([JOINED], f"#/record/{TASK}")
    page.get_by_role("button", name="Start: 3 activities").click()
    page.evaluate("location.hash = '#/campaigns'")
    expect(page.get_by_role("button", name="Start: 3 activities")).to_have_count(0)
    page.evaluate("""() => { for (let turn = 0; turn < 500; turn++) dispatchEvent(new DeviceMotionEvent("devicemotion", {
      accelerationIncludingGravity: {x: 0, y: 0, z: 9.8}, rotationRate: {alpha: 0, beta: 0, gamma: 0}})); }""")
    page.wait_for_timeout(200)
    assert page.evaluate("kept") == []


def test_leaving_the_view_ends_and_keeps_the_recording(show):
    page = show([JOINED], f"#/record/{TASK}")
    sensors = motion.Motion(page)
    sensors.show([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    record(page)
    until(page, "kept.length === 1")
    page.evaluate("location.hash = '#/campaigns'")
    until(page, "kept[0].whole")
    assert page.evaluate("kept[0].label") == "sitting"
    expect(page.get_by_role("dialog")).to_have_count(0)


DIFFERS = {
    "en": (
        "Round 2. The platform said: it has not taken your contribution. "
        "The second server has signed: your contribution is in the average. What is signed counts. See both",
        "Save both",
    ),
    "de": (
        "Runde 2. Die Plattform sagte: Ihr Beitrag sei nicht angenommen worden. "
        "Der zweite Server hat unterschrieben: Ihr Beitrag ist im Mittelwert. Es gilt, was unterschrieben ist. "
        "Beides ansehen",
        "Beides speichern",
    ),
    "zh": (
        "第 2 轮。平台称：未接收您的贡献。第二台服务器签名确认：您的贡献已计入平均值。以签名为准。查看两者",  # noqa: RUF001
        "保存两者",
    ),
}


@pytest.mark.parametrize("language", DIFFERS)
def test_a_phone_is_told_that_the_platforms_word_and_the_signed_record_differ(show, language):
    """On its first page, with both and whom to send them to one step further, as a file too."""
    words, save = DIFFERS[language]
    page = show([JOINED], f"#/home/{TASK}", locale=language)
    expect(page.locator("#to-evidence")).to_have_count(0)
    change(page, differences=[{"round": 2, "said": "refused", "signed": "accepted"}])
    expect(page.get_by_role("alert")).to_have_text(words)
    page.locator("#to-evidence").click()
    expect(page.get_by_text("study@hospital.example")).to_be_visible()
    expect(page.get_by_text(phone_states.DEFINITION["payer"])).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name=save).click()
    assert saved.value.suggested_filename == "evidence-0123.json"
    assert page.complaints == []
