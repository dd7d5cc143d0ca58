"""`crowdfl init`: a folder with all that the roles need to find and trust each other, and the settings files in it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdfl.cli.settings_file import (
    HOST,
    KEY,
    PORT,
    SECONDS,
    SWITCH,
    TEXT,
    TEXTS,
    URL,
    Table,
    check_settings,
    in_url,
    is_host,
    read_settings,
)
from crowdfl.errors import SettingsError
from crowdfl.services.cluster.backend import ClusterSettings
from crowdfl.services.http.auth import Tokens
from crowdfl.services.http.tls import CertificateFiles, make_ca, make_cluster_certificate, make_server_certificate
from crowdfl.services.run import Peer, ServiceSettings, signing_key
from crowdfl.storage.atomic import write_private

__all__ = ["init", "read_service"]

_PORTS = {"kgc": 7101, "sp": 7102, "csp": 7103}
_SCHEDULERS = {"sp": 8786, "csp": 8796}  # ports of the clusters that two roles may have, one each
# Who holds a token of whose service.
_TOKENS = {"kgc": ("sp", "csp", "requester"), "sp": ("requester",), "csp": ("sp",)}
_PEER = Table({"url": replace(URL, required=True), "token": replace(TEXT, required=True)})
_DASK = Table({"scheduler": replace(TEXT, required=True), "ca": TEXT, "certificate": TEXT, "key": TEXT})
_SERVICE = Table(
    {
        "host": replace(HOST, required=True),
        "listen": HOST,
        "port": replace(PORT, required=True),
        "database": TEXT,
        "certificate": TEXT,
        "key": TEXT,
        "plain_http": SWITCH,
        "ca": TEXT,
        "kgc": _PEER,
        "csp": _PEER,
        "kgc_key": KEY,
        "passphrase_file": TEXT,
        "constant_time": SWITCH,
        "insecure_test_key": SWITCH,
        "tick_seconds": SECONDS,
        "lease_seconds": SECONDS,
        "csp_patience": SECONDS,
        "on_paid": TEXTS,
        "compute": TEXT,
        "dask": _DASK,
    }
)
# Those of a service that are handed on as they are.
_AS_FOUND = (
    "host",
    "listen",
    "port",
    "database",
    "plain_http",
    "constant_time",
    "insecure_test_key",
    "tick_seconds",
    "lease_seconds",
    "csp_patience",
    "compute",
)


def init(
    folder: Annotated[
        Path, typer.Argument(help="A new folder; each role's part of it can be moved to its own machine.")
    ],
    host: Annotated[str, typer.Option(help="The name or address the services are reached by.")] = "127.0.0.1",
    kgc_host: Annotated[str | None, typer.Option(help="KGC's, if it is another than --host.")] = None,
    sp_host: Annotated[str | None, typer.Option(help="SP's, if it is another than --host.")] = None,
    csp_host: Annotated[str | None, typer.Option(help="CSP's, if it is another than --host.")] = None,
    kgc_port: Annotated[int, typer.Option(min=0, max=65535)] = _PORTS["kgc"],
    sp_port: Annotated[int, typer.Option(min=0, max=65535)] = _PORTS["sp"],
    csp_port: Annotated[int, typer.Option(min=0, max=65535)] = _PORTS["csp"],
    insecure_test_key: Annotated[bool, typer.Option(help="Allow keys below 2048 bits, for tests.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Make certificates, tokens and settings for KGC, SP, CSP and a requester."""
    if folder.exists() and any(folder.iterdir()):
        raise SettingsError(f"{folder} is not empty: keys in it would be lost; name a new folder")
    ports = {"kgc": kgc_port, "sp": sp_port, "csp": csp_port}
    hosts = {"kgc": kgc_host or host, "sp": sp_host or host, "csp": csp_host or host}
    _require_hosts(hosts)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _authority(folder)
    held = _tokens(folder)
    key = signing_key(folder / "kgc" / "signing.key").public.hex()
    urls = {role: f"https://{in_url(hosts[role])}:{port}" for role, port in ports.items()}
    for role, port in ports.items():
        make_server_certificate(folder / role, authority, "tls", [hosts[role]])
        _put_ca(folder / role, authority)
        peers = {peer: urls[peer] for peer in held[role]}
        if role in _SCHEDULERS:
            make_cluster_certificate(folder / role)
            (folder / role / "keys").mkdir(mode=0o700)  # for the cluster's workers, which may start before the role
        text = _service_text(role, hosts[role], port, peers, key, insecure_test_key)
        write_private(folder / role / "settings.toml", text.encode())
    _put_ca(folder / "requester", authority)
    write_private(folder / "requester" / "settings.toml", _requester_text(urls, key, insecure_test_key).encode())
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "roles": [*ports, "requester"]}))
        return
    typer.echo(f"{folder}: kgc, sp, csp and requester are set up; start each with")
    for role in ports:
        typer.echo(f"  crowdfl {role} serve {folder / role / 'settings.toml'}")


