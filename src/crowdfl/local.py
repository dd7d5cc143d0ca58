"""Every party in one process, by the same steps that the services take. Reads like the paper; start here.

fed = LocalFederation(profile="hardened", max_participants=36, max_samples=100)
result = fed.round({"p1": Update(weights=[w1, b1], samples=49), ...}, budget="36.00")
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Backend, Progress, default_backend
from crowdfl.errors import ModelMismatch, RewardsOff, SettingsError, TooFewParticipants, UnknownParticipant
from crowdfl.protocols.costs import Costs
from crowdfl.protocols.exchange import Exchange, ask_directly, run_exchange
from crowdfl.protocols.parties import LocalDealer
from crowdfl.protocols.party import View
from crowdfl.protocols.profile import (
    CspProtocol,
    ParticipantProtocol,
    RequesterProtocol,
    SpProtocol,
    TaskSpec,
    Tools,
)
from crowdfl.protocols.registry import profile_named
from crowdfl.settings import TaskSettings, from_millionths, to_millionths

__all__ = ["LocalFederation", "RoundResult", "Update"]


_Arrays = Sequence[npt.ArrayLike]
_Server = TypeVar("_Server", SpProtocol, CspProtocol)


@dataclass(frozen=True, eq=False)
class Update:
    """What a participant trained: arrays of weights, and on how many samples."""

    weights: _Arrays = field(repr=False)  # what the whole protocol hides
    samples: int


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What a round gave, to whom it may concern: a real deployment shows each part to its owner alone."""

    average: list[npt.NDArray[np.float64]]
    total: int | None
    rewards: dict[str, Decimal] | None
    costs: dict[str, Costs]
    views: dict[str, View]
    clipped: dict[str, int]


class LocalFederation:
    """A task with all its parties. Keywords are those of `TaskSettings`; keys are dealt at the first round."""

    sp: SpProtocol
    csp: CspProtocol
    requester: RequesterProtocol

    def __init__(
        self,
        *,
        insecure_test_key: bool = False,
        constant_time: bool = False,
        backend: Backend | None = None,
        progress: Callable[[int, int], None] | None = None,
        **settings: Any,  # noqa: ANN401 -- TaskSettings checks each by name
    ) -> None:
        self.settings = TaskSettings.of(**settings)
        self._profile = profile_named(self.settings.profile)
        watcher = Progress(progress) if progress else None
        self._tools = Tools(backend or default_backend(), watcher, insecure_test_key, constant_time)
        self.dealer: LocalDealer | None = None
        self._shapes: list[tuple[int, ...]] | None = None
        self._people: dict[str, ParticipantProtocol] = {}
        self.round_number = 0

    def round(
        self, updates: Mapping[str, Update], budget: str | Decimal | None = None, *, final: bool = False
    ) -> RoundResult:
        """One round: upload, average, publish, read, and with a budget: reward."""
        if budget is not None and self.settings.lanes == 0:
            raise RewardsOff("this federation was made with lanes=0: its packing leaves no room for rewards")
        payment = None if budget is None else to_millionths(budget)
        if payment == 0:
            raise SettingsError("a budget of nothing pays nobody; leave it out for a round without rewards")
        if len(updates) < self.settings.min_participants:
            raise TooFewParticipants(f"{len(updates)} updates, {self.settings.min_participants} needed")
        flat = {who: self._flatten(who, update) for who, update in updates.items()}
        if self.dealer is None:  # KGC deals the keys once the model's size is known
            self._deal(next(iter(flat.values())).size)
        # Participants train (elsewhere) and encrypt: what one of them refuses costs nobody a round.
        uploads = {
            who: self._participant(who).encrypt_update(weights, updates[who].samples) for who, weights in flat.items()
        }
        clipped = {who: self._people[who].clipped for who in updates}

        # They upload; SP multiplies uploads in as they come.
        self._start_round()
        for who, upload in uploads.items():
            self.sp.add(who, upload)

        # SP and CSP average; SP serves the result; participants (or, at the end, the requester) read it.
        self._exchange(self.sp.publish(final=final))
        publication = self.sp.publication()
        reader = self.requester if final else self._people[next(iter(updates))]
        average = reader.read(publication, self.round_number)

        # SP and CSP compute the rewards; each participant opens its own.
        rewards = self._reward(payment) if payment is not None else None
        return RoundResult(self._restore(average.weights), average.total, rewards, self.costs(), self.views(), clipped)

    def claim(self, who: str) -> Decimal:
        """A participant claims all it has earned so far; CSP attests, SP pays."""
        if who not in self._people:
            raise UnknownParticipant(f"nobody called {who} took part")
        claim = self._people[who].claim()
        self.sp.check_claim(claim)
        return from_millionths(self.sp.pay(claim, self.csp.answer(claim)))

    def costs(self) -> dict[str, Costs]:
        """Counters per role so far; those of the participants together."""
        participants = Costs()
        for side in self._people.values():
            participants.counts += side.party.costs.counts
            participants.messages += side.party.costs.messages
            participants.bytes_sent += side.party.costs.bytes_sent
        roles = {"SP": self.sp.party.costs, "CSP": self.csp.party.costs, "requester": self.requester.party.costs}
        return roles | {"participants": participants}

    def views(self) -> dict[str, View]:
        """What each server saw in the clear so far."""
        return {"SP": self.sp.party.view, "CSP": self.csp.party.view}

    def _reward(self, payment: int) -> dict[str, Decimal]:
        self._exchange(self.sp.reward(payment))
        envelopes = self.sp.envelopes()
        return {
            who: from_millionths(self._people[who].open_reward(envelope, self.round_number))
            for who, envelope in envelopes.items()
        }

    def _exchange(self, step: Exchange) -> None:
        """Carry bytes between SP and CSP until the step is done."""
        run_exchange(step, ask_directly(self.csp.answer))

    def _deal(self, parameters: int) -> None:
        about = TaskSpec("local", self.settings, parameters)
        self.dealer = LocalDealer(about, self._tools)
        self.sp = self.dealer.sp()
        self.csp = self.dealer.csp()
        self.requester = self.dealer.requester()

    def _start_round(self) -> None:
        self.round_number += 1
        self.sp.open_round(self.round_number)

    def _participant(self, who: str) -> ParticipantProtocol:
        if who not in self._people:
            if self.dealer is None:
                raise SettingsError("the federation has no keys yet")
            self._people[who] = self.dealer.participant(who)
        return self._people[who]

    def _flatten(self, who: str, update: Update) -> npt.NDArray[np.float64]:
        """Shapes are learnt from the first update and enforced after."""
        arrays = [np.asarray(array, dtype=np.float64) for array in update.weights]
        shapes = [array.shape for array in arrays]
        if self._shapes is None:
            self._shapes = shapes
        if shapes != self._shapes:
            wrong = [
                f"array {i}: {a} instead of {b}"
                for i, (a, b) in enumerate(zip(shapes, self._shapes, strict=False))
                if a != b
            ]
            counts = (
                [] if len(shapes) == len(self._shapes) else [f"{len(shapes)} arrays instead of {len(self._shapes)}"]
            )
            raise ModelMismatch(f"the update of {who} does not match the model: {'; '.join(counts + wrong)}")
        return np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.zeros(0)

    def _restore(self, flat: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
        arrays, place = [], 0
        for shape in self._shapes or []:
            size = int(np.prod(shape))
            arrays.append(flat[place : place + size].reshape(shape))
            place += size
        return arrays
