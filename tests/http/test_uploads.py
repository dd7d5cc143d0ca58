"""Uploads: whole or in pieces, acknowledged once, with a receipt that anyone can check."""

import asyncio
import errno
import fcntl
import hashlib
import io
import os
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from crowdfl.crypto import leaves
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Receipt
from crowdfl.errors import (
    AlreadyCounted,
    BadSignature,
    Conflict,
    LimitExceeded,
    NotReady,
    ServiceUnavailable,
    StoreUnavailable,
    Truncated,
    UploadDamaged,
)
from crowdfl.protocols.uploads import Head, upload_digest
from crowdfl.roles.sp.aggregators import read_upload, upload_name
from crowdfl.services.apps import sp_uploads
from crowdfl.services.apps.sp_uploads import Batches, UnfinishedUploads
from crowdfl.services.client import in_pieces
from crowdfl.services.client.transport import Signer
from tests.hosts import HARDENED


def place(task, who, rest=""):
    return f"/v1/tasks/{task}/rounds/1/uploads/{who}{rest}"


def ahead(person, task, target, body=b"", upload=None):
    """A request for an upload, or a piece of one, signed by the upload's name."""
    method = "PATCH" if "offset=" in target else "PUT"
    return person.sp.service.call(method, place(task, person.who, target), body, digest=upload_digest(upload or body))


def commit(person, task, upload):
    digest = {"digest": upload_digest(upload)}
    return person.sp.service.send_json("POST", place(task, person.who, "/commit"), digest).text("receipt")


def offset_at(person, task, upload):
    digest = upload_digest(upload)
    return person.sp.service.call("GET", place(task, person.who, f"/offset?digest={digest}")).whole("offset")


def slices(upload):
    return Head.of(upload).parts()


@pytest.fixture
def pieces(world, monkeypatch):
    """A round whose uploads have several pieces, and three people in it."""
    monkeypatch.setattr(leaves, "_LEAST", 16)
    return world.open_round()


def test_an_upload_is_created_once_and_its_receipt_is_signed_by_sp(campaign, person):
    """201, then 200 for the same bytes with the same receipt; other bytes are refused."""
    task, upload = campaign.task, person.update()
    first, again = (ahead(person, task, "", upload) for _ in range(2))
    assert (first.status, again.status) == (201, 200)
    receipt = first.text("receipt")
    assert receipt == again.text("receipt")
    expected = Receipt(task, 1, person.who, upload_digest(upload), late=False)
    assert Receipt.open(receipt, person.sp.key()) == expected
    with pytest.raises(BadSignature):
        Receipt.open(receipt, SigningKey.fresh().public)
    with pytest.raises(AlreadyCounted):
        person.sp.upload(task, 1, person.update())
    assert [u.who for u in campaign.world.sp.store.uploads(task, 1)].count(person.who) == 1


def test_an_upload_in_pieces_goes_on_where_it_stopped_and_gets_the_receipt_of_a_whole_one(world, pieces):
    """Only what is missing is sent, and nothing is left of the pieces; the receipt again, as its answer may have been lost."""
    task, (person, *_) = pieces
    upload, sent = person.update(), []
    first, *others = slices(upload)
    assert len(others) > 1
    ahead(person, task, "?offset=0", upload[first], upload)
    person.sp.service.http.event_hooks = {"request": [lambda request: sent.append((request.method, request.url.query))]}
    receipt = person.sp.upload_in_pieces(task, 1, upload)
    assert [query for method, query in sent if method == "PATCH"] == [f"offset={others[0].start}".encode()]
    assert commit(person, task, upload) == receipt == person.sp.upload(task, 1, upload)
    assert list((world.folder / "sp" / "incoming").glob("*.part")) == []
    assert world.sp.blobs.get(upload_name(task, 1, upload_digest(upload))) == upload


def test_a_piece_at_the_wrong_place_is_refused(pieces):
    """A gap would go unnoticed until the end. Nor can anything be finished that was not begun."""
    task, (person, *_) = pieces
    upload = person.update()
    first, second, third, *_ = slices(upload)
    with pytest.raises(NotReady):
        commit(person, task, upload)
    with pytest.raises(Conflict, match="start again at 0"):
        ahead(person, task, f"?offset={second.start}", upload[second], upload)
    ahead(person, task, "?offset=0", upload[first], upload)
    for start, part in ((second.start + 1, second), (third.start, third)):
        with pytest.raises(Conflict):
            ahead(person, task, f"?offset={start}", upload[part], upload)
    assert offset_at(person, task, upload) == first.stop


