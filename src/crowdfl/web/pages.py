"""Files of the pages, read once: each is served under its exact name, so that no path can lead elsewhere.

A browser asks each time whether it still has the newest version (ETag), and takes scripts and data from this service alone.
What a phone loads is few files, made of the modules at the start (`bundle`), and travels compressed.
"""

import gzip
import hashlib
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from crowdfl.settings import SpSettings, origin_of
from crowdfl.web.bundle import bundles

_HERE = Path(__file__).parent
# Where the folders of the phone's page are served; modules import each other by these places, relative ones.
_SHARED = {"/web/common": "common", "/web/vendor": "vendor"}
_PHONE = "/join"
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
_LOST = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>CrowdFL</title>
<link rel="stylesheet" href="/web/common/style.css">
<main>
  <h1>There is nothing at this address</h1>
  <p>This is a platform for CrowdFL campaigns. To take part in one, open the whole link that you were given.</p>
  <p>Have you joined before? <a href="/join/">Your campaigns are here.</a></p>
  <p>Anybody may join <a href="/tasks/">the campaigns of this list.</a></p>
</main>
</html>
"""
_INDEX, _WORKER = "index.html", "service-worker.js"
_KEPT = (".css", ".html", ".png", ".webmanifest")  # by the service worker; of scripts, those that the page loads
# What the page loads, and the module that each begins with: what shows an invitation, the views, the one with plots, what takes
# part, what seals; and a worker.
_BUNDLES = {
    "/join/door.js": "/join/app/door.js",
    "/join/page.js": "/join/app/main.js",
    "/join/details.js": "/join/app/views/details.js",
    "/join/model.js": "/join/app/model.js",
    "/join/hpke.js": "/web/vendor/hpke.js",
}
_APART = {"/join/training.js": "/join/learning/worker.js"}


@dataclass(frozen=True)
class Asset:
    """One file as it is served."""

    body: bytes
    media_type: str

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    @cached_property
    def packed(self) -> bytes | None:
        """With gzip, where that is smaller."""
        small = gzip.compress(self.body, mtime=0)
        return small if len(small) < len(self.body) else None

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


def page_assets(name: str, place: str) -> dict[str, Assets]:
    """The files of one page and of what all pages share, by the places that they are served at."""
    return {at: load_assets(_HERE / folder) for at, folder in {place: name, **_SHARED}.items()}


def phone_assets() -> dict[str, Assets]:
    """Every file of the phone's page."""
    return with_list(with_bundles(page_assets("phone", _PHONE)))


def with_bundles(places: Mapping[str, Assets]) -> dict[str, Assets]:
    """The same files, and the modules of the phone once more in few."""
    files = {f"{place}/{name}": asset for place, assets in places.items() for name, asset in assets.items()}
    sources = {path: asset.body.decode() for path, asset in files.items() if path.endswith(".js")}
    made = {
        path.removeprefix(f"{_PHONE}/"): Asset(text.encode(), _TYPES[".js"])
        for path, text in bundles(sources, _BUNDLES, _APART).items()
    }
    return {**places, _PHONE: {**places[_PHONE], **made}}


def with_list(places: Mapping[str, Assets]) -> dict[str, Assets]:
    """The same files; the phone's service worker lists all others with their hashes."""
    own = places[_PHONE]
    worker = own[_WORKER].body.decode().replace('["", []]', json.dumps([page_version(places), _hashes(places)]), 1)
    return {**places, _PHONE: {**own, _WORKER: Asset(worker.encode(), own[_WORKER].media_type)}}


def page_version(places: Mapping[str, Assets]) -> str:
    """A digest of all files that a phone keeps, which it shows to its owner."""
    return hashlib.sha256(json.dumps(_hashes(places)).encode()).hexdigest()[:16]


def _hashes(places: Mapping[str, Assets]) -> list[list[str]]:
    own = places[_PHONE]
    files = {"./": own[_INDEX]} | {name: asset for name, asset in own.items() if name != _WORKER}
    files |= {f"..{place}/{name}": asset for place in _SHARED for name, asset in places[place].items()}
    return [[name, _integrity(asset)] for name, asset in files.items() if _is_kept(name)]


