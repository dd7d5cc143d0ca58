"""Plots in a real page: nothing that the policy blocks, the numbers as a table, light and dark, every width."""

import pytest

from tests.web import browsers
from tests.web.pages import served

PAGE = """<!doctype html><html lang="en"><head><title>Plot</title><meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="/web/common/style.css"><link rel="stylesheet" href="/web/common/plot.css">
<script type="module" src="/join/test.js"></script></head><body><main><h1>Plot</h1></main></body></html>"""
DRAW = """import { plot } from "../web/common/plot.js";
import { percent } from "../web/common/format.js";
import { speak } from "../web/common/text.js";
import english from "../web/common/text/en.js";
speak("en", english);
const series = [{name: "yours", values: [0.5, 0.7, null, 0.9]}, {name: "<b>all</b>", values: [0.4, 0.6, 0.8, 0.95]}];
window.figure = plot("Accuracy by round", [0, 1, 2, 3], series, {xLabel: "round", yRange: [0, 1], yFormat: percent});
document.querySelector("main").append(figure, plot("Nothing", [], []), plot("One", [1], [{name: "one", values: [3]}]));
window.inked = () => {
  const canvas = figure.querySelector("canvas");
  const colours = new Set(new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer));
  return [...colours].sort().join();
};"""


@pytest.fixture
def drawn(phone, tmp_path):
    """A phone's page with plots, and what it complains about."""
    found = browsers.complaints(phone)
    with served(tmp_path, {"/join/": PAGE, "/join/test.js": DRAW}) as address:
        phone.goto(f"{address}/join/")
        browsers.until(phone, "document.querySelectorAll('canvas').length === 2")
        yield phone
    assert found == []


def test_a_plot_has_its_numbers_as_a_table_and_follows_light_dark_and_width(drawn):
    """Typed text is no markup; the picture is hidden from screen readers; the page never scrolls sideways."""
    drawn.get_by_text("The same as a table").first.click()
    rows = drawn.locator("details").first.locator("tr").all_inner_texts()
    assert rows == ["round\tyours\t<b>all</b>", "0\t50.0%\t40.0%", "1\t70.0%\t60.0%", "2\t–\t80.0%", "3\t90.0%\t95.0%"]  # noqa: RUF001
    assert drawn.locator("b").count() == 0
    assert drawn.locator("canvas").first.evaluate("one => one.closest('[aria-hidden=true]') !== null")
    assert drawn.locator("figure").nth(1).inner_text().split("\n")[-1] == "nothing yet"
    browsers.assert_usable_by_all(drawn)
    light = drawn.evaluate("inked()")
    for scheme, is_drawn in {"dark": "light => inked() !== light", "light": "light => inked() === light"}.items():
        drawn.emulate_media(color_scheme=scheme)
        browsers.until(drawn, is_drawn, light)
    for width in (1200, 420, 360, 320):
        drawn.set_viewport_size({"width": width, "height": 740})
        browsers.until(
            drawn, "figure.querySelector('.uplot').clientWidth === figure.querySelector('.plot').clientWidth"
        )
        assert browsers.sideways(drawn) == 0


def test_a_plot_that_leaves_the_page_stops_and_can_come_back(drawn):
    drawn.evaluate("figure.remove()")
    browsers.until(drawn, "figure.querySelector('canvas') === null")
    drawn.evaluate("document.querySelector('main').append(figure)")
    browsers.until(drawn, "figure.querySelector('canvas') !== null")
    assert drawn.evaluate("inked().length > 0")
