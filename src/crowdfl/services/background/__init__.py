"""What a service does beside its requests: ticks, payments, sweeps, checks."""
