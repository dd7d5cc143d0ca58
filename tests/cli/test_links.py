"""`crowdfl task invite --links --qr`: invitations for phones, in files that nobody else can read."""

import json
import stat
import time
from xml.etree import ElementTree

import pytest
import segno

from crowdfl.documents.invitations import Invitation
from crowdfl.documents.links import read_link
from crowdfl.documents.signed import Definition
from crowdfl.roles.requester import own_key
from crowdfl.services.client import opening as requester_file
from crowdfl.services.client.opening import RequesterFile
from crowdfl.settings import RequesterSettings
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.settings_file import put_settings
from crowdfl.web.qr import qr_svg, qr_terminal
from tests.cli.program import call, refused
from tests.cli.test_bad_input import Sp
from tests.hosts import HARDENED
from tests.http.world import definition_of

SHARES = {"profile": "shares", "max_participants": 5, "min_participants": 5}


class Posted:
    """A requester with a task of each profile, and an SP that tells its key."""

    def __init__(self, folder):
        assert call("init", folder, "--host", "sp.example").code == 0
        self.settings = folder / "requester/settings.toml"
        self.own = RequesterFile.read(self.settings)
        self.key = own_key(FileBlobs(self.own.folder / "state"))
        self.shares, self.hardened = self.post(**SHARES), self.post(**HARDENED, max_participants=6)

    def post(self, **settings) -> str:
        text = definition_of(self.key, time.time(), **settings).sign(self.key)
        task = Definition.open(text).task
        FileBlobs(self.own.folder / "state").put(f"{task}/definition", text.encode())
        return task

    def invite(self, task, folder, *more):
        return call("task", "invite", task, folder, "-s", self.settings, *more)


@pytest.fixture
def posted(tmp_path, monkeypatch):
    made = Posted(tmp_path / "roles")
    monkeypatch.setattr(requester_file, "SpClient", lambda _service: Sp(made.own.settings.sp_key))
    return made


def test_each_invitation_has_its_link_and_code_beside_it(posted, tmp_path):
    """Only the requester can read them, and the link leads to SP's own page."""
    told = posted.invite(posted.shares, tmp_path / "to", "-n", "2", "--links", "--qr", "--json")
    found = json.loads(told.out)
    assert {kind: [path.rpartition(".")[2] for path in paths] for kind, paths in found.items()} == {
        "invitations": ["json"] * 2,
        "links": ["txt"] * 2,
        "codes": ["svg"] * 2,
    }
    folder = tmp_path / "to"
    for number in (0, 1):
        assert all(
            stat.S_IMODE((folder / f"invitation-{number}.{kind}").stat().st_mode) == 0o600
            for kind in ("json", "txt", "svg")
        )
        file = json.loads((folder / f"invitation-{number}.json").read_text())
        link = (folder / f"invitation-{number}.txt").read_text().removesuffix("\n")
        assert link.startswith("https://sp.example:7102/join/#")
        held = read_link(link)
        assert (held.ticket.text, held.task, held.kgc, held.sp) == (file["invitation"], posted.shares, file["kgc"], "")
        assert Invitation.open(held.ticket.invitation, posted.key.public).key == held.ticket.key.public
        assert (folder / f"invitation-{number}.svg").read_bytes() == qr_svg(link)


def test_no_output_repeats_a_link(posted, tmp_path):
    """What a command prints may be kept in a log; files are named instead."""
    told = posted.invite(posted.shares, tmp_path / "to", "--links", "--qr")
    link = (tmp_path / "to" / "invitation-0.txt").read_text().strip()
    assert told.out.split() == [str(tmp_path / "to" / f"invitation-0.{kind}") for kind in ("json", "txt", "svg")]
    assert link.partition("#")[2] not in told.out + told.err


def test_a_page_that_is_hosted_elsewhere_is_told_where_sp_is(posted, tmp_path):
    put_settings(posted.settings, RequesterSettings, {"phone": "https://pages.example/join/"})
    assert posted.invite(posted.shares, tmp_path / "to", "--links").code == 0
    link = (tmp_path / "to" / "invitation-0.txt").read_text().strip()
    assert link.startswith("https://pages.example/join/#")
    assert read_link(link).sp == "https://sp.example:7102"


@pytest.mark.parametrize("option", ["--links", "--qr"])
def test_nobody_gets_a_link_to_what_a_browser_cannot_compute(posted, tmp_path, option):
    refused(posted.invite(posted.hardened, tmp_path / "to", option), "SettingsError", "profile shares")
    assert not (tmp_path / "to").exists()
    assert posted.invite(posted.hardened, tmp_path / "to").code == 0


def test_a_code_is_that_of_its_link():
    """The picture and the letters draw the same modules, of a size that a phone reads from a screen of 80 columns."""
    link = "https://sp.example:7102/join/#" + "A1b2" * 90
    code = segno.make(link, error="l", mask=0, micro=False, boost_error=False)
    lines = [line.removeprefix("\x1b[97;40m").removesuffix("\x1b[0m") for line in qr_terminal(link).splitlines()]
    assert max(map(len, lines)) <= 80
    upper, lower = "▀█", "▄█"  # a block is light
    drawn = [[letter not in half for letter in line] for line in lines for half in (upper, lower)]
    assert [row[2:-2] for row in drawn[2 : 2 + len(code.matrix)]] == [list(map(bool, row)) for row in code.matrix]
    picture = ElementTree.fromstring(qr_svg(link))  # noqa: S314 -- our own
    assert picture.tag.endswith("svg")
    assert int(picture.attrib["width"]) == 4 * (len(code.matrix) + 8)
