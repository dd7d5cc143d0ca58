"""What SP tells and gives over HTTP to whoever looks for a task: the list, places, and how many."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import from_base64url
from crowdfl.documents.invitations import Invitation
from crowdfl.documents.links import ListedLink
from crowdfl.errors import Forbidden, SettingsError, TooManyJoins, UnknownTask
from crowdfl.protocols.messages import Limits
from crowdfl.services.client.peers import SpClient
from crowdfl.services.http.address_limit import AddressLimit
from crowdfl.settings import SpSettings, TaskSettings
from tests.hosts import INITIAL_MODEL, SMALL_TASK, small_definition
from tests.http.processes import Loopback, serving

EACH = 3  # places for an address in an hour


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Loopback]:
    with serving(tmp_path, max_joins_per_address=EACH) as platform:
        yield platform


@pytest.fixture
def sp(platform: Loopback) -> SpClient:
    return SpClient(platform._kept(platform._link("sp").open()))


def posted(platform: Loopback, *, recruits: bool = True, **settings: Any) -> str:
    definition = small_definition(TaskSettings.of(**(SMALL_TASK | settings)), claim_window=10_000.0)
    return platform.requester().create(replace(definition, recruits=recruits), INITIAL_MODEL)


def test_a_list_names_the_tasks_that_say_so_and_whom_to_believe(platform: Loopback, sp: SpClient):
    listed, invited = posted(platform), posted(platform, recruits=False, max_participants=4)
    found = sp.listed()
    (row,) = found["tasks"]
    assert (row["task"], row["places_left"], row["budget"], row["currency"]) == (listed, 5, 36_000_000, "EUR")
    assert "no number of people protects anybody against it" in row["recruiting"]
    link = ListedLink.from_bytes(from_base64url(row["link"].partition("#")[2]), Limits.plain())
    assert link == ListedLink(listed, platform.urls["kgc"], "", platform.kgc_key, sp.key())
    servers = {"kgc": platform.urls["kgc"], "kgc_key": platform.kgc_key.hex(), "sp_key": sp.key().hex()}
    assert found["servers"] == servers
    assert (sp.status(listed)["listed"], sp.status(invited)["listed"]) == (0, None)
    with pytest.raises(Forbidden, match="not listed"):
        sp.recruit(invited, SigningKey.fresh().public)
    with pytest.raises(UnknownTask):
        sp.recruit("0" * 64, SigningKey.fresh().public)


def test_a_flood_from_one_address_is_held_up_and_takes_no_place(platform: Loopback, sp: SpClient):
    """Whatever the keys: an address is given so many in an hour, and none is taken before somebody has joined."""
    task = posted(platform)
    keys = [SigningKey.fresh().public for _ in range(EACH)]
    given = [Invitation.open(sp.recruit(task, key), sp.key()) for key in keys]
    assert [one.key for one in given] == keys
    assert len({one.number for one in given}) == EACH
    with pytest.raises(TooManyJoins, match="your address"):
        sp.recruit(task, SigningKey.fresh().public)
    assert sp.status(task)["places_left"] == 5


def test_an_address_waits_until_an_hour_has_passed():
    now = [0.0]
    limit = AddressLimit(2, 3600.0, addresses=2, now=lambda: now[0])
    assert [limit.wait("a") for _ in range(3)] == [0, 0, 3601]
    assert limit.wait("b") == 0
    now[0] = 3600.5
    assert limit.wait("a") == 0
    assert [AddressLimit(0, 1.0).wait("a") for _ in range(100)] == [0] * 100


@pytest.mark.parametrize(("name", "value"), [("max_joins", 0), ("max_joins", 100_001), ("max_joins_per_address", -1)])
def test_the_rates_are_bounded(name: str, value: int):
    with pytest.raises(SettingsError, match=f"`{name}` is {value}"):
        SpSettings.parse({name: value}, "here")
