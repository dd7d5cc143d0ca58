"""The tables as of the first release. A revision is history: it names its columns itself and is never edited."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    """From nothing."""
    _campaigns()
    _money()
    _servers()


def _campaigns() -> None:
    op.create_table(
        "tasks",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("appointment", sa.Text, nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("ended_at", sa.Float(53)),
    )
    op.create_table(
        "participants",
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("signing", sa.LargeBinary, nullable=False),
        sa.Column("reading", sa.LargeBinary, nullable=False),
        sa.Column("certificate", sa.Text, nullable=False),
        sa.Column("left", sa.Boolean, nullable=False, quote=True),
        sa.UniqueConstraint("task", "who", name="one_place_each"),
    )
    op.create_table(
        "rounds",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("opened_at", sa.Float(53), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("extended", sa.Boolean, nullable=False),
    )
    op.create_table(
        "uploads",
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("late", sa.Boolean, nullable=False),
        sa.UniqueConstraint("task", "number", "who", name="one_upload_each"),
    )
    op.create_table(
        "seeds",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("purpose", sa.String(32), primary_key=True),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )


def _money() -> None:
    op.create_table(
        "movements",
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("source", sa.String(128), nullable=False),
        sa.Column("target", sa.String(128), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("task", "name", name="once_per_name"),
    )


def _servers() -> None:
    op.create_table(
        "leases",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("until", sa.Float(53), nullable=False),
    )
    op.create_table(
        "invitations",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("number", sa.String(64), primary_key=True),
        sa.Column("who", sa.String(64), nullable=False),
    )
    op.create_table(
        "answers",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("request", sa.String(64), primary_key=True),
        sa.Column("blob", sa.Text, nullable=False),
    )
    op.create_table(
        "memory",
        sa.Column("task", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(512), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
