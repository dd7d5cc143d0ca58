"""Migrations of the roles' databases, with Alembic and without an ini file: the URL is an argument.

An empty database gets the tables as they are. A change of `tables` comes with a new module in `versions`, which names its
columns itself and is never edited: it brings databases that are in use to the same state.
"""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table

from crowdfl.errors import StoreOutdated, StoreTooNew
from crowdfl.storage import tables
from crowdfl.storage.database import open_engine, reading, revision_in, writing
from crowdfl.version import __version__

_FOLDER = Path(__file__).parent
_VERSION = Table(
    "alembic_version",  # as Alembic makes it
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def upgrade(url: str, accept: Callable[[Connection], None] = lambda _: None) -> None:
    """Bring an empty or older database to the present state, completely or not at all. Idempotent.

    `accept` sees what was changed before it stays: an error undoes all of it.
    """
    engine = open_engine(url)
    try:
        with writing(engine) as connection:  # a second process waits, and finds nothing left to do
            current = revision_in(connection)
            require_known(current)
            if current != head():
                _change(connection, current)
                if current is not None:
                    accept(connection)
    finally:
        engine.dispose()


def _change(connection: Connection, current: str | None) -> None:
    if current is None:
        tables.metadata.create_all(connection)
        _VERSION.create(connection, checkfirst=True)
        connection.execute(_VERSION.insert().values(version_num=head()))
        return
    from alembic import command  # late: a server that starts without tables, or with the present ones, needs none of it
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def check(url: str) -> None:
    """Raise `StoreOutdated` or `StoreTooNew` unless the database is in the state that this program works with."""
    current = revision_of(url)
    require_known(current)
    if current != head():
        raise StoreOutdated(
            f"the database is at {current or 'nothing'}, this program at {head()}: `crowdfl upgrade SETTINGS` brings it there"
        )


def revision_of(url: str) -> str | None:
    engine = open_engine(url)
    try:
        with reading(engine) as connection:
            return revision_in(connection)
    finally:
        engine.dispose()


def require_known(revision: str | None) -> None:
    if revision is not None and revision not in _revisions():
        raise StoreTooNew(
            f"the database is at {revision}, where a later version has brought it, and CrowdFL {__version__} knows it up to "
            f"{head()}: run that version, or go back to the backup that its upgrade wrote"
        )


def head() -> str:
    """What this program works with."""
    return tables.REVISION


def _revisions() -> set[str]:
    """Each module of `versions` begins with its own: r0001_first.py is revision 0001."""
    return {path.name[1:5] for path in (_FOLDER / "versions").glob("r[0-9]*.py")}
