"""A profile that computes in the clear: the interface, the messages and the memory of a real one, without the arithmetic.

Campaigns under it take milliseconds, so that hundreds of them can go wrong in different ways. CSP's answers are salted as a
real CSP's are: asked twice, a CSP that forgot would answer differently. `Observer` is told of every sum that is opened.
"""

import hashlib
import json
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.errors import (
    AlreadyCounted,
    ClaimRefused,
    CrowdFLError,
    FormatError,
    MasksDoNotFit,
    NothingToContribute,
    OutOfTurn,
    ProtocolError,
    SeedReused,
    TooFewParticipants,
)
from crowdfl.protocols.common.keyed import KeyedCsp, KeyedProfile, KeyedReader, KeyedSide, KeyedSp
from crowdfl.protocols.exchange import Exchange, ReplyForm
from crowdfl.protocols.profile import (
    Average,
    CspMemory,
    Dealing,
    Identity,
    InProcessMemory,
    ParticipantKeys,
    TaskSpec,
    Tools,
)
from crowdfl.settings import TaskSettings

__all__ = ["ClearProfile", "Observer", "packed_upload"]

MILLION = 10**6
_CHUNKS = 2  # requests per opening, so that there is something between them


def _pack(**body: Any) -> bytes:
    return json.dumps(body, sort_keys=True).encode()


def _opened(data: bytes) -> dict[str, Any]:
    try:
        body: dict[str, Any] = json.loads(data)
    except ValueError:
        raise FormatError("not what this profile writes") from None
    return body


def packed_upload(weights: npt.NDArray[np.float64], samples: int) -> bytes:
    """Weights in millionths and samples, under a salt: no two uploads are alike."""
    whole = [round(float(weight) * MILLION) for weight in weights]
    return _pack(weights=whole, samples=samples, salt=secrets.token_hex(8))


def _digest(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@cache
def _key() -> PublicKey:
    return pctd.keygen(64, insecure_test_key=True).public


@dataclass
class Observer:
    """What CSP was asked to open, over all its lives: which sums under which seed, which uploads in which round."""

    sums_of_seed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    sums_of_round: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))


class _Side(KeyedSide):
    def __init__(self, about: TaskSpec, tools: Tools, name: str) -> None:
        self.about = about
        self.party = tools.keyed_party(name, _key())
        self.enrolled: dict[str, Identity] = {}

    def enrol(self, identity: Identity) -> None:
        self.enrolled[identity.who] = identity


