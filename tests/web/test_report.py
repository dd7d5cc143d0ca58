"""A campaign's report, with a demo's tables below it: at the widths of a phone and of a desk, and on paper."""

import re

import pytest
from playwright.sync_api import expect

from crowdfl.campaigns.report import TaskReport
from crowdfl.catalogues import LANGUAGES, Sentences
from crowdfl.settings import AskerSettings, ConsentSettings
from crowdfl_lab.report.output import section_html
from crowdfl_lab.report.results import Result, ResultTable
from tests.hosts import Desk
from tests.web import browsers

LONG = "d0b1" * 16  # a task's id
WIDE = ResultTable(
    "What each server saw",
    ("server", "secrets in its files", "after the end", "received", "its folder", "bytes"),
    tuple(
        (name, "lambda_sc", "none", "a long sentence about " * 6, f"12 files {LONG}", 12_345) for name in ("SP", "CSP")
    ),
    note="one note",
)
TOO_WIDE = "one => one.scrollWidth > one.clientWidth"
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


STUDY = {
    "who": AskerSettings(name="The gait group", institution="A university", approval="EK 2026/7"),
    "consent": ConsentSettings(version="2", text="We measure how you move."),
}
SCORE = {"accuracy": 0.75, "loss": 0.5, "windows": 12, "classes": {"walk": {"recall": 0.5}, "sit": {"recall": 1.0}}}


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> TaskReport:
    """Of a round in which one has withdrawn."""
    desk = Desk(tmp_path_factory.mktemp("desk"), study=STUDY, payer=bytes(32), profile="shares", decimals=6, clip=16.0)
    for number in range(4):
        person = desk.people[str(number)] = desk.new_participant(desk.task, str(number))
        person.agree = "2"
        person.join(desk.requester.invite(desk.task, 1, 1000.0)[0])
    desk.requester.fund(desk.task, 72_000_000, "all")
    desk.run()
    desk.upload()
    desk.sp.people.withdraw(desk.task, desk.crowd[0].keys.who)
    desk.run()
    desk.requester.keep_scores(desk.task, ["csv:held-out"], {0: SCORE, 1: SCORE})
    return TaskReport.of(desk.requester, desk.task)


@pytest.fixture
def report(told, tmp_path):
    """The file of a demo's report, as a browser opens it from a disk."""
    words = {"intro": f"ran as `{LONG}`", "headline": "0 of 5 numbers found", "facts": {"task": LONG}}
    pictures = {"Accuracy by round": DOT, "Rewards by person": DOT}
    section = section_html(Result("s", "", {}, {}, tables=(WIDE,), notes=("a note",)), pictures=pictures, **words)
    path = tmp_path / "report.html"
    path.write_text(told.html(more=section), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("width", [420, 1200])
def test_a_report_is_usable_by_all_and_its_rows_are_cards_on_a_phone(browser, report, width, shoot):
    with browsers.opened(browser, browsers.DESK, viewport={"width": width, "height": 900}) as context:
        page = context.new_page()
        page.goto(report)
        page.get_by_text("How this was made").click()
        page.get_by_text("Every movement").first.click()
        assert browsers.sideways(page) == 0
        region = page.get_by_role("region", name="What each server saw")
        assert width > 420 or region.evaluate("one => one.scrollWidth === one.clientWidth")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            browsers.assert_usable_by_all(page)
            shoot(page, f"report-{width}-{scheme}", scheme)
        for name in ("What each server saw", "What each party learnt", "By round"):
            expect(page.get_by_role("table", name=name, exact=True)).to_be_visible()
        expect(page.get_by_role("rowheader", name="CSP", exact=True)).to_be_visible()
        shown = page.get_by_role("region", name="What each server saw").get_by_role("columnheader")
        assert shown.all_inner_texts() == list(WIDE.columns)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_report_prints_on_a4_without_what_is_folded(browser, told, language, tmp_path):
    (tmp_path / "report.html").write_text(told.html(language), encoding="utf-8")
    with browsers.opened(browser, browsers.DESK) as context:
        page = context.new_page()
        page.goto((tmp_path / "report.html").as_uri())
        made = page.pdf(prefer_css_page_size=True)
        assert {float(size) // 1 for size in re.findall(rb"/MediaBox \[0 0 ([0-9.]+) ", made)} == {594.0}
        assert 1 <= len(re.findall(rb"/Type /Page\b", made)) <= 2
        page.emulate_media(media="print")
        expect(page.get_by_text(Sentences(language, "report")("books.title")).first).to_be_hidden()
        page.set_viewport_size({"width": 720, "height": 900})  # of the sheet, without its margins
        regions = page.get_by_role("region").all()
        assert [one.get_attribute("aria-label") for one in regions if one.evaluate(TOO_WIDE)] == []
