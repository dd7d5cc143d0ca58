"""Who learns what: the one table that SECURITY.md, both consoles and the phone show. Its rows are in `disclosures.toml`."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

PROFILES = ("shares", "hardened", "paper")  # the default first


class Disclosure(NamedTuple):
    """What a party, or several together, learn of a task: curious parties that follow the protocol, or ones that deviate.

    Rows of `crowdfl audit`, by name, show it. Where there is none it is argued, at the place of its `proof`.
    """

    profile: str  # "every", or one of PROFILES
    party: str
    learns: str
    hidden: str = ""
    deviates: bool = False
    audit: tuple[str, ...] = ()
    proof: str = ""


class Weakness(NamedTuple):
    """What a party gains besides, until it is mended; `test` is the attack, a function under tests/."""

    profiles: tuple[str, ...]
    parties: tuple[str, ...]
    gains: str
    test: str
    deviates: bool = False


@cache
def disclosures() -> tuple[Disclosure, ...]:
    return tuple(Disclosure(profile, **row) for profile in ("every", *PROFILES) for row in _tables()[profile])


@cache
def weaknesses() -> tuple[Weakness, ...]:
    return tuple(Weakness(**row) for row in _tables().get("weakness", ()))


def learnt_in(profile: str, *, deviates: bool = False) -> list[Disclosure]:
    """By each party of a task of this profile, and then what is so in all."""
    rows = (row for place in (profile, "every") for row in disclosures() if row.profile == place)
    return [row for row in rows if row.deviates == deviates]


def weaknesses_of(profile: str) -> list[Weakness]:
    return [row for row in weaknesses() if profile in row.profiles]


def weakened(row: Disclosure) -> bool:
    """Whether somebody in its place gains more, for now."""
    return any(row.party in one.parties and row.deviates == one.deviates for one in weaknesses_of(row.profile))


@cache
def _tables() -> dict[str, list[dict[str, Any]]]:
    found = tomllib.loads(files("crowdfl").joinpath("disclosures.toml").read_text(encoding="utf-8"))
    return {name: [_frozen(row) for row in rows] for name, rows in found.items()}


def _frozen(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
