"""No two uploads of a task are the same bytes: encryption is randomised, so that equal ones are a replay."""

from alembic import op

revision = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    """SQLite adds no constraint to a table that is there: Alembic copies it."""
    with op.batch_alter_table("uploads") as uploads:
        uploads.create_unique_constraint("no_upload_twice", ["task", "digest"])
