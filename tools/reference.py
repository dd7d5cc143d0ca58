"""The site's pages of commands and settings, as the code declares them. `tools/docs_hook.py` puts them into the site.

`python tools/reference.py PAGE` prints one, such as docs/settings.md.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import typer

from crowdfl.cli.main import app
from crowdfl.storage.settings_texts import settings_page

LAB = "The laboratory"
ROLES = ("kgc", "sp", "csp")  # they have many commands in common
SHARED = 2  # what so many commands take, in the same words, is described once
EVERYWHERE = 10  # what so many take is not named with each
HEAD = """# Commands

With this page you can look up every command of `crowdfl`. [lab/docs/commands.md](../lab/docs/commands.md) has those of the
laboratory. `make docs` makes it from the code, and `--help` after a command shows the same.

Put `crowdfl` before each. Capitals are for you to fill in; what stands in brackets may be left out. After `=` stands the
default, or what kind of value it takes.

Exit codes: 0, done; 1, a check that you asked for failed, or a question was not answered with yes; 2, wrong usage; 3, an
error, which standard error names with what to do; 130, interrupted.
"""
LAB_HEAD = """# Commands of the laboratory

With this page you can look up what `crowdfl` does besides where the laboratory is installed, as in a clone.
`make docs` makes it from the code. [docs/commands.md](../../docs/commands.md) has the other commands.
Put `crowdfl` before each. After `=` stands the default, or what kind of value it takes.
"""


@dataclass(frozen=True)
class Parameter:
    """An argument or an option, in the words of its command."""

    name: str
    text: str
    is_option: bool


@dataclass(frozen=True)
class Command:
    """One command, or a group that does something by itself."""

    group: str
    words: str
    text: str
    parameters: tuple[Parameter, ...]


def commands(found: Any, words: tuple[str, ...] = ()) -> Iterator[Command]:  # noqa: ANN401 -- click's, or Typer's copy
    """Every command below one, in the order of `--help`."""
    is_group = hasattr(found, "list_commands")
    if words and (not is_group or found.params):
        yield Command(group(found, words), " ".join(words), one_line(found.help), tuple(map(parameter, found.params)))
    for name in found.list_commands(None) if is_group else ():
        yield from commands(found.get_command(None, name), (*words, name))


def group(found: Any, words: tuple[str, ...]) -> str:  # noqa: ANN401 -- as above
    """The heading that a command stands under."""
    if "lab" in found.callback.__module__:
        return LAB
    if words[0] in ROLES:
        return "kgc, sp, csp"
    return words[0] if len(words) > 1 else "Single commands"


def parameter(found: Any) -> Parameter:  # noqa: ANN401 -- as above
    """Its name as one types it, with the default, and its help."""
    text = one_line(found.help)
    if found.param_type_name != "option":
        name = (found.metavar or found.name.upper()).removesuffix("...") + "..." * (found.nargs == -1)
        return Parameter(name if found.required else f"[{name}]", text, False)
    names = "/".join([*found.opts, *found.secondary_opts[: found.default is True]])
    usual = found.default if found.default not in (None, 0) else found.metavar or "X"
    return Parameter(names if found.is_flag else f"{names}={usual}", text, True)


def one_line(text: str | None) -> str:
    """Help as Markdown: without line breaks, and without the escapes that a terminal's colours need."""
    return re.sub(r"\s+", " ", text or "").replace("\\[", "[").strip()


def merged(found: list[Command]) -> Iterator[Command]:
    """What several roles have is one command, `kgc|sp|csp ...`."""
    roles: dict[Command, list[str]] = {}
    for one in found:
        role, _, rest = one.words.partition(" ")
        is_common = role in ROLES
        roles.setdefault(replace(one, words=rest) if is_common else one, []).extend([role] * is_common)
    for one, names in roles.items():
        yield replace(one, words=f"{'|'.join(names)} {one.words}") if names else one


def same_words(found: list[Command]) -> Iterator[Command]:
    """What commands everywhere take has everywhere the words that most of them use."""
    counted = Counter(one for command in found for one in command.parameters)
    names = Counter(one.name for command in found for one in command.parameters)
    usual = {one.name: one for one, _ in reversed(counted.most_common()) if names[one.name] >= EVERYWHERE}
    for command in found:
        yield replace(command, parameters=tuple(usual.get(one.name, one) for one in command.parameters))


def all_commands() -> list[Command]:
    """Every command of `crowdfl`, those of several roles as one."""
    return list(same_words(list(merged(list(commands(typer.main.get_command(app)))))))


def commands_page() -> str:
    """docs/commands.md."""
    return page(HEAD, [command for command in all_commands() if command.group != LAB])


def lab_page() -> str:
    """lab/docs/commands.md."""
    return page(LAB_HEAD, [command for command in all_commands() if command.group == LAB])


def page(head: str, found: list[Command]) -> str:
    """What many commands take, then each."""
    counted = Counter(one for command in found for one in command.parameters)
    shared = {one: times for one, times in counted.items() if times >= SHARED}
    parts = [head, "\n## What many commands take\n\n", *map(item, shared)]
    for heading in dict.fromkeys(command.group for command in found):
        parts.append(f"\n## {heading}\n")
        parts += [section(command, shared) for command in found if command.group == heading]
    return "".join(parts)


def section(command: Command, shared: dict[Parameter, int]) -> str:
    """How to type a command, what it does, and what it takes besides."""
    usage = " ".join([command.words, *(one.name for one in command.parameters if not one.is_option)])
    known = [one for one in command.parameters if one.is_option and SHARED <= shared.get(one, 0) < EVERYWHERE]
    named = [one.name.partition("=")[0] for one in known]
    own = [item(one) for one in command.parameters if one not in shared]
    text = f"{command.text} Also `{'`, `'.join(named)}`." if named else command.text
    return f"\n### `{usage}`\n\n{text}\n" + ("\n" + "".join(own) if own else "")


def item(one: Parameter) -> str:
    """A line of a list."""
    return f"- `{one.name}`: {one.text}\n"


PAGES = {"docs/commands.md": commands_page, "lab/docs/commands.md": lab_page, "docs/settings.md": settings_page}

if __name__ == "__main__":
    for path in sys.argv[1:] or PAGES:
        sys.stdout.write(PAGES[path]())
