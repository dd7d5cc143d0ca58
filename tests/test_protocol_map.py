import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = [
    line
    for line in (ROOT / "docs" / "protocol-map.md").read_text().splitlines()
    if line.startswith("| ") and "`" in line
]


def _resolve(dotted: str) -> object:
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"no module in {dotted}")


def test_the_map_has_rows():
    """An empty page would make the other tests of this file pass."""
    assert len(ROWS) > 10


@pytest.mark.parametrize("row", ROWS)
def test_every_symbol_of_the_map_exists(row):
    """Each row names at least one symbol, and it is there."""
    symbols = re.findall(r"`(crowdfl(?:_lab)?\.[\w.]+)`", row)
    assert symbols, row
    for symbol in symbols:
        _resolve(symbol)


@pytest.mark.parametrize("row", ROWS)
def test_every_test_of_the_map_exists(row):
    """Each row names at least one test, by file and, where it says so, by function."""
    tests = re.findall(r"`((?:tests|lab/lab_tests)/[\w/]+\.py)(?:::(\w+))?`", row)
    assert tests, row
    for path, function in tests:
        text = (ROOT / path).read_text()
        assert not function or re.search(rf"^def {function}\(", text, re.MULTILINE), f"{path}::{function}"
