"""vectors/phone_links.json: this program writes the links that the vectors spell out; phones refuse the bad ones (tests/js)."""

import json
from pathlib import Path

import pytest

from crowdfl.documents.invitations import Invitation
from crowdfl.documents.links import invitation_link, read_link
from crowdfl.errors import DocumentError
from crowdfl.settings import ParticipantSettings

FOLDER = Path(__file__).parents[2] / "vectors"
VECTORS = json.loads((FOLDER / "phone_links.json").read_text(encoding="utf-8"))
each_link = pytest.mark.parametrize("case", VECTORS["good"], ids=lambda case: case["name"])


def contents(case: dict) -> ParticipantSettings:
    names = ("task", "invitation", "kgc", "sp", "kgc_key", "sp_key")
    return ParticipantSettings(**{name: case[name] for name in names}, ca=None, insecure_test_key=False)


@each_link
def test_a_link_is_written_as_the_vectors_spell_it(case):
    assert invitation_link(case["page"], contents(case)) == case["link"]


@each_link
def test_a_link_brings_the_invitation_back_to_the_letter(case):
    """So that the requester's signature still holds, and KGC finds the one that it was."""
    found = read_link(case["link"])
    assert found.to_bytes().hex() == case["message"]
    assert (found.ticket.text, found.task) == (case["invitation"], case["task"])
    opened = Invitation.open(found.ticket.invitation, bytes.fromhex(VECTORS["requester"]))
    assert (opened.task, opened.expires, opened.device) == (case["task"], case["expires"], case["device"])
    assert opened.key == found.ticket.key.public
    assert (found.kgc, found.sp or case["page"].removesuffix("/join/")) == (case["kgc"], case["sp"])
    assert (found.kgc_key.hex(), found.sp_key.hex()) == (case["kgc_key"], case["sp_key"])


@pytest.mark.parametrize("case", VECTORS["listed"])
def test_a_link_to_a_listed_task_is_written_as_the_vectors_spell_it(case):
    assert invitation_link(case["page"], contents(case)) == case["link"]


def test_no_two_cases_are_the_same():
    fragments = [case["fragment"] for case in VECTORS["bad"]]
    assert len(set(fragments)) == len(fragments)


def test_a_link_does_not_show_what_it_holds():
    case = VECTORS["good"][0]
    found = read_link(case["link"])
    assert "signature" not in repr(found)
    shown = repr(found) + repr(found.ticket) + repr(found.ticket.opened)
    assert "number" not in shown
    assert str(found.key) not in shown


def test_what_is_no_invitation_gets_no_link():
    case = VECTORS["good"][0]
    for text in ("{}", case["invitation"].replace("invitation", "order"), case["invitation"] + "x"):
        with pytest.raises(DocumentError):
            invitation_link(case["page"], contents(case | {"invitation": text}))
