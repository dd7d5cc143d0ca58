"""What the rule `distance` starts from."""

from dataclasses import dataclass, field

from crowdfl.protocols.shares.circuits.scalars import Masked


@dataclass(frozen=True)
class RoundScores:
    """What `distance` starts from: shares modulo 2^R, of the accepted in the order of their places among all slots.

    `samples` are opened under the masks that were dealt for squaring them, `total` under one of its own.
    """

    places: list[int]
    kept: int  # lanes
    A: list[int] = field(repr=False)
    B: list[int] = field(repr=False)
    UU: int = field(repr=False)
    samples: Masked
    squares: list[int] = field(repr=False)
    total: Masked
