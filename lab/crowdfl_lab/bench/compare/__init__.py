"""`crowdfl bench compare`."""
