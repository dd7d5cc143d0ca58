"""A page as a program: its blocks of Python and shell, in order, in one folder, as a reader types them.

Run as `python -m tests.docs.guides PAGE`, in an empty folder. What the line that opens a block says:

    ```python                     run; the blocks of a page share their names
    ```sh                         run by one bash for the whole page, which stops at the first error
    ```text                       after one of these: what it prints; three dots stand for anything within a line
    ```toml title="task.toml"     a file of that name, in whatever language
    ```sh no-run                  not run: it needs a phone, a bank, a second machine
"""

import contextlib
import io
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import subprocesses

_FENCE = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    said: str  # the rest of the line that opens it
    text: str
    line: int

    @property
    def title(self) -> str | None:
        """The file that it is, if it is one."""
        found = re.search(r'title="([^"]+)"', self.said)
        return found[1] if found else None

    @property
    def runs(self) -> bool:
        """It is code, and the reader is to run it."""
        return self.language in ("python", "sh") and self.title is None and self.said != "no-run"


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page that stand at the left margin."""
    for found in _FENCE.finditer(page):
        yield Block(found[1], found[2] or "", found[3], page.count("\n", 0, found.start()) + 2)


class Shell:
    """One bash, so that folders, variables and background jobs stay from block to block."""

    def __init__(self) -> None:
        self._done, done = os.pipe()
        self._bash = subprocesses.start(["bash"], stdin=subprocess.PIPE, pass_fds=[done])
        self._tell(f"set -euo pipefail; done_at={done}")

    def run(self, text: str) -> str:
        """What a block prints. It goes to a file, so that a server in the background holds nothing open."""
        script, printed = Path(".block.sh").resolve(), Path(".printed").resolve()
        script.write_text(text, encoding="utf-8")
        self._tell(f". '{script}' > '{printed}' < /dev/null; echo >&$done_at")
        while not select.select([self._done], [], [], 0.2)[0]:
            if self._bash.poll() is not None:
                raise SystemExit(f"exit status {self._bash.returncode}\n{printed.read_text(encoding='utf-8')}")
        os.read(self._done, 1)
        return printed.read_text(encoding="utf-8")

    def _tell(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{line}\n".encode())
        self._bash.stdin.flush()


@dataclass
class Reader:
    """Whoever follows a page, in a folder of its own."""

    page: Path
    shell: Shell = field(default_factory=Shell)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str = ""

    def follow(self) -> None:
        """The first block that fails, or prints something else than the page says, ends it with an error."""
        for block in blocks(self.page.read_text(encoding="utf-8")):
            sys.stderr.write(f"{self.page.name}, line {block.line}: {block.language} {block.said}\n")
            if block.title is not None:
                Path(block.title).write_text(block.text, encoding="utf-8")
            elif block.runs:
                self.printed = self._python(block) if block.language == "python" else self.shell.run(block.text)
            elif block.language == "text":
                self._compare(block)

    def _python(self, block: Block) -> str:
        code = compile("\n" * (block.line - 1) + block.text, str(self.page), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self.names)  # noqa: S102 -- the repository's own pages
        return printed.getvalue()

    def _compare(self, block: Block) -> None:
        """How many spaces there are does not count; "..." is any part of a line, or any lines where it stands alone."""
        wanted, got = (
            [" ".join(line.split()) for line in text.strip().splitlines()] for text in (block.text, self.printed)
        )
        parts = (r"[\s\S]*" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") for line in wanted)
        if re.fullmatch("\n".join(parts), "\n".join(got)) is None:
            raise SystemExit(f"the page says\n{block.text}\nand the program\n{self.printed}")


if __name__ == "__main__":
    Reader(Path(sys.argv[1])).follow()
