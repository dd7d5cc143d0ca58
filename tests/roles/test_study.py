"""Consent, withdrawal, and a lost device: what is signed, what is gone, and who is counted once."""

import contextlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import crowdfl
from crowdfl.cli import participant as participant_commands
from crowdfl.documents.invitations import Ticket
from crowdfl.documents.signed import Consent, Definition, digest_of
from crowdfl.errors import (
    BadSignature,
    ConsentMissing,
    DocumentError,
    Forbidden,
    InvitationRefused,
    Replaced,
    SettingsError,
    UnknownParticipant,
    Withdrawn,
)
from crowdfl.roles.participant.event_words import event_words
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.sp.people import consent_rows, erase_gone
from crowdfl.roles.sp.uploads import PendingUpload
from crowdfl.services.client import opening
from crowdfl.settings import ConsentSettings, TaskSettings, TextsSettings
from tests.cli.program import call
from tests.hosts import Desk, heard, small_definition, unchanged
from tests.roles.test_enrolment import certified, new_keys

SHARES = {"decimals": 6, "clip": 16.0, "max_participants": 6, "pay": "equal"}
TEXT = "We measure how you move.\nYou may stop at any time."
STUDY = {"consent": ConsentSettings(version="2", text=TEXT), "texts": {"de": TextsSettings(consent="Wir messen.")}}


def study(folder: Path, people: int = 4, **settings: Any) -> Desk:
    return Desk.funded(folder, people, **SHARES | settings)


def consenting(folder: Path) -> Desk:
    return Desk(folder, study=STUDY, **SHARES)


def invited(desk: Desk, name: str = "new", **more: Any) -> tuple[Participant, str]:
    return desk.new_participant(desk.task, name), desk.requester.invite(desk.task, 1, 1000.0, **more)[0]


def upload_files(desk: Desk) -> list[Path]:
    return [path for path in (desk.folder / "sp").rglob("*") if "uploads" in path.parts and path.is_file()]


def bytes_on_disk(desk: Desk, data: bytes) -> bool:
    """Whether SP's folder holds them anywhere."""
    return any(data in path.read_bytes() for path in (desk.folder / "sp").rglob("*") if path.is_file())


# Consent.


def test_nobody_joins_without_agreeing_to_this_very_version(tmp_path):
    desk = consenting(tmp_path)
    person, invitation = invited(desk)
    for agree in (None, "1"):
        person.agree = agree
        with pytest.raises(ConsentMissing, match="version 2"):
            person.join(invitation)
    assert desk.kgc.store.certified(desk.task, person.task) is None
    person.agree = "2"
    told = heard(person)
    who = person.join(invitation)
    (row,) = desk.requester.consents(desk.task)
    assert (row["who"], row["version"], row["state"], row["language"]) == (who, "2", "in", "")
    assert Consent.open_own(row["document"], desk.sp.core.definition(desk.task), person.keys.signing.public)
    copy = json.loads((desk.folder / "people" / "new" / "consent.json").read_text())
    assert (copy["text"], copy["consent"]) == (TEXT, row["document"])
    assert told[0][0] == "agreed"
    assert "version 2" in event_words(*told[0])


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """A desk with somebody who has an invitation, whom the command line and `crowdfl.join` open."""
    desk = consenting(tmp_path)
    person, invitation = invited(desk)

    def opened(*_given: object, agree: str | None, language: str, **_more: object):
        person.agree, person.language = agree, language
        return contextlib.nullcontext(person)

    for module in (participant_commands, opening):
        monkeypatch.setattr(module, "invited", opened)
        monkeypatch.setattr(module, "read_invitation", lambda _path: SimpleNamespace(invitation=invitation))
    return desk


def test_the_command_line_asks_for_consent_in_the_readers_language_and_signs_what_was_read(asked, monkeypatch):
    for answers in ("n\n", "y\nn\n", "y\ny\n"):
        assert asked.requester.consents(asked.task) == []
        monkeypatch.setattr(sys, "stdin", io.StringIO(answers))
        told = call("participant", "join", "invitation.json", "--language", "de_AT.UTF-8")
        assert "Consent, version 2, which you sign:\nWir messen." in told.out
    (row,) = asked.requester.consents(asked.task)
    assert (row["version"], row["language"], row["state"]) == ("2", "de", "in")


