"""HTTP: thin handlers that decode, call a role and encode; clients that implement the roles' ports. No decision here."""
