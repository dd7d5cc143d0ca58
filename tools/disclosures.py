"""Writes who learns what (`crowdfl.disclosures`) into SECURITY.md and the phone's page. Run it after a change of the table.

`--check` changes nothing, and fails where one of them is not what it would write.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from crowdfl.disclosures import PROFILES, Disclosure, disclosures, learnt_in

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "SECURITY.md"
PHONE = ROOT / "src/crowdfl/web/phone/text/en.js"  # its other languages are written by hand
_TABLES = re.compile(r"(<!-- disclosures: .*? -->\n).*?(<!-- end of disclosures -->)", re.DOTALL)
_LEARNT = re.compile(r"(  learnt: \{\n).*?(  \},\n)", re.DOTALL)
_TITLES = {"every": "In every profile", "shares": "Profile `shares` (the default)"}
_ON_A_PHONE = {"CSP": "the second server", "SP": "the platform", "KGC": "the key centre", "`": ""}
_PHONES_PROFILE = "shares"


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
        yield f"| {party} | {' | '.join(cells)} |"


def _shown_by(rows: list[Disclosure]) -> Iterator[str]:
    """Each once: what the audit shows, then the places of the arguments."""
    yield from dict.fromkeys(f"`{name}`" for row in rows for name in row.audit)
    yield from dict.fromkeys(f"[argued]({row.proof})" for row in rows)


def page(text: str) -> str:
    """SECURITY.md, with the tables of today."""
    return _TABLES.sub(lambda found: f"{found[1]}{tables()}\n{found[2]}", text)


def phone(text: str) -> str:
    """The phone's catalogue, with the rows that a person reads before joining: of parties that follow the protocol."""
    learnt = [_plainly(f"{row.party}: {row.learns}.") for row in learnt_in(_PHONES_PROFILE)]
    rows = "".join(f"    row{number}: {json.dumps(sentence)},\n" for number, sentence in enumerate(learnt, 1))
    return _LEARNT.sub(lambda found: found[1] + rows + found[2], text)


def _plainly(sentence: str) -> str:
    """With the names that the phone has for the servers."""
    for name, plain in _ON_A_PHONE.items():
        sentence = re.sub(rf"\b{name}\b" if name.isalpha() else name, plain, sentence)
    return sentence[0].upper() + sentence[1:]


def main() -> int:
    """Write both, or with `--check` compare them."""
    wanted = {path: write(path.read_text(encoding="utf-8")) for path, write in ((PAGE, page), (PHONE, phone))}
    if "--check" in sys.argv[1:]:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in wanted.items()))
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
