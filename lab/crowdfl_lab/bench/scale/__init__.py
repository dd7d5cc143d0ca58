"""`crowdfl bench scale`."""
