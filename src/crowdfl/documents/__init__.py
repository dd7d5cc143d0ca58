"""Signed documents: what the requester defines, what KGC appoints and certifies, whom the requester invites, and links."""
