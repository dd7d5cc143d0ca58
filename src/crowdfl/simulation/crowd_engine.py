"""A crowd in batches: people train one after the other, and what the servers do is done once for all of them.

Nobody enrols, polls, seals or stores. Who is drawn, who is away, when a round is extended and when it is given up follow the
rules of rounds that SP has; averages, verdicts and pay are those of `crowd_servers`, or of a rule in the clear.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import default_backend
from crowdfl.errors import CrowdFLError, NothingToContribute, SlotOverflow
from crowdfl.learning.functions import FunctionTrainer
from crowdfl.learning.models.forms import ModelForm, to_safetensors
from crowdfl.learning.models.shape import Weights
from crowdfl.privacy import AverageNoise
from crowdfl.protocols.party import Costs
from crowdfl.protocols.profile import Tools
from crowdfl.protocols.shares.dealing.keys import REQUESTER
from crowdfl.protocols.shares.server_optimizers import Moments
from crowdfl.reasons import Reason
from crowdfl.roles.records import Round, RoundState
from crowdfl.settings import TaskSettings, from_millionths
from crowdfl.simulation.crowd_servers import CrowdServers, Handed
from crowdfl.simulation.draws import Evaluated
from crowdfl.simulation.dropouts import Away
from crowdfl.simulation.engine import OnChange, OnRead
from crowdfl.simulation.log import SimulationLog
from crowdfl.simulation.parallel import ParallelTrainer
from crowdfl.simulation.recorder import Recorder, costs_by_role

if TYPE_CHECKING:
    from crowdfl.roles.sp.core import Draw

_AFTER_WINDOW = 1.0  # seconds, at most: when late updates come


@dataclass
class Averaged:
    """What became of a round."""

    arrays: Weights | None = field(default=None, repr=False)  # None: it was given up
    accepted: Collection[str] = ()
    rejected: Mapping[str, Reason] = field(default_factory=dict)
    rewards: Mapping[str, Decimal] = field(default_factory=dict)
    noise: AverageNoise | None = None
    publication: int = 0  # bytes that each reader fetches
    envelopes: Mapping[str, int] = field(default_factory=dict)  # bytes that each person fetches


class Averaging(Protocol):
    """What makes an average of a round's updates."""

    upload_bytes: int

    def open(self, number: int) -> None: ...
    def refer(self, trainer: FunctionTrainer, arrays: Weights, number: int) -> None: ...
    def take(self, trainer: ParallelTrainer, weights: Weights, samples: int) -> Mapping[str, Any]: ...
    def close(self, arrays: Weights, number: int) -> Averaged: ...  # from what the round started from
    def moments(self) -> Moments: ...
    def costs(self) -> Mapping[str, Costs]: ...


