"""What every HTTP service shares: middleware, authentication, problems, bodies, TLS."""