def test_crowdfl_join_takes_a_consent_by_its_version_or_by_two_answers(asked, monkeypatch):
    with pytest.raises(ConsentMissing, match="agree='2'"):
        crowdfl.join("invitation.json", yes=True)
    assert crowdfl.join("invitation.json", yes=True, agree="2", language="de").agree == "2"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    for answers, agreed in ((["n"], False), (["y", "no"], False), (["y", "yes"], True)):
        monkeypatch.setattr("builtins.input", lambda _question, left=answers: left.pop(0))
        if agreed:
            assert crowdfl.join("invitation.json").agree == "2"
        else:
            with pytest.raises(SettingsError, match="nothing was joined"):
                crowdfl.join("invitation.json")


def test_a_consent_serves_nobody_else_and_nowhere_else(tmp_path):
    desk = consenting(tmp_path)
    _, invitation = invited(desk)
    keys, definition = new_keys(), desk.sp.core.definition(desk.task)
    certificate = certified(desk, invitation, keys)
    mine = Consent.of(definition, keys.signing.public, 1.0)
    with pytest.raises(ConsentMissing):
        desk.sp.people.enrol(desk.task, certificate)
    other = new_keys()
    with pytest.raises(BadSignature):
        desk.sp.people.enrol(
            desk.task, certificate, Consent.of(definition, other.signing.public, 1.0).sign(other.signing)
        )
    with pytest.raises(BadSignature):
        desk.sp.people.enrol(desk.task, certificate, mine.sign(other.signing))
    wrong = {"version": "1", "text": digest_of("another text"), "task": "0" * 64, "language": "zz"}
    for name, value in wrong.items():
        with pytest.raises(DocumentError):
            desk.sp.people.enrol(desk.task, certificate, Consent(**vars(mine) | {name: value}).sign(keys.signing))
    assert not desk.sp.store.participants(desk.task)
    assert [definition.language_for(one) for one in ("de_AT.UTF-8", "de", "C.UTF-8", "en_GB", "")] == [
        "de",
        "de",
        "",
        "",
        "",
    ]
    german = Consent.of(definition, keys.signing.public, 1.0, "de")
    assert german.text == digest_of("Wir messen.")
    desk.sp.people.enrol(desk.task, certificate, german.sign(keys.signing))
    desk.sp.people.enrol(desk.task, certificate, mine.sign(keys.signing))  # the first one is kept
    assert [row["language"] for row in consent_rows(desk.sp.store, desk.task)] == ["de"]


def test_a_task_without_a_text_takes_no_consent(tmp_path):
    desk = study(tmp_path, 3)
    person = desk.crowd[0]
    certificate = person.blobs.get("certificate").decode()
    consent = Consent.of(desk.sp.core.definition(desk.task), person.keys.signing.public, 1.0).sign(person.keys.signing)
    with pytest.raises(DocumentError, match="no consent"):
        desk.sp.people.enrol(desk.task, certificate, consent)
    assert consent_rows(desk.sp.store, desk.task) == []


# Texts.


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"texts": {"german": TextsSettings()}}, "is no language"),
        ({"texts": {"de_DE": TextsSettings()}}, "is no language"),
        ({"texts": {"de": TextsSettings(words={"jumping": "Springen"})}}, "`jumping` is no label"),
        ({"texts": {"de": TextsSettings(consent="Wir messen.")}}, "translates a text"),
        ({"texts": {f"{a}{b}": TextsSettings() for a in "abcde" for b in "abcde"}}, "at most 20"),
    ],
)
def test_translations_are_of_what_the_task_has(more, words):
    with pytest.raises(SettingsError, match=words):
        replace(small_definition(TaskSettings()), **more)


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_consent_has_a_version_and_a_text(text):
    with pytest.raises(SettingsError, match="both, or neither"):
        ConsentSettings(version="1", text=text)


@pytest.mark.parametrize("text", ["a\x1b[2J", "\u202eevil", "x" * 20_001])
def test_a_consent_is_plain_text_of_a_bounded_length(text):
    with pytest.raises(SettingsError, match="plain text"):
        ConsentSettings(version="1", text=text)


def test_a_definition_without_these_tables_is_refused():
    definition = small_definition(TaskSettings()).dated(1000.0)
    body = definition.body() | {"requester": "00" * 32}
    for name in ("language", "consent", "texts"):
        with pytest.raises(DocumentError, match=name):
            Definition.from_body({key: value for key, value in body.items() if key != name})
    with pytest.raises(DocumentError, match="does not say"):
        Definition.from_body(body | {"texts": {"de": {"purpose": "x"}}})


# Withdrawal.


