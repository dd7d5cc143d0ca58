"""What the rules would pay in such campaigns: the cheaters' part of the budget, and the honest people who get nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from crowdfl.learning.oracle import agreement_weights, count_weights, distance_weights, gate_weights, rewards_from
from crowdfl_lab.audit.incentives.campaign import CheatedCampaign, CrowdData, IncentiveSettings, RoundUploads
from crowdfl_lab.audit.incentives.cheats import Cheat, Flat

REFERENCE = "count"  # pay by declared samples: no rule of the protocol, but what the others are measured by
RULES: Mapping[str, Callable[[RoundUploads, int], Flat]] = MappingProxyType(
    {
        REFERENCE: lambda uploads, _: count_weights(uploads.samples),
        "distance": lambda uploads, _: distance_weights(uploads.updates, uploads.samples),
        "agreement": lambda uploads, _: agreement_weights(uploads.updates),
        "gate": lambda uploads, lanes: gate_weights(uploads.updates, uploads.samples, uploads.previous_sum, lanes),
    }
)
NOBODY = "nobody cheats"


@dataclass(frozen=True)
class Outcome:
    """Of one cheat by one group under one rule, over all rounds and draws; all values are parts of one.

    `share` is the cheaters' part of the budget of all rounds, `least` and `most` that of single draws. `unpaid` is how often an
    honest person got nothing in a round. `paid` is how much of the budget was paid at all.
    """

    source: str
    inputs: str
    cheat: str
    group: int
    rule: str
    share: float
    least: float
    most: float
    unpaid: float
    paid: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def outcomes(crowd: CrowdData, settings: IncentiveSettings, say: Callable[[str], None]) -> Iterator[Outcome]:
    """First without cheaters, then each cheat with each size of group."""
    campaigns = []
    for draw in range(settings.draws):
        say(f"{crowd.name}: people drawn, {draw + 1} of {settings.draws}")
        campaigns.append(CheatedCampaign(crowd, settings, draw))
    yield from _judged(crowd, settings, None, 0, [campaign.play(None) for campaign in campaigns])
    for cheat in settings.cheats:
        say(f"{crowd.name}: {cheat.name}")
        for group in (size for size in settings.groups if size >= cheat.least):
            played = [campaign.play(cheat, group) for campaign in campaigns]
            yield from _judged(crowd, settings, cheat, group, played)


def _judged(
    crowd: CrowdData,
    settings: IncentiveSettings,
    cheat: Cheat | None,
    group: int,
    played: Sequence[Sequence[RoundUploads]],
) -> Iterator[Outcome]:
    name = NOBODY if cheat is None else cheat.name
    for rule in RULES:
        pay = [[rewards_from(RULES[rule](one, settings.lanes), 1.0) for one in rounds] for rounds in played]
        earned = np.array(pay)  # draw, round, participant
        honest, cheating = earned[..., : settings.honest], earned[..., settings.honest :]
        shares = cheating.sum(axis=2).mean(axis=1)
        ends = float(shares.min()), float(shares.max())
        unpaid, paid = float((honest == 0).mean()), float(earned.sum(axis=2).mean())
        yield Outcome(crowd.source, crowd.inputs, name, group, rule, float(shares.mean()), *ends, unpaid, paid)


@dataclass(frozen=True)
class PaceOutcome:
    """Honest people whom the gate leaves unpaid although nobody cheats, by how much is trained in a round.

    `aside`: they do not go where the others go. `again`: they go where the last round went, as a replay does.
    """

    source: str
    inputs: str
    pace: str
    epochs: int
    rate: float
    aside: float
    again: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def paces(crowd: CrowdData, settings: IncentiveSettings) -> Iterator[PaceOutcome]:
    """A tenth of the rate and one epoch; as in all other campaigns; four times the epochs."""
    slow = replace(settings, epochs=1, rate=settings.rate / 10)
    long = replace(settings, epochs=4 * settings.epochs)
    for pace, chosen in {"little": slow, "as elsewhere": settings, "much": long}.items():
        played = [one for draw in range(chosen.draws) for one in CheatedCampaign(crowd, chosen, draw).play(None)]
        aside = [gate_weights(one.updates, one.samples, None, chosen.lanes) == 0 for one in played]
        unpaid = [RULES["gate"](one, chosen.lanes) == 0 for one in played]
        both = float(np.mean(aside)), float(np.mean(unpaid))
        yield PaceOutcome(crowd.source, crowd.inputs, pace, chosen.epochs, chosen.rate, both[0], both[1] - both[0])
