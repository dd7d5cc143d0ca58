"""Who is drawn for which round of a simulation: to take part, or to evaluate it."""

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from crowdfl.errors import SettingsError

if TYPE_CHECKING:
    from crowdfl.roles.sp.core import Draw

Evaluated = Callable[[int], frozenset[str] | None]
"""Who evaluates a round's average, of those who read it; None: everyone."""


def seeded_draw(seed: int, done: int = 0) -> "Draw":
    """By position, so that it is the same of names and of the pseudonyms that SP knows them by; after so many rounds."""

    def draw(number: int, people: Sequence[str], count: int) -> list[str]:
        chance = random.Random(f"sampled/{seed}/{number + done}")  # noqa: S311 -- a simulation, which repeats itself
        return chance.sample(list(people), count)

    return draw


def evaluated_in(per_round: int | None, fraction: float | None, people: Sequence[str], seed: int) -> Evaluated:
    """As it was asked for; the same in every run.

    Raises:
        SettingsError: A number or a share of the people that is none, or both.
    """
    if per_round is not None and fraction is not None:
        raise SettingsError("`evaluate_per_round` and `evaluate_fraction` say the same: give one of them")
    if fraction is not None:
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
            raise SettingsError(
                f"`evaluate_fraction` is {fraction!r}; expected a share of the people, above 0 and at most 1"
            )
        per_round = max(round(fraction * len(people)), 1)
    if per_round is None:
        return lambda _number: None
    if isinstance(per_round, bool) or not isinstance(per_round, int) or not 1 <= per_round <= len(people):
        raise SettingsError(
            f"`evaluate_per_round` is {per_round!r}; expected 1 to {len(people)}, how many people there are"
        )
    count = per_round

    def draw(number: int) -> frozenset[str]:
        chance = random.Random(f"evaluated/{seed}/{number}")  # noqa: S311 -- a simulation, which repeats itself
        return frozenset(chance.sample(list(people), count))

    return draw
