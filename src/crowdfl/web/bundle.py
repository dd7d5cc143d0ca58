"""A page's modules in few files, made when a service starts: on a slow network each request costs more than its bytes.

A module stands in such a file as it was published, in a function of its own; only its imports and exports are rewritten. They
must be written as these pages write them: one statement a line (or braces over several), names in braces, relative addresses.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping

_IMPORT = re.compile(
    r'^import (?:\* as (?P<whole>\w+)|(?P<only>\w+)|\{(?P<names>[^}]*)\}) from "(?P<path>[^"]+)";', re.M
)
_PASSED = re.compile(r'^export \{(?P<names>[^}]*)\} from "(?P<path>[^"]+)";', re.M)
_LISTED = re.compile(r"^export \{(?P<names>[^}]*)\};", re.M)
_MADE = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.M)
_LATER = re.compile(r'(?:(?<=await )|(?<==> ))import\("(?P<path>\.{1,2}/[^"]+)"\)')
_HIDES = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let|var) (exported|modules)\b", re.M)
_PLACE = re.compile(r'(?P<start>import\(`|new URL\("(?=[^"]*", import\.meta\.url\)))(?P<path>\.{1,2}/[^`"$]*)')


class NotBundled(ValueError):
    """A module's imports or exports are not written as this program reads them."""


def bundles(sources: Mapping[str, str], roots: Mapping[str, str], apart: Mapping[str, str]) -> dict[str, str]:
    """Files that hold what these roots need: by their addresses, in the order in which a page loads them.

    What one of them holds is not in a later one. The first keeps the table of modules that all share. Those `apart` are whole:
    a worker shares nothing with its page.
    """
    places = {root: address for address, root in {**roots, **apart}.items()}
    return _shared(sources, roots, places) | {
        address: text for address, root in apart.items() for text in _shared(sources, {address: root}, places).values()
    }


def _shared(sources: Mapping[str, str], roots: Mapping[str, str], places: Mapping[str, str]) -> dict[str, str]:
    first = next(iter(roots))
    made = dict[str, str]()
    held: set[str] = set()
    for address, root in roots.items():
        own = [path for path in _needed(sources, root, {*roots.values()} - {root}) if path not in held]
        held.update(own)
        start = "export const modules = {};" if address == first else f'import {{ modules }} from "./{_name(first)}";'
        parts = [_module(path, sources, address, places, held) for path in own]
        made[address] = "\n".join([start, *parts, _again(root, sources), ""])
    return made


def _needed(sources: Mapping[str, str], root: str, others: Iterable[str]) -> list[str]:
    """A module after those that it imports. Modules that import each other have no such order."""
    done: list[str] = []
    under_way: set[str] = set()

    def visit(path: str) -> None:
        if path in done or path in others:
            return
        if path in under_way or path not in sources:
            raise NotBundled(f"{path}: it is missing, or imports itself by way of others")
        under_way.add(path)
        for found in (*_IMPORT.finditer(sources[path]), *_PASSED.finditer(sources[path])):
            if (wanted := _at(path, found["path"])) != path:  # errors.js looks at itself
                visit(wanted)
        done.append(path)
        for found in _LATER.finditer(sources[path]):
            visit(_at(path, found["path"]))

    visit(root)
    return done


def _module(path: str, sources: Mapping[str, str], address: str, places: Mapping[str, str], held: set[str]) -> str:
    text = sources[path]
    names = _exports(sources[path])
    if hidden := _HIDES.search(text):
        raise NotBundled(f"{path}: {hidden[1]} is a name of the file that modules stand in")

    def taken(found: re.Match[str]) -> str:
        if _at(path, found["path"]) not in held:
            raise NotBundled(f"{path}: {found['path']} is loaded later, and can be had by `await import` alone")
        named = found.groupdict()
        names = f" default: {only} " if (only := named.get("only")) else (named["names"] or "").replace(" as ", ": ")
        what = named.get("whole") or f"{{{names}}}"
        return f'const {what} = modules["{_at(path, found["path"])}"];'

    def later(found: re.Match[str]) -> str:
        wanted = _at(path, found["path"])
        if wanted in places:
            return f'import("./{_name(places[wanted])}")'
        if wanted not in held:
            raise NotBundled(f"{path}: {wanted} is in none of these files")
        return f'Promise.resolve(modules["{wanted}"])'

    def moved(found: re.Match[str]) -> str:
        wanted = _at(path, found["path"])
        there = posixpath.relpath(places.get(wanted, wanted), posixpath.dirname(address))
        return f"{found['start']}./{there}{'/' if found['path'].endswith('/') else ''}"

    for pattern, change in ((_IMPORT, taken), (_PASSED, taken), (_LATER, later), (_PLACE, moved)):
        text = pattern.sub(change, text)
    text = _MADE.sub("", _LISTED.sub("", text))
    if wrong := re.search(r"^(?:import|export)\b.*", text, re.M):
        raise NotBundled(f"{path}: {wrong[0]}")
    return (
        f'((exported) => {{\n{text}\nObject.assign(exported, {{ {", ".join(names)} }});\n}})(modules["{path}"] = {{}});'
    )


def _exports(text: str) -> list[str]:
    """A property of an object each: `a`, or `b: a` for what is exported by another name."""
    lists = [found["names"] for pattern in (_PASSED, _LISTED) for found in pattern.finditer(text)]
    listed = [name.strip() for names in lists for name in names.split(",") if name.strip()]
    return [*_MADE.findall(text), *(": ".join(reversed(name.split(" as "))) for name in listed)]


def _again(root: str, sources: Mapping[str, str]) -> str:
    names = [name.split(":")[0] for name in _exports(sources[root])]
    return f'export const {{ {", ".join(names)} }} = modules["{root}"];' if names else ""


def _name(address: str) -> str:
    return posixpath.basename(address)


def _at(path: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
