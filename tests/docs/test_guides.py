"""Whoever follows a guide, block by block, gets what it says."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import subprocesses
from tests.docs.conftest import ROOT
from tests.docs.guides import Block, blocks

pytestmark = pytest.mark.second

GUIDES = ("tutorial", "own-data", "own-model", "organisations")
LEFT_OUT = 2  # blocks of a page that no test can run, at most


def on_free_ports(page: str) -> str:
    """The page, with services where nobody else listens: a reader has the usual ports for himself, a test has not."""
    at = dict(zip(("kgc", "sp", "csp"), subprocesses.free_ports(3), strict=True))
    all_of_them = " ".join(f"--{role}-port {port}" for role, port in at.items())
    page = re.sub(r"(crowdfl init \S+ --host 127\.0\.0\.1)$", rf"\1 {all_of_them}", page, flags=re.MULTILINE)
    return re.sub(r"crowdfl init \S+ --role (kgc|sp|csp)", lambda found: f"{found[0]} --port {at[found[1]]}", page)


def follow(text: str, folder: Path) -> tuple[int, str]:
    """A reader with a folder of its own; whatever it has started ends with it."""
    page = folder / "page.md"
    page.write_text(on_free_ports(text), encoding="utf-8")
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    (folder / "here").mkdir()
    (folder / "here" / "examples").symlink_to(ROOT / "examples")  # readers are in a clone
    with (folder / "said").open("w+b") as said:
        reader = subprocesses.start(
            [sys.executable, "-m", "tests.docs.guides", page],
            cwd=folder / "here",
            env=os.environ | paths | {"COLUMNS": "120"},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = reader.wait(540.0)  # a busy machine takes long to start its commands
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(reader.pid, signal.SIGKILL)
            reader.wait(subprocesses.PATIENCE)
        said.seek(0)
        return code, said.read().decode(errors="replace")


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_does_what_it_says(guide, tmp_path):
    code, said = follow((ROOT / "docs" / f"{guide}.md").read_text(encoding="utf-8"), tmp_path)
    assert code == 0, said


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_is_run_nearly_whole(guide):
    found = list(blocks((ROOT / "docs" / f"{guide}.md").read_text(encoding="utf-8")))
    assert sum(block.runs for block in found) >= 2
    assert sum(block.said == "no-run" for block in found) <= LEFT_OUT
    assert [block for block in found if block.said not in ("", "no-run") and block.title is None] == []


def test_a_server_that_cannot_listen_ends_the_rehearsal_with_its_reason(tmp_path):
    """Somebody takes CSP's port before the servers start."""
    page = (ROOT / "docs" / "organisations.md").read_text(encoding="utf-8")
    found = [one.text for one in blocks(page) if one.runs]
    (servers,) = [place for place, text in enumerate(found) if " serve " in text]
    before = "".join(f"```sh\n{text}```\n\n" for text in found[:servers])
    taken = (
        "import socket, tomllib\nfrom pathlib import Path\n"
        'port = tomllib.loads(Path("hospital/csp/settings.toml").read_text())["port"]\n'
        'squatter = socket.create_server(("127.0.0.1", port))\n'
    )
    code, said = follow(f"{before}```python\n{taken}```\n\n```sh\n{found[servers]}```\n", tmp_path)
    assert code != 0
    assert "cannot listen on 127.0.0.1" in said
    assert "Address already in use" in said


WRONG = {
    "python that fails": "```python\n1 / 0\n```",
    "a command that fails": "```sh\nfalse\ntrue\n```",
    "other output": "```python\nprint(1)\n```\n\n```text\n2\n```",
    "other output of a command": "```sh\necho 1\n```\n\n```text\n2\n```",
    "a variable that is not set": "```sh\necho $nowhere\n```",
}
RIGHT = """
```python title="mine.py"
VALUE = 3
```

```sh
mkdir below && cd below
sleep 600 &
VALUE=4
```

```sh
basename "$PWD"
echo $VALUE
kill %1
```

```text
below
4
```

```python
import sys; sys.path.insert(0, ".")
import mine
```

```python
print(mine.VALUE)
```

```text
3
```

```sh no-run
exit 1
```
"""


@pytest.mark.parametrize("page", WRONG.values(), ids=WRONG)
def test_a_wrong_page_is_seen(page, tmp_path):
    code, _ = follow(page, tmp_path)
    assert code != 0


def test_what_a_block_leaves_is_there_for_the_next(tmp_path):
    code, said = follow(RIGHT, tmp_path)
    assert code == 0, said


def test_a_block_knows_its_line():
    """So that an error names the line of the page."""
    assert list(blocks("# Title\n\n```sh no-run\nx\n```\n")) == [Block("sh", "no-run", "x\n", 4)]
