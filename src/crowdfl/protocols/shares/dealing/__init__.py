"""What KGC deals: keys at the start, correlated randomness for each round."""