def test_what_is_not_averaged_yet_is_gone_from_books_and_disk(tmp_path):
    desk = study(tmp_path)
    leaver, *others = desk.crowd
    leaver.encrypt(1, *unchanged(leaver.model(), {}))
    sent = leaver.blobs.get("rounds/1/upload")
    desk.upload()
    assert bytes_on_disk(desk, sent)
    told = heard(leaver)
    leaver.leave(withdraw=True)
    assert told == [("withdrawn", {"deleted": [1], "standing": []})]
    assert not bytes_on_disk(desk, sent)
    assert not leaver.blobs.has("rounds/1/upload")
    assert len(upload_files(desk)) == 3
    assert [upload.who for upload in desk.sp.store.uploads(desk.task, 1)] == [one.keys.who for one in others]
    desk.run()
    assert desk.states()[0] == "rewarded"
    with pytest.raises(UnknownParticipant, match="withdrawn"):
        desk.sp.envelope(desk.task, 1, leaver.keys.who)
    with pytest.raises(Withdrawn):
        leaver.join(desk.requester.invite(desk.task, 1, 10.0)[0])
    with pytest.raises(Withdrawn):  # nor by another program
        desk.sp.people.enrol(desk.task, leaver.blobs.get("certificate").decode())


def test_what_the_servers_compute_with_stands_and_the_answer_says_so(tmp_path):
    desk = study(tmp_path)
    desk.play()
    desk.upload()  # reads round 1, and sends to round 2
    leaver = desk.crowd[0]
    answer = desk.sp.people.withdraw(desk.task, leaver.keys.who)
    assert answer == {"deleted": [2], "standing": [1]}
    assert desk.sp.people.withdraw(desk.task, leaver.keys.who) == answer
    assert desk.sp.envelope(desk.task, 1, leaver.keys.who)  # what was earned stays claimable
    told = heard(leaver)
    leaver.leave(withdraw=True)
    assert "Deleted: your upload of round 2. Not to be undone: your upload of round 1" in event_words(*told[0])
    desk.run()
    assert desk.states() == ["rewarded", "rewarded"]
    assert leaver.claim() == 9_000_000


def test_a_closed_round_that_too_few_are_left_in_is_given_up_before_csp_hears_of_it(tmp_path):
    desk = study(tmp_path, 3)
    desk.upload()
    assert desk.sp.steps.step(desk.task)  # it closes
    assert desk.states() == ["closed"]
    assert desk.sp.people.withdraw(desk.task, desk.crowd[0].keys.who)["deleted"] == [1]
    desk.run()
    assert desk.states()[0] == "aborted"
    assert not desk.sp.store.round(desk.task, 1).asked


def test_bytes_that_a_crash_left_are_swept(tmp_path):
    desk = study(tmp_path)
    desk.upload()
    leaver = desk.crowd[0]
    with desk.sp.store.transaction():
        desk.sp.store.withdraw(desk.task, leaver.keys.who, 1.0)
        desk.sp.store.drop_uploads(desk.task, 1, [desk.sp.store.upload(desk.task, 1, leaver.keys.who)])
    assert len(upload_files(desk)) == 4
    erase_gone(desk.sp.store, desk.sp.blobs, desk.task)
    assert len(upload_files(desk)) == 3


def test_an_upload_that_was_under_way_comes_too_late_and_leaves_no_byte(tmp_path, monkeypatch):
    desk = study(tmp_path)
    leaver = desk.crowd[0]
    leaver.encrypt(1, *unchanged(leaver.model(), {}))
    sent, who, put_all = leaver.blobs.get("rounds/1/upload"), leaver.keys.who, desk.sp.blobs.put_all

    def withdrawn_meanwhile(blobs):
        put_all(blobs)
        desk.sp.people.withdraw(desk.task, who)

    monkeypatch.setattr(desk.sp.blobs, "put_all", withdrawn_meanwhile)
    (outcome,) = desk.sp.uploads.receive(desk.task, 1, [PendingUpload.of(who, sent)])
    assert isinstance(outcome, Forbidden)
    assert not bytes_on_disk(desk, sent)


# A lost or replaced device.


def replacement(desk: Desk, old: Participant, name: str = "new phone") -> Participant:
    person, invitation = invited(desk, name, replaces=old.keys.who)
    person.join(invitation)
    desk.people[name] = person
    return person


def test_a_new_device_takes_the_place_and_is_counted_once(tmp_path):
    desk = study(tmp_path, 6)
    lost = desk.crowd[0]
    desk.upload()
    assert desk.sp.tasks.status(desk.task)["enrolment"] == "full"
    new = replacement(desk, lost)
    status = desk.sp.tasks.status(desk.task)
    assert (status["enrolled"], status["enrolment"], status["rounds"][0]["uploads"]) == (6, "full", 5)
    assert len(upload_files(desk)) == 5
    new.step(unchanged)
    desk.run()
    assert desk.states()[0] == "rewarded"
    assert {one.who for one in desk.sp.store.uploads(desk.task, 1)} == {p.keys.who for p in desk.crowd} - {
        lost.keys.who
    }
    assert [one.state for one in desk.sp.store.participants(desk.task)] == ["replaced", *["in"] * 6]
    was, now = (desk.csp.store.participant(desk.task, one.keys.who) for one in (lost, new))
    assert (was.replaced_by, now.device, now.identity.place) == (new.keys.who, 2, was.identity.place)


