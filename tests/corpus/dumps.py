"""A role's database as PostgreSQL's own program writes it: how the corpus' are made, and put into a database again."""

import tarfile
from pathlib import Path

import psycopg
from sqlalchemy import make_url, text

from crowdfl.storage.database import open_engine
from crowdfl.storage.database_copy import put_database
from tests import subprocesses

ARCHIVE = "postgresql.tar.xz"
ROLES = ("kgc", "csp", "sp")
_SCHEMA = "crowdfl_corpus"
_NOT_STATEMENTS = ("\\", "CREATE SCHEMA", "SELECT pg_catalog.set_config('search_path'")


def dump(server: str, copy: Path) -> str:
    """What `pg_dump` says of a database with the rows of this copy."""
    engine = open_engine(server)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {_SCHEMA}"))
    try:
        own = make_url(server).update_query_dict({"options": f"-csearch_path={_SCHEMA}"})
        put_database(own.render_as_string(hide_password=False), copy)
        command = ["pg_dump", "--inserts", "--no-owner", "--no-privileges", "--schema", _SCHEMA, "--dbname", server]
        return str(subprocesses.run(command, check=True, capture_output=True, text=True).stdout)
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {_SCHEMA} CASCADE"))
        engine.dispose()


def put(url: str, place: Path, role: str) -> None:
    """A version's dump of a role into the schema that the URL names."""
    with tarfile.open(place / ARCHIVE) as archive:
        member = archive.extractfile(f"{role}.sql")
        assert member is not None, role
        dumped = member.read().decode()
    lines = (line for line in dumped.splitlines() if not line.startswith(_NOT_STATEMENTS))
    plain = make_url(url).render_as_string(hide_password=False)
    with psycopg.connect(plain) as connection:
        connection.execute("\n".join(lines).replace(f"{_SCHEMA}.", "").encode())
