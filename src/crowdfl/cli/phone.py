"""`crowdfl phone`: the page for phones as files to host elsewhere, and as digests to compare with what an SP serves."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdfl.cli.output import Json, show
from crowdfl.errors import ServiceUnavailable, SettingsError
from crowdfl.settings import is_origin

if TYPE_CHECKING:
    import httpx

    from crowdfl.web.pages import Asset


app = typer.Typer(no_args_is_help=True)
_HEADERS = "headers.txt"
_VERSION = "version"  # beside the files' names
_LINE = re.compile(r"(?P<digest>[0-9a-f]{16}|[0-9a-f]{64})  (?P<file>[\w./-]{1,200})")
_LONGEST = 16 * 2**20  # bytes of a file that are read from an SP
_SECONDS = 30.0


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    connect: Annotated[
        list[str] | None, typer.Option(help="An origin that the page calls: SP's, KGC's. Repeat it for each.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the page as files for another web server, and the headers that it must be served with."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"{folder} is not empty: name a new folder")
    files = dict(_files())
    for place, asset in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(asset.body)
    (folder / _HEADERS).write_text(_header_lines(connect or []))
    told = f"{len(files)} files are in {folder}; serve them with the headers in {folder / _HEADERS}: docs/inviting-phones.md"
    show({"folder": str(folder), "files": sorted(files)}, told, as_json=as_json)


@app.command()
def digest(
    url: Annotated[
        str | None, typer.Argument(help="An SP, or another host of the page: compare what it serves.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="Whom to trust about it; if not given, the system's.")] = None,
    release: Annotated[
        Path | None, typer.Option(help="What this command has printed for a release, in place of this version's files.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the page's version, as phones show it, and each file's SHA-256; with a URL, compare them with what is there."""
    own = _own() if release is None else _read(release)
    if url is None:
        show(own, *(f"{value}  {place}" for place, value in own.items()), as_json=as_json)
        return
    version = own.pop(_VERSION)
    rows = list(_compared(own, _base(url), ca))
    others = [row for row in rows if row["verdict"] != "same"]
    told = [f"{row['verdict']:8} {row['file']}" for row in others]
    whose = "this version of crowdfl" if release is None else str(release)
    told.append(
        f"{len(rows) - len(others)} of {len(rows)} files are those of {whose}; a phone shows them as {_grouped(version)}"
    )
    show(rows, *told, as_json=as_json)
    if others:
        raise typer.Exit(1)


def _files() -> "Iterator[tuple[str, Asset]]":
    """By path below the host's root."""
    from crowdfl.web.pages import phone_assets

    for place, assets in sorted(phone_assets().items()):
        for name, asset in sorted(assets.items()):
            yield f"{place.removeprefix('/')}/{name}", asset


def _own() -> dict[str, str]:
    from crowdfl.web.pages import page_version, phone_assets

    return {_VERSION: page_version(phone_assets()), **{place: asset.digest for place, asset in _files()}}


def _read(path: Path) -> dict[str, str]:
    """What somebody else's `crowdfl phone digest` has printed."""
    try:
        lines = [_LINE.fullmatch(line) for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as wrong:
        raise SettingsError(f"{path} cannot be read: {wrong}") from None
    found = {line["file"]: line["digest"] for line in lines if line}
    if not all(lines) or not {_VERSION, "join/index.html"} <= found.keys():
        raise SettingsError(f"{path} is not what `crowdfl phone digest` prints: lines of a digest and a file")
    return found


def _grouped(version: str) -> str:
    """As a phone shows it."""
    return " ".join(version[at : at + 4] for at in range(0, len(version), 4))


def _header_lines(connect: list[str]) -> str:
    from crowdfl.services.http.app_factory import TLS_ALONE
    from crowdfl.web.pages import phone_headers

    for origin in connect:
        if not is_origin(origin):
            raise SettingsError(f"--connect {origin}: expected an origin such as https://host:7102")
    headers = {**phone_headers(tuple(connect)), "Strict-Transport-Security": TLS_ALONE}
    return "".join(f"{name}: {value}\n" for name, value in headers.items())


def _base(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise SettingsError(f"{url!r} is not an address such as https://host:7102")
    return url.rstrip("/").removesuffix("/join")


def _compared(own: dict[str, str], base: str, ca: Path | None) -> Iterator[dict[str, str | None]]:
    """Each file, and the page's own address: a browser asks for that one, not for index.html."""
    import httpx

    from crowdfl.services.http.tls import client_context

    with httpx.Client(verify=client_context(ca), timeout=_SECONDS, trust_env=False) as client:
        for place, expected in {**own, "join/": own["join/index.html"]}.items():
            found = _fetched(client, f"{base}/{place}")
            verdict = "missing" if found is None else "same" if found == expected else "DIFFERS"
            yield {"file": place, "verdict": verdict, "sha256": found}


def _fetched(client: "httpx.Client", url: str) -> str | None:
    """The digest of what is there; what is too long is not what was expected either."""
    import httpx

    found = hashlib.sha256()
    length = 0
    try:
        with client.stream("GET", url) as answer:
            if answer.status_code == 404:
                return None
            if answer.status_code != 200:
                raise ServiceUnavailable(
                    f"{url} is answered with status {answer.status_code}: try again, or check the address"
                )
            for piece in answer.iter_bytes():
                found.update(piece)
                length += len(piece)
                if length > _LONGEST:
                    break
    except (httpx.HTTPError, httpx.InvalidURL) as wrong:
        raise ServiceUnavailable(f"{url} cannot be read: {wrong}; check the address, and --ca") from None
    return found.hexdigest()
