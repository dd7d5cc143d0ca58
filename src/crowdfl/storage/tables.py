"""The tables of the roles' stores. Changes come as migrations (`storage/migrations`); these are the present state.

Names, numbers and amounts check themselves, so that both databases refuse the same values, by the same error.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, LargeBinary, Table, UniqueConstraint
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator

from crowdfl.errors import FormatError

REVISION = "0001"  # of these tables: the newest in `migrations/versions`
metadata = sa.MetaData()
_LONGEST_NAME = 64  # characters of a task, a person, an invitation, a request
_LARGEST = 2**31 - 1
MESSAGE = {"message": True}  # of a column: it holds messages, or nothing


class _Name(TypeDecorator[str]):
    """Text that every database can hold: no NUL, no half of a surrogate pair, at most so many characters."""

    impl: Any = sa.String
    cache_ok = True

    def __init__(self, length: int | None = _LONGEST_NAME) -> None:
        super().__init__(length)
        self.length = length

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if self.length is not None and len(value) > self.length:
            raise FormatError(f"this name has {len(value)} characters; at most {self.length} can be stored")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise FormatError("this text holds half a character, which cannot be stored") from None
        if "\0" in value:
            raise FormatError("this text holds a NUL character, which cannot be stored")
        return str(value)  # of a state, which is a StrEnum, its value


class _Words(_Name):
    """Of any length."""

    impl = sa.Text
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(None)


class _Whole(TypeDecorator[int]):
    impl: Any = Integer
    cache_ok = True
    largest = _LARGEST
    refusal = f"this number is not in 0..{_LARGEST}"

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        if value is not None and not 0 <= value <= self.largest:
            raise FormatError(self.refusal)
        return value


class _Amount(_Whole):
    """Millionths."""

    impl = BigInteger
    cache_ok = True
    largest = 2**63 - 1
    refusal = "this amount is negative or larger than any that can be stored"


def _table(name: str, *columns: SchemaItem) -> Table:
    return Table(name, metadata, *columns)


tasks = _table(
    "tasks",
    Column("task", _Name, primary_key=True),
    Column("definition", _Words, nullable=False),
    Column("appointment", _Words, nullable=False),
    Column("state", _Name(32), nullable=False),
    Column("ended_at", Float(53)),
    Column("end_why", _Name(32)),
    Column("end_by", _Words),
    Column("end_reason", _Words),
    Column("end_document", _Words),
    Column("claims_extended", _Words),
    Column("attested", _Words),
    Column("bonus", _Words),
    Column("sightings", _Whole, nullable=False),
    Column("sighted_at", Float(53)),
    Column("paused_at", Float(53)),
    Column("ready_at", Float(53)),
    Column("ordered_at", Float(53)),
    Column("epoch", _Name, nullable=False),
    Column("unreconciled", Boolean, nullable=False),
    Column("dropped", _Whole, nullable=False),
    Column("csp_away_since", Float(53)),
    Column("kgc_told_end", Float(53)),
    Column("csp_told_end", Float(53)),
    Column("without_model", Boolean, nullable=False),
    Column("freed", _Whole, nullable=False),
    Column("sole_holder", Boolean, nullable=False),
    Column("steps", _Whole, nullable=False),
    Column("said", _Name, nullable=False),
    Column("rolled_back", Boolean, nullable=False),
    # How many, so that nobody has to count a crowd: who has not left, of them by SP's list, whose place is taken (not replaced,
    # not freed), all.
    *(Column(name, _Whole, nullable=False, default=0) for name in ("active", "listed", "taken", "joined")),
)

participants = _table(
    "participants",
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("who", _Name, nullable=False),
    Column("signing", LargeBinary, nullable=False),
    Column("reading", LargeBinary, nullable=False),
    Column("place", _Name, nullable=False),
    Column("certificate", _Words, nullable=False),
    Column("device", _Whole, nullable=False),
    Column("left", Boolean, nullable=False, quote=True),  # a word of PostgreSQL's own
    Column("consent", _Words),
    Column("consented_at", Float(53)),
    Column("withdrawn_at", Float(53)),
    Column("replaced_by", _Name),
    Column("recruited", Boolean, nullable=False),
    Column("joined_at", Float(53)),
    Column("freed", Boolean, nullable=False),
    UniqueConstraint("task", "who", name="one_place_each"),
    UniqueConstraint("task", "place", "device", name="first_keys_stand"),
    sa.Index("by_arrival", "task", "position"),
    sa.Index("by_place", "task", "place", "position"),
)

recruited = _table(  # places that SP gave to keys in the last hour
    "recruited",
    Column("task", _Name, primary_key=True),
    Column("place", _Name, primary_key=True),
    Column("at", Float(53), nullable=False),
)

rounds = _table(
    "rounds",
    Column("task", _Name, primary_key=True),
    Column("number", _Whole, primary_key=True, autoincrement=False),
    Column("opened_at", Float(53), nullable=False),
    Column("state", _Name(32), nullable=False),
    Column("extended", Boolean, nullable=False),
    Column("redrawn", _Whole, nullable=False),
    Column("final", Boolean, nullable=False),
    Column("asked", Boolean, nullable=False),
    *(Column(name, _Name) for name in ("average", "model", "rewards", "rejected", "left_over", "word", "held")),
    Column("closed_at", Float(53)),
    Column("void", _Name(32)),
    # How many: uploads, those of people who have not left, people drawn, those of them who have not left.
    *(Column(name, _Whole, nullable=False, default=0) for name in ("uploads", "present", "drawn", "members")),
)

drawn = _table(  # who is in a round, of a task that draws them; nobody, of one that takes everyone
    "drawn",
    Column("task", _Name, primary_key=True),
    Column("number", _Whole, primary_key=True, autoincrement=False),
    Column("who", _Name, primary_key=True),
)

uploads = _table(
    "uploads",
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("number", _Whole, nullable=False),
    Column("who", _Name, nullable=False),
    Column("digest", _Name, nullable=False),
    Column("late", Boolean, nullable=False),
    UniqueConstraint("task", "number", "who", name="one_upload_each"),
    UniqueConstraint("task", "digest", name="no_upload_twice"),
)

dropped_uploads = _table(
    "dropped_uploads",
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False, index=True),
    Column("number", _Whole, nullable=False),
    Column("who", _Name, nullable=False),
    Column("digest", _Name, nullable=False),
)

sp_records = _table(  # what SP's half of a protocol has decided
    "sp_records",
    Column("task", _Name, primary_key=True),
    Column("number", _Whole, primary_key=True, autoincrement=False),  # of the round; 0: of the task
    Column("record", LargeBinary, info=MESSAGE, nullable=False),
)

replies = _table(
    "replies",
    Column("task", _Name, primary_key=True),
    Column("number", _Whole, primary_key=True, autoincrement=False),
    Column("request", _Name, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
)

movements = _table(
    "movements",
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("name", _Name(128), nullable=False),
    Column("source", _Name(128), nullable=False),
    Column("target", _Name(128), nullable=False),
    Column("amount", _Amount, nullable=False),
    UniqueConstraint("task", "name", name="once_per_name"),
)

deposits = _table(
    "deposits",
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("name", _Name, nullable=False),
    Column("amount", _Amount, nullable=False),
    Column("state", _Name(32), nullable=False),
    Column("announced_at", Float(53), nullable=False),
    Column("decided_at", Float(53)),
    UniqueConstraint("task", "name", name="one_deposit_per_name"),
)

payments = _table(
    "payments",
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("who", _Name, nullable=False),
    Column("sequence", _Whole, nullable=False),
    Column("amount", _Amount, nullable=False),
    Column("word", _Amount, nullable=False),
    Column("state", _Name(32), nullable=False, index=True),
    Column("since", Float(53), nullable=False),
    Column("until", Float(53)),
    Column("owner", _Name),
    Column("attempts", _Whole, nullable=False),
    Column("error", _Words),
    Column("note", _Words, nullable=False),
    UniqueConstraint("task", "who", "sequence", name="one_instalment_each"),
)

payees = _table(
    "payees",
    Column("task", _Name, primary_key=True),
    Column("who", _Name, primary_key=True),
    *(Column(name, LargeBinary, nullable=False) for name in ("offered", "destination")),
    Column("statement", LargeBinary, info=MESSAGE, nullable=False),
    Column("sequence", _Amount, nullable=False),
    Column("named", LargeBinary, nullable=False),
)

disputes = _table(
    "disputes",
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("task", _Name, nullable=False),
    Column("who", _Name, nullable=False),
    Column("number", _Whole, nullable=False),
    Column("amount", _Amount, nullable=False),
    Column("claim", LargeBinary, info=MESSAGE, nullable=False),
    Column("books", _Words, nullable=False),
    Column("state", _Name(32), nullable=False),
    Column("since", Float(53), nullable=False),
    UniqueConstraint("task", "who", "number", name="one_dispute_each"),
)

subscriptions = _table(
    "subscriptions",
    Column("task", _Name, primary_key=True),
    Column("who", _Name, primary_key=True),
    Column("endpoint", _Words, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("auth", LargeBinary, nullable=False),
    Column("opened", _Whole, nullable=False),
    Column("closing", _Whole, nullable=False),
)

paid_before = _table(  # by the bank, before SP was restored from a backup
    "paid_before",
    Column("task", _Name, primary_key=True),
    Column("key", _Name, primary_key=True),
    Column("amount", _Amount, nullable=False),
)

troubles = _table(  # steps that fail, for whoever asks why a task stands still
    "troubles",
    Column("task", _Name, primary_key=True),
    Column("work", _Name(32), primary_key=True),
    Column("since", Float(53), nullable=False),
    Column("last", Float(53), nullable=False),
    Column("times", _Whole, nullable=False),
    Column("error", _Words, nullable=False),
    Column("reason", _Words, nullable=False),
)

leases = _table(
    "leases",
    Column("task", _Name, primary_key=True),
    Column("owner", _Name, nullable=False),
    Column("until", Float(53), nullable=False),
)

sessions = _table(  # of SP's console, by the SHA-256 of the cookie
    "sessions",
    Column("cookie", _Name, primary_key=True),
    Column("token", _Name, nullable=False),
    Column("began", Float(53), nullable=False),
    Column("used", Float(53), nullable=False),
)

invitations = _table(
    "invitations",
    Column("task", _Name, primary_key=True),
    Column("number", _Name, primary_key=True),
    Column("device", _Whole, primary_key=True, autoincrement=False),
    Column("who", _Name, nullable=False, index=True),
    Column("certificate", _Words, nullable=False),
)

answers = _table(
    "answers",
    Column("task", _Name, primary_key=True),
    Column("request", _Name, primary_key=True),
    Column("blob", _Words, nullable=False),
)

records = _table(  # CSP's, of a task, a round, a step, a cohort or a person
    "records",
    Column("task", _Name, primary_key=True),
    Column("kind", _Whole, primary_key=True, autoincrement=False),
    Column("number", _Whole, primary_key=True, autoincrement=False),
    Column("step", _Whole, primary_key=True, autoincrement=False),
    Column("part", _Whole, primary_key=True, autoincrement=False),
    Column("who", _Name, primary_key=True),
    Column("revision", _Whole, nullable=False),
    Column("body", LargeBinary, info=MESSAGE),  # null: it was erased
)

identity = _table(  # two rows: what the store's folder of blobs carries too, and its guard
    "identity",
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("name", _Name, nullable=False),
)

clock = _table(
    "clock",
    Column("position", Integer, primary_key=True, autoincrement=False),  # one row
    Column("seen", Float(53)),
    Column("confirmed", Float(53)),
    Column("in_doubt", Boolean, nullable=False),
)
