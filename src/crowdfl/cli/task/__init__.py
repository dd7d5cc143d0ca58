"""`crowdfl task`."""
