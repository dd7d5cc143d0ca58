"""Software that participants and servers might run in place of ours: the same keys, used as its owner likes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.crypto.blocks import Block
from crowdfl.crypto.paillier.vector import CipherVector, Unchecked
from crowdfl.errors import CrowdFLError
from crowdfl.protocols.hardened.manifest import HardenedUpload, manifest_of
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.sp.aggregators import upload_name
from tests.hosts import HARDENED, Desk

WEIGHTS = np.array([0.123, -0.987, 0.456, -0.001, 1.5, -0.75, 0.333, 0.25])  # of the model of `small_definition`
BUDGET = 36_000_000  # a round of `Desk`


def paid_desk(folder: Path, people: int, rounds: int, **settings: Any) -> Desk:
    """A task whose people are in, and all of whose rounds are paid for."""
    desk = Desk(folder, rounds=rounds, **HARDENED | settings)
    desk.invite(people)
    desk.requester.fund(desk.task, rounds * BUDGET, "all")
    desk.run()
    return desk


def paid_to(person: Participant) -> int:
    """What a claim brings; nothing if it is refused."""
    try:
        return person.claim()
    except CrowdFLError:
        return 0


def sp_side(desk: Desk) -> Any:
    """SP's half of the protocol, with its key share: what an SP that deviates has."""
    return desk.sp.aggregators.checking(desk.task)


def upload_of(desk: Desk, who: str) -> CipherVector:
    """Of round 1, as SP has it."""
    entry = desk.sp.store.upload(desk.task, 1, who)
    assert entry is not None
    data = desk.sp.blobs.get(f"{desk.task}/rounds/1/uploads/{entry.digest}")
    return Unchecked.parse(HardenedUpload.parse(data).numbers, sp_side(desk).party.public, max_count=99).validate()


def manifest(desk: Desk, number: int, payment: int = BUDGET) -> bytes:
    """What SP can show CSP of a round: the uploads that it has, each signed for that round."""
    entries = desk.sp.store.uploads(desk.task, number)
    names = {one.who: upload_name(desk.task, number, one.digest) for one in entries}
    uploads = {who: HardenedUpload.parse(desk.sp.blobs.get(name)) for who, name in names.items()}
    return manifest_of(number, payment, {who: (one.digest, one.signature) for who, one in uploads.items()}).to_bytes()


def begin(desk: Desk, number: int, payment: int = BUDGET) -> None:
    desk.csp.answer(desk.task, manifest(desk, number, payment))


def raw_upload(desk: Desk, person: Participant, first: int) -> CipherVector:
    """An upload without samples whose first plaintext is any number at all."""
    rows = [_row(person, first)] + [_row(person, 0)] * sp_side(desk).codec.budget.ciphertexts
    return _encrypted(person, np.concatenate(rows))


def sample_upload(desk: Desk, person: Participant, samples: int) -> CipherVector:
    """A model of zeros with any number of samples."""
    rows = [_row(person, 0)] * sp_side(desk).codec.budget.ciphertexts + [_row(person, samples)]
    return _encrypted(person, np.concatenate(rows))


def _row(person: Participant, number: int) -> Block:
    public = person.side.party.public
    return np.frombuffer(int(number % public.n).to_bytes(public.plaintext_bytes, "big"), dtype=np.uint8)[None, :]


def _encrypted(person: Participant, rows: Block) -> CipherVector:
    found: CipherVector = person.side.party.encrypt(rows)
    return found


def send(desk: Desk, number: int, person: Participant, upload: CipherVector) -> None:
    """As if it were an honest one: signed for the round, and the receipt is kept, so that the reward is asked for."""
    side: Any = person.side
    person.blobs.put(f"rounds/{number}/upload", side.sign_upload(upload, number))
    person.send(number)


def honest_uploads(desk: Desk, number: int, models: Sequence[Sequence[float]], counts: Sequence[int]) -> None:
    for person, model, count in zip(desk.crowd, models, counts, strict=False):
        shape = desk.sp.core.definition(desk.task).shape
        person.encrypt(number, shape.arrays(np.asarray(model, dtype=np.float64)), count)
        person.send(number)


def weighted_mean(models: Sequence[Sequence[float]], counts: Sequence[int]) -> Any:
    return np.average(np.asarray(models), axis=0, weights=counts)