class ServerAveraging:
    """As both servers of the profile `shares` do it."""

    def __init__(
        self,
        settings: TaskSettings,
        form: ModelForm,
        initial: Weights,
        moments: Moments,
        handed: Handed | None,
    ) -> None:
        self._shape, self._observer = form.shape, Recorder(keep_views=False)
        tools = Tools(default_backend(), observer=self._observer)
        self._servers = CrowdServers(settings, form.shape.flat(initial), moments, tools, handed)
        self.upload_bytes = self._servers.upload_bytes
        self._room = np.empty(
            form.shape.parameters
        )  # of the update that is encoded: fresh memory for each takes longer

    def open(self, number: int) -> None:
        self._servers.open(number)

    def refer(self, trainer: FunctionTrainer, arrays: Weights, number: int) -> None:
        del arrays

        def trained(flat: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            return self._shape.flat(trainer.train(self._shape.arrays(flat), {}, number)[0])

        self._servers.refer(trained)

    def take(self, trainer: ParallelTrainer, weights: Weights, samples: int) -> Mapping[str, Any]:
        return self._servers.take(trainer.person, self._shape.flat(weights, self._room), samples)

    def close(self, arrays: Weights, number: int) -> Averaged:
        del arrays, number
        found = self._servers.close()
        average = found.average
        return Averaged(
            None if average is None else self._shape.arrays(average.model),
            found.accepted,
            found.rejected,
            {who: from_millionths(amount) for who, amount in found.paid.items()},
            None if average is None else average.noise,
            found.publication,
            found.envelopes,
        )

    def moments(self) -> Moments:
        return self._servers.moments

    def costs(self) -> Mapping[str, Costs]:
        return costs_by_role(self._observer)


class CrowdEngine:
    """One task of a crowd."""

    def __init__(
        self,
        settings: TaskSettings,
        initial: Weights,
        trainers: Mapping[str, ParallelTrainer],
        away_in: Away,
        averaging: Averaging,
        *,
        draw: "Draw",
        evaluated: Evaluated,
        on_change: OnChange = lambda _engine: None,
        on_read: OnRead = lambda _engine, _round: False,
        reference: FunctionTrainer | None = None,
    ) -> None:
        self.settings, self.trainers, self.log = settings, trainers, SimulationLog()
        self.rounds: list[Round] = []
        self._away_in, self._averaging = away_in, averaging
        self._draw, self._evaluated, self._reference = draw, evaluated, reference
        self._on_change, self._on_read = on_change, on_read
        self._arrays, self._initial = initial, initial
        self._now = 1.0
        self._drawn: dict[int, set[str]] = {}
        self._found: dict[int, Averaged] = {}
        self._stopped: set[str] = set()  # left out though they kept the bounds: their devices take no further part

    @classmethod
    def with_servers(
        cls,
        settings: TaskSettings,
        form: ModelForm,
        initial: Weights,
        moments: Moments,
        trainers: Mapping[str, ParallelTrainer],
        away_in: Away,
        handed: Handed | None = None,
        **others: Any,  # noqa: ANN401 -- as `__init__` has them
    ) -> "CrowdEngine":
        averaging = ServerAveraging(settings, form, initial, moments, handed)
        return cls(settings, initial, trainers, away_in, averaging, **others)

    def run(self) -> None:
        for number in range(1, self.settings.rounds + 1):
            self._play(number)
            if number == self.settings.rounds:
                break
            self._read(number, [who for who in self.trainers if who not in self._stopped])
            self._stop_rejected(number)
            if self._on_read(self, self.rounds[-1]):
                break
        for who, amount in ((who, one) for found in self._found.values() for who, one in found.rewards.items()):
            self.log.paid[who] = self.log.paid.get(who, Decimal(0)) + amount

    def read_last(self) -> None:
        self._read(self.rounds[-1].number, list(self.trainers))

    # A round.

    def _play(self, number: int) -> None:
        settings = self.settings
        self.log.began.setdefault(number, time.perf_counter())
        self.log.dropped[number] = self._away_in(number)
        round_ = Round(number, self._now)
        self.rounds.append(round_)
        self._averaging.open(number)
        if self._reference is not None:
            self._averaging.refer(self._reference, self._arrays, number)
        here = [who for who in self.trainers if who not in self._stopped]
        if settings.per_round is not None:
            self._drawn[number] = drawn = set(self._draw(number, here, min(settings.per_round, len(here))))
            waiting = [who for who in here if who in drawn]
        else:
            waiting = here
        sent, enrolled = 0, len(waiting)
        while True:
            before, round_ = round_, round_.decide(settings, self._now, sent, enrolled)
            self.rounds[-1] = round_
            if round_.state is not RoundState.OPEN:
                break
            if round_.redrawn > before.redrawn:
                others = self._drawn_too(round_, here, sent)
                left = others.union(waiting)
                waiting = [who for who in here if who in left]
                enrolled += len(others)
            away = self._away_now(round_)
            came = sum([self._take_part(who, round_) for who in waiting if who not in away])
            waiting = [who for who in waiting if who in away]
            sent += came
            if not came and round_ == before:
                self._pass_time(round_)
        is_closed = round_.state is RoundState.CLOSED
        self._settle(round_, self._averaging.close(self._arrays, number) if is_closed else Averaged())

    def _drawn_too(self, round_: Round, here: Sequence[str], sent: int) -> set[str]:
        """Others, in place of who has not sent."""
        drawn = self._drawn[round_.number]
        others = [who for who in here if who not in drawn]
        places = (self.settings.per_round or 0) - sent
        found = set(self._draw(round_.number, others, min(places, len(others))))
        drawn |= found
        return found

    def _away_now(self, round_: Round) -> frozenset[str]:
        """Until the window is over; where late uploads are not taken, until the round is."""
        takes_late = self.settings.grace > 0 and round_.is_late(self.settings, self._now)
        return frozenset() if takes_late else self.log.dropped[round_.number]

    def _pass_time(self, round_: Round) -> None:
        """To the end of the round's window, then to that of late uploads."""
        deadline = round_.deadline(self.settings)
        if self._now < deadline:
            self._now = deadline + min(_AFTER_WINDOW, self.settings.grace / 2)
        else:
            self._now = max(self._now, round_.last_call(self.settings))

    def _take_part(self, who: str, round_: Round) -> bool:
        """Train and upload; False where somebody has nothing to contribute."""
        number, trainer, log = round_.number, self.trainers[who], self.log
        try:
            weights, samples = trainer.train(self._arrays, {}, number)
            details = self._averaging.take(trainer, weights, samples)
        except NothingToContribute as nothing:
            log.events["nothing to contribute", number][who] = {"round": number, "why": str(nothing)}
            return False
        except CrowdFLError as error:
            remedy = "; `max_samples` of `simulate` makes room" if isinstance(error, SlotOverflow) else ""
            error.add_note(f"(from CrowdFL: {who}{remedy})")
            raise
        is_late = round_.is_late(self.settings, self._now)
        log.events["trained", number][who] = {"round": number, **details, "metrics": trainer.metrics}
        log.events["uploaded", number][who] = {"round": number, "late": is_late}
        log.up[number] += self._averaging.upload_bytes
        if is_late:
            log.late[number].append(who)
        self._on_change(self)
        return True

    def _settle(self, round_: Round, found: Averaged) -> None:
        number = round_.number
        self._found[number] = replace(found, arrays=None, envelopes={})
        state = RoundState.ABORTED if found.arrays is None else RoundState.REWARDED
        self.rounds[-1] = replace(round_, state=state)
        if found.arrays is None:
            return
        self._arrays = found.arrays
        readers = len(self.trainers) - len(self._stopped)
        self.log.down[number] += readers * found.publication + sum(found.envelopes.values())
        if number == 1 and found.publication:
            self.log.down[number] += len(self.trainers) * self._initial_bytes()
        in_order = [who for who in self.trainers if who in found.rewards] if found.rewards else []
        self.log.events["rewarded", number] = {who: {"round": number, "amount": found.rewards[who]} for who in in_order}
        if found.noise is not None:
            self.log.events["noise", number][REQUESTER] = asdict(found.noise)

    def _initial_bytes(self) -> int:
        shape = next(iter(self.trainers.values())).form.shape
        return len(to_safetensors(shape, self._initial))

    def _read(self, number: int, names: Sequence[str]) -> None:
        """The average is opened once; whoever is asked for it evaluates it."""
        if self.rounds[-1].state is not RoundState.REWARDED or not self._evaluates:
            return
        chosen = self._evaluated(number)
        for who in names if chosen is None else (who for who in names if who in chosen):
            metrics = self.trainers[who].evaluate(self._arrays, number)
            self.log.events["read", number][who] = metrics
            self.log.weights[number, who] = self.trainers[who].weight

    @property
    def _evaluates(self) -> bool:
        return next(iter(self.trainers.values())).evaluate_function is not None

    def _stop_rejected(self, number: int) -> None:
        """What leaves a device keeps the bounds: if it is left out all the same, the device stops, but where people are
        compared with a reference."""
        if not self.settings.reference:
            named = self._found[number].rejected.items()
            self._stopped |= {who for who, why in named if why not in (Reason.NOT_PASSED_ON, Reason.VOID_COHORT)}

    # What became of it.

    def model(self) -> Weights:
        return self._arrays

    def moments(self) -> Moments:
        return self._averaging.moments()

    def sampled(self, number: int) -> tuple[str, ...]:
        drawn = self._drawn.get(number, set())
        return tuple(who for who in self.trainers if who in drawn) if drawn else ()

    def averaged(self, number: int) -> tuple[str, ...]:
        accepted = self._found[number].accepted
        return tuple(who for who in self.trainers if who in accepted)

    def rejected(self, number: int) -> dict[str, str]:
        left = self._found[number].rejected
        return {who: left[who].words for who in self.trainers if who in left}

    def costs(self) -> Mapping[str, Costs]:
        return self._averaging.costs()
