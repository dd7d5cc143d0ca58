"""Migrations of the roles' databases, with Alembic and without an ini file: the URL is an argument.

An empty database gets the tables as they are. A change of `tables` comes with a new module in `versions`, which names its
columns itself and is never edited: it brings databases that are in use to the same state.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from crowdfl.errors import StoreOutdated, StoreTooNew
from crowdfl.storage.database import open_engine, reading, writing
from crowdfl.storage.tables import metadata


def upgrade(url: str) -> None:
    """Bring an empty or older database to the present state, completely or not at all. Idempotent."""
    engine = open_engine(url)
    try:
        with writing(engine) as connection:  # a second process waits, and finds nothing left to do
            current = MigrationContext.configure(connection).get_current_revision()
            require_known(current)
            config = _config()
            config.attributes["connection"] = connection
            if current is None:
                metadata.create_all(connection)
                command.stamp(config, "head")
            else:
                command.upgrade(config, "head")
    finally:
        engine.dispose()


def check(url: str) -> None:
    """Raise `StoreOutdated` or `StoreTooNew` unless the database is in the state that this program works with."""
    current = revision_of(url)
    require_known(current)
    head = _scripts().get_current_head()
    if current != head:
        raise StoreOutdated(f"the database is at {current or 'nothing'}, this program at {head}: run its migrations")


def revision_of(url: str) -> str | None:
    engine = open_engine(url)
    try:
        with reading(engine) as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def require_known(revision: str | None) -> None:
    known = {script.revision for script in _scripts().walk_revisions()}
    if revision is not None and revision not in known:
        raise StoreTooNew(f"the database is at {revision}, which this program does not know: update the program")


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    folder = str(Path(__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
