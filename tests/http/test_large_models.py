"""Large models on their way: a task's first weights to SP, and SP's sum to CSP, in pieces as uploads are."""

import hashlib
import time
from dataclasses import replace

import numpy as np
import pytest

from crowdfl.crypto import leaves
from crowdfl.errors import BadSignature, Conflict, LimitExceeded, NotAuthenticated, NotReady, QuotaExceeded
from crowdfl.learning.models.forms import to_safetensors
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.uploads import Head, Parcel
from crowdfl.roles.limits import SpQuotas
from crowdfl.services.apps.sp_uploads import UnfinishedUploads
from crowdfl.services.apps.sp_weights import UnfinishedWeights
from crowdfl.services.client import in_pieces, transport
from crowdfl.services.client.in_pieces import InPieces
from crowdfl.services.client.transport import Bearer
from tests.http.test_dealt import SlowAnswers
from tests.http.world import INITIAL, INITIAL_MODEL, definition_of, task_definition

WEIGHTS = bytes(range(256)) * 20
PIECE = 256


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Pieces of some bytes, one in each request."""
    monkeypatch.setattr(leaves, "_LEAST", PIECE)
    monkeypatch.setattr(in_pieces, "WHOLE", 1)


def parcel(world, body=WEIGHTS, credential=None):
    return InPieces.parcel(world.service("sp", credential or world.owner("sp")), "/v1/weights", body)


def held(world):
    return sorted((world.folder / "sp/incoming/weights").glob("*"))


def first(one):
    return one.head.parts()[0].stop


def test_first_weights_come_in_pieces_and_none_is_left(world):
    task = world.post()
    assert world.sp.blobs.get(f"{task}/initial") == INITIAL
    assert held(world) == []


def test_first_weights_go_on_after_a_restart(world, monkeypatch):
    """Of what has arrived nothing is sent again; the task is posted once, however often it is asked for."""
    monkeypatch.setattr(leaves, "_LEAST", 64)
    sent, send = [], InPieces._send

    def lost(self, offset, last):
        sent.append(offset)
        if len(sent) == 2:
            raise ConnectionError("gone")
        return send(self, offset, last)

    monkeypatch.setattr(InPieces, "_send", lost)
    with pytest.raises(ConnectionError):
        world.create(task_definition(), INITIAL_MODEL)
    assert len(held(world)) == 1
    world.restart()
    task = world.create(task_definition(), INITIAL_MODEL)
    assert sent == sorted(sent)
    assert sent.count(0) == 1
    assert world.create(task_definition(), INITIAL_MODEL) == task
    assert sent.count(0) == 1
    assert world.sp.blobs.get(f"{task}/initial") == INITIAL


def test_a_bad_piece_is_refused_by_its_number(world):
    one = parcel(world)
    one._send(0, first(one))
    part = one.head.parts()[1]
    altered = bytes([WEIGHTS[0] ^ 1]) + one.data[part.start + 1 : part.stop]
    target = f"{one.place}?offset={part.start}{one.more}"
    with pytest.raises(BadSignature, match="piece 2"):
        one.service.call("PATCH", target, altered)
    assert one.offset() == part.start
    with pytest.raises(Conflict, match="no piece of this upload begins at"):
        one.service.call("PATCH", f"{one.place}?offset={part.start + 1}{one.more}", altered)


def test_a_head_of_another_name_is_refused(world):
    one = parcel(world)
    other = replace(one, place=f"/v1/weights/{'0' * 64}")
    with pytest.raises(BadSignature, match="head"):
        other._send(0, first(one))
    assert held(world) == []


def test_more_bytes_than_were_said_are_refused(world):
    one = replace(parcel(world), more=f"&total={len(WEIGHTS) - 1}")
    with pytest.raises(LimitExceeded):
        one.send_rest()


def test_first_weights_that_are_too_large_are_refused_before_a_byte_of_them_is_taken(world):
    world.options.quotas.__dict__["initial_bytes"] = len(WEIGHTS) - 1
    try:
        world.restart()
        with pytest.raises(LimitExceeded, match="max_initial_bytes"):
            parcel(world)._send(0, 10)
        assert held(world) == []
    finally:
        world.options.quotas.__dict__["initial_bytes"] = float("inf")


def test_a_stranger_sends_none(world):
    with pytest.raises(NotAuthenticated):
        parcel(world, credential=Bearer("nobody's"))._send(0, 10)
    assert held(world) == []


def test_one_requester_has_one_unfinished_file_and_all_together_a_few(tmp_path):
    files, quotas = UnfinishedWeights(tmp_path), SpQuotas(initial_bytes=100)
    for number in range(8):
        files.path(f"requester {number}", "a" * 64).write_bytes(bytes(100))
    with pytest.raises(QuotaExceeded, match="8 other requesters"):
        files.require_room("another", 1, quotas)
    files.require_room("requester 3", 100, quotas)  # in place of its own
    with files._open(files.path("requester 3", "b" * 64), anew=True):
        pass
    assert len(list(tmp_path.glob("*.part"))) == 8


def test_what_nobody_continues_is_swept(tmp_path):
    """Once an hour, with uploads that nobody continues."""
    now = [time.time()]
    uploads, files = UnfinishedUploads(tmp_path, lambda: now[0]), UnfinishedWeights(tmp_path / "weights")
    kept = files.path("requester", "a" * 64)
    kept.write_bytes(b"some")
    assert uploads.sweep() == 0
    now[0] += 8 * 24 * 3600.0
    assert uploads.sweep() == 1
    assert not kept.exists()


def test_weights_that_are_not_the_definitions_are_refused_and_kept_for_nobody(world):
    other = to_safetensors(ModelShape(("w", "b"), ((2, 3), (2,))), [np.ones((2, 3)), np.ones(2)])
    one = parcel(world, other)
    one.send_rest()
    text = definition_of(world.requester.signing).sign(world.requester.signing)
    appointment = world.requester.kgc.create_task(text).appointment
    papers = {"definition": text, "appointment": appointment}
    service = world.service("sp", world.owner("sp"))
    with pytest.raises(NotReady, match="first weights are not here"):
        service.send_json("POST", "/v1/tasks", papers | {"weights": ""})
    with pytest.raises(Exception, match="not those the definition names"):
        service.send_json("POST", "/v1/tasks", papers | {"weights": one.head.digest})
    with pytest.raises(NotReady, match="nothing of this has arrived"):
        service.send_json("POST", "/v1/tasks", papers | {"weights": "0" * 64})
    assert world.sp.store.tasks() == []


@pytest.fixture
def csp(world, monkeypatch):
    world.patience = 0.05
    world.start_csp()
    slow = SlowAnswers(world.csp)
    monkeypatch.setattr(world.csp, "answer", slow.answer)
    slow.go.set()
    task = world.post()
    return slow, world.csp_for("sp"), task


REQUEST = b"request " * 1000


def test_a_long_request_reaches_csp_in_pieces(world, csp):
    """Once, though it is asked for twice; no piece is left when it is answered."""
    answers, client, task = csp
    assert client.answer(task, REQUEST) == b"reply to " + REQUEST
    assert answers.started == [REQUEST]
    assert client.answer(task, REQUEST) == b"reply to " + REQUEST
    assert answers.started == [REQUEST]
    assert sorted((world.folder / "csp/incoming").glob("*")) == []


def test_a_long_request_goes_on_after_a_restart_of_csp(world, csp):
    answers, client, task = csp
    place = f"/v1/tasks/{task}/requests"
    one = InPieces.parcel(client.service, place, REQUEST)
    one._send(0, first(one))
    world.start_csp()
    assert one.offset() == first(one)
    with pytest.raises(Exception, match="send the rest"):
        client.service.call("POST", one.place)
    assert client.answer(task, REQUEST) == b"reply to " + REQUEST
    assert answers.started == [REQUEST]


def test_a_request_longer_than_a_task_can_have_is_refused(world, csp):
    _, client, task = csp
    with pytest.raises(LimitExceeded, match="most of this task"):
        client.service.call("PATCH", f"/v1/tasks/{task}/requests/{'0' * 64}?offset=0&total={2**29}", b"x")


def test_a_long_answer_of_csp_is_a_file_of_sps(world, csp, monkeypatch, tmp_path):
    """It is in memory piece by piece, and gone when nobody looks at it any more."""
    folder = tmp_path / "long answers"
    folder.mkdir()
    monkeypatch.setattr(transport, "LONG_BYTES", 100)
    _, client, task = csp
    found = replace(client, folder=folder).answer(task, REQUEST)
    assert (len(found), found[:9]) == (9 + len(REQUEST), b"reply to ")
    assert len(list(folder.iterdir())) == 1
    del found
    assert list(folder.iterdir()) == []


def test_a_parcel_is_named_after_its_leaves():
    one = Parcel.of(WEIGHTS)
    whole = one.to_bytes()
    head = Head.of(whole)
    assert whole == head.data + WEIGHTS == one.head() + WEIGHTS
    assert head.digest == hashlib.sha256(one.head()).hexdigest()
    assert len(head.parts()) == -(-len(WEIGHTS) // leaves.piece_bytes(len(WEIGHTS)))
