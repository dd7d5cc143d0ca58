"""One module for each change of the tables, in order."""

__all__: list[str] = []
