"""One round of each scheme with everything counted: operations, messages, bytes and numbers modulo N^2, by phase and role.

Participants' figures are one participant's. Sent and received are added, as the paper's table 5 does.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np

from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.vector import CipherVector, PartialVector
from crowdfl.lab.experiments.points import Bench, Point, Row, Rows
from crowdfl.lab.experiments.ppfdl import Ppfdl
from crowdfl.protocols.exchange import Reply, ask_directly, run_exchange
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.paper.profile import PaperPublication, PaperReward
from crowdfl.protocols.parties import LocalDealer
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.protocols.sdiv import SdivReply, SdivRequest
from crowdfl.protocols.smul import SmulReply, SmulRequest
from crowdfl.settings import MILLION, TaskSettings

__all__ = ["ROLES", "CountSettings", "count_points", "made_up_models"]

ROLES = ("SP", "CSP", "participant")
_Result = TypeVar("_Result")
_KINDS: dict[int, type[Message]] = {
    message.kind: message for message in (SdivRequest, SdivReply, SmulRequest, SmulReply, PaperPublication, PaperReward)
}


@dataclass(frozen=True)
class CountSettings:
    """Sizes of the counted rounds. The paper's tables are for one parameter."""

    crowds: tuple[int, ...] = (5, 10, 36)
    parameters: int = 1
    key_bits: int = 2048
    insecure_test_key: bool = False
    seed: int = 2021


def made_up_models(count: int, parameters: int, seed: int) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Weights like a trained network's, all different, the same for the same seed."""
    generator = np.random.default_rng(seed)
    return [generator.normal(0, 0.5, parameters) for _ in range(count)]


def count_points(settings: CountSettings) -> list[Point]:
    """PPFDL, `paper` and `hardened`, for each number of participants."""
    makers: dict[str, Callable[[CountSettings, int, Bench], Rows]] = {
        "PPFDL": _count_ppfdl,
        "paper": lambda s, n, bench: _count_profile("paper", s, n, bench),
        "hardened": lambda s, n, bench: _count_profile("hardened", s, n, bench),
    }
    return [_point(scheme, maker, settings, n) for n in settings.crowds for scheme, maker in makers.items()]


def _point(scheme: str, maker: Callable[[CountSettings, int, Bench], Rows], settings: CountSettings, n: int) -> Point:
    facts: Row = {
        "scheme": scheme,
        "participants": n,
        "parameters": settings.parameters,
        "key_bits": settings.key_bits,
        "seed": settings.seed,
    }
    return Point("counted round", facts, lambda bench: maker(settings, n, bench))


@dataclass
class _Traffic:
    """What one role sent and received."""

    messages: int = 0
    size: int = 0
    numbers: int = 0

    def carry(self, message: bytes, numbers: int) -> None:
        self.messages += 1
        self.size += len(message)
        self.numbers += numbers


@dataclass
class _Ledger:
    """Traffic by phase and role, and operations as differences of the parties' counters."""

    public: PublicKey
    traffic: dict[tuple[str, str], _Traffic] = field(default_factory=dict)

    def between(self, phase: str, roles: Iterable[str], message: bytes, numbers: int) -> None:
        """One message, counted at both ends."""
        for role in roles:
            self.of(phase, role).carry(message, numbers)

    def of(self, phase: str, role: str) -> _Traffic:
        """Of one role in one phase."""
        return self.traffic.setdefault((phase, role), _Traffic())

    def carried(self, phase: str, step: Generator[bytes, Reply, _Result], answer: Callable[[bytes], bytes]) -> _Result:
        """Run an exchange between SP and CSP to its end."""

        def counted(request: bytes) -> bytes:
            self.between(phase, ("SP", "CSP"), request, self.numbers(request))
            reply = answer(request)
            self.between(phase, ("SP", "CSP"), reply, self.numbers(reply))
            return reply

        return run_exchange(step, ask_directly(counted))

    def numbers(self, message: bytes) -> int:
        """How many numbers modulo N^2 a message of the profile `paper` carries; 0 for others."""
        kind = _KINDS.get(Message.kind_of(message))
        if kind is None:
            return 0
        opened = kind.from_bytes(message, Limits(self.public, 1_000_000))
        values = [getattr(opened, each.name) for each in fields(opened)]
        return sum(len(value) for value in values if isinstance(value, CipherVector | PartialVector))


def _rows(scheme: str, n: int, phase: str, role: str, counts: Counter[tuple[str, str]], moved: _Traffic) -> Rows:
    did: Row = {"scheme": scheme, "participants": n, "phase": phase, "role": role}
    outside = {name: times for (scope, name), times in sorted(counts.items()) if not scope and times}
    rows: Rows = [did | {"quantity": name, "count": times} for name, times in outside.items() if name != "check"]
    wire: Row = {"messages": moved.messages, "L": moved.numbers, "bytes": moved.size}
    return rows + [did | {"quantity": name, "count": value} for name, value in wire.items()]


