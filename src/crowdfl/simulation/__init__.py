"""A whole campaign in one process: the real roles, everyone's agent, and somebody's own two functions."""
