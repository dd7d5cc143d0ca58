"""A version after this one, whose database has one more column."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crowdfl.storage import migrations, tables

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.add_column("rounds", sa.Column("unheard_of", sa.Integer))
"""


@contextmanager
def next_version(folder: Path) -> Iterator[None]:
    """What is done inside is done by it; `folder` is for its migrations."""
    own = folder / "migrations"
    if not own.exists():
        shutil.copytree(Path(migrations.__file__).parent, own)
        (own / "versions" / "r0002_next.py").write_text(NEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "_FOLDER", own)
        patch.setattr(tables, "REVISION", "0002")
        yield
