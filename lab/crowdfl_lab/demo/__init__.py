"""`crowdfl demo`: a whole campaign with every role as a process."""
