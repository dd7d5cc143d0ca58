"""`crowdfl bench gpu`."""