def _is_kept(name: str) -> bool:
    """Modules that stand in a bundle are served for who compares them, and a phone need not have them."""
    catalogue = "text/" in name and name.endswith(".js")
    return name == "./" or name.endswith(_KEPT) or catalogue or f"{_PHONE}/{name}" in (*_BUNDLES, *_APART)


def _integrity(asset: Asset) -> str:
    """As `fetch` takes it."""
    return f"sha256-{b64encode(bytes.fromhex(asset.digest)).decode()}"


def _type_of(name: str) -> str | None:
    path = Path(name)
    if any(part.startswith((".", "__")) for part in path.parts):
        return None
    return _LICENCES.get(path.name) or _TYPES.get(path.suffix)


def page_headers(connect: Iterable[str] = (), *, sensors: bool = False, frames: bool = False) -> dict[str, str]:
    """Headers under which a page can load, call and be shown in nothing but itself; `connect` names origins it may call.

    With `frames` a page may show another of its own service inside it.
    """
    own = "'self'" if frames else "'none'"
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data: blob:",
        "connect-src": " ".join(("'self'", *dict.fromkeys(connect))),
        "manifest-src": "'self'",
        "worker-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-src": own,
        "frame-ancestors": own,
    }
    own = "(self)" if sensors else "()"
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": f"accelerometer={own}, gyroscope={own}, geolocation={own}, microphone={own}, camera=(), "
        "magnetometer=(), payment=(), usb=()",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def phone_headers(connect: Iterable[str]) -> dict[str, str]:
    """Of all files of the phone: workers are under the policy of their own script."""
    return page_headers(connect, sensors=True)


def add_phone_page(app: FastAPI, settings: SpSettings) -> None:
    """The phone's page at /join/, to an app of `open_sp`; the list of tasks at /tasks/; and what all pages share at /web/."""
    headers = _headers_of(settings)

    def prepare(new: SpSettings) -> Callable[[], None]:
        """For a reload: KGC may have moved."""
        made = _headers_of(new)
        return lambda: headers.update(made)

    app.state.reloads.add(prepare)
    for place, assets in {**phone_assets(), "/tasks": load_assets(_HERE / "tasks")}.items():
        add_static(app, place, assets, lambda: headers)
    problem = app.exception_handlers[HTTPException]

    async def lost(request: Request, wrong: Exception) -> Response:
        """Somebody has mistyped an address; programs get a problem document, as for everything else."""
        by_hand = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if by_hand and not request.url.path.startswith("/v1/"):
            return HTMLResponse(_LOST, 404, {**headers, "Cache-Control": "no-cache"})
        answer: Response = await problem(request, wrong)  # type: ignore[misc]  # each of ours is asynchronous
        return answer

    app.add_exception_handler(404, lost)


def _headers_of(settings: SpSettings) -> dict[str, str]:
    return phone_headers((origin_of(settings.kgc.url), *settings.phone_connect))


def add_static(app: FastAPI, prefix: str, assets: Assets, headers: Headers = page_headers) -> None:
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
        if prefix:
            app.add_api_route(prefix, lead, **options)  # type: ignore[arg-type]  # two keywords of different types
        app.add_api_route(f"{prefix}/", root, **options)  # type: ignore[arg-type]
    app.add_api_route(f"{prefix}/{{file:path}}", serve, **options)  # type: ignore[arg-type]


def _answer(request: Request, asset: Asset, headers: Mapping[str, str]) -> Response:
    packed = asset.packed if _takes_gzip(request.headers.get("accept-encoding", "")) else None
    etag = asset.etag if packed is None else f'{asset.etag[:-1]}-gzip"'
    always = {**headers, "ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if _has(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=always)
    if packed is None:
        return Response(asset.body, media_type=asset.media_type, headers=always)
    return Response(packed, media_type=asset.media_type, headers={**always, "Content-Encoding": "gzip"})


def _takes_gzip(accepted: str) -> bool:
    names = [part.replace(" ", "").lower().split(";") for part in accepted.split(",")]
    return any(name == "gzip" and not set(rest) & {"q=0", "q=0.0", "q=0.00", "q=0.000"} for name, *rest in names)


def _has(asked: str, etag: str) -> bool:
    """Whether a browser holds this version; a proxy on the way may have marked it as weak."""
    return any(one.strip().removeprefix("W/") in (etag, "*") for one in asked.split(","))
