"""The pages that are written from the code say what the code says."""

import pytest

from tests.docs.conftest import ROOT, load_tool

reference, steps = load_tool("reference"), load_tool("steps")


@pytest.mark.parametrize("page", steps.PAGES)
def test_a_page_is_up_to_date(page):
    """After a change: `python tools/steps.py`."""
    assert (ROOT / page).read_text(encoding="utf-8") == steps.PAGES[page]()


@pytest.mark.parametrize("page", reference.PAGES)
def test_a_page_that_only_the_site_has_says_what_its_reader_can_do(page):
    assert not (ROOT / page).exists(), "the site makes it: take this copy out"
    title, first, *_ = reference.PAGES[page]().split("\n\n")
    assert title.startswith("# ")
    assert "you can" in first


def test_every_command_and_option_says_what_it_is():
    found = reference.all_commands()
    assert len(found) > 50
    said = [(one.words, one.text) for one in found]
    said += [(f"{one.words} {taken.name}", taken.text) for one in found for taken in one.parameters]
    assert [words for words, text in said if not text.endswith((".", "]"))] == []
