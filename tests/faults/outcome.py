"""What a campaign left behind, read from the files of its roles, in a form that can be compared with another campaign's."""

import json
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import numpy as safetensors_numpy

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Receipt, participant_name
from crowdfl.learning.oracle import fedavg
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.hardened.bundles import CspBundle
from crowdfl.protocols.hardened.opening import CHUNK, OpenRequest
from crowdfl.protocols.hardened.profile import HardenedSpRound
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.shares.round.manifest import StepRequest
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.dealt import is_dealt_file
from crowdfl.storage.atomic import signing_key
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.s3 import S3Blobs
from crowdfl.storage.sql import SqlStore
from tests.faults.child import BUDGET, PEOPLE, SHARES, bucket_of, database_url, shared_update, update
from tests.hosts import INITIAL_MODEL

__all__ = ["ROUNDING", "Outcome", "plain_average"]

ROUNDING = 1e-3  # of a weight: SETTINGS' decimals
_MILLIONTHS = 2 * PEOPLE  # a reward is one of two neighbours, by a draw


def plain_average(number: int) -> npt.NDArray[np.float64]:
    trained = [update(person, [], {}, number) for person in range(PEOPLE)]
    return fedavg([np.concatenate([a.reshape(-1) for a in arrays]) for arrays, _ in trained], [s for _, s in trained])


def shared_average(number: int) -> npt.NDArray[np.float64]:
    """The same of a campaign of `shares`, where each round starts from the model of the one before."""
    model = [np.asarray(array) for array in INITIAL_MODEL]
    for round_number in range(1, number + 1):
        trained = [shared_update(person, model, {}, round_number) for person in range(PEOPLE)]
        flat = [np.concatenate([array.reshape(-1) for array in arrays]) for arrays, _ in trained]
        average = np.round(fedavg(flat, [samples for _, samples in trained]), 3)
        model = [average[:6].reshape(2, 3), average[6:]]
    return average


def _told(person: FileBlobs) -> int:
    """What SP has said to somebody to have booked."""
    answer = json.loads(person.get("claim-answered"))["answer"]
    return sum(answer["paid"].values()) + sum(answer["unused"].values())


