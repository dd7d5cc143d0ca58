"""Clients of the services, and the ports of participants and requesters over HTTP."""
