"""`crowdfl init`: a role's folder with keys, certificate, tokens and settings; or those of all roles, for a trial."""

import errno
import ipaddress
import re
import socket
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdfl.cli.output import Json, show
from crowdfl.cli.role_folder import HOLDS, NAME, PEERS, SERVERS, PublicPart, RoleFolder, install, write_part
from crowdfl.errors import SettingsError
from crowdfl.schema import expected
from crowdfl.services.http.tls import make_ca, make_cluster_certificate, make_server_certificate
from crowdfl.services.http.wire import new_token
from crowdfl.settings import RequesterSettings, ServiceSettings, is_host
from crowdfl.storage.atomic import write_private
from crowdfl.storage.settings_file import SERVICES, template_text

_PORTS = {"kgc": 7101, "sp": 7102, "csp": 7103}
_SCHEDULERS = {"sp": 8786, "csp": 8796}  # ports of the clusters that two roles may have, one each
_HEAD = "# Settings of {}. Paths are relative to this file's folder, which holds everything that the role owns.\n"


class InitRole(StrEnum):
    """Whose folder to make."""

    kgc = "kgc"
    sp = "sp"
    csp = "csp"
    requester = "requester"


@dataclass(frozen=True)
class _NewRole:
    """What is decided about a role before its folder is made."""

    role: str
    host: str = "127.0.0.1"
    port: int = 0
    name: str = "requester"
    insecure_test_key: bool = False
    payer_key: str | None = None


def init(  # noqa: PLR0913, PLR0917 -- each is an option
    folder: Annotated[Path, typer.Argument(help="A new folder: with --role that role's own, else one with all four.")],
    role: Annotated[
        InitRole | None,
        typer.Option(
            help="Make this role's folder alone, on its own machine: docs/organisations.md. Else all, for a trial."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The name or address the services are reached by.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="With --role: the port of this service.")] = None,
    name: Annotated[
        str, typer.Option(help="With --role requester: what KGC and SP call this requester.")
    ] = "requester",
    kgc_host: Annotated[str | None, typer.Option(help="KGC's, if it is another than --host.")] = None,
    sp_host: Annotated[str | None, typer.Option(help="SP's, if it is another than --host.")] = None,
    csp_host: Annotated[str | None, typer.Option(help="CSP's, if it is another than --host.")] = None,
    kgc_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="KGC's; by default 7101, or a free one.")
    ] = None,
    sp_port: Annotated[int | None, typer.Option(min=0, max=65535, help="SP's; by default 7102, or a free one.")] = None,
    csp_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="CSP's; by default 7103, or a free one.")
    ] = None,
    payer_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Of SP: who pays people out, as `crowdfl payer key` shows it.")
    ] = None,
    insecure_test_key: Annotated[bool, typer.Option(help="Allow keys below 2048 bits, for tests.")] = False,
    as_json: Json = False,
) -> None:
    """Make keys, certificate, tokens and settings: of one role with --role, or of KGC, SP, CSP and a requester."""
    if folder.exists() and any(folder.iterdir()):
        raise SettingsError(f"{folder} is not empty: keys in it would be lost; name a new folder")
    if role is not None:
        chosen = _PORTS.get(role.value, 0) if port is None else port
        _init_one(folder, _NewRole(role.value, host, chosen, name, insecure_test_key, payer_key), as_json=as_json)
        return
    if port is not None:
        raise SettingsError("--port goes with --role; without it, each service has its own: --kgc-port and its like")
    hosts = {"kgc": kgc_host or host, "sp": sp_host or host, "csp": csp_host or host}
    given = {"kgc": kgc_port, "sp": sp_port, "csp": csp_port}
    ports = {one: _free_port(one, hosts[one], given.values()) if at is None else at for one, at in given.items()}
    test, payer = insecure_test_key, {"sp": payer_key}
    made = [_NewRole(one, hosts[one], ports[one], insecure_test_key=test, payer_key=payer.get(one)) for one in SERVERS]
    _init_all(folder, [*made, _NewRole("requester", name=name, insecure_test_key=insecure_test_key)])
    told = f"{folder}: kgc, sp, csp and requester are set up; start each with"
    starts = [f"  crowdfl {role} serve {folder / role / 'settings.toml'}    # port {ports[role]}" for role in SERVERS]
    then = f"then, as the requester: cd {folder}; crowdfl task new > task.toml; crowdfl task create task.toml"
    show({"folder": str(folder), "roles": [*SERVERS, "requester"]}, told, *starts, then, as_json=as_json)


