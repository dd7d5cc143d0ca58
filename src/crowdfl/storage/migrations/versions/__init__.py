"""One module for each change of the tables, in order."""
