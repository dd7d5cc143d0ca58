"""Pictures of pages, for the documents: `CROWDFL_SCREENSHOTS=docs/screenshots` keeps those that tests take."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page

Shoot = Callable[..., Path]


def shooter(otherwise: Path) -> Shoot:
    folder = Path(os.environ.get("CROWDFL_SCREENSHOTS") or otherwise)
    folder.mkdir(parents=True, exist_ok=True)

    def shoot(page: Page, name: str, scheme: Literal["light", "dark"] = "light", *, whole: bool = True) -> Path:
        """The whole page, or the part in the window: `name`.png."""
        page.emulate_media(color_scheme=scheme)
        path = folder / f"{name}.png"
        page.screenshot(path=path, full_page=whole, animations="disabled")
        page.emulate_media(color_scheme="null")
        return path

    return shoot
