"""Who was drawn for a round."""

from alembic import op

from crowdfl.storage.tables import drawn

revision = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    drawn.create(op.get_bind())
