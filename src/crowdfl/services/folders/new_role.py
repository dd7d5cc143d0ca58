"""Roles' folders made anew: keys, certificate, tokens and settings; all four as if each had been made on its own machine."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from crowdfl.documents.forms import form_line
from crowdfl.errors import SettingsError
from crowdfl.schema import expected
from crowdfl.services.folders.public_part import HOLDS, NAME, SERVERS, PublicPart, write_part
from crowdfl.services.folders.role_folder import PEERS, RoleFolder, install
from crowdfl.services.http.tls import make_ca, make_cluster_certificate, make_server_certificate
from crowdfl.services.http.wire import new_token
from crowdfl.settings import RequesterSettings, ServiceSettings, is_host
from crowdfl.storage.atomic import write_private
from crowdfl.storage.settings_file import SERVICES
from crowdfl.storage.settings_texts import template_text

_SCHEDULERS = {"sp": 8786, "csp": 8796}  # ports of the clusters that two roles may have, one each
_HEAD = "# Settings of {}. Paths are relative to this file's folder, which holds everything that the role owns.\n"


@dataclass(frozen=True)
class NewRole:
    """What is decided about a role before its folder is made."""

    role: str
    host: str = "127.0.0.1"
    port: int = 0
    name: str = "requester"
    insecure_test_key: bool = False
    payer_key: str | None = None


def make_all(folder: Path, roles: Sequence[NewRole]) -> None:
    """As if each had been made on its own machine, and all had compared fingerprints."""
    for new in roles:
        require_sound(new)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    parts = {new.role: make_folder(folder / new.role, new) for new in roles}
    for own, other in permutations(parts, 2):
        if other in PEERS[own]:
            install(folder / own / "settings.toml", parts[other])


def require_sound(new: NewRole) -> None:
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


def make_folder(folder: Path, new: NewRole) -> PublicPart:
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


def _service_text(new: NewRole) -> str:
    values: dict[str, Any] = {"role": new.role, "host": new.host, "port": new.port}
    values |= {"certificate": "tls.pem", "key": "tls.key", "insecure_test_key": new.insecure_test_key}
    values |= {} if new.payer_key is None else {"payer_key": new.payer_key}
    if new.role in _SCHEDULERS:
        files = {"ca": "cluster.pem", "certificate": "cluster.pem", "key": "cluster.key"}
        values |= {"compute": "threads", "dask": {"scheduler": f"tls://127.0.0.1:{_SCHEDULERS[new.role]}", **files}}
    return _HEAD.format(new.role.upper()) + form_line(SERVICES[new.role]) + template_text(SERVICES[new.role], values)


def _requester_text(new: NewRole) -> str:
    values = {"role": new.role, "name": new.name, "insecure_test_key": new.insecure_test_key}
    return _HEAD.format("a requester") + form_line(RequesterSettings) + template_text(RequesterSettings, values)
