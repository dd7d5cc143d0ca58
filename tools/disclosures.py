"""Writes who learns what (`crowdfl.disclosures`) into SECURITY.md and the pages' catalogue. Run it after a change of the table.

`--check` changes nothing, and fails where one of them is not what it would write.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from crowdfl.disclosures import PROFILES, Disclosure, disclosures

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "SECURITY.md"
CATALOGUE = ROOT / "src/crowdfl/web/common/text/en.js"  # its other languages are written by hand
_TABLES = re.compile(r"(<!-- disclosures: .*? -->\n).*?(<!-- end of disclosures -->)", re.DOTALL)
_TITLES = {"every": "In every profile", "shares": "Profile `shares` (the default)"}
_ON_PAGES = {"CSP": "the second server", "SP": "the platform", "KGC": "the key centre", "`": ""}


def tables() -> str:
    """As SECURITY.md has them."""
    first, *others = PROFILES
    return "\n".join(line for profile in (first, "every", *others) for line in _profile(profile))


def _profile(profile: str) -> Iterator[str]:
    yield f"\n### {_TITLES.get(profile, f'Profile `{profile}`')}\n"
    yield "| party | learns | does not learn | deviating, learns or can do besides | shown by |"
    yield "|---|---|---|---|---|"
    rows = [row for row in disclosures() if row.profile == profile]
    for party in dict.fromkeys(row.party for row in rows):
        curious, deviating = (
            [row for row in rows if row.party == party and row.deviates == way] for way in (False, True)
        )
        cells = [
            " ".join(row.learns for row in curious),
            " ".join(row.hidden for row in curious),
            " ".join(row.learns for row in deviating),
            ", ".join(_shown_by([*curious, *deviating])),
        ]
        alone = next((row.recruiting for row in [*curious, *deviating] if row.recruiting), "")
        named = f'; with `recruit = "open"`: {alone}' if alone else ""
        yield f"| {party}{named} | {' | '.join(cells)} |"


def _shown_by(rows: list[Disclosure]) -> Iterator[str]:
    """Each once: what the audit shows, then the places of the arguments."""
    yield from dict.fromkeys(f"`{name}`" for row in rows for name in row.audit)
    yield from dict.fromkeys(f"[argued]({row.proof})" for row in rows)


def page(text: str) -> str:
    """SECURITY.md, with the tables of today."""
    return _TABLES.sub(lambda found: f"{found[1]}{tables()}\n{found[2]}", text)


def catalogue(text: str) -> str:
    """The pages' words, with the rows that they show: of parties that follow the protocol."""
    shown = [row for row in disclosures() if not row.deviates]
    sections = {
        "party": {row.id: _plainly(row.party, named=True) for row in shown}
        | {f"{row.id}Recruiting": _plainly(row.recruiting, named=True) for row in shown if row.recruiting},
        "learnt": {row.key: _plainly(row.learns) for row in shown},
        "hidden": {row.key: _plainly(row.hidden) for row in shown if row.hidden},
    }
    for name, sentences in sections.items():
        rows = "".join(f"    {key}: {json.dumps(sentence)},\n" for key, sentence in sentences.items())
        text = re.sub(
            rf"(  {name}: \{{\n).*?(  \}},\n)", lambda found, rows=rows: found[1] + rows + found[2], text, flags=re.S
        )
    return text


def _plainly(words: str, *, named: bool = False) -> str:
    """With the names that pages have for the servers; a party's own goes with the usual one."""
    for name, plain in _ON_PAGES.items():
        said = f"{plain} ({name})" if named and name.isalpha() else plain
        words = re.sub(rf"\b{name}\b(?!\))" if name.isalpha() else name, said, words)
    return words[0].upper() + words[1:]


def main() -> int:
    """Write both, or with `--check` compare them."""
    wanted = {path: write(path.read_text(encoding="utf-8")) for path, write in ((PAGE, page), (CATALOGUE, catalogue))}
    if "--check" in sys.argv[1:]:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in wanted.items()))
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
