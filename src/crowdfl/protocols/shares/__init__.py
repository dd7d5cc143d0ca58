"""The profile `shares`: updates shared between two servers, correlations dealt by KGC, no public-key arithmetic."""
