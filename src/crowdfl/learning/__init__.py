"""Learning in the clear: what the protocols are measured against. Nothing here knows about encryption."""
