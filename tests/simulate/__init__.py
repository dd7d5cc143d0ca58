"""crowdfl.simulate."""
