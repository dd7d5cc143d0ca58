"""A task whose rounds were rewarded and opened, and what its participants can claim of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from crowdfl.protocols.claims import Beside, Claim
from tests.protocols.driving import SMALL, SmallParties, deal

BUDGET = 36_000_000


def settle(rounds: int = 2) -> SmallParties:
    """Three participants and some rounds with rewards; every participant has opened its own."""
    sides = deal(3, 2, **(SMALL | {"max_participants": 3, "rounds": 5}))
    for number in range(1, rounds + 1):
        updates = {who: (np.array([0.1 * i, 0.5]), i + 2) for i, who in enumerate(sides.people)}
        sides.play(number, sides.encrypt(updates, number), payment=BUDGET)
    return sides


@contextmanager
def unclaimed(sides: Any) -> Iterator[None]:
    """What is claimed meanwhile is forgotten afterwards."""
    records = sides.csp.records
    sides.csp.records = records.copy()
    yield
    sides.csp.records = records


def earned(sides: SmallParties, who: str) -> dict[int, int]:
    """What a participant has opened, in millionths, by round."""
    return dict(sides.people[who]._amounts)


def claim_of(sides: SmallParties, who: str, beside: Beside | None = None) -> Claim:
    return Claim.from_bytes(sides.people[who].claim(beside), sides.sp.party.limits(1))


def signed(sides: SmallParties, who: str, **changes: Any) -> bytes:
    """A claim with other contents, signed anew by its owner (the masks stay as they are unless given)."""
    changed = replace(claim_of(sides, who), **changes)
    return replace(changed, signature=sides.people[who].signing.sign(changed.statement)).to_bytes()
