"""`crowdfl bench crypto`."""
