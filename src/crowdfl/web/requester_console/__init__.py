"""The requester's console: a page on this machine alone, with the requester's own file. `crowdfl task console` serves it."""
