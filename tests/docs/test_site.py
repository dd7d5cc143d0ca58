"""The site of documents: complete, without anything from elsewhere, and with links that lead somewhere."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from tests.docs.conftest import ROOT

pytestmark = pytest.mark.second

WRITTEN = sorted((ROOT / "docs").glob("*.md"))
PROJECT = [ROOT / name for name in ("SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md")]
LABORATORY = sorted((ROOT / "lab" / "docs").glob("*.md"))
COUNTED = ("h1", "h2", "h3", "li", "pre", "table", "tr", "img")


class Seen(HTMLParser):
    """What a page loads, where it leads, what can be led to, and what its article is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.assets: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.elements: Counter[str] = Counter()
        self._inside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.anchors |= {said[name] for name in ("id", "name") if name in said}
        if tag == "a":
            self.links += [said["href"]] if "href" in said else []
        elif tag == "link":
            self.assets += [said["href"]] if said.get("rel") not in ("canonical", "prev", "next") else []
        elif "src" in said:
            self.assets.append(said["src"])
        self._inside += tag == "article"
        if self._inside:
            self.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag == "article"


@cache
def seen(page: Path) -> Seen:
    parser = Seen()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def is_elsewhere(address: str) -> bool:
    """It names another host; what a program calls for itself (data:) does not."""
    return bool(urlsplit(address).netloc) or urlsplit(address).scheme in ("http", "https", "mailto")


def dead(page: Path, addresses: Iterable[str]) -> list[str]:
    """The addresses that name no file, or no place in it."""
    found = []
    for address in addresses:
        parts = urlsplit(address)
        if is_elsewhere(address) or parts.scheme == "data":
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        target = target / "index.html" if target.is_dir() else target
        placed = not parts.fragment or (target.suffix == ".html" and unquote(parts.fragment) in seen(target).anchors)
        if not target.is_file() or not placed:
            found.append(address)
    return found


def pages(site: Path) -> list[Path]:
    return [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]


def test_every_link_leads_to_a_file_and_a_place_in_it(site):
    found = {str(page.relative_to(site)): dead(page, seen(page).links + seen(page).assets) for page in pages(site)}
    assert {page: links for page, links in found.items() if links} == {}
    assert sum(len(seen(page).links) for page in pages(site)) > 500


def test_a_dead_link_is_seen(site, tmp_path):
    index = site / "index.html"
    assert dead(index, ["nowhere.html", "tutorial.html#nowhere", "#nowhere"]) == [
        "nowhere.html",
        "tutorial.html#nowhere",
        "#nowhere",
    ]
    assert dead(index, ["tutorial.html", "https://example.org/x", "#"]) == []


def test_nothing_is_loaded_from_elsewhere(site):
    """No font, script, style or picture: the site works without a network, and tells nobody who reads it."""
    loaded = {address for page in site.rglob("*.html") for address in seen(page).assets}
    assert {address for address in loaded if is_elsewhere(address)} == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", styles) == []


def test_the_project_s_own_pages_are_in_the_site(site):
    for source in PROJECT:
        page = site / "project" / f"{source.stem}.html"
        title = source.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        assert f"{title}<" in page.read_text(encoding="utf-8")
    assert "../organisations.html" in seen(site / "project" / "SECURITY.html").links


def test_the_api_reference_has_what_the_package_offers(site):
    import crowdfl

    anchors = set().union(*(seen(page).anchors for page in (site / "api").glob("*.html")))
    modules = {"errors", "pctd", "__version__"}
    missing = [name for name in crowdfl.__all__ if name not in modules and f"crowdfl.{name}" not in anchors]
    assert missing == []
    assert {"crowdfl.errors.SettingsError", "crowdfl.crypto.paillier.pctd.keygen"} <= anchors
    flower = {one.rpartition(".")[2] for one in anchors if one.startswith("crowdfl.flower.")}
    assert {"CrowdFLStrategy", "CrowdFLMod", "prepare", "open_model"} <= flower


@pytest.mark.parametrize("words", ["early stopping", "checkpoint", "client sampling", "parallel", "resume"])
def test_the_search_finds_what_people_of_other_libraries_look_for(site, words):
    """Beyond the changelog, which does not say how."""
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    places = [one["location"] for one in found if words in f"{one['title']} {one['text']}".lower()]
    assert [place for place in places if "CHANGELOG" not in place] != []


def elements(path: Path) -> Counter[str]:
    """What a page is made of in the repository's view (CommonMark with tables)."""
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    flat = [inner for token in tokens for inner in (token, *(token.children or []))]
    names = Counter(token.tag for token in flat if token.nesting >= 0)
    names["pre"] = sum(token.type in ("fence", "code_block") for token in flat)
    return names


def test_a_page_is_made_of_the_same_parts_in_both_views(site):
    """A list that MkDocs takes for a paragraph, or a table that it takes for text, is counted short."""
    different = {}
    folders = dict.fromkeys(WRITTEN, "") | dict.fromkeys(PROJECT, "project") | dict.fromkeys(LABORATORY, "lab")
    for source, folder in folders.items():
        page = site / folder / f"{source.stem}.html"
        here, there = elements(source), seen(page).elements
        different |= {f"{source.name} {tag}": (here[tag], there[tag]) for tag in COUNTED if here[tag] != there[tag]}
    assert different == {}


@pytest.mark.parametrize("source", [*WRITTEN, *LABORATORY], ids=lambda path: path.name)
def test_a_page_says_first_what_its_reader_can_do(source):
    title, first = source.read_text(encoding="utf-8").split("\n\n", 2)[:2]
    assert title.startswith("# ")
    assert "you can" in first
