"""`crowdfl bench load`."""
