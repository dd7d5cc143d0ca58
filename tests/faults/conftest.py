"""The campaigns that all others are compared with: nobody is killed, nobody has company."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults.outcome import Outcome
from tests.faults.supervisor import Campaign
from tests.hosts import HARDENED


def _played(folder: Path, **settings: Any) -> Campaign:
    campaign = Campaign(folder / "campaign", **settings)
    campaign.run()
    assert campaign.deaths == []
    Outcome(campaign.folder).check()
    return campaign


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return _played(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="session")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The same of the profile `hardened`."""
    return _played(tmp_path_factory.mktemp("keyed"), settings=HARDENED)


@pytest.fixture(params=["undisturbed", "keyed"])
def whole(request: pytest.FixtureRequest) -> Campaign:
    """Of either profile."""
    campaign: Campaign = request.getfixturevalue(request.param)
    return campaign
