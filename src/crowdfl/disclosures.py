"""Who learns what: the one table that SECURITY.md, both consoles and the phone show. Its rows are in `disclosures.toml`."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

PROFILES = ("hardened", "shares", "paper")


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
    party: str
    gains: str
    test: str
    deviates: bool = False


@cache
def disclosures() -> tuple[Disclosure, ...]:
    tables = _tables()
    return tuple(
        Disclosure(profile, **row | {"audit": tuple(row.get("audit", ()))})
        for profile in ("every", *PROFILES)
        for row in tables[profile]
    )


@cache
def weaknesses() -> tuple[Weakness, ...]:
    return tuple(Weakness(**row | {"profiles": tuple(row["profiles"])}) for row in _tables().get("weakness", ()))


def learnt_in(profile: str, *, deviates: bool = False) -> list[Disclosure]:
    """By each party of a task of this profile."""
    return [row for row in disclosures() if row.profile in ("every", profile) and row.deviates == deviates]


def weaknesses_of(profile: str) -> list[Weakness]:
    return [row for row in weaknesses() if profile in row.profiles]


def _tables() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(files("crowdfl").joinpath("disclosures.toml").read_text(encoding="utf-8"))
