"""The tables of the roles' stores. Changes come as migrations (`storage/migrations`); these are the present state."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "answers",
    "invitations",
    "leases",
    "memory",
    "metadata",
    "movements",
    "participants",
    "rounds",
    "seeds",
    "tasks",
    "uploads",
]

metadata = MetaData()
_TASK = String(64)

tasks = Table(
    "tasks",
    metadata,
    Column("task", _TASK, primary_key=True),
    Column("definition", Text, nullable=False),
    Column("appointment", Text, nullable=False),
    Column("state", String(32), nullable=False),
    Column("ended_at", Float),
)

participants = Table(
    "participants",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _TASK, nullable=False),
    Column("who", String(64), nullable=False),
    Column("signing", LargeBinary, nullable=False),
    Column("reading", LargeBinary, nullable=False),
    Column("certificate", Text, nullable=False),
    Column("left", Boolean, nullable=False, default=False),
    UniqueConstraint("task", "who"),
)

rounds = Table(
    "rounds",
    metadata,
    Column("task", _TASK, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("opened_at", Float, nullable=False),
    Column("state", String(32), nullable=False),
    Column("extended", Boolean, nullable=False),
)

uploads = Table(
    "uploads",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _TASK, nullable=False),
    Column("number", Integer, nullable=False),
    Column("who", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("late", Boolean, nullable=False),
    UniqueConstraint("task", "number", "who"),
)

seeds = Table(
    "seeds",
    metadata,
    Column("task", _TASK, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("purpose", String(32), primary_key=True),
    Column("state", LargeBinary, nullable=False),
)

movements = Table(
    "movements",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _TASK, nullable=False),
    Column("name", String(128), nullable=False),
    Column("source", String(128), nullable=False),
    Column("target", String(128), nullable=False),
    Column("amount", BigInteger, nullable=False),  # millionths
    UniqueConstraint("task", "name"),
)

leases = Table(
    "leases",
    metadata,
    Column("task", _TASK, primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("until", Float, nullable=False),
)

invitations = Table(
    "invitations",
    metadata,
    Column("task", _TASK, primary_key=True),
    Column("number", String(64), primary_key=True),
    Column("who", String(64), nullable=False),
)

answers = Table(
    "answers",
    metadata,
    Column("task", _TASK, primary_key=True),
    Column("request", String(64), primary_key=True),
    Column("blob", Text, nullable=False),
)

memory = Table(
    "memory",
    metadata,
    Column("task", _TASK, primary_key=True),
    Column("name", String(512), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
