"""Three SPs and two CSPs over one PostgreSQL and one bucket, as they run on several machines."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.outcome import Outcome
from tests.faults.supervisor import Campaign
from tests.storage.conftest import SERVER, empty_database
from tests.storage.swift import CREDENTIALS, require_swift, serving_s3

SERVERS = ("kgc", "csp", "csp+2", "sp", "sp+2", "sp+3")
SHOTS = 10


def test_servers_killed_at_any_time_lose_nothing(
    undisturbed: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The same averages, books, requests and blobs as of one machine that nothing happened to."""
    if SERVER is None:
        pytest.skip("NO POSTGRESQL: CROWDFL_TEST_POSTGRES names a server")
    require_swift()
    with ExitStack() as stack:
        urls = {role: stack.enter_context(empty_database("postgresql", tmp_path)) for role in ("kgc", "sp", "csp")}
        (tmp_path / "s3").mkdir()
        bucket = stack.enter_context(serving_s3(tmp_path / "s3")).model_dump(include={"bucket", "endpoint"})
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        where = {"databases": urls, "s3": bucket, "environment": CREDENTIALS}
        campaign = Campaign(tmp_path / "many", servers=SERVERS, elsewhere=where, shots=SHOTS)
        campaign.run()
        assert len(campaign.deaths) >= SHOTS / 2, "the campaign was over too soon"
        outcome = Outcome(campaign.folder)
        outcome.check()
        outcome.require_same(Outcome(undisturbed.folder))
