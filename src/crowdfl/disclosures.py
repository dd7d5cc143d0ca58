"""Who learns what: the one table that SECURITY.md, both consoles and the phone show. Its rows are in `disclosures.toml`;
pages have those with an `id` in each language (web/common/text)."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

PROFILES = ("shares", "hardened", "paper")  # the default first


class Disclosure(NamedTuple):
    """What a party, or several together, learn of a task: curious parties that follow the protocol, or ones that deviate.

    Rows of `crowdfl audit`, by name, show it; it is argued at the place of its `proof`.
    """

    profile: str  # "every", or one of PROFILES
    party: str
    learns: str
    hidden: str = ""
    id: str = ""  # the party, as catalogues call it; rows of deviating parties are on no page
    deviates: bool = False
    audit: tuple[str, ...] = ()
    proof: str = ""
    recruiting: str = (
        ""  # the party, in tasks with recruit = "open": SP is by itself what it needs another for in others
    )

    @property
    def key(self) -> str:
        """Of what is learnt and hidden, in catalogues."""
        return f"{self.profile}_{self.id}"


@cache
def disclosures() -> tuple[Disclosure, ...]:
    tables = tomllib.loads(files("crowdfl").joinpath("disclosures.toml").read_text(encoding="utf-8"))
    return tuple(
        Disclosure(profile, **row | {"audit": tuple(row.get("audit", ()))})
        for profile in ("every", *PROFILES)
        for row in tables[profile]
    )


def learnt_in(profile: str, *, deviates: bool = False, recruits: bool = False) -> list[Disclosure]:
    """By each party of a task of this profile, and then what is so in all; `recruits`: of a task that SP lists."""
    rows = [row for place in (profile, "every") for row in disclosures() if row.profile == place]
    if recruits:
        rows = [row._replace(party=row.recruiting or row.party) for row in rows]
    return [row for row in rows if row.deviates == deviates]
