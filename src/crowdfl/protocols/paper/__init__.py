"""The profile `paper`: the algorithms as printed."""
