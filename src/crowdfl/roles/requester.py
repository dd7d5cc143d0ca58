"""Requester: define a task, fund it, invite people, watch it, stop it, fetch the model, and see what was spent."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.sealing import SigningKey
from crowdfl.documents.signed import Appointment, Definition, EnrolmentEnd, Invitation, Order
from crowdfl.errors import DocumentError, FormatError, NotReady, UnknownTask
from crowdfl.learning.models.forms import from_safetensors, to_safetensors
from crowdfl.learning.models.shape import Weights
from crowdfl.protocols.profile import Average, RequesterProtocol, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.kgc import Created
from crowdfl.roles.participant.chain import KeptChain
from crowdfl.roles.ports import Blobs, Clock
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER, REWARDS

_DEFINITION = "/definition"


class RequesterKgc(Protocol):
    """KGC as a requester reaches it."""

    def create_task(self, definition: str) -> Created: ...
    def done(self, task: str) -> None: ...  # the requester's bundle is durable here
    def close_enrolment(self, task: str, order: str) -> None: ...


class RequesterSp(Protocol):
    """SP as a requester reaches it."""

    def create_task(self, definition: str, appointment: str, initial: bytes) -> str: ...
    def deposit(self, task: str, name: str, amount: int) -> None: ...
    def order(self, task: str, order: str) -> None: ...
    def status(self, task: str) -> dict[str, Any]: ...
    def initial_weights(self, task: str) -> bytes: ...
    def final(self, task: str, number: int) -> bytes: ...  # the requester's publication of a round
    def movements(self, task: str) -> list[dict[str, Any]]: ...
    def deposits(self, task: str) -> list[dict[str, Any]]: ...  # name, amount, and pending, confirmed or rejected


def _is_task(name: str) -> bool:
    return name.endswith(_DEFINITION) and name.count("/") == 1


def own_key(blobs: Blobs) -> SigningKey:
    if not blobs.has("signing"):
        blobs.put("signing", SigningKey.fresh().private)
    return SigningKey(blobs.get("signing"))


@dataclass
class Requester:
    """A requester and its tasks. `blobs` holds its signing key and its bundles."""

    blobs: Blobs
    clock: Clock
    kgc: RequesterKgc
    sp: RequesterSp
    kgc_key: bytes
    tools: Tools = field(default_factory=Tools.unwatched)

    @property
    def signing(self) -> SigningKey:
        return own_key(self.blobs)

    def create(self, definition: Definition, initial: Sequence[npt.NDArray[np.float64]]) -> str:
        """Have keys made, post the task. Idempotent for the same definition."""
        weights = to_safetensors(definition.shape, initial)
        profile_named(definition.settings.profile).check(definition.settings, definition.spec.parameters)
        text = self._signed(definition, weights)
        complete = Definition.open(text)
        task = complete.task
        self.blobs.put(f"{task}/definition", text.encode())
        if not self.blobs.has(f"{task}/bundle"):
            created = self.kgc.create_task(text)
            self._check_key(complete, created)
            self.blobs.put(f"{task}/appointment", created.appointment.encode())
            if profile_named(complete.settings.profile).chained:
                self.blobs.put(f"{task}/initial", weights)
            self.blobs.put(f"{task}/bundle", created.bundle)
        self.sp.create_task(text, self.blobs.get(f"{task}/appointment").decode(), weights)
        self.kgc.done(task)
        return task

    def posted(self, definition: Definition, initial: Sequence[npt.NDArray[np.float64]]) -> str:
        """The id of a task that this requester has posted before."""
        text = self._signed(definition, to_safetensors(definition.shape, initial))
        return self.definition(Definition.open(text).task).task

    def _signed(self, definition: Definition, weights: bytes) -> str:
        complete = replace(definition, initial=hashlib.sha256(weights).hexdigest(), requester=self.signing.public)
        return complete.sign(self.signing)

    def _check_key(self, definition: Definition, created: Created) -> None:
        appointment = Appointment.open(created.appointment, self.kgc_key)
        if appointment.task != definition.task:
            raise DocumentError("KGC sent the appointment of another task")
        appointment.require_key(self._side(definition, created.bundle).fingerprint)

    def fund(self, task: str, amount: int, name: str | None = None) -> str:
        """Announce a payment into escrow; with a name, a repeat is the same one. It counts once SP's operator confirms it.

        The deposit's name, which the operator needs for that.
        """
        name = name or secrets.token_hex(8)
        self.sp.deposit(task, name, amount)
        return name

    def invite(self, task: str, count: int, seconds: float) -> list[str]:
        expires = self.clock.now() + seconds
        return [Invitation(task, secrets.token_hex(16), expires).sign(self.signing) for _ in range(count)]

    def order(self, task: str, action: str) -> None:
        order = Order(task, action, self.clock.now())
        if action == "cancel":
            # First, so that a repeat does both: what KGC kept for newcomers serves nobody now.
            self.close_enrolment(task)
        self.sp.order(task, order.sign(self.signing))

    def close_enrolment(self, task: str) -> None:
        """Nobody else can join; KGC destroys what it kept for that."""
        self.kgc.close_enrolment(task, EnrolmentEnd(task).sign(self.signing))

    def definition(self, task: str) -> Definition:
        try:
            text = self.blobs.get(f"{task}/definition").decode()
        except (NotReady, FormatError):  # the latter of a name that no task can have
            raise UnknownTask(
                f"this requester has posted no task {task!r}: `crowdfl task list` shows those it has"
            ) from None
        return Definition.open(text)

    def tasks(self) -> list[str]:
        """The ids of all that this requester has defined, the last one first."""
        written = {name.removesuffix(_DEFINITION): at for name, at in self.blobs.listing().items() if _is_task(name)}
        return sorted(written, key=lambda task: -written[task])

    def initial(self, task: str) -> Weights:
        """The weights that everyone starts from."""
        definition = self.definition(task)
        kept = f"{task}/initial"
        found = self.blobs.get(kept) if self.blobs.has(kept) else self.sp.initial_weights(task)
        if hashlib.sha256(found).hexdigest() != definition.initial:
            raise DocumentError("the platform's initial weights are not those that the task's definition names")
        return from_safetensors(definition.shape, found)

    def model(self, task: str) -> Weights:
        definition = self.definition(task)
        status = self.sp.status(task)
        done = [entry["number"] for entry in status["rounds"] if entry["state"] == "rewarded"]
        if not done and status["state"] in ("running", "paused"):
            raise NotReady("no round is finished yet")
        if not done:
            raise NotReady(f"the task was {status['state']} before a round was through: there is no model")
        return definition.shape.arrays(self.read(task, done[-1]).model)

    def states(self, task: str) -> dict[int, str]:
        """By round, the digest of the state after it, of those read: participants have the same. None without a server step."""
        return self._chain(self.definition(task)).states()

    def read(self, task: str, number: int) -> Average:
        """A round's average, and the model that it leads to."""
        definition = self.definition(task)
        side = self._side(definition, self.blobs.get(f"{task}/bundle"))
        chain, fetch = self._chain(definition), partial(self.sp.final, task)
        if profile_named(definition.settings.profile).chained:
            if chain.last() >= number:
                chain.forget()
            side.resume(chain.get(), definition.shape.flat(self._initial(definition)))
            chain.catch_up(side, number, partial(self.sp.status, task), fetch)
        return chain.read(side, number, fetch(number))

    def _initial(self, definition: Definition) -> Weights:
        return from_safetensors(definition.shape, self.blobs.get(f"{definition.task}/initial"))

    def _chain(self, definition: Definition) -> KeptChain:
        return KeptChain(self.blobs, f"{definition.task}/rounds", definition.settings.rounds)

    def _side(self, definition: Definition, bundle: bytes) -> RequesterProtocol:
        return profile_named(definition.settings.profile).requester(definition.spec, bundle, self.tools)

    def report(self, task: str) -> dict[str, Any]:
        """In millionths: what waits for confirmation, was paid in, earned by participants, and returned.

        Once claims have ended, `rewards` is what participants claimed.
        """
        movements, deposits = self.sp.movements(task), self.sp.deposits(task)
        pending = sum(one["amount"] for one in deposits if one["state"] == "pending")
        paid_in = sum(m["amount"] for m in movements if m["source"] == REQUESTER)
        returned = sum(m["amount"] for m in movements if m["target"] == REQUESTER)
        earned = sum(m["amount"] for m in movements if m["target"] == REWARDS)
        unclaimed = sum(m["amount"] for m in movements if (m["source"], m["target"]) == (REWARDS, ESCROW))
        sums = {"pending": pending, "paid_in": paid_in, "returned": returned, "rewards": earned - unclaimed}
        return sums | {"movements": movements, "deposits": deposits}
