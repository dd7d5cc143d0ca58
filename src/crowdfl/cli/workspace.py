"""`crowdfl init`: a role's folder with keys, certificate, tokens and settings; or those of all roles, for a trial."""

import errno
import ipaddress
import socket
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdfl.cli.output import Json, show
from crowdfl.errors import SettingsError

if TYPE_CHECKING:
    from crowdfl.services.folders.new_role import NewRole


_PORTS = {"kgc": 7101, "sp": 7102, "csp": 7103}


class InitRole(StrEnum):
    """Whose folder to make."""

    kgc = "kgc"
    sp = "sp"
    csp = "csp"
    requester = "requester"


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
    from crowdfl.services.folders.new_role import NewRole, make_all
    from crowdfl.services.folders.public_part import SERVERS

    if folder.exists() and any(folder.iterdir()):
        raise SettingsError(f"{folder} is not empty: keys in it would be lost; name a new folder")
    if role is not None:
        chosen = _PORTS.get(role.value, 0) if port is None else port
        _init_one(folder, NewRole(role.value, host, chosen, name, insecure_test_key, payer_key), as_json=as_json)
        return
    if port is not None:
        raise SettingsError("--port goes with --role; without it, each service has its own: --kgc-port and its like")
    hosts = {"kgc": kgc_host or host, "sp": sp_host or host, "csp": csp_host or host}
    given = {"kgc": kgc_port, "sp": sp_port, "csp": csp_port}
    ports = {one: _free_port(one, hosts[one], given.values()) if at is None else at for one, at in given.items()}
    test = insecure_test_key
    payer = {"sp": payer_key}
    made = [NewRole(one, hosts[one], ports[one], insecure_test_key=test, payer_key=payer.get(one)) for one in SERVERS]
    make_all(folder, [*made, NewRole("requester", name=name, insecure_test_key=insecure_test_key)])
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


def _init_one(folder: Path, new: "NewRole", *, as_json: bool) -> None:
    from crowdfl.services.folders.new_role import make_folder, require_sound
    from crowdfl.services.folders.role_folder import PEERS, RoleFolder

    require_sound(new)
    part = make_folder(folder, new)
    settings = folder / "settings.toml"
    public = RoleFolder(settings).public
    told_to = [other for other, known in PEERS.items() if new.role in known]
    told = [
        f"{folder}: {new.role} is set up. Give {public} to {', '.join(told_to)}; nothing in it is secret.",
        f"Its fingerprint, to read to them: {part.fingerprint}",
        *(f"  crowdfl exchange accept {settings} {peer}.public.json" for peer in PEERS[new.role]),
    ]
    show({"folder": str(folder), "public": str(public), "fingerprint": part.fingerprint}, *told, as_json=as_json)
