"""Settings files."""

import tomllib
from pathlib import Path
from typing import Any

from crowdfl.errors import SettingsError

__all__ = ["read_settings"]


def read_settings(path: Path) -> dict[str, Any]:
    """A TOML file, or a named error."""
    try:
        return tomllib.loads(path.read_text())
    except (FileNotFoundError, IsADirectoryError):
        raise SettingsError(f"there is no settings file at {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise SettingsError(f"{path} is no TOML: {wrong}") from None
