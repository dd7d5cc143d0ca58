"""The one table of who learns what: what is made from it is up to date, and what it names is there."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdfl.disclosures import PROFILES, disclosures, learnt_in
from tests.docs.conftest import ROOT

AUDIT = sorted((ROOT / "lab" / "crowdfl_lab" / "audit").rglob("*.py"))
ATTACKS = [*(ROOT / "tests" / "attacks").glob("test_*.py"), *(ROOT / "tests" / "flower" / "inside").glob("*.py")]


def tool():
    spec = importlib.util.spec_from_file_location("write_disclosures", ROOT / "tools" / "disclosures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_made_from_the_table_is_up_to_date():
    """`python tools/disclosures.py`."""
    made = tool()
    page = made.PAGE.read_text(encoding="utf-8")
    assert page == made.page(page)
    assert made.tables() in page
    english = made.CATALOGUE.read_text(encoding="utf-8")
    assert english == made.catalogue(english)
    assert "    shares_sp: " in english


def named_rows() -> Iterator[str]:
    """What the audit's sources call their rows; an f-string as a pattern."""
    for path in AUDIT:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.escape(node.value)
            elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                yield re.escape(str(node.values[0].value)) + ".+"


def test_every_row_of_the_audit_that_is_named_is_one():
    """By name; `crowdfl audit --check` looks at the profile, too."""
    rows = re.compile("|".join(set(named_rows())))
    assert {name for row in disclosures() for name in row.audit if not rows.fullmatch(name)} == set()


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("place", sorted({row.proof for row in disclosures()}))
def test_every_proof_is_there(place):
    page, _, anchor = place.partition("#")
    assert anchor in anchors(ROOT / page)


def test_every_row_is_argued():
    """One for each party and way to behave; nothing in it breaks a table."""
    for row in disclosures():
        assert row.proof, row
        assert not {"|", "\n"} & set(row.learns + row.hidden)
        assert bool(row.id) is not row.deviates, row  # by which pages have it in each language
    named = {(row.id, row.party) for row in disclosures() if row.id}
    assert len({name for name, _ in named}) == len({party for _, party in named}) == len(named)
    places = [
        (profile, row.party, way)
        for profile in PROFILES
        for way in (False, True)
        for row in learnt_in(profile, deviates=way)
    ]
    assert len(places) == len(set(places))


def test_no_attack_is_expected_to_work():
    """What works is mended, or the table states it and a test shows it."""
    assert [path.name for path in ATTACKS if "xfail" in path.read_text(encoding="utf-8")] == []
