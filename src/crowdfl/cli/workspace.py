"""`crowdfl init`: a folder with all that the roles need to find and trust each other, and the settings files in it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from crowdfl.cli.output import Json, show
from crowdfl.cli.settings_file import SERVICES, template_text
from crowdfl.errors import SettingsError
from crowdfl.schema import expected
from crowdfl.services.http.auth import Tokens
from crowdfl.services.http.tls import CertificateFiles, make_ca, make_cluster_certificate, make_server_certificate
from crowdfl.settings import RequesterSettings, ServiceSettings, is_host
from crowdfl.storage.atomic import write_private
from crowdfl.storage.signing import signing_key

_PORTS = {"kgc": 7101, "sp": 7102, "csp": 7103}
_SCHEDULERS = {"sp": 8786, "csp": 8796}  # ports of the clusters that two roles may have, one each
_HEAD = "# Settings of {}. Paths are relative to this file's folder, which holds everything that the role owns.\n"
# Who holds a token of whose service.
_TOKENS = {"kgc": ("sp", "csp", "requester"), "sp": ("requester",), "csp": ("sp",)}


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
    as_json: Json = False,
) -> None:
    """Make certificates, tokens and settings for KGC, SP, CSP and a requester."""
    if folder.exists() and any(folder.iterdir()):
        raise SettingsError(f"{folder} is not empty: keys in it would be lost; name a new folder")
    ports = {"kgc": kgc_port, "sp": sp_port, "csp": csp_port}
    hosts = {"kgc": kgc_host or host, "sp": sp_host or host, "csp": csp_host or host}
    _require_hosts(hosts)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "ca").mkdir(mode=0o700)
    authority = make_ca(folder / "ca")
    held = _tokens(folder)
    keys = {f"{role}_key": signing_key(folder / role / "signing.key").public.hex() for role in ("kgc", "sp")}
    common = {"ca": "ca.pem", **keys, "insecure_test_key": insecure_test_key}
    urls = {role: f"https://{in_url(hosts[role])}:{port}" for role, port in ports.items()}
    for role, port in ports.items():
        make_server_certificate(folder / role, authority, "tls", [hosts[role]])
        _put_ca(folder / role, authority)
        peers = {peer: urls[peer] for peer in held[role]}
        if role in _SCHEDULERS:
            make_cluster_certificate(folder / role)
            (folder / role / "keys").mkdir(mode=0o700)  # for the cluster's workers, which may start before the role
        text = _service_text(role, hosts[role], port, peers, common)
        write_private(folder / role / "settings.toml", text.encode())
    _put_ca(folder / "requester", authority)
    write_private(folder / "requester" / "settings.toml", _requester_text(urls, common).encode())
    told = f"{folder}: kgc, sp, csp and requester are set up; start each with"
    starts = [f"  crowdfl {role} serve {folder / role / 'settings.toml'}" for role in ports]
    show({"folder": str(folder), "roles": [*ports, "requester"]}, told, *starts, as_json=as_json)


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _require_hosts(hosts: dict[str, str]) -> None:
    """They go into settings, URLs and certificates, where anything but a plain name means something else."""
    words = expected("host", ServiceSettings.model_fields["host"])
    for role, host in hosts.items():
        if not is_host(host):
            raise SettingsError(f"the host of {role} is {host!r}; expected {words}")


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


def _service_text(role: str, host: str, port: int, peers: dict[str, str], common: dict[str, Any]) -> str:
    values = {**common, "host": host, "port": port, "certificate": "tls.pem", "key": "tls.key"}
    values |= {peer: {"url": url, "token": f"{peer}.token"} for peer, url in peers.items()}
    if role in _SCHEDULERS:
        files = {"ca": "cluster.pem", "certificate": "cluster.pem", "key": "cluster.key"}
        values |= {"compute": "threads", "dask": {"scheduler": f"tls://127.0.0.1:{_SCHEDULERS[role]}", **files}}
    return _HEAD.format(role.upper()) + template_text(SERVICES[role], values)


def _requester_text(urls: dict[str, str], common: dict[str, Any]) -> str:
    values = {**common, "kgc": urls["kgc"], "sp": urls["sp"], "kgc_token": "kgc.token", "sp_token": "sp.token"}
    return _HEAD.format("a requester") + template_text(RequesterSettings, values)
