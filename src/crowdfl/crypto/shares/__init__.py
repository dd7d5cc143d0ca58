"""Additive shares: expansion of seeds, rings of whole bytes, sketches, exact products, comparison of shared numbers."""
