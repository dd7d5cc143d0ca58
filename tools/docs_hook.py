"""MkDocs calls this while it builds the site: pages are written for the repository's view, and their links become the site's.

* The site has SECURITY.md, CHANGELOG.md and CONTRIBUTING.md in project/, and the laboratory's pages in lab/.
* Pages of commands and settings come from `tools/reference.py`; the repository has no copy of them.
* A link to a file that the site does not have (code, vectors) becomes its text.
* A page that is named in a sentence (docs/running.md) becomes a link.
* `no-run` after a fence's language is for tests/docs alone.
"""

import posixpath
import re
import runpy
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ELSEWHERE = {name: f"project/{name}" for name in ("SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md")}
ELSEWHERE |= {f"lab/docs/{path.name}": f"lab/{path.name}" for path in sorted((ROOT / "lab" / "docs").glob("*.md"))}
MADE = runpy.run_path(str(ROOT / "tools" / "reference.py"))["PAGES"]
_REPOSITORY = {place: name for name, place in ELSEWHERE.items()} | {"lab/commands.md": "lab/docs/commands.md"}

_FENCE = r"^(?P<indent> *)(?P<ticks>```+).*?^(?P=indent)(?P=ticks) *$"
_CODE = r"^ {4}.*?$|(?P<tick>`+).+?(?P=tick)"
_LINK = r"\[(?P<text>(?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\((?P<target>[^)\s]+)\)"
_NAMED = r"(?<![\w/.\"-])(?P<named>(?:(?:lab/)?docs/[\w/-]+|SECURITY|CHANGELOG|CONTRIBUTING)\.md(?:#[\w-]+)?)"
_PIECES = re.compile(f"{_FENCE}|{_CODE}|!?{_LINK}|{_NAMED}", re.MULTILINE | re.DOTALL)
_NO_RUN = re.compile(r"^( *```+\w+) no-run$", re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/, and those that are made here."""
    for name, place in ELSEWHERE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    for name, make in MADE.items():
        files.append(File.generated(config, _place(name), content=make()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Rewrite a page's links for the site."""
    return _NO_RUN.sub(r"\1", rewritten(markdown, page.file.src_uri))


def rewritten(markdown: str, page: str) -> str:
    """The page with its links as the site has them; code stays as it is."""

    def one(piece: re.Match[str]) -> str:
        if piece["named"]:
            return f"[{piece['named']}]({_relative(piece['named'], page)})" if _in_site(piece["named"]) else piece[0]
        if not piece["target"] or re.match(r"#|[a-z]+:", piece["target"]):
            return piece[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(_in_repository(page)), piece["target"]))
        if _in_site(path):
            start = piece[0].rindex("](")
            return f"{piece[0][:start]}]({_relative(path, page)})"
        return piece["text"] if (ROOT / path.partition("#")[0]).exists() else piece[0]

    return _PIECES.sub(one, markdown)


def _in_repository(page: str) -> str:
    """Where a page of the site lies in the repository."""
    return _REPOSITORY.get(page, f"docs/{page}")


def _place(path: str) -> str:
    """Where a file of the repository lies in the site."""
    name, hash_, anchor = path.partition("#")
    if name == "README.md":
        return "index.md"
    return ELSEWHERE.get(name, name.replace("lab/docs/", "lab/").removeprefix("docs/")) + hash_ + anchor


def _in_site(path: str) -> bool:
    name = path.partition("#")[0]
    return (
        name in ELSEWHERE
        or name in MADE
        or name == "README.md"
        or (name.startswith("docs/") and (ROOT / name).is_file())
    )


def _relative(path: str, page: str) -> str:
    return posixpath.relpath(_place(path), posixpath.dirname(page) or ".")
