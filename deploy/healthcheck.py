"""Asks a role that runs beside this whether it is alive: `healthcheck.py SETTINGS`; status 0 if it is.

For containers. It needs Python alone, trusts what the role's own settings trust, and opens nothing but /healthz.
"""

import http.client
import socket
import ssl
import sys
import tomllib
from pathlib import Path
from typing import Any

_SECONDS = 5.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- what a role may listen on, and where it is reached then


def main(path: Path) -> int:
    settings = tomllib.loads(path.read_text())
    address = str(settings.get("listen") or settings["host"])
    connection = socket.create_connection((_EVERYWHERE.get(address, address), settings["port"]), _SECONDS)
    if settings.get("certificate"):
        connection = _context(settings, path.parent).wrap_socket(connection, server_hostname=settings["host"])
    asked = http.client.HTTPConnection(settings["host"], timeout=_SECONDS)
    asked.sock = connection
    asked.request("GET", "/healthz")
    return 0 if asked.getresponse().status == http.client.OK else 1


def _context(settings: dict[str, Any], folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if settings.get("ca"):
        context.load_verify_locations(folder / settings["ca"])
    return context


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except (OSError, KeyError, ValueError, http.client.HTTPException) as wrong:
        sys.stderr.write(f"not alive: {type(wrong).__name__}\n")
        sys.exit(1)
