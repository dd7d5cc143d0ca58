"""The store's tests run in memory or on SQLite in a temporary file, and on PostgreSQL where there is one.

CROWDFL_TEST_POSTGRES is the URL of its server.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from crowdfl.storage.database import open_engine
from crowdfl.storage.sql import SqlStore

SERVER = os.environ.get("CROWDFL_TEST_POSTGRES")
BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.second)]
# Without a server its half is left out, and `test_sql.test_postgresql_is_tested_too` is the one skip that says so.
DATABASES = BOTH if SERVER else ["sqlite"]


@contextmanager
def empty_database(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database of either kind."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/store.db"
    elif SERVER:
        yield from _schema_of_its_own(SERVER)


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with empty_database(request.param, tmp_path) as found:
        yield found


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
def sql_store(open_store: Callable[[], SqlStore]) -> SqlStore:
    """A store with its tables, for what only a database does."""
    first = open_store()
    first.create_tables()
    return first


@pytest.fixture(params=["memory", *DATABASES[1:]])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    """An empty store, for what a file does not change."""
    if request.param == "memory":
        yield SqlStore.in_memory()
        return
    with empty_database(request.param, tmp_path) as found:
        made = SqlStore(found)
        made.create_tables()
        yield made
        made.close()


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
