"""Deposits wait for the operator's word, payments are rows, and each round has an account of its own.

Deposits of older books were credited when they were announced: they are confirmed. Of a payment in older books nobody knows
whether the payout program has heard of it: it is unknown, for the operator to look up. What rounds earned moves to their own
accounts, unless somebody was paid from the common one already: such a task keeps its books as they are.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"


def upgrade() -> None:
    """Tables, then what the movements say about them."""
    _tables()
    op.execute(
        "INSERT INTO deposits (task, name, amount, state, announced_at, decided_at) "
        "SELECT task, substr(name, 9), amount, 'confirmed', 0, 0 FROM movements WHERE name LIKE 'deposit %' ORDER BY position"
    )
    op.execute(
        "INSERT INTO payments (task, who, amount, claim, claimed, state, since, attempts, error) "
        "SELECT task, substr(name, 5), amount, '', '{}', CASE WHEN amount > 0 THEN 'unknown' ELSE 'paid' END, 0, 0, "
        "'made before an upgrade; check with your bank' FROM movements WHERE name LIKE 'pay %' ORDER BY position"
    )
    op.execute(
        "UPDATE movements SET target = 'earned ' || substr(name, 14) "  # "reward round " has 13 characters
        "WHERE name LIKE 'reward round %' AND target = 'rewards' AND NOT EXISTS "
        "(SELECT 1 FROM movements AS paid WHERE paid.task = movements.task AND paid.name LIKE 'pay %')"
    )


def _tables() -> None:
    op.create_table(
        "deposits",
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("announced_at", sa.Float(53), nullable=False),
        sa.Column("decided_at", sa.Float(53)),
        sa.UniqueConstraint("task", "name", name="one_deposit_per_name"),
    )
    op.create_table(
        "payments",
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("claim", sa.String(64), nullable=False),
        sa.Column("claimed", sa.Text, nullable=False),
        sa.Column("state", sa.String(32), nullable=False, index=True),
        sa.Column("since", sa.Float(53), nullable=False),
        sa.Column("until", sa.Float(53)),
        sa.Column("owner", sa.String(64)),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text),
        sa.UniqueConstraint("task", "who", name="one_payment_each"),
    )
