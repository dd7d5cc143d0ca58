"""A requester's side of a campaign in Python: servers, tasks, and servers of this program's own."""
