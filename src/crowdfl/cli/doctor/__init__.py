"""`crowdfl doctor`."""
