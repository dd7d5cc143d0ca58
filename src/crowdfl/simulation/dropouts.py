"""Who is away in which round of a simulation."""

import inspect
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from crowdfl.errors import SettingsError

Dropouts = float | Mapping[str, int | Collection[int]] | Callable[[int, str], bool]
"""A share of the people, drawn anew in each round; by name, the rounds that somebody misses; or a function (round, name)."""
_NAMES = ("name", "person", "who", "participant", "client", "user")  # what a first parameter for people is called
Away = Callable[[int], frozenset[str]]
"""Who is away in a round."""


def away_in(dropouts: Dropouts, people: Sequence[str], rounds: int, seed: int) -> Away:
    """Who is away, as it was asked for; the same in every run.

    Raises:
        SettingsError: A share that is not one, a name that nobody has, or a round that does not come.
    """
    if callable(dropouts):
        _check_function(dropouts)
        return cache(lambda number: frozenset(who for who in people if dropouts(number, who)))  # each is asked once
    if isinstance(dropouts, Mapping):
        missed = {who: _rounds(who, found, people, rounds) for who, found in dropouts.items()}
        return lambda number: frozenset(who for who, numbers in missed.items() if number in numbers)
    return _drawn(dropouts, people, seed)


def _check_function(function: Callable[..., object]) -> None:
    """It takes a round and a name, in this order: the other way round, nobody would ever be away."""
    try:
        wanted = inspect.signature(function)
    except (TypeError, ValueError):  # written in another language
        return
    try:
        wanted.bind(1, "name")
    except TypeError:
        raise SettingsError(f"`dropouts` is a function of {wanted}; expected one of (round, name)") from None
    if next(iter(wanted.parameters)) in _NAMES:
        raise SettingsError(f"`dropouts` is a function of {wanted}; expected (round, name), in this order")


def _drawn(share: float, people: Sequence[str], seed: int) -> Away:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise SettingsError(
            f"`dropouts` is {share!r}; expected a share from 0 to less than 1, a dictionary of names and rounds such as "
            '{"ada": [2, 3]}, or a function (round, name)'
        )
    count = round(share * len(people))

    def draw(number: int) -> frozenset[str]:
        chance = random.Random(f"dropouts/{seed}/{number}")  # noqa: S311 -- a simulation, which repeats itself
        return frozenset(chance.sample(list(people), count))

    return draw


def _rounds(who: str, found: int | Collection[int], people: Sequence[str], rounds: int) -> frozenset[int]:
    if who not in people:
        raise SettingsError(f"`dropouts` names {who!r}, and nobody in the data is called so")
    numbers = frozenset(found if isinstance(found, Collection) else [found])
    if any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        raise SettingsError(f"`dropouts` has {found!r} for {who}; expected the number of a round, or a list of them")
    if wrong := sorted(number for number in numbers if not 1 <= number <= rounds):
        raise SettingsError(f"`dropouts` names round {wrong[0]} of {who}; the rounds are 1 to {rounds}")
    return numbers
