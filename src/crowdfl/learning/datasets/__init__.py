"""Data sets: readers, windows, splits, and the texts that name them on the command line."""
