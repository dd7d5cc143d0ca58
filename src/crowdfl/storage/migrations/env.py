"""What Alembic runs: the migrations, on the connection and in the transaction of whoever called `upgrade`."""

from alembic import context

from crowdfl.storage.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
