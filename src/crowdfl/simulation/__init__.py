"""A whole campaign in one process: every role and everyone's agent, or a crowd in batches, and somebody's own two functions."""
