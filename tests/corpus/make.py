"""Makes the corpus of this version: `python -m tests.corpus.make`, in about a minute. Needs Chromium, and a PostgreSQL that
CROWDFL_TEST_POSTGRES names. What it writes is committed: `v1/` is never made again after version 1.0.
"""

import io
import json
import shutil
import tarfile
import tempfile
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from crowdfl.documents.links import invitation_link
from crowdfl.errors import NotReady, ServiceUnavailable
from crowdfl.roles.csp import Csp
from crowdfl.settings import ParticipantSettings
from crowdfl.storage.database_copy import copy_database
from tests.corpus import dumps, fields
from tests.corpus.campaign import ABOUT, OF_PROGRAMS, OF_ROLES, OffsetClock, World, csv, post, world
from tests.corpus.phone import READABLE, dump
from tests.http.processes import wait_for, wait_for_round
from tests.storage.conftest import SERVER
from tests.web import browsers

PLACE = Path(__file__).parent / "v1"
_PATIENCE = 4 * browsers.PATIENCE
_ANSWERED = 4  # steps of CSP's, before it was away


def begin(folder: Path) -> None:
    """Every campaign as far as the corpus has it."""
    with world(folder, OffsetClock()) as here, sync_playwright() as playwright:
        requester = here.requester
        for name in OF_PROGRAMS:
            here.tasks[name] = post(requester, name, here.platform)
            for person, invitation in zip(
                OF_PROGRAMS[name], requester.invite(here.tasks[name], 3, 86400.0 * 365), strict=False
            ):
                if name != "open":
                    here.person(name, person).join(invitation)
        browser = playwright.chromium.launch(**browsers.options())
        with browsers.opened(browser, browsers.PHONE) as context:
            context.add_init_script(READABLE)
            page = context.new_page()
            _join(page, _link(here))
            expect(page.locator(".headline")).to_have_text("Your contribution to round 1 of 2 has arrived.")
            page.goto("about:blank")  # it runs no more
            page.goto(f"{here.platform.urls['sp']}/healthz")
            stored = dump(page)
        browser.close()
        for person in OF_PROGRAMS["phone"]:
            here.take_part("phone", person, 1)
        wait_for_round(requester.sp, here.tasks["phone"], "open")
        here.take_part("phone", "ann", 2)
        for person in OF_PROGRAMS["keyed"][:2]:
            here.take_part("keyed", person, 1)
        _stuck(here)
        about = {"tasks": here.tasks, "made_at": time.time(), "addresses": here.platform.urls}
        (folder / "phone.json").write_text(json.dumps(stored))
        (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n")


def _link(here: World) -> str:
    task, urls = here.tasks["phone"], here.platform.urls
    (invitation,) = here.requester.invite(task, 1, 86400.0 * 365)
    keys = {"kgc_key": here.platform.kgc_key, "sp_key": here.requester.sp.key()}
    where = {"kgc": urls["kgc"], "sp": urls["sp"], "ca": None, "insecure_test_key": False}
    return invitation_link(
        f"{urls['sp']}/join/", ParticipantSettings(task=task, invitation=invitation, **where, **keys)
    )


def _join(page, link: str) -> None:
    page.goto(link)
    page.get_by_label("I accept averages of as few as 3 people.").check()
    page.get_by_role("button", name="Join").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Record")
    page.get_by_text("No sensors? Import a CSV file").click()
    content = {"name": "mine.csv", "mimeType": "text/csv", "buffer": csv(0).encode()}
    page.get_by_label("CSV files").set_input_files(content)
    expect(page.get_by_text("mine.csv: 42 sec of walking, sitting, and climbing stairs.")).to_be_visible()
    page.get_by_role("button", name="Send my contribution").click()


def _stuck(here: World) -> None:
    """CSP goes away in the middle of a round, for good."""
    own, task, asked = Csp.answer, here.tasks["stuck"], []

    def answer(csp: Csp, of: str, request: bytes, longest: int = 0) -> bytes:
        if of == task:
            asked.append(request)
            if len(asked) > _ANSWERED:
                raise ServiceUnavailable("away")
        return own(csp, of, request, longest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Csp, "answer", answer)
        for person in OF_PROGRAMS["stuck"]:
            here.take_part("stuck", person, 1)

        def is_stuck() -> None:
            if len(asked) <= _ANSWERED:
                raise NotReady("not yet")

        wait_for(is_stuck)


def keep(folder: Path) -> None:
    """What the services do not make afresh, in one archive; of databases, their own copies."""
    PLACE.mkdir(exist_ok=True)
    kept = folder / "kept"
    for role in ("kgc", "csp", "sp"):
        for name in OF_ROLES:
            source, target = folder / role / name, kept / role / name
            if name == "state.db":
                target.parent.mkdir(parents=True)
                copy_database(f"sqlite:///{source}", target)
            elif source.is_dir():
                shutil.copytree(source, target)
            elif source.exists():
                shutil.copy2(source, target)
    for name in ("requester", "people"):
        shutil.copytree(folder / name, kept / name)
    for name in ("phone.json", ABOUT):
        shutil.copy2(folder / name, kept / name)
    with tarfile.open(PLACE / "folders.tar.xz", "w:xz") as archive:
        for name in sorted(path.name for path in kept.iterdir()):
            archive.add(kept / name, name, filter=_plain)


def keep_dumps(kept: Path, server: str) -> None:
    """The same databases as PostgreSQL has them."""
    with tarfile.open(PLACE / dumps.ARCHIVE, "w:xz") as archive:
        for role in dumps.ROLES:
            content = dumps.dump(server, kept / role / "state.db").encode()
            member = tarfile.TarInfo(f"{role}.sql")
            member.size, member.mode = len(content), 0o600
            archive.addfile(member, io.BytesIO(content))


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    if SERVER is None:
        raise SystemExit("CROWDFL_TEST_POSTGRES names no server: PostgreSQL's dumps are a part of the corpus")
    fields.write()
    expect.set_options(timeout=_PATIENCE)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        begin(folder)
        keep(folder)
        keep_dumps(folder / "kept", SERVER)


if __name__ == "__main__":
    main()
