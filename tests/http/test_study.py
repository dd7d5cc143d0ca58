"""Consent, withdrawal and a lost device over HTTP: receipts, what becomes of unfinished uploads, who may see what."""

import json
from dataclasses import replace

import pytest

from crowdfl.documents.signed import ConsentReceipt, digest_of
from crowdfl.errors import ConsentMissing, DocumentError, Forbidden, NotAuthenticated, Replaced, Withdrawn
from crowdfl.protocols.uploads import Head
from crowdfl.services.client.peers import SpClient
from crowdfl.services.client.transport import Signer
from crowdfl.settings import ConsentSettings
from tests.hosts import INITIAL_MODEL
from tests.http.world import task_definition

CONSENT = ConsentSettings(version="2", text="We measure how you move.")


def person_in(world, task, name="somebody", **invitation):
    person = world.new_participant(task, name)
    person.sp_key, person.agree = world.receipts.public, "2"
    person.join(*world.requester.invite(task, 1, 1000.0, **invitation))
    return person


def test_a_consent_gets_a_receipt_and_its_requester_alone_sees_it(world):
    task = world.create(replace(task_definition(), consent=CONSENT), INITIAL_MODEL)
    person = person_in(world, task)
    copy = json.loads(person.blobs.get("consent.json"))
    receipt = ConsentReceipt.open(copy["receipt"], world.receipts.public)
    assert (receipt.who, receipt.digest) == (person.keys.who, digest_of(copy["consent"]))
    (row,) = world.requester.consents(task)
    assert (row["who"], row["document"], row["received"]) == (person.keys.who, copy["consent"], receipt.at)
    for credential in (None, Signer(person.keys.who, person.keys.signing), world.token("sp", "requester")):
        with pytest.raises((NotAuthenticated, Forbidden)):
            SpClient(world.service("sp", credential)).consents(task)
    certificate = person.blobs.get("certificate").decode()
    with pytest.raises(ConsentMissing):
        SpClient(world.service("sp")).enrol(task, certificate)
    with pytest.raises(DocumentError):
        SpClient(world.service("sp")).enrol(task, certificate, copy["receipt"])


def test_a_receipt_of_another_platform_is_refused(world):
    task = world.create(replace(task_definition(window=8.0), consent=CONSENT), INITIAL_MODEL)
    person = world.new_participant(task, "careful")
    person.sp_key, person.agree = bytes(32), "2"
    with pytest.raises(Exception, match=r"signature|key"):
        person.join(*world.requester.invite(task, 1, 1000.0))
    assert not person.blobs.has("consent.json")


def test_a_withdrawal_takes_unfinished_uploads_back_too(world):
    task, people = world.open_round(4, window=900.0)
    leaver, other = people[0], people[1]
    upload = leaver.update()
    leaver.sp.upload(task, 1, upload)
    place = f"/v1/tasks/{task}/rounds/1/uploads/{leaver.who}"
    head = Head.of(upload)
    first = upload[head.parts()[0]]
    sent = {"media_type": "application/octet-stream", "digest": head.digest}
    leaver.sp.service.call("PATCH", f"{place}?offset=0", first, **sent)
    assert leaver.sp.service.call("GET", f"{place}/offset?digest={head.digest}").whole("offset") == len(first)
    with pytest.raises(Forbidden):
        other.sp.service.call("DELETE", f"/v1/tasks/{task}/participants/{leaver.who}?withdraw=true")
    assert leaver.sp.leave(task, withdraw=True) == {"deleted": [1], "standing": []}
    held = [path.read_bytes() for path in (world.folder / "sp").rglob("*") if path.is_file()]
    assert not any(upload[:50] in data for data in held)
    with pytest.raises(Withdrawn):
        leaver.sp.upload(task, 1, upload)
    assert other.sp.leave(task) == {"deleted": [], "standing": []}


def test_a_replaced_device_is_told_so_by_name(world):
    task, people = world.open_round(4, window=901.0)
    old = people[0]
    new = person_in(world, task, "new phone", replaces=old.who)
    with pytest.raises(Replaced):
        old.sp.upload(task, 1, old.update())
    assert new.sp.status(task)["enrolled"] == 4