class ClearSp(_Side, KeyedSp):
    """SP's side: keeps its seeds as the hardened one does."""

    averages_first = False

    def open_round(self, round_number: int) -> None:
        self.number = round_number
        self._uploads: dict[str, dict[str, Any]] = {}
        self._totals: list[int] = []
        self._seeds: dict[str, bytes] = {}
        self._keep: Callable[[str, bytes], None] = lambda _purpose, _state: None
        self._published = b""
        self._rewards: dict[str, bytes] = {}

    def keep_seeds(self, known: Mapping[str, bytes], keep: Callable[[str, bytes], None]) -> None:
        self._seeds, self._keep = dict(known), keep

    def upload_bytes(self) -> int:
        return 1000

    def reply_form(self, request: bytes) -> ReplyForm:
        return ReplyForm(1 << 20, json.loads)

    def refusals(self, uploads: Sequence[tuple[str, bytes]]) -> list[CrowdFLError | None]:
        return [_refusal(upload) for _, upload in uploads]

    def add_all(self, uploads: Mapping[str, bytes], *, validated: bool = False) -> None:
        for who, upload in uploads.items():
            if (refusal := _refusal(upload)) is not None:
                raise refusal
            body = json.loads(upload)
            if who not in self._uploads:  # as running products: what is in cannot be taken out
                self._totals = [total + weight * body["samples"] for total, weight in self._added_to(body["weights"])]
            if self._uploads.setdefault(who, body) != body:
                raise AlreadyCounted(who)

    def add_stored(self, folder: str, names: Mapping[str, str], read: Callable[[str], bytes]) -> None:
        self.add_all({who: read(folder + name) for who, name in names.items()}, validated=True)

    def check(self) -> None:
        if len(self._uploads) < self.about.settings.min_participants:
            raise TooFewParticipants(str(len(self._uploads)))

    def publish(self, *, final: bool) -> Exchange:
        """A sum, masked by a seed that is bound to it, in chunks."""
        self.check()
        seed = self._seed_for("opening")
        replies = []
        for chunk in range(_CHUNKS):
            request = {"kind": "open", "round": self.number, "final": final, "chunk": chunk, "seed": seed}
            replies.append(json.loads((yield _pack(sum=self._sum(), **request))()))
        samples = sum(body["samples"] for body in self._uploads.values())
        people = sorted(self._uploads)
        self._published = _pack(totals=self._totals, samples=samples, people=people, replies=replies)

    def reward(self, payment: int) -> Exchange:
        """A nonce for these uploads, then the amounts."""
        seed = self._seed_for("rewards")
        (yield _pack(kind="nonce", round=self.number, sum=self._sum(), seed=seed))()
        total = sum(body["samples"] for body in self._uploads.values())
        if total == 0:
            raise ProtocolError("nobody contributed a sample")
        amounts = {who: payment * body["samples"] // total for who, body in self._uploads.items()}
        reply = json.loads((yield _pack(kind="reward", round=self.number, sum=self._sum(), amounts=amounts))())
        self._rewards = {who: _pack(amount=amount, salt=reply["salt"]) for who, amount in amounts.items()}

    def publication(self) -> bytes:
        """After `publish`."""
        return self._published

    def envelopes(self) -> Mapping[str, bytes]:
        """After `reward`."""
        return self._rewards

    def claimant(self, claim: bytes) -> str:
        return str(_opened(claim)["who"])

    def check_claim(self, claim: bytes) -> str:
        who = str(_opened(claim)["who"])
        if who not in self.enrolled:
            raise ClaimRefused(who)
        return who

    def pay(self, claim: bytes, attestation: bytes) -> dict[int, int]:
        return {int(number): amount for number, amount in json.loads(attestation)["amounts"].items()}

    def _added_to(self, weights: list[int]) -> Iterator[tuple[int, int]]:
        return zip(self._totals or [0] * len(weights), weights, strict=True)

    def _sum(self) -> str:
        return _digest(self._uploads)

    def _seed_for(self, purpose: str) -> str:
        state = self._seeds.get(purpose)
        if state is None:
            state = _pack(seed=secrets.token_hex(8), sum=self._sum())
            self._keep(purpose, state)
            self._seeds[purpose] = state
        elif json.loads(state)["sum"] != self._sum():
            raise SeedReused(purpose)
        return str(json.loads(state)["seed"])


class ClearCsp(_Side, KeyedCsp):
    """CSP's side: remembers what rewards it opened, and attests only those."""

    def __init__(self, about: TaskSpec, tools: Tools, observer: Observer) -> None:
        super().__init__(about, tools, "CSP")
        self._observer = observer
        self._memory: CspMemory = InProcessMemory()

    def remember(self, memory: CspMemory) -> None:
        self._memory = memory

    def answer(self, request: bytes) -> bytes:
        body = json.loads(request)
        answers = {"open": self._open, "nonce": self._nonce, "reward": self._reward, "claim": self._claim}
        return _pack(salt=secrets.token_hex(8), **answers[body["kind"]](body))

    def _open(self, body: dict[str, Any]) -> dict[str, Any]:
        self._observer.sums_of_seed[body["seed"]].add(body["sum"])
        self._observer.sums_of_round[self.about.name, body["round"]].add(body["sum"])
        return {"sum": body["sum"]}

    def _nonce(self, body: dict[str, Any]) -> dict[str, Any]:
        self._observer.sums_of_seed[body["seed"]].add(body["sum"])
        if self._memory.reserve(f"nonce {body['round']}", body["sum"].encode()) != body["sum"].encode():
            raise OutOfTurn("this round's uploads were closed with other contents")
        return {}

    def _reward(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._memory.get(f"nonce {body['round']}") != body["sum"].encode():
            raise ProtocolError("no nonce was drawn for these uploads")
        for who, amount in body["amounts"].items():
            if who not in self.enrolled:
                raise ProtocolError(f"no key to seal the reward of {who} to")
            self._memory.keep(f"reward {body['round']} {who}", str(amount).encode())
        return {}

    def _claim(self, body: dict[str, Any]) -> dict[str, Any]:
        earned = {number: self._memory.get(f"reward {number} {body['who']}") for number in body["amounts"]}
        if None in earned.values():
            raise MasksDoNotFit("no reward is kept for one of the rounds")
        amounts = {number: int(amount) for number, amount in earned.items() if amount is not None}
        if amounts != body["amounts"]:
            raise ClaimRefused(body["who"])
        return {"amounts": amounts}


class ClearReader(_Side, KeyedReader):
    clipped = 0

    def __init__(self, about: TaskSpec, tools: Tools, who: str) -> None:
        super().__init__(about, tools, who)
        self.who = who
        self._earned: dict[int, int] = {}

    def encrypt_update(self, weights: npt.NDArray[np.float64], samples: int, round_number: int) -> bytes:
        if samples < 1:
            raise NothingToContribute("stay out of this round")
        return packed_upload(weights, samples)

    def read(self, publication: bytes, round_number: int) -> Average:
        body = _opened(publication)
        return Average(np.array(body["totals"]) / MILLION / max(body["samples"], 1), body["samples"])

    def open_reward(self, envelope: bytes, round_number: int) -> int:
        self._earned[round_number] = int(_opened(envelope)["amount"])
        return self._earned[round_number]

    def claim(self) -> bytes:
        return _pack(kind="claim", who=self.who, amounts=self._earned)


class ClearProfile(KeyedProfile):
    """No key material worth the name goes anywhere."""

    name = "clear"

    def __init__(self) -> None:
        self.observer = Observer()

    def check(self, settings: TaskSettings, parameters: int) -> None:
        """Everything fits."""

    def claim_bytes(self, settings: TaskSettings, rounds: int) -> int:
        return 1024 * (rounds + 1)

    def deal(self, about: TaskSpec, *, insecure_test_key: bool) -> Dealing:
        return Dealing(_key().fingerprint, b"sp", b"csp", b"requester", b"participant")

    def sp(self, about: TaskSpec, bundle: bytes, tools: Tools) -> ClearSp:
        side = ClearSp(about, tools, "SP")
        side.open_round(1)
        return side

    def csp(self, about: TaskSpec, bundle: bytes, tools: Tools) -> ClearCsp:
        return ClearCsp(about, tools, self.observer)

    def requester(self, about: TaskSpec, bundle: bytes, tools: Tools) -> ClearReader:
        return ClearReader(about, tools, "requester")

    def participant(self, about: TaskSpec, bundle: bytes, keys: ParticipantKeys, tools: Tools) -> ClearReader:
        return ClearReader(about, tools, keys.who)


def _refusal(upload: bytes) -> CrowdFLError | None:
    try:
        body = json.loads(upload)
        sum(body["weights"], int(body["samples"]))
    except (ValueError, KeyError, TypeError):
        return FormatError("no upload")
    return None
