"""A participant: decisions of one step, the agent's loop, enrolment, claims, and where it stands in a chain of models."""
