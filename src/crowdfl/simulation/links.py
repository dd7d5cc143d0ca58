"""How the processes of a host reach each other's roles: what each role is asked, and how it answers whom.

A link is at the caller's end: it hands every call to the host's wire. What it can ask is what the roles' ports name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from crowdfl.crypto.long_bytes import Long
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.roles.kgc import Created, Kgc
from crowdfl.roles.participant.enrolment import EnrollingKgc
from crowdfl.roles.participant.participant import ParticipantSp
from crowdfl.roles.ports import CspPeer, EndPeer, KgcPeer
from crowdfl.roles.records import PaidClaim, PayWord, UsedInvitation
from crowdfl.roles.requester import RequesterKgc, RequesterSp
from crowdfl.roles.sp.people import consent_rows
from crowdfl.roles.sp.platform import Sp
from crowdfl.roles.sp.turnout import compliance
from crowdfl.simulation.faults import Life

_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


class Carry(Protocol):
    """Takes a call from one process to another; the answer is the role's."""

    def __call__(
        self, sender: str, receiver: str, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any: ...  # noqa: ANN401


class _Link:
    def __init__(self, carry: Carry, life: Life, receiver: str) -> None:
        self._carry = carry
        self._life = life  # the caller's
        self._receiver = receiver

    def _ask(
        self, method: Callable[Concatenate[Any, _Asked], _Answer], *arguments: _Asked.args, **named: _Asked.kwargs
    ) -> _Answer:
        name = method.__name__
        with self._life.passing(f"{self._receiver}.{name}"):
            answer: _Answer = self._carry(self._life.process, self._receiver, name, arguments, named)
        return answer


class LinkToKgc(_Link):
    """KGC, from a server, a participant or the requester."""

    def bundle(self, task: str) -> tuple[str, str, bytes]:
        return self._ask(KgcPeer.bundle, task)

    def dealt(self, task: str, number: int) -> bytes | memoryview:
        return self._ask(KgcPeer.dealt, task, number)

    def acknowledge(self, task: str) -> bool:
        return self._ask(KgcPeer.acknowledge, task)

    def end(self, task: str, document: str) -> None:
        self._ask(EndPeer.end, task, document)

    def enrol(self, task: str, invitation: str, request: str) -> bytes:
        return self._ask(EnrollingKgc.enrol, task, invitation, request)

    def create_task(self, definition: str) -> Created:
        return self._ask(RequesterKgc.create_task, definition)

    def done(self, task: str) -> object:
        return self._ask(RequesterKgc.done, task)

    def close_enrolment(self, task: str, order: str) -> None:
        self._ask(RequesterKgc.close_enrolment, task, order)

    def invitations(self, task: str) -> list[UsedInvitation]:
        return self._ask(RequesterKgc.invitations, task)

    def certified(self, task: str, name: str) -> str:
        return self._ask(RequesterKgc.certified, task, name)


class LinkToCsp(_Link):
    """CSP, from SP."""

    def prepare(self, task: str) -> None:
        self._ask(CspPeer.prepare, task)

    def enrol(self, task: str, certificate: str) -> None:
        self._ask(CspPeer.enrol, task, certificate)

    def attested(self, task: str) -> str:
        return self._ask(CspPeer.attested, task)

    def claims_extended(self, task: str) -> str:
        return self._ask(CspPeer.claims_extended, task)

    def answer(self, task: str, request: Long, longest: int) -> Long:
        return self._ask(CspPeer.answer, task, request, longest)

    def end(self, task: str, document: str) -> None:
        self._ask(EndPeer.end, task, document)


class LinkToSp(_Link):
    """SP, from a participant or the requester."""

    def papers(self, task: str) -> tuple[str, str]:
        return self._ask(ParticipantSp.papers, task)

    def initial_weights(self, task: str) -> bytes:
        return self._ask(ParticipantSp.initial_weights, task)

    def status(self, task: str) -> dict[str, Any]:
        return self._ask(ParticipantSp.status, task)

    def enrol(self, task: str, certificate: str, consent: str | None) -> str | None:
        return self._ask(ParticipantSp.enrol, task, certificate, consent)

    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        return self._ask(ParticipantSp.send, task, number, keys, upload)

    def uploaded(self, task: str, number: int, keys: ParticipantKeys) -> str | None:
        return self._ask(ParticipantSp.uploaded, task, number, keys)

    def is_drawn(self, task: str, number: int, keys: ParticipantKeys) -> bool:
        return self._ask(ParticipantSp.is_drawn, task, number, keys)

    def average(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        return self._ask(ParticipantSp.average, task, number, keys)

    def end(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        return self._ask(ParticipantSp.end, task, number, keys)

    def reward(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        return self._ask(ParticipantSp.reward, task, number, keys)

    def claim(self, task: str, claim: bytes, keys: ParticipantKeys) -> PaidClaim:
        return self._ask(ParticipantSp.claim, task, claim, keys)

    def pay_to(self, task: str, sealed: bytes, keys: ParticipantKeys) -> bytes:
        return self._ask(ParticipantSp.pay_to, task, sealed, keys)

    def pay_words(self, task: str, keys: ParticipantKeys) -> Mapping[int, PayWord]:
        return self._ask(ParticipantSp.pay_words, task, keys)

    def leave(self, task: str, keys: ParticipantKeys, *, withdraw: bool) -> dict[str, list[int]]:
        return self._ask(ParticipantSp.leave, task, keys, withdraw=withdraw)

    def recruit(self, task: str, key: bytes) -> str:
        return self._ask(ParticipantSp.recruit, task, key)

    def key(self) -> bytes:
        return self._ask(RequesterSp.key)

    def create_task(self, definition: str, appointment: str, initial: bytes) -> str:
        return self._ask(RequesterSp.create_task, definition, appointment, initial)

    def deposit(self, task: str, name: str, amount: int) -> None:
        self._ask(RequesterSp.deposit, task, name, amount)

    def order(self, task: str, order: str) -> None:
        self._ask(RequesterSp.order, task, order)

    def final(self, task: str, number: int) -> bytes:
        return self._ask(RequesterSp.final, task, number)

    def movements(self, task: str) -> list[dict[str, Any]]:
        return self._ask(RequesterSp.movements, task)

    def attested(self, task: str) -> str:
        return self._ask(RequesterSp.attested, task)

    def deposits(self, task: str) -> list[dict[str, Any]]:
        return self._ask(RequesterSp.deposits, task)

    def compliance(self, task: str) -> dict[str, Any]:
        return self._ask(RequesterSp.compliance, task)

    def consents(self, task: str) -> list[dict[str, Any]]:
        return self._ask(RequesterSp.consents, task)

    def reference(self, task: str, number: int, upload: bytes) -> None:
        self._ask(RequesterSp.reference, task, number, upload)


@dataclass(frozen=True)
class KgcFor:
    """KGC as it answers a server."""

    kgc: Kgc
    role: str

    def bundle(self, task: str) -> tuple[str, str, bytes]:
        return self.kgc.bundle(task, self.role)

    def dealt(self, task: str, number: int) -> bytes:
        return b"".join(self.kgc.dealt(task, self.role, number))

    def acknowledge(self, task: str) -> bool:
        return self.kgc.acknowledge(task, self.role)


class KgcFront:
    """KGC as it answers people and the requester: as it is at this moment, for it may be started again."""

    def __init__(self, kgc: Callable[[], Kgc]) -> None:
        self._kgc = kgc

    def enrol(self, task: str, invitation: str, request: str) -> bytes:
        return self._kgc().enrol(task, invitation, request)

    def create_task(self, definition: str) -> Created:
        return self._kgc().create_task(definition)

    def done(self, task: str) -> None:
        self._kgc().acknowledge(task, "requester")

    def close_enrolment(self, task: str, order: str) -> None:
        self._kgc().close_enrolment(task, order)

    def invitations(self, task: str) -> list[UsedInvitation]:
        return self._kgc().store.used_invitations(task)

    def certified(self, task: str, name: str) -> str:
        return self._kgc().certified(task, name)


class SpFront:
    """SP as it answers people and the requester: as it is at this moment, for it may be started again."""

    def __init__(self, sp: Callable[[], Sp], confirm_deposits: Callable[[str], None]) -> None:
        self._sp = sp
        self._confirm_deposits = confirm_deposits

    def papers(self, task: str) -> tuple[str, str]:
        stored = self._sp().store.task(task)
        return stored.definition, stored.appointment

    def initial_weights(self, task: str) -> bytes:
        return self._sp().blobs.get(f"{task}/initial")

    def status(self, task: str) -> dict[str, Any]:
        return self._sp().tasks.status(task)

    def enrol(self, task: str, certificate: str, consent: str | None = None) -> str | None:
        self._sp().people.enrol(task, certificate, consent)
        return None

    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        """The digest stands for a receipt: within one process nobody has to prove anything."""
        return self._sp().uploads.one(task, number, keys.who, upload).digest

    def uploaded(self, task: str, number: int, keys: ParticipantKeys) -> str | None:
        entry = self._sp().store.upload(task, number, keys.who)
        return None if entry is None else entry.digest

    def is_drawn(self, task: str, number: int, keys: ParticipantKeys) -> bool:
        return self._sp().uploads.is_drawn(task, number, keys.who)

    def average(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        return self._sp().publication(task, number, keys.who)

    def end(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        return self._sp().end(task, number, keys.who)

    def reward(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        return self._sp().envelope(task, number, keys.who)

    def claim(self, task: str, claim: bytes, _keys: ParticipantKeys) -> PaidClaim:
        return self._sp().claims.pay(task, claim)

    def pay_to(self, task: str, sealed: bytes, keys: ParticipantKeys) -> bytes:
        return self._sp().claims.pay_to(task, keys.who, sealed)

    def pay_words(self, task: str, keys: ParticipantKeys) -> Mapping[int, PayWord]:
        return self._sp().claims.pay_words(task, keys.who)

    def leave(self, task: str, keys: ParticipantKeys, *, withdraw: bool = False) -> dict[str, list[int]]:
        if withdraw:
            return self._sp().people.withdraw(task, keys.who)
        self._sp().people.leave(task, keys.who)
        return {}

    def recruit(self, task: str, key: bytes) -> str:
        return self._sp().recruiting.give(task, key)

    def key(self) -> bytes:
        signing = self._sp().options.signing
        return b"" if signing is None else signing.public

    def create_task(self, definition: str, appointment: str, initial: bytes) -> str:
        return self._sp().tasks.create(definition, appointment, initial)

    def deposit(self, task: str, name: str, amount: int) -> None:
        """Announced by the requester, and confirmed by the operator, who is nobody else here."""
        self._sp().deposits.announce(task, name, amount)
        self._confirm_deposits(task)

    def order(self, task: str, order: str) -> None:
        self._sp().tasks.order(task, order)

    def final(self, task: str, number: int) -> bytes:
        return self._sp().publication(task, number, None)

    def movements(self, task: str) -> list[dict[str, Any]]:
        return [vars(movement) for movement in self._sp().tasks.statement(task).movements]

    def attested(self, task: str) -> str:
        return self._sp().attested(task)

    def deposits(self, task: str) -> list[dict[str, Any]]:
        return self._sp().tasks.deposits(task)

    def compliance(self, task: str) -> dict[str, Any]:
        return compliance(self._sp().store, self._sp().blobs, task)

    def consents(self, task: str) -> list[dict[str, Any]]:
        return consent_rows(self._sp().store, task)

    def reference(self, task: str, number: int, upload: bytes) -> None:
        self._sp().uploads.reference(task, number, upload)
