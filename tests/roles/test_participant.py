"""A participant's own affairs: randomizers made while idle, receipts that prove something, deadlines told."""

from dataclasses import replace
from pathlib import Path

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Receipt
from crowdfl.errors import BadSignature, DocumentError, NothingToContribute, TaskNotRunning, TooFewParticipants
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.participant.participant import Participant
from crowdfl.settings import LEAST_PARTICIPANTS
from crowdfl.storage.pools import RandomizerPool
from tests.hosts import HARDENED, Desk, heard, raising


def train(arrays, _settings, number):
    return [array + number for array in arrays], 5


def stocked(desk: Desk, person: int) -> RandomizerPool:
    """Give a participant a pool on disk; the pool as it is now."""
    path = desk.folder / f"people/{person}" / "randomizers.pool"
    desk.crowd[person].open_stock = lambda public: RandomizerPool.open(path, public)
    desk.crowd[person]._side = None
    return RandomizerPool.open(path, desk.crowd[person].side.party.public)


class Signing:
    """SP as a participant reaches it, its receipts signed; `change` alters one before it is."""

    def __init__(self, desk: Desk, key: SigningKey, **change: object) -> None:
        self._desk, self._key, self._change = desk, key, change

    def send(self, task, number, keys, upload):
        entry = self._desk.sp.uploads.one(task, number, keys.who, upload)
        receipt = Receipt(task, number, entry.who, entry.digest, entry.late)
        return replace(receipt, **self._change).sign(self._key)

    def __getattr__(self, name):
        return getattr(self._desk.sp_link, name)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk.funded(tmp_path, 3)


@pytest.fixture
def keyed(tmp_path: Path) -> Desk:
    """Where uploads are ciphertexts."""
    return Desk.funded(tmp_path, 3, **HARDENED)


def test_an_upload_takes_its_randomizers_from_the_stock(keyed):
    """Filled while nothing is open, and empty after one upload, which SP takes."""
    pool, person = stocked(keyed, 0), keyed.crowd[0]
    assert person.stock_up() is True
    assert pool.available == person.side.upload_randomizers() > 0
    assert person.stock_up() is False
    assert person.step(train) is True
    assert pool.available == 0
    assert len(keyed.sp.store.uploads(keyed.task, 1)) == 1


def test_without_enough_in_stock_they_are_made_on_the_spot(keyed):
    """A phone that had no idle moment still takes part, and what little was there stays for later."""
    pool, person = stocked(keyed, 0), keyed.crowd[0]
    person.stock_up()
    pool.take(1)
    left = pool.available
    assert person.step(train) is True
    assert pool.available == left
    assert len(keyed.sp.store.uploads(keyed.task, 1)) == 1


def test_no_randomizer_is_used_again_after_a_crash(keyed, monkeypatch):
    """Killed after encrypting and before the upload is durable: the next try takes others."""
    pool, person = stocked(keyed, 0), keyed.crowd[0]
    person.stock_up()
    made = []
    prepare = type(person.side).encrypt_update

    def crash(side, weights, samples, number):
        made.append(prepare(side, weights, samples, number))
        raise KeyboardInterrupt

    monkeypatch.setattr(type(person.side), "encrypt_update", crash)
    with pytest.raises(KeyboardInterrupt):
        person.step(train)
    monkeypatch.undo()
    person._side = None  # as a new process
    person.stock_up()
    person.step(train)
    sent = person.blobs.get("rounds/1/upload")
    width = person.side.party.public.ciphertext_bytes
    first, second = ({data[-i * width :][:width] for i in range(1, 3)} for data in (made[0], sent))
    assert pool.available == 0
    assert not first & second


def test_nothing_is_stocked_for_a_round_that_will_not_come(keyed):
    pool, person = stocked(keyed, 0), keyed.crowd[0]
    person.blobs.put(f"rounds/{keyed.settings.rounds}/receipt", b"done")
    assert person.stock_up() is False
    assert pool.available == 0


def test_a_signed_receipt_is_checked_and_kept(desk):
    """It names this upload, and says whether it was late."""
    key, person, said = SigningKey.fresh(), desk.crowd[0], heard(desk.crowd[0])
    person.sp, person.sp_key = Signing(desk, key), key.public
    person.step(train)
    kept = Receipt.open(person.blobs.get("rounds/1/receipt").decode(), key.public)
    assert kept.digest == upload_digest(person.blobs.get("rounds/1/upload"))
    assert ("uploaded", {"round": 1, "bytes": len(person.blobs.get("rounds/1/upload")), "late": False}) in said


@pytest.mark.parametrize("change", [{"digest": "0" * 64}, {"round": 2}, {"who": "someone"}, {"task": "0" * 64}])
def test_a_receipt_for_something_else_is_refused(desk, change):
    """A platform could later deny an upload whose receipt proves nothing; it is not kept."""
    key, person = SigningKey.fresh(), desk.crowd[0]
    person.sp, person.sp_key = Signing(desk, key, **change), key.public
    with pytest.raises(DocumentError, match="receipt"):
        person.step(train)
    assert not person.blobs.has("rounds/1/receipt")