def _require_hosts(hosts: dict[str, str]) -> None:
    """They go into settings, URLs and certificates, where anything but a plain name means something else."""
    for role, host in hosts.items():
        if not is_host(host):
            raise SettingsError(f"the host of {role} is {host!r}; wanted is {HOST.wanted}, without scheme or port")


def _authority(folder: Path) -> CertificateFiles:
    (folder / "ca").mkdir(mode=0o700)
    return make_ca(folder / "ca")


def _put_ca(folder: Path, authority: CertificateFiles) -> None:
    write_private(folder / "ca.pem", authority.certificate.read_bytes())


def _tokens(folder: Path) -> dict[str, list[str]]:
    """Make every token; which services each role holds one of."""
    held: dict[str, list[str]] = {"kgc": [], "sp": [], "csp": [], "requester": []}
    for role in held:
        (folder / role).mkdir(mode=0o700)
    for service, holders in _TOKENS.items():
        tokens = Tokens(folder / service / "tokens.json")
        for holder in holders:
            write_private(folder / holder / f"{service}.token", tokens.add(holder, holder).encode())
            held[holder].append(service)
    return held


def _service_text(role: str, host: str, port: int, peers: dict[str, str], key: str, insecure: bool) -> str:
    lines = [
        f"# Settings of {role.upper()}. Paths are relative to this file's folder, which holds everything this role owns.",
        f'host = "{host}"',
        f"port = {port}",
        "# A database URL, such as postgresql+psycopg://...; without one, SQLite in this folder.",
        "# database = ",
        'certificate = "tls.pem"',
        'key = "tls.key"',
        'ca = "ca.pem"',
        f'kgc_key = "{key}"',
        f"insecure_test_key = {str(insecure).lower()}",
    ]
    if role in _SCHEDULERS:
        lines.append('compute = "threads"')
    for peer, url in peers.items():
        lines += ["", f"[{peer}]", f'url = "{url}"', f'token = "{peer}.token"']
    if role in _SCHEDULERS:
        lines += [
            "",
            '# Only with compute = "dask", or `serve --compute dask`: a cluster of this role\'s own, see docs/cluster.md.',
        ]
        lines += ["[dask]", f'scheduler = "tls://127.0.0.1:{_SCHEDULERS[role]}"', 'ca = "cluster.pem"']
        lines += ['certificate = "cluster.pem"', 'key = "cluster.key"']
    return "\n".join(lines) + "\n"


def _requester_text(urls: dict[str, str], key: str, insecure: bool) -> str:
    return (
        "# Settings of a requester. Paths are relative to this file's folder.\n"
        f'kgc = "{urls["kgc"]}"\nsp = "{urls["sp"]}"\nca = "ca.pem"\nkgc_key = "{key}"\n'
        f'kgc_token = "kgc.token"\nsp_token = "sp.token"\ninsecure_test_key = {str(insecure).lower()}\n'
    )


def read_service(path: Path) -> ServiceSettings:
    """What a service's process is told."""
    found, here = read_settings(path), path.resolve().parent
    check_settings(path, found, _SERVICE)
    files = {name: here / found[name] for name in ("certificate", "key", "ca", "passphrase_file") if name in found}
    if ("certificate" in files) != ("key" in files):
        raise SettingsError(f"{path}: `certificate` and `key` go together; give both, or neither")
    peers = {name: Peer(found[name]["url"], here / found[name]["token"]) for name in ("kgc", "csp") if name in found}
    same = {name: found[name] for name in _AS_FOUND if name in found}
    return ServiceSettings(
        data=here,
        tls=CertificateFiles(files["certificate"], files["key"]) if "key" in files else None,
        ca=files.get("ca"),
        passphrase_file=files.get("passphrase_file"),
        kgc=peers.get("kgc"),
        csp=peers.get("csp"),
        kgc_key=bytes.fromhex(found["kgc_key"]) if "kgc_key" in found else None,
        on_paid=tuple(found.get("on_paid", ())),
        cluster=_cluster(found["dask"], here, found.get("plain_http", False)) if "dask" in found else None,
        **same,
    )


def _cluster(found: dict[str, Any], here: Path, plain: bool) -> ClusterSettings:
    files = {name: here / found[name] for name in ("ca", "certificate", "key") if name in found}
    return ClusterSettings(scheduler=found["scheduler"], plain_tcp=plain, **files)
