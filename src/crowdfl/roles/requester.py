"""Requester: define a task, fund it, invite people, look at it, stop it, fetch the model, and see what was spent."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.randomness import secret_hex
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.invitations import Ticket, admitted
from crowdfl.documents.signed import Appointment, AttestedSum, Definition, EnrolmentEnd, Order, digest_of
from crowdfl.errors import (
    DocumentError,
    FormatError,
    InvitationRefused,
    NotReady,
    ServiceError,
    SettingsError,
    TaskEnded,
    TaskNotRunning,
    UnknownTask,
)
from crowdfl.learning.models.forms import to_safetensors
from crowdfl.learning.models.shape import Weights
from crowdfl.protocols.capabilities import ClosesRounds, FollowsModel, Refers, no_reference
from crowdfl.protocols.profile import Average, ReaderProtocol, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.roles import home
from crowdfl.roles.kgc import Created
from crowdfl.roles.model_size import require_size
from crowdfl.roles.participant.chain import KeptChain
from crowdfl.roles.participant.participant import Train
from crowdfl.roles.ports import Blobs, Clock, replace_blob
from crowdfl.roles.records import NOT_OPEN, UsedInvitation
from crowdfl.roles.sp.ledger import ESCROW, PAID_PEOPLE, PAID_UNUSED, REQUESTER, REWARDS
from crowdfl.settings import MOST_DEVICES


class RequesterKgc(Protocol):
    """KGC as a requester reaches it."""

    def create_task(self, definition: str) -> Created: ...
    def done(self, task: str) -> object: ...  # the requester's bundle is durable here
    def close_enrolment(self, task: str, order: str) -> None: ...
    def invitations(self, task: str) -> list[UsedInvitation]: ...
    def certified(self, task: str, name: str) -> str: ...  # the newest certificate of a number, or of whose this is


class RequesterSp(Protocol):
    """SP as a requester reaches it."""

    def key(self) -> bytes: ...  # that it signs with
    def create_task(self, definition: str, appointment: str, initial: bytes) -> str: ...
    def deposit(self, task: str, name: str, amount: int) -> None: ...
    def order(self, task: str, order: str) -> None: ...
    def status(self, task: str) -> dict[str, Any]: ...
    def initial_weights(self, task: str) -> bytes: ...
    def final(self, task: str, number: int) -> bytes: ...  # the requester's publication of a round
    def movements(self, task: str) -> list[dict[str, Any]]: ...
    def attested(self, task: str) -> str: ...  # CSP's signed sum of all claims, once they have ended; else NotReady
    def deposits(self, task: str) -> list[dict[str, Any]]: ...  # name, amount, and pending, confirmed or rejected
    def compliance(self, task: str) -> dict[str, Any]: ...  # who has sent in which round
    def consents(self, task: str) -> list[dict[str, Any]]: ...
    def reference(self, task: str, number: int, upload: bytes) -> None: ...  # the first one of a round stands


def own_key(blobs: Blobs) -> SigningKey:
    home.bring_up(blobs)
    if not blobs.has("signing"):
        home.begin(blobs)
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
    payer: bytes = b""  # whom people of tasks with rewards tell where to be paid
    sp_key: bytes = b""  # who recruits, of tasks that say so; as SP tells it, if it is not known here

    @property
    def signing(self) -> SigningKey:
        return own_key(self.blobs)

    def create(self, definition: Definition, initial: Sequence[npt.NDArray[np.float64]]) -> str:
        """Have keys made, post the task. Idempotent for the same definition."""
        weights = to_safetensors(definition.shape, initial)
        profile_named(definition.settings.profile).check(definition.settings, definition.spec.parameters)
        require_size(definition)
        text = self._signed(definition, weights)
        complete = Definition.open(text)
        task = complete.task
        self.blobs.put(f"{task}/definition", text.encode())
        if not self.blobs.has(f"{task}/bundle"):
            created = self.kgc.create_task(text)
            side = self._checked_side(complete, created)
            self.blobs.put(f"{task}/appointment", created.appointment.encode())
            if isinstance(side, FollowsModel):  # what the first average follows from
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
        payer = b"" if definition.settings.budget is None else self.payer
        recruiter = (self.sp_key or self.sp.key()) if definition.recruits else b""
        digest = hashlib.sha256(weights).hexdigest()
        own = self.signing
        whole = replace(definition, initial=digest, requester=own.public, payer=payer, recruiter=recruiter)
        if whole.rounds_until:
            return whole.sign(own)
        return self._dated(f"drafts/{digest_of(whole.sign(own))}", whole)

    def _dated(self, kept: str, draft: Definition) -> str:
        """The same draft is the same task, whenever it is asked for; one that no key was made for in time gets other dates."""
        if self.blobs.has(kept):
            text = self.blobs.get(kept).decode()
            before = Definition.open(text)
            if self.clock.now() < before.rounds_until or self.blobs.has(f"{before.task}/bundle"):
                return text
        text = draft.dated(self.clock.now()).sign(self.signing)
        replace_blob(self.blobs, kept, text.encode())
        return text

    def _checked_side(self, definition: Definition, created: Created) -> ReaderProtocol:
        appointment = Appointment.open(created.appointment, self.kgc_key)
        if appointment.task != definition.task:
            raise DocumentError("KGC sent the appointment of another task")
        side = self._side(definition, created.bundle)
        appointment.require_key(side.fingerprint)
        return side

    def fund(self, task: str, amount: int, name: str | None = None) -> str:
        """Announce a payment into escrow; with a name, a repeat is the same one. It counts once SP's operator confirms it.

        The deposit's name, which the operator needs for that.
        """
        name = name or secret_hex(8)
        self.sp.deposit(task, name, amount)
        return name

    def invite(self, task: str, count: int, seconds: float, replaces: str = "") -> list[str]:
        """Single-use invitations, good for so long, and not after enrolment; nobody is invited to a task that takes nobody.

        Each is a `Ticket`'s text, with its private key: whoever is given it keeps it, and nothing stays here.

        `replaces`: the number of an invitation, or a participant's name. Its person goes on with another device, in the same
        place, which may be after enrolment too.
        """
        if replaces and count != 1:
            raise SettingsError("one invitation takes the place of one device: make them one at a time")
        state = self.sp.status(task).get("enrolment")
        if state in NOT_OPEN and (state == "ended" or not replaces):
            raise TaskNotRunning(f"{NOT_OPEN[state]}: nobody is invited")
        until = math.inf if replaces else self.definition(task).plan.enrolment_end
        expires = min(self.clock.now() + seconds, until)
        places = [self._next_device(task, replaces)] if replaces else [(secret_hex(16), 1) for _ in range(count)]
        return [Ticket.make(task, *place, expires, self.signing).text for place in places]

    def _next_device(self, task: str, replaces: str) -> tuple[str, int]:
        """Under which number, and which one it is there. KGC shows what the person has signed: its word could name another."""
        found = admitted(self.kgc.certified(task, replaces), self.kgc_key, self.definition(task))
        if replaces not in (found.identity.place, found.identity.who):
            raise InvitationRefused(
                f"{replaces} is not the newest device of its person, as KGC says: name that one, or the invitation's number"
            )
        if found.device == MOST_DEVICES:
            raise InvitationRefused(
                f"this person has had {MOST_DEVICES} devices, and no more take one place: invite anew"
            )
        return found.identity.place, found.device + 1

    def consents(self, task: str) -> list[dict[str, Any]]:
        """Who, by the name in the task, has agreed to which version of its consent text, with the signed proof."""
        self.definition(task)
        return self.sp.consents(task)

    def order(self, task: str, action: str) -> None:
        """Pause, resume, cancel, or close enrolment."""
        definition = self.definition(task)  # an order about somebody else's task would be refused with less to go by
        profile = profile_named(definition.settings.profile)
        closing = ""
        if action == "cancel" and isinstance(profile, ClosesRounds):
            closing = profile.cancellation(definition.spec, self.signing).hex()
        order = Order(task, action, self.clock.now(), closing)
        if action in ("cancel", "close"):
            # First, so that a repeat does both: what KGC kept for newcomers serves nobody now.
            self.close_enrolment(task)
        if action != "close":
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
        found = [(name.split("/"), written) for name, written in self.blobs.listing().items()]
        written = {parts[0]: at for parts, at in found if parts[1:] == ["definition"]}
        return sorted(written, key=lambda task: -written[task])

    def initial(self, task: str) -> Weights:
        """The weights that everyone starts from."""
        definition = self.definition(task)
        kept = f"{task}/initial"
        found = self.blobs.get(kept) if self.blobs.has(kept) else self.sp.initial_weights(task)
        return definition.initial_weights(found)

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
        chain = self._chain(self.definition(task))
        return chain.read(self._caught_up(task, number), number, self.sp.final(task, number))

    def _caught_up(self, task: str, number: int) -> ReaderProtocol:
        """A side that has read what a round starts from."""
        definition = self.definition(task)
        side = self._side(definition, self.blobs.get(f"{task}/bundle"))
        chain = self._chain(definition)
        fetch = partial(self.sp.final, task)
        if chain.last() >= number:
            chain.forget()
        chain.resume(side, lambda: definition.shape.flat(self.initial(task)))
        for _ in chain.catch_up(side, number, partial(self.sp.status, task), fetch):
            pass  # each is kept when it is read
        return side

    def refer(self, task: str, number: int, train: Train) -> None:
        """Train on the requester's own data from what a round starts from, and upload what others are compared with."""
        self.sp.reference(task, number, self.reference(task, number, train))

    def reference(self, task: str, number: int, train: Train) -> bytes:
        """What was made for a round is kept before it is sent: a repeat sends the same bytes."""
        name = f"{task}/rounds/{number}/reference"
        if not self.blobs.has(name):
            definition = self.definition(task)

            def trained(flat: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
                weights, _ = train(definition.shape.arrays(flat), definition.training, number)
                return definition.shape.flat(weights)

            side = self._caught_up(task, number)
            if not isinstance(side, Refers):
                raise no_reference()
            self.blobs.put(name, side.refer(trained, number, self.signing))
        return self.blobs.get(name)

    def _chain(self, definition: Definition) -> KeptChain:
        return KeptChain(self.blobs, f"{definition.task}/rounds", definition.settings.rounds)

    def _side(self, definition: Definition, bundle: bytes) -> ReaderProtocol:
        return profile_named(definition.settings.profile).requester(definition.spec, bundle, self.tools)

    def report(self, task: str) -> dict[str, Any]:
        """In millionths: what waits for confirmation, was paid in, offered by rounds that were rewarded, earned, and returned.

        What people have earned, by their claims, is None until claims have ended: before, it would show single ones.
        """
        movements, deposits = self.sp.movements(task), self.sp.deposits(task)
        pending = sum(one["amount"] for one in deposits if one["state"] == "pending")
        paid_in = sum(m["amount"] for m in movements if m["source"] == REQUESTER)
        returned = sum(m["amount"] for m in movements if m["target"] == REQUESTER)
        offered = sum(m["amount"] for m in movements if m["target"] == REWARDS)
        unclaimed = [m["amount"] for m in movements if (m["source"], m["target"]) == (REWARDS, ESCROW)]
        earned = offered - sum(unclaimed) if unclaimed or not offered else None
        sums = {"pending": pending, "paid_in": paid_in, "offered": offered, "earned": earned, "returned": returned}
        sums |= self._compared(task, movements)
        return sums | {"movements": movements, "deposits": deposits}

    def keep_scores(self, task: str, data: Sequence[str], rounds: Mapping[int, Mapping[str, Any]]) -> None:
        """How well the models of these rounds did on this data, for reports; of the same data, with those known before."""
        before = self.scores(task)
        known = before["rounds"] if before is not None and before["data"] == list(data) else {}
        kept = {**known, **{str(number): dict(found) for number, found in rounds.items()}}
        found = {"data": list(data), "at": self.clock.now(), "rounds": kept}
        replace_blob(self.blobs, f"{task}/scores", json.dumps(found).encode())

    def scores(self, task: str) -> dict[str, Any] | None:
        """The last evaluation, by round; None: there is none."""
        name = f"{self.definition(task).task}/scores"
        found: dict[str, Any] | None = json.loads(self.blobs.get(name)) if self.blobs.has(name) else None
        return found

    def _compared(self, task: str, movements: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What CSP has signed once claims have ended, beside what SP says to have paid by attestations.

        `attested` None: SP has not shown CSP's word, or claims go on. `difference`: SP's sum less CSP's; None: not known.
        `sp_word` is what SP says to have paid for unused uploads: nobody attests that.
        """
        paid = {m["name"]: m["amount"] for m in movements}
        found = {"attested": None, "attested_complete": None, "difference": None, "sp_word": paid.get(PAID_UNUSED, 0)}
        if self.definition(task).settings.budget is None or self.sp.status(task)["state"] != "settled":
            return found
        try:
            document = self.sp.attested(task)
        except (NotReady, TaskEnded, UnknownTask, ServiceError):
            return found
        total, complete = self._attested(task, document)
        return found | {
            "attested": total,
            "attested_complete": complete,
            "difference": paid.get(PAID_PEOPLE, 0) - total,
        }

    def _attested(self, task: str, document: str) -> tuple[int, bool]:
        """By CSP's key as KGC has named it; `BadSignature` or `DocumentError` for anything else that SP shows."""
        appointment = Appointment.open(self.blobs.get(f"{task}/appointment").decode(), self.kgc_key)
        found = AttestedSum.open(document, bytes.fromhex(appointment.csp))
        if (found.task, found.currency) != (task, self.definition(task).settings.currency):
            raise DocumentError("SP shows what CSP has attested in another task or currency")
        return int(found.total), found.complete
