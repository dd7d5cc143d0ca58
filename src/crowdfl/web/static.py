"""Files of the pages, read once: each is served under its exact name, so that no path can lead elsewhere.

A browser asks each time whether it still has the newest version (ETag), and takes scripts and data from this service alone.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

PACKAGE = Path(__file__).parent
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
_LICENCES = {"LICENSES": _TYPES[".txt"]}  # what a library asks to be served with
_INDEX = "index.html"


@dataclass(frozen=True)
class Asset:
    """One file as it is served."""

    body: bytes
    media_type: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    @property
    def etag(self) -> str:
        return f'"{self.digest[:32]}"'


Assets = Mapping[str, Asset]
"""Files by their names below a folder's address."""
Headers = Callable[[], Mapping[str, str]]
"""What goes with every answer; asked for each time, since a reload may change it."""


def load_assets(folder: Path) -> dict[str, Asset]:
    """The files of a folder and of those inside it: of known types, none hidden, no link that leads out of it."""
    home = folder.resolve()
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: Asset(path.read_bytes(), kind)
        for name, path in found.items()
        if (kind := _type_of(name)) is not None and path.resolve().is_relative_to(home)
    }


def _type_of(name: str) -> str | None:
    path = Path(name)
    if any(part.startswith((".", "__")) for part in path.parts):
        return None
    return _LICENCES.get(path.name) or _TYPES.get(path.suffix)


def page_headers(connect: Iterable[str] = (), *, forms: bool = False, sensors: bool = False) -> dict[str, str]:
    """Headers under which a page can load, call and be shown in nothing but itself; `connect` names origins it may call."""
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data: blob:",
        "connect-src": " ".join(("'self'", *dict.fromkeys(connect))),
        "manifest-src": "'self'",
        "worker-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'self'" if forms else "'none'",
        "frame-ancestors": "'none'",
    }
    motion = "(self)" if sensors else "()"
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": f"accelerometer={motion}, gyroscope={motion}, camera=(), geolocation=(), magnetometer=(), "
        "microphone=(), payment=(), usb=()",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def add_static(app: FastAPI, prefix: str, assets: Assets, headers: Headers) -> None:
    """Serve these files below `prefix`; its own address shows index.html, if there is one. The API's description omits them."""
    options = {"methods": ["GET", "HEAD"], "include_in_schema": False}

    async def serve(request: Request, file: str = _INDEX) -> Response:
        asset = assets.get(file)
        if asset is None:
            raise HTTPException(404, headers=dict(headers()))
        return _answer(request, asset, headers())

    async def root(request: Request) -> Response:
        return await serve(request)

    async def lead() -> Response:
        return Response(status_code=308, headers={**headers(), "Location": f"{prefix}/"})

    if _INDEX in assets:
        app.add_api_route(prefix, lead, **options)  # type: ignore[arg-type]  # two keywords of different types
        app.add_api_route(f"{prefix}/", root, **options)  # type: ignore[arg-type]
    app.add_api_route(f"{prefix}/{{file:path}}", serve, **options)  # type: ignore[arg-type]


def _answer(request: Request, asset: Asset, headers: Mapping[str, str]) -> Response:
    always = {**headers, "ETag": asset.etag, "Cache-Control": "no-cache"}
    if _has(request.headers.get("if-none-match", ""), asset.etag):
        return Response(status_code=304, headers=always)
    return Response(asset.body, media_type=asset.media_type, headers=always)


def _has(asked: str, etag: str) -> bool:
    """Whether a browser holds this version; a proxy on the way may have marked it as weak."""
    return any(one.strip().removeprefix("W/") in (etag, "*") for one in asked.split(","))
