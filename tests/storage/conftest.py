"""Both databases run the same tests: SQLite in a temporary file, PostgreSQL where CROWDFL_TEST_POSTGRES says there is one."""

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from crowdfl.storage.database import open_engine
from crowdfl.storage.sql import SqlStore

SERVER = os.environ.get("CROWDFL_TEST_POSTGRES")
BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.second)]


# Without a server its half is left out, and `test_sql.test_postgresql_is_tested_too` is the one skip that says so.
@pytest.fixture(params=BOTH if SERVER else ["sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of either kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
    elif SERVER:
        yield from _schema_of_its_own(SERVER)


@pytest.fixture
def open_store(url: str) -> Iterator[Callable[[], SqlStore]]:
    """Open one more store on the same database, as another process would."""
    opened: list[SqlStore] = []

    def open_one() -> SqlStore:
        opened.append(SqlStore(url))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], SqlStore]) -> SqlStore:
    """A store with its tables."""
    first = open_store()
    first.create_tables()
    return first


def _schema_of_its_own(server: str) -> Iterator[str]:
    """Tests share a server and even a database, but no table."""
    schema = f"test_{secrets.token_hex(8)}"
    engine = open_engine(server)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    own = make_url(server).update_query_dict({"options": f"-csearch_path={schema}"})
    yield own.render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    engine.dispose()
