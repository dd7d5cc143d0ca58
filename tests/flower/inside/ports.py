"""Ports for processes of tests."""

import contextlib
import secrets
import socket


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, and that the system gives to nobody who asks for any."""
    ports: set[int] = set()
    while len(ports) < count:
        port = 20_000 + secrets.randbelow(10_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)
