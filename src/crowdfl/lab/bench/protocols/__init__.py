"""`crowdfl bench protocols`."""
