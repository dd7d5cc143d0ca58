"""How people count: what numbers of samples give away, and who can outweigh the others by declaring one.

Where everyone counts once (`weighting = "equal"`) no number of samples is shared or summed. Counted by samples, as in FedAvg,
all of these attacks work: `crowdfl.disclosures` says so.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from crowdfl.errors import NothingToAverage
from crowdfl.learning.bounds import suggested_bound
from crowdfl.protocols.claims import Claim
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl_lab.audit.finding import (
    ENTRY,
    SAMPLES_OFF,
    SHARES,
    TOTAL_OFF,
    WRONG_GUESSES,
    Attack,
    Finding,
    Floats,
    found_in,
)
from crowdfl_lab.audit.shares.deviating_round import (
    MOST_SAMPLES,
    PAYMENT,
    PEOPLE,
    SIZE,
    DeviatingRound,
    switched,
    updates,
)

_SUBJECTS = {"shares, counted by samples": "samples", SHARES: "equal"}
_VICTIM, _CHEAT = list(PEOPLE)[1], "cheat"
_MOST = 1000  # samples that one may declare
_RATE = 0.5  # how far people go in a round towards what they want: they are not near it yet

_ABSENT = Attack(
    "absent samples", "4", "samples of whoever misses a round, by two totals", ("participant",), SAMPLES_OFF
)
_COMPARED = Attack("compared total", "3", "whether the total is above a number of SP's choice", ("SP",), WRONG_GUESSES)
_CLAIMS = "the total of samples, by SP from two claims of a round that pays by samples"
_CLAIMED = Attack("total by claims", "3", _CLAIMS, ("SP",), TOTAL_OFF, conceded=True)
_HELD = Attack("held model", "5", "an update, by holding the model still for a round", ("participant",), ENTRY)


def attack_counts() -> Iterator[Finding]:
    for attack in (_absence, _comparison, _standstill):
        for subject, weighting in _SUBJECTS.items():
            yield attack(subject, weighting)
    yield _claims()


def _claims() -> Finding:
    """An amount is a count's part of the total: of two amounts few totals make whole counts, and the least is it, or a part."""
    round_ = DeviatingRound.paying(pay="samples", rounds=2)
    total = sum(PEOPLE.values())
    round_.play_all(1, updates())
    claimants = list(PEOPLE)[:2]
    claims = (Claim.from_bytes(round_.phone(who).claim(), round_.shape.limits()) for who in claimants)
    parts = np.array([claim.amounts[0] / PAYMENT for claim in claims])
    most = len(PEOPLE) * MOST_SAMPLES
    fits = [one for one in range(1, most + 1) if np.all(np.abs(parts * one - np.rint(parts * one)) < one / PAYMENT)]
    note = f"totals that fit: {', '.join(map(str, fits))}; and with it the claimants' own numbers"
    recovered = f"{fits[0] if fits else 'none'} where {total} is true"
    return _CLAIMED.score(SHARES, fits[0] if fits else None, most // 2, total, recovered, note)


def _absence(subject: str, weighting: str) -> Finding:
    round_, trained = DeviatingRound(check="none", lanes=0, weighting=weighting), updates()
    first = round_.play_all(1, trained).average.total
    second = round_.play_all(2, {who: one for who, one in trained.items() if who != _VICTIM}).average.total
    guess = None if first is None or second is None else first - second
    truth = PEOPLE[_VICTIM]
    recovered = "there are no totals" if guess is None else f"{guess} where {truth} is true"
    most = round_.shape.spec.settings.max_samples
    return _ABSENT.score(subject, guess, most / 2, truth, recovered, "names are in CSP's record of each round")


def _comparison(subject: str, weighting: str) -> Finding:
    """Phones refuse a total that is too large, and stay away: SP sees it."""
    total = sum(PEOPLE.values())
    thresholds = (total - 2, total - 1, total, total + 1)
    wrong = sum(_is_above(threshold, weighting) != (total > threshold) for threshold in thresholds) / len(thresholds)
    recovered = f"{len(thresholds) * (1 - wrong):.0f} of {len(thresholds)} comparisons"
    return _COMPARED.score(subject, wrong, 0.5, 0.0, recovered, "SP shifts the total that it publishes")


def _is_above(threshold: int, weighting: str) -> bool:
    round_ = DeviatingRound(check="none", lanes=0, weighting=weighting)
    shift = len(PEOPLE) * round_.shape.spec.settings.max_samples - threshold
    honest = SharesSp.__dict__["_own_sum"]

    def shifted(self: SharesSp, *rest: object) -> object:
        own = honest(self, *rest)
        return replace(own, total=own.total + shift)

    with switched(SharesSp, "_own_sum", shifted):
        try:
            round_.play_all(1, updates())
        except NothingToAverage:
            return True
    return False


def _standstill(subject: str, weighting: str) -> Finding:
    """One takes the last sum of the others back, as far as its weight goes; the victim misses the third round."""
    wanted = {who: weights for who, (weights, _) in updates().items()}
    bound = suggested_bound(float(np.linalg.norm(_RATE * weights)) for weights in wanted.values())
    equal = weighting == "equal"
    round_ = DeviatingRound(
        check="none", lanes=0, weighting=weighting, decimals=6, max_norm=bound, max_samples=_MOST, max_participants=9
    )
    counts = {who: 1 if equal else samples for who, samples in PEOPLE.items()}
    weight = 1 if equal else _MOST
    model = np.zeros(SIZE)
    own = np.zeros(SIZE)
    others = list[Floats]()
    truth = np.zeros(SIZE)
    for number in (1, 2, 3):
        present = [who for who in PEOPLE if who != _VICTIM or number < 3]
        trained = {who: (model + _RATE * (wanted[who] - model), PEOPLE[who]) for who in present}
        if number == 2:
            truth = counts[_VICTIM] * _RATE * (wanted[_VICTIM] - model)
        average = round_.play_all(number, {**trained, _CHEAT: (model + own, _MOST)}).average.weights
        people = sum(counts[who] for who in present) + weight
        others.append((average - model) * people - own * weight)
        model, own = average, -others[-1] / weight
        own = own * min(1.0, float(bound or 0) / float(np.linalg.norm(own)))
    guess = others[1] - others[2]
    recovered = found_in(guess, truth, within=0.1 * float(np.abs(truth).max()))
    return _HELD.score(subject, guess, np.zeros(SIZE), truth, recovered, f"max_norm = {bound:g}, as a trial suggests")
