"""The campaign that all others are compared with."""

import pytest

from tests.faults.outcome import Outcome
from tests.faults.supervisor import Campaign


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Nobody is killed, nobody has company."""
    campaign = Campaign(tmp_path_factory.mktemp("undisturbed") / "campaign")
    campaign.run()
    assert campaign.deaths == []
    Outcome(campaign.folder).check()
    return campaign
