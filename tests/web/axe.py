"""What axe-core finds on a page that keeps people out."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

_SCRIPT = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
_WORST = ("serious", "critical")
# Its preload of style sheets writes a <style>, which our policy blocks: that would look like a fault of the page.
_RUN = """async () => (await axe.run(document, {resultTypes: ["violations"], preload: false})).violations.map(
  ({id, impact, help, nodes}) => ({id, impact, help, where: nodes.map(node => node.target.join(" "))}))"""


@cache
def _source() -> str:
    if not _SCRIPT.exists():
        pytest.skip("axe-core is missing: run `npm ci`")
    return _SCRIPT.read_text(encoding="utf-8")


def findings(page: Page) -> list[dict[str, Any]]:
    """The serious and critical ones: rule, help, and where. DevTools load axe-core, which no Content-Security-Policy stops."""
    page.evaluate(_source())
    return [one for one in page.evaluate(_RUN) if one["impact"] in _WORST]


def assert_usable_by_all(page: Page) -> None:
    """In words: an element that axe-core names, and the rule that it breaks."""
    found = [f"{one['id']}: {one['help']} ({', '.join(one['where'][:3])})" for one in findings(page)]
    assert found == []
