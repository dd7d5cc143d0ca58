"""Other libraries, measured by their own Python."""
