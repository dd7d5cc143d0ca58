"""How these tests drive the parties: short keys, one worker, and a wire between SP and CSP that can be recorded."""

import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import index
from typing import Any

import numpy as np
import pytest

from crowdfl.learning.models.learner import Update
from crowdfl.protocols.common.sdiv import DivideRequest, HardenedSdivCsp
from crowdfl.protocols.exchange import Reply, ask_directly, run_exchange
from crowdfl.protocols.hardened import profile as hardened
from crowdfl.protocols.hardened.manifest import manifest_of, upload_statement
from crowdfl.protocols.messages import Message
from crowdfl.protocols.paper import profile as paper
from crowdfl.protocols.profile import CspProtocol, TaskSpec
from crowdfl.protocols.records import Look, MemoryRecords
from crowdfl.settings import TaskSettings
from crowdfl.simulation.federation import LocalFederation
from crowdfl.simulation.sides import BesideRecords, Parties
from crowdfl_lab.division import DivisionCsp, Pair
from tests.hosts import HARDENED, ONE, SMALL_BOUNDS, test_tools

# Rewards under a short key: every bound is small, every formula the same.
SMALL = SMALL_BOUNDS | HARDENED | {"key_bits": 1024, "lanes": None, "rounds": 1000}
SMALL_PAPER = {**SMALL, "profile": "paper", "key_bits": 512, "mask_bits": 60}


def federation(**settings: Any) -> LocalFederation:
    """A LocalFederation with a test key, for three participants unless told otherwise."""
    defaults = {"profile": "hardened", "max_participants": 3, "key_bits": 512, "lanes": 0}
    return LocalFederation(**({"insecure_test_key": True, "backend": ONE} | defaults | settings))


def updates(models: Sequence[Any], samples: Sequence[int]) -> dict[str, Update]:
    """One update per model: p0, p1, ..."""
    pairs = enumerate(zip(models, samples, strict=True))
    return {f"p{i}": Update([np.asarray(model, dtype=np.float64)], count) for i, (model, count) in pairs}


@contextmanager
def empty_uploads() -> Iterator[None]:
    """Phones that somebody has altered: they upload without a sample too. What leaves such a phone, servers must stand."""
    with pytest.MonkeyPatch.context() as patch:
        for profile in (hardened, paper):
            patch.setattr(profile, "whole_samples", index)
        yield


def converse(step: Generator[bytes, Reply, Any], answer: Callable[[bytes], bytes]) -> Any:
    """Carry a step of SP's to its end; what it returns."""
    return run_exchange(step, ask_directly(answer))


class Keeping(BesideRecords):
    """CSP with its records and answers kept, as the role keeps them. `coins` are those that it draws: by round, once."""

    def __init__(
        self, csp: CspProtocol, records: MemoryRecords | None = None, coins: dict[int, bytes] | None = None
    ) -> None:
        super().__init__(csp, records)
        self.coins = {} if coins is None else coins

    def answer(self, request: bytes) -> bytes:
        self.records.fresh = self._drawing(request)
        return super().answer(request)

    def _drawing(self, request: bytes) -> Callable[[int], bytes]:
        length = int.from_bytes(request[6:10], "big")
        number = int.from_bytes(request[10 : 10 + length], "big") if length < 4 else 0  # the first field of a step
        return lambda size: self.coins.setdefault(number, secrets.token_bytes(size))

    def reserve(self, request: bytes) -> None:
        """As if CSP had died while it computes the answer to this request."""
        look = Look(self.records, fresh=self._drawing(request))
        assert self.side.answer(look, request) is None
        self.records.set(look)

    def reserved(self, request: bytes) -> "Keeping":
        """The next process of such a CSP."""
        dead = Keeping(self.side, self.records.copy(), self.coins)
        dead.reserve(request)
        return dead


@dataclass
class Wire:
    """CSP as SP sees it: what went over the wire, and what CSP had recorded before each request."""

    csp: BesideRecords = field(repr=False)
    requests: list[bytes] = field(default_factory=list, repr=False)
    replies: list[bytes] = field(default_factory=list, repr=False)
    before: list[MemoryRecords] = field(default_factory=list, repr=False)

    def __call__(self, request: bytes) -> bytes:
        self.before.append(self.csp.records.copy())
        self.requests.append(request)
        self.replies.append(self.csp.answer(request))
        return self.replies[-1]

    def ask(self, request: bytes) -> Reply:
        return ask_directly(self)(request)


@dataclass
class Tape:
    """CSP as it was heard before: gives the same replies, whatever it is asked, and keeps the questions."""

    replies: list[bytes]
    requests: list[bytes] = field(default_factory=list)

    def __call__(self, request: bytes) -> bytes:
        self.requests.append(request)
        return self.replies[len(self.requests) - 1]


class SmallParties(Parties):
    def upload(self, weights: Sequence[float], samples: int, who: str, number: int = 1) -> bytes:
        return self.people[who].encrypt_update(np.asarray(weights, dtype=np.float64), samples, number)

    def manifest(self, number: int, payment: int = 0, digest: bytes = bytes(range(32)), people: Any = None) -> bytes:
        """One of `hardened`, of uploads with this hash that all of these have signed for."""
        task, keys = self.spec.name, {who: self.keys[who].signing for who in people or self.people}
        signed = {who: key.sign(upload_statement(task, number, who, digest)) for who, key in keys.items()}
        return manifest_of(number, payment, {who: (digest, by) for who, by in signed.items()}).to_bytes()


def deal(participants: int = 3, parameters: int = 2, name: str = "task", **settings: Any) -> SmallParties:
    """All sides of a task under a test key."""
    defaults = {"profile": "hardened", "max_participants": participants, "key_bits": 512, "lanes": 0}
    spec = TaskSpec(name, TaskSettings.of(**(defaults | settings)), parameters)
    return SmallParties(spec, test_tools(), people=[f"p{i}" for i in range(participants)])


def pair(key_bits: int) -> Pair:
    """Two servers under a fresh test key."""
    return Pair.fresh(key_bits // 2, backend=ONE)


@dataclass
class Divider(DivisionCsp):
    """Goes on whatever it has divided, and says whether that was honest."""

    fits: bool = True

    def divide(self, message: DivideRequest) -> Message:
        reply, self.fits = HardenedSdivCsp(self.party).divide(message, self.widths)
        return reply
