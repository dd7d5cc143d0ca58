"""Migrations of the roles' databases, with Alembic and without an ini file: the URL is an argument.

An empty database gets the tables as they are. A change of `tables` comes with a new module in `versions`, which names its
columns itself and is never edited: it brings databases that are in use to the same state.
"""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from crowdfl.errors import StoreOutdated, StoreTooNew
from crowdfl.storage.database import open_engine, reading, writing
from crowdfl.storage.tables import metadata

_FOLDER = Path(__file__).parent


def upgrade(url: str) -> None:
    """Bring an empty or older database to the present state, completely or not at all. Idempotent."""
    engine = open_engine(url)
    try:
        with writing(engine) as connection:  # a second process waits, and finds nothing left to do
            current = _revision(connection)
            require_known(current)
            if current != _head():
                _change(connection, current)
    finally:
        engine.dispose()


def _change(connection: Connection, current: str | None) -> None:
    from alembic import command  # late: a server that starts with the present tables needs none of it
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    if current is None:
        metadata.create_all(connection)
        command.stamp(config, "head")
    else:
        command.upgrade(config, "head")


def check(url: str) -> None:
    """Raise `StoreOutdated` or `StoreTooNew` unless the database is in the state that this program works with."""
    current = revision_of(url)
    require_known(current)
    if current != _head():
        raise StoreOutdated(f"the database is at {current or 'nothing'}, this program at {_head()}: run its migrations")


def revision_of(url: str) -> str | None:
    engine = open_engine(url)
    try:
        with reading(engine) as connection:
            return _revision(connection)
    finally:
        engine.dispose()


def _revision(connection: Connection) -> str | None:
    """As Alembic keeps it."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def require_known(revision: str | None) -> None:
    if revision is not None and revision not in _revisions():
        raise StoreTooNew(f"the database is at {revision}, which this program does not know: update the program")


def _head() -> str:
    return max(_revisions())


def _revisions() -> set[str]:
    """Each module of `versions` begins with its own: r0001_first.py is revision 0001."""
    return {path.name[1:5] for path in (_FOLDER / "versions").glob("r[0-9]*.py")}
