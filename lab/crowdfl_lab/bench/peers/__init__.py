"""Other libraries ("peers"), measured by their own Python, which runs `main.py` beside this file and prints JSON."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOT_INSTALLED = "not installed: make peers"
LEFT_OUT = "left out: --no-peers"
_SCRIPT = Path(__file__).with_name("main.py")
_TIMEOUT = 600.0
# What an answer holds at least: seconds and bytes.
_EXPECTED = {"version", "before", "after", "server", "server_dropped", "upload", "download", "off"}


class PeerUnavailable(Exception):
    """It is not installed, or failed."""


def ask_peer(python: Path | None, peer: str, numbers: Mapping[str, int]) -> dict[str, Any]:
    """The peer's answer; `PeerUnavailable` with its error output when it fails."""
    if python is None:
        raise PeerUnavailable(LEFT_OUT)
    if not python.is_file():
        raise PeerUnavailable(NOT_INSTALLED)
    options = (f"--{name}={number}" for name, number in numbers.items())
    # Isolated: the script's folder stays off the path, where our module names could shadow the peers'.
    command = [str(python), "-I", str(_SCRIPT), peer, *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)  # noqa: S603
        answer = json.loads(done.stdout) if not done.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"{peer} did not run: {error}") from error
    except json.JSONDecodeError as error:
        raise PeerUnavailable(f"{peer} printed no JSON: {error}") from error
    if done.returncode:
        raise PeerUnavailable(f"{peer} failed with exit code {done.returncode}: {done.stderr.strip()}")
    if not isinstance(answer, dict) or (missing := _EXPECTED - answer.keys()):
        lacks = ", ".join(sorted(missing)) if isinstance(answer, dict) else "all of it"
        raise PeerUnavailable(f"the answer of {peer} does not fit: it lacks {lacks}")
    return answer
