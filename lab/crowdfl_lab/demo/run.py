"""`crowdfl demo`: its options; `campaign.py` plays it."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crowdfl.errors import SettingsError

_PROFILES = ("shares", "hardened", "paper")


def demo(
    out: Annotated[Path, typer.Option(help="Where to keep everything the campaign writes.")] = Path("crowdfl-demo"),
    profile: Annotated[
        str,
        typer.Option(
            help='"shares", and one round of the same updates under "hardened"; or a whole campaign of "hardened", or a small '
            'one of "paper".'
        ),
    ] = "shares",
) -> None:
    from crowdfl_lab.demo.campaign import run_demo

    if profile not in _PROFILES:
        raise SettingsError(f"the demo runs the profile {' or '.join(_PROFILES)}, not {profile!r}")
    folder = (out / time.strftime("%Y%m%d-%H%M%S")).absolute()
    folder.mkdir(parents=True, mode=0o700)
    run_demo(folder, profile, Console())
