"""A round: uploads, manifest, checks, average, rewards, and the two servers that run it."""