def test_a_receipt_of_another_signer_is_refused(desk):
    """The key comes with the invitation."""
    person = desk.crowd[0]
    person.sp, person.sp_key = Signing(desk, SigningKey.fresh()), SigningKey.fresh().public
    with pytest.raises(BadSignature):
        person.step(train)


def test_an_upload_to_a_task_that_was_cancelled_is_told(desk):
    """The participant goes on to its claims instead of trying for ever."""
    person = desk.crowd[0]
    said, desk.sp_link.send = heard(person), raising(TaskNotRunning("the task is cancelled"))
    assert person.step(train) is True
    assert person.step(train) is False
    assert [what for what, _ in said] == ["trained", "refused"]


def test_one_who_was_away_for_several_rounds_comes_back(tmp_path):
    """It reads what it missed and takes part in the round that is open."""
    desk = Desk.funded(tmp_path, 4, rounds=4, window=10.0)
    away = desk.crowd[3]
    for _ in range(2):
        desk.run()
        for person in desk.crowd[:3]:
            person.step(train)
        desk.later(11.0)
    assert away.step(train) is True
    assert [away.blobs.has(f"rounds/{number}/average") for number in (1, 2)] == [True, True]
    assert away.blobs.has("rounds/3/receipt")
    assert not away.blobs.has("rounds/1/upload")


def nothing(arrays, _settings, _number):
    return arrays, 0


def test_without_samples_no_upload_leaves_the_phone(tmp_path):
    """It would hide nobody. The participant is told once, stays in the task, and takes part again in the next round."""
    desk = Desk.funded(tmp_path, 4, window=10.0)
    person, said, trained = desk.crowd[3], [], []
    person.on_event = lambda what, details: said.append((what, details["round"]))
    assert person.step(lambda *args: trained.append(1) or nothing(*args)) is True
    assert person.step(lambda *args: trained.append(1) or nothing(*args)) is False  # nor is it trained again
    assert (said, trained) == ([("nothing to contribute", 1)], [1])
    assert not person.blobs.has("rounds/1/upload")
    for other in desk.crowd[:3]:
        other.step(train)
    assert len(desk.sp.store.uploads(desk.task, 1)) == 3
    desk.later(11.0)
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 4
    assert person.step(train) is True
    assert ("uploaded", 2) in said
    assert ("rewarded", 1) not in said


def test_a_refusal_for_want_of_samples_says_what_to_do(desk):
    with pytest.raises(NothingToContribute, match="stay out of this round"):
        desk.crowd[0].encrypt(1, desk.initial, 0)
    assert not desk.crowd[0].blobs.has("rounds/1/upload")


def careful(desk: Desk, least: int = LEAST_PARTICIPANTS):
    """Somebody new, who accepts no smaller crowd."""
    person = desk.new_participant(desk.task, "careful")
    person.least_participants = least
    return person


def test_a_participant_accepts_no_crowd_below_five_by_itself(desk):
    """This task averages three. Nothing is made or sent, and the refusal names both numbers and the option."""
    person = careful(desk)
    assert Participant("t", person.blobs, person.kgc, person.sp, b"").least_participants == 5
    (invitation,) = desk.requester.invite(desk.task, 1, 1000)
    words = r"as few as 3 participants, and you take part from 5 on.*least_participants=3 .--least-participants 3.$"
    with pytest.raises(TooFewParticipants, match=words):
        person.join(invitation)
    assert not person.blobs.has("keys")
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 3
    person.least_participants = 3
    assert person.join(invitation) == person.keys.who


def test_the_least_number_is_checked_again_before_each_upload(desk):
    """Raised after joining: nothing is trained any more, and what was made before is not sent."""
    person = desk.crowd[0]
    person.least_participants = 3
    person.encrypt(1, desk.initial, 5)
    person.least_participants = 4
    with pytest.raises(TooFewParticipants, match="you take part from 4 on"):
        person.send(1)
    with pytest.raises(TooFewParticipants):
        person.step(train)
    person.blobs.delete("rounds/1/upload")
    with pytest.raises(TooFewParticipants):
        person.step(lambda *_: pytest.fail("no training for an upload that is not sent"))
    assert desk.sp.store.uploads(desk.task, 1) == []
    person.least_participants = 3
    assert person.step(train) is True
    assert [upload.who for upload in desk.sp.store.uploads(desk.task, 1)] == [person.keys.who]


def test_a_task_of_enough_people_is_joined_as_it_comes(tmp_path):
    """The number that counts is the requester's signed promise, which both servers hold to."""
    desk = Desk(tmp_path, min_participants=5)
    (invitation,) = desk.requester.invite(desk.task, 1, 1000)
    person = careful(desk)
    assert person.join(invitation) == person.keys.who
