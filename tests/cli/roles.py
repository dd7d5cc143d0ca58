"""Folders that `crowdfl init --role` made, and how their operators accept each other."""

from crowdfl.cli.role_folder import PEERS, read_part
from tests.cli.program import call

ROLES = ("kgc", "sp", "csp", "requester")


def settings(place, role):
    """Of a role."""
    return place / role / "settings.toml"


def public(place, role):
    """The file that a role hands out."""
    return place / role / f"{role}.public.json"


def accept(place, own, peer, *more):
    """As an operator does who was told the right digits."""
    told = read_part(public(place, peer)).fingerprint
    return call("exchange", "accept", settings(place, own), public(place, peer), "--fingerprint", told, *more)


def accept_all(place):
    """Everyone knows whom it needs."""
    for own, peers in PEERS.items():
        for peer in peers:
            assert accept(place, own, peer).code == 0, (own, peer)


def refused(result, *said):
    """By name, and nothing was changed halfway."""
    assert result.code == 3, result
    for words in said:
        assert words in result.err, result.err