@dataclass(frozen=True)
class Outcome:
    folder: Path

    @cached_property
    def task(self) -> str:
        return str(json.loads(FileBlobs(self.folder / "requester/blobs").get("invited"))["task"])

    @cached_property
    def people(self) -> list[FileBlobs]:
        return [FileBlobs(self.folder / f"person{number}") for number in range(PEOPLE)]

    @cached_property
    def names(self) -> dict[str, str]:
        """What the platform calls them, and what the test does."""
        keys = [json.loads(person.get("keys"))[0] for person in self.people]
        return {
            participant_name(SigningKey(bytes.fromhex(key)).public): f"person{number}"
            for number, key in enumerate(keys)
        }

    @property
    def blurred(self) -> float:
        """By how much each weight of an average is blurred on purpose: a unit if the total stays hidden."""
        return ROUNDING if self._settings.get("total") == "hidden" else 0.0

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "settings.json").read_text()))

    @property
    def is_shared(self) -> bool:
        """Whether the campaign was one of the profile `shares`."""
        return self._settings.get("profile") == SHARES["profile"]

    def averages(self) -> list[npt.NDArray[np.float64]]:
        """Of round 1 as each person read it, of round 2 as the requester did."""
        read = [person.get("rounds/1/average") for person in self.people]
        read.append(FileBlobs(self.folder / "requester/blobs").get("model"))
        return [_flat(data) for data in read]

    def ledger(self) -> dict[str, tuple[str, str, int]]:
        """The books, with the people's names as the test knows them."""
        with _store(self.folder, "sp") as store:
            moves = store.movements(self.task)
        rows = [(self._named(m.name), (self._named(m.source), self._named(m.target), m.amount)) for m in moves]
        assert len(dict(rows)) == len(rows)
        return dict(rows)

    def handed_over(self) -> list[tuple[str, int]]:
        """What the bank was asked to pay, each time that it was asked."""
        lines = [line.split() for line in (self.folder / "bank").read_text().splitlines()]
        return sorted((self.names[who], int(amount)) for _, who, amount in lines)

    def shown(self) -> Counter[int]:
        """How many different requests of each kind CSP was shown, over all its lives."""
        return Counter(map(Message.kind_of, set(self._requests)))

    def asked(self) -> Counter[int]:
        return Counter(map(Message.kind_of, self._requests))

    def files(self) -> dict[str, set[str]]:
        """What lies where, apart from what was cut short; one hash counts as another."""
        folders = ("kgc/keys", "csp/keys", "csp/blobs", "sp/keys", "sp/blobs", "requester/blobs")
        people = (f"person{number}" for number in range(PEOPLE))
        return {name: set(map(self._plain, self._names(name))) for name in (*folders, *people)}

    def check(self) -> None:
        """What must hold of any campaign: averages, receipts, money, masks."""
        first, *others = self.averages()[:-1]
        assert all(np.array_equal(first, other) for other in others)
        plain = shared_average if self.is_shared else plain_average
        for number, found in ((1, first), (2, self.averages()[-1])):
            assert np.max(np.abs(found - plain(number))) <= ROUNDING + self.blurred
        self._check_uploads()
        self._check_money()
        if self.is_shared:
            self._check_steps()
        else:
            self._check_masks()

    def require_same(self, other: "Outcome") -> None:
        """As an undisturbed campaign of the same updates: averages, books, requests, files."""
        for ours, theirs in zip(self.averages(), other.averages(), strict=True):
            assert np.max(np.abs(ours - theirs)) <= 1e-9 + 2 * self.blurred  # but for that the very integers, divided
        ours, theirs = self.ledger(), other.ledger()
        assert {n: move[:2] for n, move in ours.items()} == {n: move[:2] for n, move in theirs.items()}
        for name, (_, _, amount) in ours.items():
            assert abs(amount - theirs[name][2]) <= (_MILLIONTHS if name.startswith(("pay", "expire", "refund")) else 0)
        assert self.shown() == other.shown(), "CSP was shown something else under masks that were used before"
        kept, usual = self.files(), other.files()
        differ = {name: kept[name] ^ usual[name] for name in usual if kept[name] != usual[name]}
        assert not differ, f"files that only one of the campaigns has: {differ}"

    def _check_uploads(self) -> None:
        """Every receipt is SP's, for the bytes that were counted; each person is counted once."""
        key = signing_key(self.folder / "sp/signing.key").public
        with _store(self.folder, "sp") as store:
            for number in (1, 2):
                counted = [(upload.who, upload.digest) for upload in store.uploads(self.task, number)]
                assert sorted(self.names[who] for who, _ in counted) == sorted(self.names.values())
                for person in self.people:
                    receipt = Receipt.open(person.get(f"rounds/{number}/receipt").decode(), key)
                    assert (receipt.who, receipt.digest) in counted
                    assert receipt.digest == upload_digest(person.get(f"rounds/{number}/upload"))
                    assert not person.has(f"rounds/{number}/refused")

    def _check_money(self) -> None:
        books = self.ledger()
        paid = {name: _told(person) for name, person in zip(self.names.values(), self.people, strict=True)}
        assert {name: sum(books[f"pay {name} round {n}"][2] for n in (1, 2)) for name in paid} == paid
        assert self.handed_over() == sorted(paid.items()), "the bank was asked twice, or not at all"
        assert all(sum(books[f"pay {name} round {n}"][2] for name in paid) <= BUDGET for n in (1, 2))
        assert all(paid.values())
        assert 2 * BUDGET - 2 * _MILLIONTHS <= sum(paid.values()) <= 2 * BUDGET
        inside = sum(a for s, _, a in books.values() if s == "requester") - sum(
            a for _, t, a in books.values() if t == "requester"
        )
        assert inside == sum(paid.values())

    def _check_masks(self) -> None:
        """Each round's sum was masked once and shown once; no two purposes share a seed."""
        bundle = CspBundle.from_bytes(FileBlobs(self.folder / "csp/keys").get(f"{self.task}.csp"), Limits.plain())
        limits = Limits(bundle.public(insecure_test_key=True), max_count=CHUNK)
        opened = [
            OpenRequest.from_bytes(request, limits)
            for request in set(self._requests)
            if Message.kind_of(request) == OpenRequest.kind
        ]
        places = Counter((message.round_number, message.audience, message.start) for message in opened)
        assert set(places.values()) == {1}, "one round was masked for two sums"
        with _store(self.folder, "sp") as store:
            kept = [HardenedSpRound.from_bytes(store.sp_record(self.task, n).round, Limits.plain()) for n in (1, 2)]
        states = [MaskSeed.from_bytes(s) for one in kept for s in (one.rewards, one.scaling, one.opening) if s]
        assert len({state.seed for state in states}) == len({state.digest for state in states}) == len(states)

    def _check_steps(self) -> None:
        """Over all lives, CSP was shown one request for each step of a round; nothing that was dealt is left anywhere."""
        limits = Limits.plain(longest=10**7)
        steps = [
            StepRequest.from_bytes(request, limits)
            for request in set(self._requests)
            if Message.kind_of(request) == StepRequest.kind
        ]
        places = Counter((message.round_number, message.step) for message in steps)
        assert sorted(places) == [(number, step) for number in (1, 2) for step in range(1, len(places) // 2 + 1)]
        assert set(places.values()) == {1}, "one step was asked for with two contents"
        for role in ("sp", "csp"):
            assert not [name for name in self._names(f"{role}/keys") if is_dealt_file(name)]
        assert not [name for name in FileBlobs(self.folder / "kgc/keys").listing() if "source" in name]

    @cached_property
    def _requests(self) -> list[bytes]:
        return [bytes.fromhex(line) for line in (self.folder / "shown").read_text().split()]

    def _names(self, place: str) -> list[str]:
        """Of the blobs there, wherever that is; how keys are sealed is none."""
        role, _, part = place.partition("/")
        bucket = bucket_of(self.folder, role)
        blobs = FileBlobs(self.folder / place) if bucket is None else S3Blobs(bucket, part)
        return [name for name in blobs.listing() if name != "sealing"]

    def _named(self, text: str) -> str:
        for name, person in self.names.items():
            text = text.replace(name, person)
        return text

    def _plain(self, path: str) -> str:
        return "/".join("#" if len(part) >= 64 else part for part in path.replace(self.task, "task").split("/"))


def _store(folder: Path, role: str) -> "closing[SqlStore]":
    return closing(SqlStore(database_url(folder, role)))


def _flat(data: bytes) -> npt.NDArray[np.float64]:
    arrays = safetensors_numpy.load(data)
    return np.concatenate([arrays[name].reshape(-1) for name in ("w", "b")])
