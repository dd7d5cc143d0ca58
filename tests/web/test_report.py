"""The laboratory's reports at the widths of a phone and of a desk: real tables that nobody scrolls sideways on a phone."""

import pytest
from playwright.sync_api import expect

from crowdfl_lab.report.output import page_html, section_html
from crowdfl_lab.report.results import Result, ResultTable
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
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def report(tmp_path):
    """A report's file, as a browser opens it from a disk."""
    words = {"intro": f"ran as `{LONG}`", "headline": "0 of 5 numbers found", "facts": {"task": LONG}}
    pictures = {"Accuracy by round": DOT, "Rewards by person": DOT}
    section = section_html(Result("s", "", {}, {}, tables=(WIDE,), notes=("a note",)), pictures=pictures, **words)
    path = tmp_path / "report.html"
    path.write_text(page_html("Recognise an exercise", (), [section]), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("width", [420, 1200])
def test_a_report_is_usable_by_all_and_its_rows_are_cards_on_a_phone(browser, report, width, shoot):
    with browsers.opened(browser, browsers.DESK, viewport={"width": width, "height": 900}) as context:
        page = context.new_page()
        page.goto(report)
        page.get_by_text("How this was made").click()
        assert browsers.sideways(page) == 0
        region = page.get_by_role("region", name="What each server saw")
        assert width > 420 or region.evaluate("one => one.scrollWidth === one.clientWidth")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            browsers.assert_usable_by_all(page)
            shoot(page, f"report-{width}-{scheme}", scheme)
        expect(page.get_by_role("table", name="What each server saw")).to_be_visible()
        expect(page.get_by_role("rowheader", name="CSP", exact=True)).to_be_visible()
        assert page.get_by_role("columnheader").all_inner_texts() == list(WIDE.columns)
