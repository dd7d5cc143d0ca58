"""`crowdfl exchange`: how organisations come to know each other's keys."""
