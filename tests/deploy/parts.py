"""The files of deploy/ as data: the Containerfile's stages, the compose file, and a role's command in an image."""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
HOME = "/var/lib/crowdfl"
ROLES = ("kgc", "csp", "sp")  # in the order in which they can start


@dataclass
class Stage:
    """One stage of a Containerfile: the one it is made from, and its instructions in order."""

    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str | None:
        """What counts of an instruction that is given more than once."""
        return next((rest for name, rest in reversed(self.steps) if name == instruction), None)


def stages() -> dict[str, Stage]:
    text = re.sub(r"\\\n\s*", " ", (DEPLOY / "Containerfile").read_text(encoding="utf-8"))
    found: dict[str, Stage] = {}
    current: Stage | None = None
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition(" ")
        if name == "FROM":
            base, _, own = rest.partition(" AS ")
            current = found[own] = Stage(base)
        elif current is not None:
            current.steps.append((name, rest.strip()))
    return found


def of_image(target: str, instruction: str) -> str | None:
    """What an image has of an instruction, its own or that of a stage below."""
    known, name = stages(), target
    while name in known:
        own = known[name].last(instruction)
        if own is not None:
            return own
        name = known[name].base
    return None


def command_of(role: str, folder: Path) -> list[str]:
    """How the image starts a role, over another folder than the image's."""
    entry: list[str] = json.loads(of_image(role, "ENTRYPOINT") or "[]")
    return [part.replace(HOME, str(folder)) for part in entry]


def copied() -> list[str]:
    rest = [shlex.split(rest) for stage in stages().values() for name, rest in stage.steps if name == "COPY"]
    return [source for parts in rest if not parts[0].startswith("--from") for source in parts[:-1]]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "trial" / "compose.yml").read_text(encoding="utf-8"))
    return found
