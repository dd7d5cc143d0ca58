"""Where history begins. An empty database gets the present tables, and the stamp of the newest revision; see `upgrade`."""

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    """Nothing came before."""
