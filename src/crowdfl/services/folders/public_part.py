"""A role's public part: all that others must know of it, in one file without a secret.

A token is made by whoever will show it; the part tells its SHA-256 alone. So nothing that is exchanged has to be kept secret,
and two people who read the fingerprint to each other know that nobody has changed it on the way.
"""

import datetime
import hashlib
import ipaddress
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from cryptography import x509
from pydantic import Field

from crowdfl.errors import SettingsError
from crowdfl.schema import Expected, Settings
from crowdfl.services.http.tls import below
from crowdfl.storage.atomic import write_private

SERVERS = ("kgc", "sp", "csp")
HOLDS = {"kgc": (), "sp": ("kgc", "csp"), "csp": ("kgc",), "requester": ("kgc", "sp")}  # whom each calls with a token
NAME = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_LOOPBACK = {"localhost", "127.0.0.1"}  # whoever speaks for it is on the same machine
_GROUPS, _DIGITS = 8, 5  # 10^40: beyond 2^132
_LONGEST = 100_000

_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$"), Expected("64 lower-case hexadecimal digits")]
_Digests = Annotated[tuple[_Digest, ...], Field(strict=False, max_length=2), Expected("a list of at most two digests")]


class PublicPart(Settings):
    """What `sp.public.json` and its like hold."""

    version: Literal[1] = Field(description="Of this form.")
    role: Literal["kgc", "sp", "csp", "requester"] = Field(description="Whose part it is.")
    name: Annotated[str, Field(pattern=f"^{NAME}$"), Expected("1 to 64 letters, digits, - and _")] = Field(
        description="The role itself, or the name of a requester."
    )
    url: str | None = Field(description="Where others reach it; a requester is called by nobody.")
    authority: str | None = Field(
        description="The certificate, in PEM, of whoever vouches for its TLS key; null: one that every system knows."
    )
    tls_keys: _Digests = Field(description="SHA-256 of its TLS public key, and of the next one while it is renewed.")
    key: _Digest | None = Field(description="The Ed25519 public key that it signs with, in hexadecimal.")
    payer_key: _Digest | None = Field(description="Of SP: whom it pays people out by, in hexadecimal; else null.")
    tokens: dict[str, _Digest] = Field(description="SHA-256 of the token that it made for each service it calls.")

    @property
    def fingerprint(self) -> str:
        """Of every value here, in groups that two people can read to each other."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        number = int.from_bytes(hashlib.sha256(f"crowdfl public part 1\n{text}".encode()).digest(), "big")
        digits = f"{number % 10 ** (_GROUPS * _DIGITS):0{_GROUPS * _DIGITS}d}"
        return " ".join(digits[i : i + _DIGITS] for i in range(0, len(digits), _DIGITS))

    @property
    def host(self) -> str:
        return urlsplit(self.url or "").hostname or ""

    def text(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"


def same_digits(one: str, other: str) -> bool:
    """However the groups were typed."""
    return re.sub(r"[\s-]", "", one) == re.sub(r"[\s-]", "", other)


def read_part(path: Path) -> PublicPart:
    """A part that makes sense; nothing says yet whose it really is."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_LONGEST))
    except (FileNotFoundError, IsADirectoryError):
        raise SettingsError(f"there is no public part at {path}") from None
    except (ValueError, RecursionError) as wrong:
        raise SettingsError(f"{path} is not a public part: {type(wrong).__name__} {wrong}") from None
    if not isinstance(found, dict):
        raise SettingsError(f"{path} is not a public part: expected a JSON object, as `crowdfl init --role` writes it")
    part = PublicPart.parse(found, path)
    for fault in _faults(part):
        raise SettingsError(f"{path}: {fault}; ask its owner for another")
    return part


def write_part(path: Path, part: PublicPart) -> None:
    """One that others would refuse is not written."""
    for fault in _faults(part):
        raise SettingsError(f"{fault}: correct the settings, or make a new folder with `crowdfl init --role`")
    write_private(path, part.text().encode(), overwrite=True)


def require_vouching(authority: Path, host: str) -> None:
    """A role's own authority, before it signs for a host that it cannot vouch for."""
    for fault in _authority_faults(authority.read_text(), host):
        raise SettingsError(f"{fault}: correct `host`, or make a new folder with `crowdfl init --role`")


def _faults(part: PublicPart) -> Iterator[str]:
    if set(part.tokens) != set(HOLDS[part.role]):
        yield f"`tokens` of {part.role} are for {', '.join(HOLDS[part.role]) or 'nobody'}"
    yield from _requester_faults(part) if part.role == "requester" else _server_faults(part)


def _requester_faults(part: PublicPart) -> Iterator[str]:
    if part.name in SERVERS or part.url or part.authority or part.tls_keys or part.key or part.payer_key:
        yield "a requester has a name of its own, and tokens alone"


def _server_faults(part: PublicPart) -> Iterator[str]:
    if part.name != part.role:
        yield f"`name` of {part.role} is {part.name!r}"
    if not re.fullmatch(r"https://[A-Za-z0-9._:\[\]-]+", part.url or "") or not part.host:
        yield "`url` is not an address such as https://host:7101"
    if not part.tls_keys:
        yield "`tls_keys` is empty"
    if (part.key is None) != (part.role == "csp"):
        yield "`key` is what KGC and SP sign with, and CSP has none"
    if part.payer_key is not None and part.role != "sp":
        yield "`payer_key` is SP's to name"
    if part.authority is not None:
        yield from _authority_faults(part.authority, part.host)


def _authority_faults(pem: str, host: str) -> Iterator[str]:
    """An authority that could vouch for other hosts would speak for other roles to whoever trusts both."""
    try:
        (certificate,) = x509.load_pem_x509_certificates(pem.encode())
        is_ca = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        names = certificate.extensions.get_extension_for_class(x509.NameConstraints)
    except (ValueError, x509.ExtensionNotFound):
        yield "`authority` is not one certificate of an authority that is restricted to a host"
        return
    allowed = [_plain(name) for name in names.value.permitted_subtrees or ()]
    kinds = {type(name) for name in names.value.permitted_subtrees or ()}
    if not (is_ca and names.critical and {x509.DNSName, x509.IPAddress} <= kinds):
        yield "`authority` is not restricted to a host"
    elif not set(allowed) <= _LOOPBACK | {_canonical(host)}:
        yield f"`authority` could vouch for hosts other than {host}"
    elif not {below(name) for name in allowed} - {None} <= {
        _plain(name) for name in names.value.excluded_subtrees or ()
    }:
        yield f"`authority` could vouch for subdomains of {host}: its owner makes another with `crowdfl init --role`"
    if certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        yield "`authority` has expired"


def _canonical(host: str) -> str:
    """One address has several spellings."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def _plain(name: x509.GeneralName) -> str:
    """A host; of a network of several, what no host is called."""
    if isinstance(name, x509.IPAddress) and isinstance(name.value, ipaddress.IPv4Network | ipaddress.IPv6Network):
        return str(name.value.network_address) if name.value.num_addresses == 1 else str(name.value)
    return str(name.value).lower()
