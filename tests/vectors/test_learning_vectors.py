"""vectors/learning.json, which the phone's learning is held to, is what the Python package makes today."""

import importlib.util
import json
import math
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "vectors"
NEAR = 2e-6  # the last digits of a logarithm or of torch's sums differ between processors

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def differences(found, wanted, place=""):
    """Where two documents differ: numbers with a fraction by more than `NEAR`, all else at all."""
    if isinstance(found, dict) and isinstance(wanted, dict) and found.keys() == wanted.keys():
        return [one for key in wanted for one in differences(found[key], wanted[key], f"{place}/{key}")]
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        pairs = enumerate(zip(found, wanted, strict=True))
        return [one for at, (left, right) in pairs for one in differences(left, right, f"{place}/{at}")]
    if isinstance(found, float) and isinstance(wanted, float):
        return [] if math.isclose(found, wanted, rel_tol=1e-9, abs_tol=NEAR) else [place]
    return [] if type(found) is type(wanted) and found == wanted else [place]


def made_today() -> str:
    spec = importlib.util.spec_from_file_location("generate_learning", FOLDER / "generate_learning.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.documents()["learning.json"]


def test_the_vectors_are_what_python_makes():
    text = (FOLDER / "learning.json").read_text(encoding="utf-8")
    assert differences(json.loads(made_today()), json.loads(text)) == []
    assert len(text) < 400_000


@pytest.mark.parametrize(
    ("found", "wanted", "places"),
    [
        ([1.0, 2.0], [1.0, 2.0000001], []),
        ([1.0, 2.0], [1.0, 2.001], ["/1"]),
        ({"a": [1]}, {"a": [2]}, ["/a/0"]),
        ({"a": 1}, {"b": 1}, [""]),
        ([1], [1.0], ["/0"]),
        ([1, 2], [1], [""]),
    ],
)
def test_differences_are_seen(found, wanted, places):
    assert differences(found, wanted) == places