def test_the_old_device_hears_of_it_and_keeps_what_it_has_earned(tmp_path):
    desk = study(tmp_path)
    old = desk.crowd[0]
    desk.play()
    new = replacement(desk, old)
    told = heard(old)
    desk.upload()
    assert [what for what, _ in told][-1] == "replaced"
    assert old.has_left
    assert not new.blobs.has("rounds/1/reward")
    with pytest.raises(UnknownParticipant):
        desk.sp.envelope(desk.task, 1, new.keys.who)
    desk.run()
    desk.upload()
    assert (old.claim(), new.claim()) == (9_000_000, 9_000_000)  # a round each
    assert sum(sum(one.values()) for one in desk.ledger.paid().values()) == 18_000_000


def test_an_old_device_that_joins_again_is_stopped_not_counted(tmp_path):
    desk = study(tmp_path)
    old = desk.crowd[0]
    replacement(desk, old)
    told = heard(old)
    old.join(desk.requester.invite(desk.task, 1, 10.0)[0])
    assert [what for what, _ in told] == ["replaced"]
    with pytest.raises(Replaced):
        desk.sp.people.enrol(desk.task, old.blobs.get("certificate").decode())
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 4


def test_one_place_is_taken_over_once_and_by_whom_the_requester_invites(tmp_path):
    desk = study(tmp_path)
    old = desk.crowd[0]
    first, second = (invited(desk, name, replaces=old.keys.who) for name in ("first", "second"))
    first[0].join(first[1])
    first[0].join(first[1])  # again: the same
    with pytest.raises(InvitationRefused, match="used by someone else"):
        second[0].join(second[1])
    for nobody in ("nobody", old.keys.who):  # it is another's place now
        with pytest.raises(InvitationRefused, match=r"nobody has joined|not the newest device"):
            desk.requester.invite(desk.task, 1, 10.0, nobody)
    with pytest.raises(SettingsError, match="one at a time"):
        desk.requester.invite(desk.task, 2, 10.0, old.keys.who)
    third, invitation = invited(desk, "third", replaces=first[0].keys.who)  # and so on
    third.join(invitation)
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 4


def test_replacing_people_makes_no_crowd_smaller_or_larger(tmp_path):
    """A requester that replaces one after the other has as many in a round as before, each once; and not without end."""
    desk = study(tmp_path, 3, max_participants=3)
    desk.upload()
    for number in range(3):
        replacement(desk, desk.crowd[-1], f"again {number}")
    status = desk.sp.tasks.status(desk.task)
    assert (status["enrolled"], status["rounds"][0]["uploads"]) == (3, 2)
    desk.run()
    assert desk.states() == ["open"]  # two are no quorum of three
    replacement(desk, desk.crowd[-1], "one more")
    with pytest.raises(InvitationRefused, match="5 devices"):
        replacement(desk, desk.crowd[-1], "too many")
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 3


def test_a_device_is_replaced_after_enrolment_and_is_drawn_in_the_old_ones_stead(tmp_path):
    until = "1970-01-01T00:20:00+00:00"
    desk = Desk(tmp_path, {"enrol_until": until}, **SHARES | {"budget": None, "per_round": 3})
    desk.invite(4)
    desk.run()
    desk.clock.time = 1300.0
    assert desk.sp.tasks.status(desk.task)["enrolment"] == "over"
    drawn = next(one for one in desk.crowd if one.keys.who in desk.sp.store.drawn(desk.task, 1))
    new = replacement(desk, drawn)
    assert new.keys.who in desk.sp.store.drawn(desk.task, 1)


def test_whoever_was_certified_and_never_came_cannot_come_beside_the_new_device(tmp_path):
    desk = study(tmp_path)
    keys, invitation = new_keys(), desk.requester.invite(desk.task, 1, 1000.0)[0]
    certificate = certified(desk, invitation, keys)
    number = Ticket.parse(invitation).opened.number
    person, again = invited(desk, "again", replaces=number)
    person.join(again)
    with pytest.raises(Replaced):
        desk.sp.people.enrol(desk.task, certificate)
    with pytest.raises(InvitationRefused, match="taken this one's place"):
        certified(desk, invitation, keys)
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 5
