"""The sensing platform, by concern: tasks, uploads, rounds, claims, settlement."""
