"""Folders that roles live in: made anew, and with what they know of their peers."""
