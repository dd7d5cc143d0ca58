"""The real data sets that lie beside the repository, where they do."""

from pathlib import Path

import pytest

__all__ = ["shared_file"]

_FOLDER = Path(__file__).parents[3] / "shared" / "data"


def shared_file(name: str) -> Path:
    """Its path; skips, and says so, where it is not there."""
    path = _FOLDER / name
    if not path.exists():
        pytest.skip(f"{name} is not in ../shared/data")
    return path
