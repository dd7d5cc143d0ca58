"""`crowdfl doctor SETTINGS` asks PostgreSQL whether what is committed outlives its server: a standby must not be behind."""

from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from crowdfl.cli.doctor.role import _standbys
from crowdfl.settings import SpSettings
from crowdfl.storage.database import open_engine
from crowdfl.storage.settings_file import read_service
from tests.storage.conftest import SERVER, empty_database

pytestmark = pytest.mark.second


def look(workspace: Path, url: str, states: list[str | None], durable: str = "on") -> list[tuple[str, str]]:
    """What is said with such standbys: a view in the place of PostgreSQL's own, for a test's server has none."""
    schema = make_url(url).query["options"].partition("=")[2]
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS standbys (sync_state text)"))
        connection.execute(text("DELETE FROM standbys"))
        for state in states:
            connection.execute(text("INSERT INTO standbys VALUES (:state)"), {"state": state})
        connection.execute(text(f"CREATE OR REPLACE VIEW {schema}.pg_stat_replication AS TABLE standbys"))
    engine.dispose()
    options = f"-csearch_path={schema},pg_catalog -csynchronous_commit={durable}"
    settings = read_service(SpSettings, workspace / "sp/settings.toml")
    own = make_url(url).update_query_dict({"options": options}).render_as_string(hide_password=False)
    return [(one.verdict, one.found) for one in _standbys(settings.changed(database=own))]


@pytest.mark.skipif(SERVER is None, reason="CROWDFL_TEST_POSTGRES names no server")
def test_standbys_that_may_be_behind_are_told(workspace: Path, tmp_path: Path):
    with empty_database("postgresql", tmp_path) as url:
        assert look(workspace, url, []) == []
        assert look(workspace, url, ["sync", "quorum"]) == [("ok", "2, synchronous")]
        for behind in ("async", "potential", None):
            ((verdict, found),) = look(workspace, url, ["sync", behind])
            assert (verdict, found.partition(",")[0]) == ("warn", "1 of 2 standbys are not synchronous")


@pytest.mark.skipif(SERVER is None, reason="CROWDFL_TEST_POSTGRES names no server")
def test_commits_that_wait_for_no_disk_or_no_standby_are_told(workspace: Path, tmp_path: Path):
    lost = "what was committed may be lost"
    with empty_database("postgresql", tmp_path) as url:
        assert look(workspace, url, [], "off") == [("warn", f"synchronous_commit is off: {lost}")]
        assert look(workspace, url, [], "local") == []
        for durable in ("off", "local"):
            told = [("warn", f"synchronous_commit is {durable}: {lost}"), ("ok", "1, synchronous")]
            assert look(workspace, url, ["sync"], durable) == told
