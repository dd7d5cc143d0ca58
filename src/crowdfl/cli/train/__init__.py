"""`crowdfl train`."""
