"""The services over HTTP, in process and over TLS on loopback."""
