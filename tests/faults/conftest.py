"""The campaign that all others are compared with."""

import pytest

from tests.faults.child import SHARES
from tests.faults.outcome import Outcome
from tests.faults.supervisor import Campaign


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    campaign = Campaign(tmp_path_factory.mktemp("undisturbed") / "campaign")
    campaign.run()
    assert campaign.deaths == []
    Outcome(campaign.folder).check()
    return campaign


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The same of the profile `shares`."""
    campaign = Campaign(tmp_path_factory.mktemp("shared") / "campaign", settings=SHARES)
    campaign.run()
    assert campaign.deaths == []
    Outcome(campaign.folder).check()
    return campaign