def test_a_piece_must_be_the_one_of_its_place_in_this_very_upload(pieces):
    """Swapped between places, uploads or lengths, cut, altered or twice as long: refused as it comes, and nothing is kept."""
    task, (person, other, _) = pieces
    upload, elsewhere = person.update(), other.update()
    first, second, third, *_ = slices(upload)
    head = len(Head.of(upload).data)
    bad = [upload[:head] + elsewhere[head : first.stop], elsewhere[first], upload[: first.stop - 1], upload[: head - 1]]
    for piece in [
        *bad,
        upload[first] + upload[third],
        bytes([upload[9] ^ 1]).join([upload[:9], upload[10 : first.stop]]),
    ]:
        with pytest.raises((BadSignature, LimitExceeded)):
            ahead(person, task, "?offset=0", piece, upload)
    assert offset_at(person, task, upload) == 0
    ahead(person, task, "?offset=0", upload[first], upload)
    for piece in (
        upload[third],
        elsewhere[second],
        upload[second][:-1],
        upload[second] + b"x",
        upload[second.start :] + b"x",
        upload[head : first.stop],
    ):
        with pytest.raises((BadSignature, LimitExceeded)):
            ahead(person, task, f"?offset={second.start}", piece, upload)
    assert offset_at(person, task, upload) == first.stop
    assert person.sp.upload_in_pieces(task, 1, upload)


@pytest.mark.parametrize("how", ["pieces", "whole"])
def test_leaves_that_nobody_has_signed_are_refused(pieces, how):
    """Whoever has a participant's connection, and not its key, makes leaves that fit other shares."""
    task, (person, *_) = pieces
    upload = person.update()
    head = Head.of(upload)
    shares = bytes(head.total)
    forged = head.data.replace(head.leaves, leaves.leaves_of(shares)) + shares
    send = person.sp.upload_in_pieces if how == "pieces" else person.sp.upload
    with pytest.raises(BadSignature, match="its hash"):
        send(task, 1, forged)
    assert send(task, 1, upload)


