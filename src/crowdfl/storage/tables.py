"""The tables of the roles' stores. Changes come as migrations (`storage/migrations`); these are the present state.

Names, numbers and amounts check themselves, so that both databases refuse the same values, by the same error.
"""

import sqlalchemy as sa
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, LargeBinary, Table, UniqueConstraint
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from crowdfl.errors import FormatError
from crowdfl.storage.rules import LONGEST_NAME, require_text, require_whole

metadata = sa.MetaData()


class _Words(TypeDecorator[str]):
    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else require_text(value, None)


class _Name(TypeDecorator[str]):
    impl = sa.String
    cache_ok = True

    def __init__(self, length: int = LONGEST_NAME) -> None:
        super().__init__(length)
        self.length = length

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else require_text(value, self.length)


class _Whole(TypeDecorator[int]):
    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        return None if value is None else require_whole(value)


class _Amount(TypeDecorator[int]):
    """Millionths."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        if value is not None and not 0 <= value < 2**63:
            raise FormatError("this amount is negative or larger than any that can be stored")
        return value


tasks = Table(
    "tasks",
    metadata,
    Column("task", _Name, primary_key=True),
    Column("definition", _Words, nullable=False),
    Column("appointment", _Words, nullable=False),
    Column("state", _Name(32), nullable=False),
    Column("ended_at", Float(53)),
)

participants = Table(
    "participants",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("who", _Name, nullable=False),
    Column("signing", LargeBinary, nullable=False),
    Column("reading", LargeBinary, nullable=False),
    Column("certificate", _Words, nullable=False),
    Column("left", Boolean, nullable=False, quote=True),  # a word of PostgreSQL's own
    UniqueConstraint("task", "who", name="one_place_each"),
)

rounds = Table(
    "rounds",
    metadata,
    Column("task", _Name, primary_key=True),
    Column("number", _Whole, primary_key=True, autoincrement=False),
    Column("opened_at", Float(53), nullable=False),
    Column("state", _Name(32), nullable=False),
    Column("extended", Boolean, nullable=False),
)

uploads = Table(
    "uploads",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("number", _Whole, nullable=False),
    Column("who", _Name, nullable=False),
    Column("digest", _Name, nullable=False),
    Column("late", Boolean, nullable=False),
    UniqueConstraint("task", "number", "who", name="one_upload_each"),
    UniqueConstraint("task", "digest", name="no_upload_twice"),
)

seeds = Table(
    "seeds",
    metadata,
    Column("task", _Name, primary_key=True),
    Column("number", _Whole, primary_key=True, autoincrement=False),
    Column("purpose", _Name(32), primary_key=True),
    Column("state", LargeBinary, nullable=False),
)

movements = Table(
    "movements",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("name", _Name(128), nullable=False),
    Column("source", _Name(128), nullable=False),
    Column("target", _Name(128), nullable=False),
    Column("amount", _Amount, nullable=False),
    UniqueConstraint("task", "name", name="once_per_name"),
)

deposits = Table(
    "deposits",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("name", _Name, nullable=False),
    Column("amount", _Amount, nullable=False),
    Column("state", _Name(32), nullable=False),
    Column("announced_at", Float(53), nullable=False),
    Column("decided_at", Float(53)),
    UniqueConstraint("task", "name", name="one_deposit_per_name"),
)

payments = Table(
    "payments",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("who", _Name, nullable=False),
    Column("amount", _Amount, nullable=False),
    Column("claim", _Name, nullable=False),
    Column("claimed", _Words, nullable=False),
    Column("state", _Name(32), nullable=False, index=True),
    Column("since", Float(53), nullable=False),
    Column("until", Float(53)),
    Column("owner", _Name),
    Column("attempts", _Whole, nullable=False),
    Column("error", _Words),
    UniqueConstraint("task", "who", name="one_payment_each"),
)

leases = Table(
    "leases",
    metadata,
    Column("task", _Name, primary_key=True),
    Column("owner", _Name, nullable=False),
    Column("until", Float(53), nullable=False),
)

invitations = Table(
    "invitations",
    metadata,
    Column("task", _Name, primary_key=True),
    Column("number", _Name, primary_key=True),
    Column("who", _Name, nullable=False),
)

answers = Table(
    "answers",
    metadata,
    Column("task", _Name, primary_key=True),
    Column("request", _Name, primary_key=True),
    Column("blob", _Words, nullable=False),
)

memory = Table(
    "memory",
    metadata,
    Column("task", _Name, primary_key=True),
    Column("name", _Name(512), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
