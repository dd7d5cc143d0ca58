"""One HTTP application per role: decode, call the role, encode."""
