"""THE round on SP, once its uploads are in: check, reward, average. Everything that plays a round runs this one.

Rewards come before anything is opened to readers: a round that cannot be rewarded is void, and gives no model either. Where
late uploads are averaged in, what was published is rewarded. Services add uploads up as they come (`roles.sp.aggregators`);
`collect` is for callers without a store.

Whoever measures gives an `Observer` (`crowdfl.protocols.exchange`) and never needs to look inside.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crowdfl.errors import RoundEnded, SettingsError
from crowdfl.protocols.capabilities import CarriesOver, HoldsAverage, LeavesOut
from crowdfl.protocols.exchange import Ask, Exchange, Observer, run_exchange
from crowdfl.protocols.profile import SpProtocol
from crowdfl.reasons import Reason


@dataclass
class AggregationRound:
    """One round of one task: SP's half of the protocol, and a way to ask CSP. Each stage can be repeated after a crash."""

    sp: SpProtocol
    ask: Ask
    observer: Observer = field(default_factory=Observer)

    def collect(self, uploads: Mapping[str, bytes]) -> None:
        """Extend the running sums."""
        self.observer.begin("collect")
        with self.observer.working("SP"):
            self.sp.add_all(uploads)

    def check(self) -> None:
        self.observer.begin("check")
        with self.observer.working("SP"):
            self.sp.check()

    def average(self, *, final: bool = False) -> bytes:
        """The publication for the participants or, of the last round, for the requester."""
        self.check()
        self.observer.begin("average")
        self._run(self.sp.publish(final=final))
        with self.observer.working("SP"):
            return self.sp.publication()

    def hold(self) -> bytes:
        """The average, encrypted, to be shown to nobody yet."""
        self.check()
        self.observer.begin("average")
        sp = self._holding()
        self._run(sp.hold())
        with self.observer.working("SP"):
            return sp.held()

    def take_held(self, held: bytes) -> bool:
        """Go on with it; False if it is not of exactly the uploads that are in."""
        return self._holding().take_held(held)

    def _holding(self) -> HoldsAverage:
        if not isinstance(self.sp, HoldsAverage):
            raise SettingsError("this task's profile publishes what it averages, and averages nothing twice")
        return self.sp

    def reward(self, payment: int) -> Mapping[str, bytes]:
        """An envelope for each of those who are in; `payment` in millionths."""
        self.check()
        self.observer.begin("reward")
        self._run(self.sp.reward(payment))
        with self.observer.working("SP"):
            return self.sp.envelopes()

    def _run(self, step: Exchange) -> None:
        """Of a round that the servers give up, it is known whom they had left out."""
        try:
            run_exchange(step, self.ask, self.observer)
        except RoundEnded as ended:
            ended.rejected = dict(self.rejected)
            raise

    @property
    def rejected(self) -> Mapping[str, Reason]:
        """Whom the servers left out, and why; a profile that leaves nobody out ends such a round."""
        return self.sp.rejected() if isinstance(self.sp, LeavesOut) else {}

    def carry_over(self) -> bytes | None:
        """What the next round needs of this one, where it follows from it."""
        return self.sp.carry_over() if isinstance(self.sp, CarriesOver) else None
