"""The sensing platform, by concern."""