def test_nobody_adds_to_an_upload_while_it_is_finished(pieces, monkeypatch):
    """What was looked at is what is kept."""
    task, (person, *_) = pieces
    upload = person.update()
    for piece in slices(upload):
        ahead(person, task, f"?offset={piece.start}", upload[piece], upload)
    take, seen = UnfinishedUploads.take, []

    def looking(self, *asked):
        with self.path(*asked[:4]).open("rb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                seen.append("held")
        return take(self, *asked)

    monkeypatch.setattr(UnfinishedUploads, "take", looking)
    commit(person, task, upload)
    assert seen == ["held"]


def test_finishing_too_early_keeps_what_is_in(pieces):
    """Bytes are missing; they can still be sent."""
    task, (person, *_) = pieces
    upload = person.update()
    ahead(person, task, "?offset=0", upload[slices(upload)[0]], upload)
    with pytest.raises(Truncated):
        commit(person, task, upload)
    assert offset_at(person, task, upload) == slices(upload)[0].stop
    assert person.sp.upload_in_pieces(task, 1, upload)


@pytest.mark.parametrize("restarted", [False, True])
def test_pieces_that_were_altered_on_disk_are_found_out(world, pieces, restarted):
    """By the process that has checked them when it reads them again, by another one at once; then all is sent again."""
    task, (person, *_) = pieces
    upload = person.update()
    for part in slices(upload):
        ahead(person, task, f"?offset={part.start}", upload[part], upload)
    (file,) = (world.folder / "sp/incoming").glob("*.part")
    if restarted:
        world.restart()
    file.write_bytes(upload[:-1] + bytes([upload[-1] ^ 1]))
    if restarted:
        with pytest.raises(Truncated):
            commit(person, task, upload)
        assert person.sp.upload_in_pieces(task, 1, upload)
        return
    commit(person, task, upload)
    with pytest.raises(UploadDamaged):
        read_upload(world.sp.blobs, upload_name(task, 1, upload_digest(upload)))


def test_leftovers_of_other_bytes_are_replaced(world, pieces):
    """A partial upload of an earlier attempt does not stand in a new one's way, nor beside it."""
    task, (person, *_) = pieces
    upload, earlier = person.update(), person.update()
    for one in (earlier, upload):
        ahead(person, task, "?offset=0", one[slices(one)[0]], one)
    assert len(list((world.folder / "sp/incoming").glob("*.part"))) == 1
    assert person.sp.upload_in_pieces(task, 1, upload)


@pytest.mark.parametrize("whole", [1, 700, 10**6])
def test_a_long_upload_goes_in_as_many_requests_as_it_takes(world, pieces, monkeypatch, whole):
    """Whole, or some pieces at a time; what is signed, kept and acknowledged is the same."""
    monkeypatch.setattr(sp_uploads, "IN_MEMORY", 100)
    monkeypatch.setattr(in_pieces, "WHOLE", whole)
    task, (person, other, _) = pieces
    upload, altered = person.update(), other.update()
    assert person.sp.send(task, 1, person.keys, upload)
    assert world.sp.blobs.get(upload_name(task, 1, upload_digest(upload))) == upload
    assert list((world.folder / "sp" / "incoming").glob("*.part")) == []
    with pytest.raises(BadSignature):
        other.sp.send(task, 1, other.keys, altered[:-1] + bytes([altered[-1] ^ 1]))


def test_an_upload_that_is_all_head_goes_in_pieces_too(world, monkeypatch):
    """Of the other profiles: it is held against its name when all of it is there."""
    monkeypatch.setattr(leaves, "_LEAST", 256)
    task, (person, *_) = world.open_round(**HARDENED)
    upload = person.update()
    assert len(slices(upload)) > 1
    ahead(person, task, "?offset=0", bytes(len(upload)), upload)
    with pytest.raises(Truncated):
        commit(person, task, upload)
    assert person.sp.upload_in_pieces(task, 1, upload)


def test_from_arrival_to_the_sum_each_byte_of_an_upload_is_hashed_once(world, pieces, monkeypatch):
    """In pieces and whole, added up, read again and added up again: the leaves take all of it, once."""
    task, people = pieces
    uploads = [person.update() for person in people]
    heads = [Head.of(upload) for upload in uploads]
    hashed, elsewhere = [0], []

    def watched(hashing, see):
        class Watched:
            def __init__(self, data=b""):
                self.inner = hashing()
                self.update(data)

            def update(self, data):
                see(bytes(data))
                self.inner.update(data)

            def __getattr__(self, asked):
                return getattr(self.inner, asked)

        return Watched

    def count(data):
        hashed[0] += len(data)

    def look(data):
        elsewhere.extend(upload for upload in uploads if upload[-16:] in data)

    monkeypatch.setattr(leaves, "blake3", watched(leaves.blake3, count))
    monkeypatch.setattr(hashlib, "sha256", watched(hashlib.sha256, look))
    send = [people[0].sp.upload_in_pieces, people[1].sp.upload_in_pieces, people[2].sp.upload]
    for person, upload in zip(send, uploads, strict=True):
        person(task, 1, upload)
    for _ in range(2):
        assert world.sp.aggregators.add_new(task, 1, 100) == 3
        assert world.sp.aggregators.damaged(task, 1) == []
        world.sp.aggregators.forget(task, 1)
    places = sum(len(head.parts()) for head in heads) * len(b"crowdfl leaf 1" + bytes(16))
    assert (hashed, elsewhere) == ([sum(head.total for head in heads) + places], [])


def test_a_participant_has_one_unfinished_upload(tmp_path):
    """Another round's replaces it, so that the disk a participant can take is bounded."""
    incoming = UnfinishedUploads(tmp_path)
    for number in (1, 2):
        incoming.append(incoming.path("t", number, "w", "d"), 0, io.BytesIO(b"piece"), 10**6)
    assert (incoming.offset("t", 1, "w", "d"), len(list(tmp_path.glob("*.part")))) == (0, 1)


def test_a_full_disk_leaves_no_half_piece(tmp_path, monkeypatch):
    """What arrived before stays; the piece can be sent again where it began."""
    unfinished = UnfinishedUploads(tmp_path)
    path = unfinished.path("t", 1, "p", "d")
    assert unfinished.append(path, 0, io.BytesIO(b"first"), 100) == 5

    def half(piece, file, _length):
        file.write(piece.read(3))
        file.flush()
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", half)
        with pytest.raises(OSError, match="no space"):
            unfinished.append(path, 5, io.BytesIO(b"second"), 100)
    assert unfinished.offset("t", 1, "p", "d") == 5
    assert unfinished.append(path, 5, io.BytesIO(b"second"), 100) == 11


def test_beginning_anew_leaves_alone_what_was_acknowledged_or_is_read(tmp_path):
    """The store's name of an upload may be a second name of the file that came: its sender can alter neither."""
    unfinished, kept = UnfinishedUploads(tmp_path), tmp_path / "acknowledged"
    path = unfinished.path("t", 1, "p", "d")
    unfinished.append(path, 0, io.BytesIO(b"whole"), 100)
    os.link(path, kept)
    with path.open("rb") as read:
        assert unfinished.append(path, 0, io.BytesIO(b""), 100) == 0
        assert (kept.read_bytes(), read.read()) == (b"whole", b"whole")
    assert unfinished.append(path, 0, io.BytesIO(b"again"), 100) == 5


def test_a_piece_that_waited_does_not_go_into_a_file_that_is_gone(tmp_path, monkeypatch):
    """Another request has begun it anew, or has finished it, while this one waited for its turn."""
    unfinished, kept = UnfinishedUploads(tmp_path), tmp_path / "acknowledged"
    path = unfinished.path("t", 1, "p", "d")
    unfinished.append(path, 0, io.BytesIO(b"whole"), 100)
    os.link(path, kept)
    lock, waited = fcntl.flock, []

    def finished_meanwhile(file, how):
        lock(file, how)
        if not waited:
            waited.append(unfinished.discard("t", 1, "p", "d"))

    monkeypatch.setattr(fcntl, "flock", finished_meanwhile)
    with pytest.raises(Conflict, match="0 bytes have arrived, not 5"):
        unfinished.append(path, 5, io.BytesIO(b"more"), 100)
    assert (kept.read_bytes(), path.read_bytes()) == (b"whole", b"")


def test_what_nobody_continues_is_swept(tmp_path):
    now = [0.0]
    incoming = UnfinishedUploads(tmp_path, lambda: now[0])
    incoming.append(incoming.path("t", 1, "w", "d"), 0, io.BytesIO(b"piece"), 10**6)
    now[0] = (next(tmp_path.glob("*.part"))).stat().st_mtime + 6 * 86400
    assert incoming.sweep() == 0
    now[0] += 2 * 86400
    assert incoming.sweep() == 1


def test_what_is_finished_while_it_is_looked_at_stops_no_sweep(tmp_path):
    finished, stale = ((tmp_path / f"{name}.part") for name in ("finished", "stale"))

    def now() -> float:
        finished.unlink(missing_ok=True)
        return time.time()

    incoming = UnfinishedUploads(tmp_path, now)
    for path in (finished, stale):
        path.write_bytes(b"piece")
        os.utime(path, (0.0, 0.0))
    assert incoming.sweep() == 1
    assert not stale.exists()


def test_uploads_at_once_share_batches_and_each_gets_its_own_receipt(campaign):
    """Threads of a crowd; one among them sends bytes that are no upload."""
    people = [campaign.world.add_person(campaign.task) for _ in range(8)]
    uploads = [person.update() for person in people]
    uploads[3] = uploads[3][:-1]
    groups = []
    whole = campaign.world.sp.uploads.receive

    def noted(task, number, arrivals):
        groups.append(len(arrivals))
        time.sleep(0.3)  # so that others come meanwhile
        return whole(task, number, arrivals)

    campaign.world.sp.uploads.receive = noted
    try:
        with ThreadPoolExecutor(8) as pool:
            sent = [
                pool.submit(person.sp.upload, campaign.task, 1, upload)
                for person, upload in zip(people, uploads, strict=True)
            ]
    finally:
        campaign.world.sp.uploads.receive = whole
    for number, (person, upload, future) in enumerate(zip(people, uploads, sent, strict=True)):
        if number == 3:
            assert isinstance(future.exception(), Truncated)
        else:
            receipt = Receipt.open(future.result(), person.sp.key())
            assert (receipt.who, receipt.digest) == (person.who, upload_digest(upload))
    assert sum(groups) == 8
    assert max(groups) > 1


@pytest.mark.parametrize(
    ("number", "status"), [("1", 201), ("01", 201), ("0", 422), ("1000001", 422), ("one", 422), ("-1", 422)]
)
def test_an_odd_path_is_judged_as_on_every_other_route(campaign, person, number, status):
    """The short way of uploads takes plain numbers alone; FastAPI says what is wrong with the others."""
    target = f"/v1/tasks/{campaign.task}/rounds/{number}/uploads/{person.who}"
    upload = person.update()
    headers = Signer(person.who, person.keys.signing).headers(
        "PUT", target, upload, campaign.world.clock.now(), upload_digest(upload)
    )
    assert campaign.world.http("sp").put(target, content=upload, headers=headers).status_code == status


class Work:
    """Doubles numbers once its gate is open; odd ones are refused. Notes the batches it was given."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, int]] = []
        self.at_once = self.most_at_once = 0
        self.failing = False
        self.gate, self._lock = threading.Event(), threading.Lock()

    def __call__(self, key: str, items: Sequence[int]) -> list[int | Exception]:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.batches.append((key, len(items)))
        self.gate.wait(5)
        with self._lock:
            self.at_once -= 1
        if self.failing:
            raise StoreUnavailable("the disk is gone")
        return [ValueError(f"odd {item}") if item % 2 else 2 * item for item in items]


def asked(work: Work, *wishes: tuple[str, int], patience: float = 0.2) -> list[int | BaseException]:
    """Everything asked for at once; the gate opens after a while."""

    async def ask() -> list[int | BaseException]:
        batches: Batches[str, int, int] = Batches(work)
        asyncio.get_running_loop().call_later(patience, work.gate.set)
        answers = await asyncio.gather(*(batches.run(*wish) for wish in wishes), return_exceptions=True)
        assert batches._tasks == batches._waiting == {}
        return answers

    return asyncio.run(ask())


def test_those_who_wait_share_batches_and_each_gets_its_own_answer():
    """The first batch takes who is there, the others wait in batches of a bounded size, two at a time."""
    work = Work()
    assert asked(work, *(("t", n) for n in range(0, 200, 2)), patience=1.0) == [2 * n for n in range(0, 200, 2)]
    sizes = [size for _, size in work.batches]
    assert sum(sizes) == 100
    assert max(sizes) == 16
    assert len(sizes) < 12
    assert work.most_at_once == 2


def test_a_refusal_is_told_to_whoever_asked():
    answers = asked(Work(), *(("t", n) for n in range(20)))
    assert [str(a) if n % 2 else a for n, a in enumerate(answers)] == [
        f"odd {n}" if n % 2 else 2 * n for n in range(20)
    ]


def test_a_failure_is_told_to_everyone_in_the_batch_and_the_next_goes_on():
    """Nobody is told that something is durable which is not."""
    work = Work()
    work.failing = True
    assert all(isinstance(answer, StoreUnavailable) for answer in asked(work, ("t", 2), ("t", 4), ("t", 6)))
    work.failing = False
    assert asked(work, ("t", 8)) == [16]


def test_batches_are_of_one_key():
    work = Work()
    assert asked(work, ("a", 2), ("b", 4), ("a", 6), ("b", 8)) == [4, 8, 12, 16]
    assert {key for key, _ in work.batches} == {"a", "b"}
    assert sum(size for key, size in work.batches if key == "a") == 2


def test_one_who_gives_up_keeps_nobody_waiting():
    work = Work()

    async def ask() -> int:
        batches: Batches[str, int, int] = Batches(work)
        impatient = asyncio.ensure_future(batches.run("t", 2))
        patient = asyncio.ensure_future(batches.run("t", 4))
        await asyncio.sleep(0.05)
        impatient.cancel()
        work.gate.set()
        answer = await patient
        with pytest.raises(asyncio.CancelledError):
            await impatient
        return answer

    assert asyncio.run(ask()) == 8


def test_one_who_comes_as_all_batches_end_is_not_forgotten():
    """Between the end of the last batch and the loop's notice of it."""
    gate: asyncio.Event

    class Gated(Batches[str, int, int]):
        async def _outcomes(self, key: str, items: Sequence[int]) -> Sequence[int | Exception]:
            await gate.wait()
            return [2 * item for item in items]

    async def ask() -> list[int]:
        nonlocal gate
        gate = asyncio.Event()
        batches = Gated(Work())

        async def late() -> int:
            await gate.wait()
            return await batches.run("t", 6)

        first = asyncio.ensure_future(batches.run("t", 2))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(batches.run("t", 4))
        await asyncio.sleep(0.05)
        third = asyncio.ensure_future(late())
        await asyncio.sleep(0.05)
        gate.set()
        return await asyncio.wait_for(asyncio.gather(first, second, third), 5)

    assert asyncio.run(ask()) == [4, 8, 12]


def test_work_that_answers_too_little_keeps_nobody_waiting():
    """A mistake of the program's, told to those in the batch; who came meanwhile goes on."""
    work = Work()

    async def ask() -> list[int | BaseException]:
        batches: Batches[str, int, int] = Batches(lambda key, items: work(key, items)[: 8 if len(items) > 8 else None])
        work.gate.set()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        return await asyncio.gather(*(batches.run("t", 2 * n) for n in range(20)), return_exceptions=True)

    answers = asyncio.run(asyncio.wait_for(ask(), 10))
    assert answers[:8] == [4 * n for n in range(8)]
    assert {type(answer) for answer in answers[8:16]} == {ServiceUnavailable}
    assert answers[16:] == [4 * n for n in range(16, 20)]
