"""A few files over TLS, with the policy that the platform's own pages have, for tests of what browsers do."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import crowdfl.web
from crowdfl.services.http import tls

WEB = Path(crowdfl.web.__file__).parent
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css"}
_FOLDERS = {"/web/common/": WEB / "common", "/web/common/text/": WEB / "common/text", "/web/vendor/": WEB / "vendor"}


def _content(path: str, files: Mapping[str, str]) -> bytes | None:
    if path == "/favicon.ico":
        return b""
    if path in files:
        return files[path].encode()
    folder, _, name = path.rpartition("/")
    place = _FOLDERS.get(folder + "/", Path("/nowhere")) / name
    return place.read_bytes() if place.is_file() else None


def _handler(files: Mapping[str, str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = _content(self.path, files)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", _TYPES.get(Path(self.path).suffix or ".html", "text/plain"))
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away is no error."""


@contextlib.contextmanager
def served(folder: Path, files: Mapping[str, str]) -> Iterator[str]:
    """`files` by their paths, and /web/common and /web/vendor as they are; the address. Its certificate lies in `folder`."""
    certificate = tls.make_server_certificate(folder, tls.make_ca(folder), "page")
    context = tls.server_context(certificate, None, asks=False)
    server = _Server(("127.0.0.1", 0), _handler(files))
    # The handshake is left to the thread of the connection: browsers open some that they never use.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
