"""Encrypted rounds with rewards: distances, weights and rewards of everyone, beside the same in the clear.

No party may see distances or weights, and no message carries them. The experiment holds both shares of the task's key, as KGC
once did, and opens with them what SP computes on: `_Watched` keeps those ciphertexts, in this process alone.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.randomness import SEED_BYTES, Coins
from crowdfl.crypto.vector import CipherVector
from crowdfl.lab.experiments.crowd import Attendance, LearnSettings, load_crowd
from crowdfl.lab.experiments.federated import Encrypted, Flat, Keys, Trained, federated
from crowdfl.lab.experiments.points import Bench, Point, Row, Rows
from crowdfl.lab.experiments.published import BUDGET
from crowdfl.learning.fedavg import fedavg
from crowdfl.learning.rewards import distances, rewards, weights
from crowdfl.protocols.exchange import Reply, ask_directly, run_exchange
from crowdfl.protocols.hardened.prirwd import RewardSp
from crowdfl.protocols.hardened.profile import reward_widths
from crowdfl.protocols.sdiv import SdivWidths
from crowdfl.settings import from_millionths, to_millionths

__all__ = ["PaidRounds", "PaidSettings", "paid_point"]


@dataclass(frozen=True)
class PaidSettings:
    """One encrypted run with rewards in every round."""

    learn: LearnSettings = field(default_factory=lambda: LearnSettings(hidden=50))
    keys: Keys = field(default_factory=lambda: Keys(lanes=256))  # PriRwd takes most of the run, by the lane
    budget: str = BUDGET


class _Watched(RewardSp):
    """PriRwd's SP, keeping the operands and results of its divisions: first those of the weights, then of the rewards."""

    divisions: list[tuple[CipherVector, CipherVector]]

    def divide(
        self, widths: SdivWidths, x: CipherVector, y: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, CipherVector]:
        result = yield from super().divide(widths, x, y, coins)
        self.divisions.append((y, result))
        return result


class PaidRounds(Encrypted):
    """An encrypted run that pays a budget in every round, and notes what everyone's model was worth."""

    def __init__(self, settings: PaidSettings, bench: Bench) -> None:
        self.crowd = load_crowd(settings.learn, bench)
        super().__init__(self.crowd, settings.keys, bench)
        self._backend = bench.backend
        self._payment = to_millionths(settings.budget)
        self._budget = float(settings.budget)
        self.rows: Rows = []

    def average(self, number: int, updates: Mapping[str, Trained], attendance: Attendance, *, final: bool) -> Flat:
        """As before; then the rewards, from the very uploads that were averaged."""
        uploads = self.collect(number, updates, attendance)
        run_exchange(self.sp.publish(final=final), ask_directly(self.csp.answer))
        reader = self.requester if final else next(iter(self.people.values()))
        average = reader.read(self.sp.publication(), number).weights
        self.rows += self._pay(number, uploads, updates)
        return average

    def _pay(self, number: int, uploads: Mapping[str, bytes], updates: Mapping[str, Trained]) -> Rows:
        public = self.dealer.task.public
        widths = reward_widths(self.task, self.parameters)
        side = _Watched(self.sp.party, widths, widths.budget.packing(public))
        side.divisions = []
        limit = widths.budget.ciphertexts + 1
        vectors = {
            who: CipherVector.from_bytes(data, public, max_count=limit, backend=self._backend)
            for who, data in uploads.items()
        }
        context, seed = self.dealer.task.context(number), Coins.fresh().take(SEED_BYTES)
        envelopes = run_exchange(side.run(vectors, self._payment, context, seed), ask_directly(self.csp.answer))
        earned = {
            who: from_millionths(self.people[who].open_reward(envelope.to_bytes(), number))
            for who, envelope in envelopes.items()
        }
        return self._rows(number, side, earned, updates)

    def _rows(self, number: int, side: _Watched, earned: Mapping[str, Decimal], updates: Mapping[str, Trained]) -> Rows:
        ids = sorted(earned)
        samples = [updates[who].samples for who in ids]
        models = [updates[who].weights for who in ids]
        # In the clear, by Eq. 10.
        epsilon = 10.0**-self.task.decimals
        plain_d = distances(models, fedavg(models, samples))
        plain_w = weights(plain_d, samples, epsilon)
        plain_mu = rewards(models, samples, self._budget, epsilon)
        # As SP had them encrypted: y = Y^2 delta^2 (10^2L d + eps) + 1 and weight = delta^3 2^S / y.
        divisors, results = (self._open(vector) for vector in side.divisions[0])
        total, scale = sum(samples), 10 ** (2 * self.task.decimals)
        found_d = [
            ((y - 1) / (total * delta) ** 2 - self.task.epsilon_units) / scale
            for y, delta in zip(divisors, samples, strict=True)
        ]
        unit = total * scale * sum(found_d) / (1 << side.widths.shift)
        rows: Rows = []
        for i, who in enumerate(ids):
            row: Row = {"round": number, "participant": who, "samples": samples[i]}
            row |= {"distance": float(found_d[i]), "weight": float(results[i] * unit), "reward": float(earned[who])}
            row |= {
                "distance in the clear": float(plain_d[i]),
                "weight in the clear": float(plain_w[i]),
                "reward in the clear": float(plain_mu[i]),
            }
            rows.append(row)
        return rows

    def _open(self, vector: CipherVector) -> list[int]:
        """With both shares."""
        half = self.sp.party.partial_decrypt(vector)
        return [int(value) for value in to_ints(self.csp.party.finish(vector, half))]


def paid_point(settings: PaidSettings) -> Point:
    """All rounds of one run."""
    facts: Row = settings.learn.facts() | {"budget": settings.budget} | dict(vars(settings.keys))

    def measure(bench: Bench) -> Rows:
        run = PaidRounds(settings, bench)
        found = list(federated(run.crowd, run, Attendance(run.crowd.names)))
        accuracies = {number: scores.accuracy for number, scores in enumerate(found, start=1)}
        return [row | {"accuracy of the round": accuracies[int(row["round"] or 0)]} for row in run.rows]

    return Point("paid run", facts, measure)