def _count_profile(profile: str, settings: CountSettings, n: int, bench: Bench) -> Rows:
    return _CountedRound(profile, settings, n, bench).rows()


class _CountedRound:
    """A whole round of a profile: everyone uploads, reads and opens; one participant's share is counted on its own."""

    def __init__(self, profile: str, settings: CountSettings, n: int, bench: Bench) -> None:
        task = TaskSettings(profile=profile, max_participants=n, key_bits=settings.key_bits, lanes=None)
        tools = Tools(bench.backend, insecure_test_key=settings.insecure_test_key)
        dealer = LocalDealer(TaskSpec("counted", task, settings.parameters), tools)
        self.profile, self.n, self.sp, self.csp = profile, n, dealer.sp(), dealer.csp()
        self.people = {f"p{i:02}": dealer.participant(f"p{i:02}") for i in range(n)}
        self.ledger = _Ledger(dealer.task.public)
        # The second [[w_i]] of `paper` travels with the upload; the tables count it with PriRwd.
        self.second = settings.parameters if profile == "paper" else 0
        self._models = made_up_models(n, settings.parameters, settings.seed)

    def rows(self) -> Rows:
        """Of both phases."""
        self._average()
        parties = {"SP": self.sp.party, "CSP": self.csp.party, "participant": self.people["p00"].party}
        before = {role: Counter(party.costs.counts) for role, party in parties.items()}
        before["participant"]["", "Enc"] -= self.second
        self._reward()
        rows: Rows = []
        for role in ROLES:
            rewards = Counter(parties[role].costs.counts)
            rewards.subtract(before[role])
            for phase, counts in (("PriFedAvg", before[role]), ("PriRwd", rewards)):
                rows += _rows(self.profile, self.n, phase, role, counts, self.ledger.of(phase, role))
        return rows

    def _average(self) -> None:
        self.sp.open_round(1)
        for i, (who, side) in enumerate(self.people.items()):
            upload = side.encrypt_update(self._models[i], i + 1)
            self._count_upload(who, upload)
            self.sp.add(who, upload)
        self.ledger.carried("PriFedAvg", self.sp.publish(final=False), self.csp.answer)
        for who, side in self.people.items():
            publication = self.sp.publication()
            self.ledger.between("PriFedAvg", self._ends(who), publication, self.ledger.numbers(publication))
            side.read(publication, 1)

    def _count_upload(self, who: str, upload: bytes) -> None:
        width = self.ledger.public.ciphertext_bytes
        first = len(upload) - self.second * width
        self.ledger.between("PriFedAvg", self._ends(who), upload[:first], len(upload) // width - self.second)
        for role in self._ends(who):
            moved = self.ledger.of("PriRwd", role)
            moved.size, moved.numbers = moved.size + self.second * width, moved.numbers + self.second

    def _reward(self) -> None:
        self.ledger.carried("PriRwd", self.sp.reward(self.n * MILLION), self.csp.answer)
        for who, envelope in self.sp.envelopes().items():
            self.ledger.between("PriRwd", self._ends(who), envelope, self.ledger.numbers(envelope))
            self.people[who].open_reward(envelope, 1)

    def _ends(self, who: str) -> tuple[str, ...]:
        """Of the participants, the first one's messages alone are counted at both ends."""
        return ("SP", "participant") if who == "p00" else ("SP",)


def _count_ppfdl(settings: CountSettings, n: int, bench: Bench) -> Rows:
    world = Ppfdl(n, settings.parameters, settings.key_bits, bench.backend, settings.insecure_test_key)
    ledger = _Ledger(world.public)
    uploads = [world.encrypt(model) for model in made_up_models(n, settings.parameters, settings.seed)]
    for i, upload in enumerate(uploads):
        roles = ("SP", "participant") if i == 0 else ("SP",)
        ledger.between("PPFDL", roles, upload.to_bytes(), len(upload))
    average = ledger.carried("PPFDL", world.average(uploads), world.answer)
    for i in range(n):
        roles = ("SP", "participant") if i == 0 else ("SP",)
        ledger.between("PPFDL", roles, average.to_bytes(), len(average))
    world.decrypt(average)
    one = Counter({key: times // n if key[1] == "Enc" else times for key, times in world.user.costs.counts.items()})
    counts = {"SP": world.sp.costs.counts, "CSP": world.csp.costs.counts, "participant": one}
    rows: Rows = []
    for role in ROLES:
        rows += _rows("PPFDL", n, "PPFDL", role, Counter(counts[role]), ledger.of("PPFDL", role))
    return rows