def _free_port(role: str, host: str, others: Collection[int | None]) -> int:
    """The usual one; where somebody listens on it here, ten further, and so on. On another machine nobody knows."""
    for port in range(_PORTS[role], 65536, 10):
        if port not in others and not _is_taken(host, port):
            return port
    raise SettingsError(f"no port is free for {role} on {host}: give one with --{role}-port")


def _is_taken(host: str, port: int) -> bool:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:  # a name, which is not looked up
        return False
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        socket.create_server((str(address), port), family=family).close()
    except OSError as wrong:
        return wrong.errno == errno.EADDRINUSE
    return False


def _init_one(folder: Path, new: _NewRole, *, as_json: bool) -> None:
    _require_sound(new)
    part, settings = _make(folder, new), folder / "settings.toml"
    public, told_to = RoleFolder(settings).public, [other for other, known in PEERS.items() if new.role in known]
    told = [
        f"{folder}: {new.role} is set up. Give {public} to {', '.join(told_to)}; nothing in it is secret.",
        f"Its fingerprint, to read to them: {part.fingerprint}",
        *(f"  crowdfl exchange accept {settings} {peer}.public.json" for peer in PEERS[new.role]),
    ]
    show({"folder": str(folder), "public": str(public), "fingerprint": part.fingerprint}, *told, as_json=as_json)


def _init_all(folder: Path, roles: list[_NewRole]) -> None:
    """As if each had been made on its own machine, and all had compared fingerprints."""
    for new in roles:
        _require_sound(new)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    parts = {new.role: _make(folder / new.role, new) for new in roles}
    for own, other in permutations(parts, 2):
        if other in PEERS[own]:
            install(folder / own / "settings.toml", parts[other])


def _require_sound(new: _NewRole) -> None:
    """It goes into settings, URLs and certificates, where anything but a plain name means something else."""
    if not is_host(new.host):
        words = expected("host", ServiceSettings.model_fields["host"])
        raise SettingsError(f"the host of {new.role} is {new.host!r}; expected {words}")
    if new.payer_key is not None and (new.role != "sp" or not re.fullmatch("[0-9a-f]{64}", new.payer_key)):
        raise SettingsError(
            "--payer-key is SP's to name: 64 lower-case hexadecimal digits; requesters get it with its part"
        )
    if not re.fullmatch(NAME, new.name) or new.name in SERVERS:
        raise SettingsError(f"{new.name!r} cannot be a requester's name: expected 1 to 64 letters, digits, - and _")


def _make(folder: Path, new: _NewRole) -> PublicPart:
    """One role's folder, and what others may know of it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if new.role in SERVERS:
        (folder / "authority").mkdir(mode=0o700)
        authority = make_ca(folder / "authority", subject=f"CrowdFL {new.role} {new.host}"[:64], hosts=[new.host])
        make_server_certificate(folder, authority, "tls", [new.host])
    if new.role in _SCHEDULERS:
        make_cluster_certificate(folder)
        (folder / "keys").mkdir(mode=0o700)  # for the cluster's workers, which may start before the role
    for service in HOLDS[new.role]:
        write_private(folder / f"{service}.token", new_token().encode())
    text = _service_text(new) if new.role in SERVERS else _requester_text(new)
    write_private(folder / "settings.toml", text.encode())
    own = RoleFolder(folder / "settings.toml")
    part = own.part()
    write_part(own.public, part)
    return part


def _service_text(new: _NewRole) -> str:
    values: dict[str, Any] = {"role": new.role, "host": new.host, "port": new.port}
    values |= {"certificate": "tls.pem", "key": "tls.key", "insecure_test_key": new.insecure_test_key}
    values |= {} if new.payer_key is None else {"payer_key": new.payer_key}
    if new.role in _SCHEDULERS:
        files = {"ca": "cluster.pem", "certificate": "cluster.pem", "key": "cluster.key"}
        values |= {"compute": "threads", "dask": {"scheduler": f"tls://127.0.0.1:{_SCHEDULERS[new.role]}", **files}}
    return _HEAD.format(new.role.upper()) + template_text(SERVICES[new.role], values)


def _requester_text(new: _NewRole) -> str:
    values = {"role": new.role, "name": new.name, "insecure_test_key": new.insecure_test_key}
    return _HEAD.format("a requester") + template_text(RequesterSettings, values)
