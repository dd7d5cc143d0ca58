"""Who is drawn for which round of a simulation."""

import random
from collections.abc import Sequence

from crowdfl.roles.sp.core import Draw


def seeded_draw(seed: int, done: int = 0) -> Draw:
    """By position, so that it is the same of names and of the pseudonyms that SP knows them by; after so many rounds."""

    def draw(number: int, people: Sequence[str], count: int) -> list[str]:
        chance = random.Random(f"sampled/{seed}/{number + done}")  # noqa: S311 -- a simulation, which repeats itself
        return chance.sample(list(people), count)

    return draw
