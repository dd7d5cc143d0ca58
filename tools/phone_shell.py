"""Writes the list of the phone's files, with their hashes, into its service worker. Run it after a change of any of them.

`--check` changes nothing, and fails where the list is not that of the files.
"""

import base64
import hashlib
import re
import sys
from pathlib import Path

WEB = Path(__file__).parents[1] / "src/crowdfl/web"
WORKER = WEB / "phone/service-worker.js"
_FOLDERS = {"": WEB / "phone", "../web/common/": WEB / "common", "../web/vendor/": WEB / "vendor"}
_SUFFIXES = {".css", ".html", ".js", ".png", ".webmanifest"}
_LIST = re.compile(r"const FILES = \[\n.*?\];\nconst VERSION = \".*?\";", re.DOTALL)


def files() -> dict[str, Path]:
    """By their addresses, seen from the page: everything that it may load."""
    found = {
        prefix + path.relative_to(folder).as_posix(): path
        for prefix, folder in _FOLDERS.items()
        for path in sorted(folder.rglob("*"))
        if path.suffix in _SUFFIXES and path != WORKER
    }
    return {"./": found["index.html"]} | found


def integrity(path: Path) -> str:
    """As `fetch` takes it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()


def written(worker: str) -> str:
    """The service worker with the list of the files as they are now."""
    entries = "".join(f'  ["{name}", "{integrity(path)}"],\n' for name, path in files().items())
    version = hashlib.sha256(entries.encode()).hexdigest()[:16]
    return _LIST.sub(f'const FILES = [\n{entries}];\nconst VERSION = "{version}";', worker)


def main() -> int:
    """Write the list, or with `--check` compare it."""
    before = WORKER.read_text(encoding="utf-8")
    after = written(before)
    if "--check" in sys.argv[1:]:
        return int(before != after)
    WORKER.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
