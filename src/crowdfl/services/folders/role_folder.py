"""A role's folder: what is its own, and what it knows of its peers.

`install` puts a peer's public part to use: whom to trust, which token to take, which keys to expect, where to call.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crowdfl.errors import Conflict, PackageMissing, SettingsError
from crowdfl.schema import Settings
from crowdfl.services.folders.public_part import HOLDS, SERVERS, PublicPart, read_part, write_part
from crowdfl.services.http.tls import CertificateFiles, key_pin, require_usable
from crowdfl.services.http.wire import token_digest
from crowdfl.settings import RequesterSettings, origin_of
from crowdfl.storage.atomic import read_secret, signing_key, write_private
from crowdfl.storage.settings_file import SERVICES, put_settings, read_settings

PEERS = {"kgc": ("sp", "csp", "requester"), "sp": ("kgc", "csp", "requester"), "csp": ("kgc", "sp")}
PEERS |= {"requester": ("kgc", "sp")}  # whom each role must know
SUFFIX = ".public.json"


BUNDLE = "peers/ca.pem"  # whom the role trusts: everyone it has accepted, and itself
_SIGNERS = ("kgc", "sp")


class RoleFolder:
    """A role's settings file and what lies beside it; the settings need not be complete yet."""

    def __init__(self, settings: Path) -> None:
        self.settings = settings
        self.folder = settings.resolve().parent
        self.found: Mapping[str, Any] = read_settings(settings)
        self.role = str(self.found.get("role"))
        if self.role not in PEERS:
            raise SettingsError(f'{settings} does not say whose settings these are: add a line such as role = "sp"')

    @property
    def name(self) -> str:
        return str(self.found.get("name", "requester")) if self.role == "requester" else self.role

    @property
    def public(self) -> Path:
        return self.folder / f"{self.name}{SUFFIX}"

    @property
    def tls(self) -> CertificateFiles:
        files = self.found.get("certificate"), self.found.get("key")
        if not all(isinstance(name, str) for name in files):
            raise SettingsError(f"{self.settings} names no `certificate` and `key`: other organisations need TLS")
        return CertificateFiles(*(self.folder / str(name) for name in files))

    @property
    def next_tls(self) -> CertificateFiles:
        """The key that is to take the place of the one in use, where one was made."""
        return CertificateFiles(*(path.with_stem(f"{path.stem}.next") for path in vars(self.tls).values()))

    @property
    def authority(self) -> CertificateFiles:
        """Of the role's own; there is none where certificates come from elsewhere."""
        return CertificateFiles(self.folder / "authority/ca.pem", self.folder / "authority/ca.key")

    def token_name(self, service: str) -> str:
        """The file with the token that a service knows this role by, as the settings name it."""
        table = self.found.get(service)
        named = table.get("token") if isinstance(table, dict) else self.found.get(f"{service}_token")
        return named if isinstance(named, str) else f"{service}.token"

    def token(self, service: str) -> Path:
        return self.folder / self.token_name(service)

    def next_token(self, service: str) -> Path:
        path = self.token(service)
        return path.with_name(f"{path.name}.next")

    def part(self, url: str | None = None) -> PublicPart:
        """The role's own public part, as its files are now; `url` is where it is reached if that is not host and port."""
        common: dict[str, Any] = {"version": 1, "role": self.role, "name": self.name, "tokens": self._digests()}
        if self.role not in SERVERS:
            return PublicPart(**common, url=None, authority=None, tls_keys=(), key=None, payer_key=None)
        files = [files for files in (self.tls, self.next_tls) if files == self.tls or files.certificate.exists()]
        authority = self.authority.certificate
        key = signing_key(self.folder / "signing.key").public.hex() if self.role in _SIGNERS else None
        return PublicPart(
            **common,
            url=url or f"https://{in_url(str(self.found.get('host')))}:{self.found.get('port')}",
            authority=authority.read_text() if authority.exists() else None,
            tls_keys=tuple(dict.fromkeys(key_pin(require_usable(one)) for one in files)),
            key=key,
            payer_key=self.found.get("payer_key") if self.role == "sp" else None,
        )

    def accepted(self) -> Iterator[PublicPart]:
        return map(read_part, sorted((self.folder / "peers").glob(f"*{SUFFIX}")))

    def accepted_path(self, name: str) -> Path:
        return self.folder / "peers" / f"{name}{SUFFIX}"

    def missing(self) -> list[str]:
        """The roles that this one needs and has not accepted yet; requesters come and go."""
        known = {part.role for part in self.accepted()}
        return [role for role in PEERS[self.role] if role != "requester" and role not in known]

    def _digests(self) -> dict[str, str]:
        """Of the tokens to come where there are such: the service is about to be told of them."""
        paths = {name: (self.next_token(name), self.token(name)) for name in HOLDS[self.role]}
        chosen = {name: coming if coming.exists() else path for name, (coming, path) in paths.items()}
        return {name: token_digest(read_secret(path, f"token for {name}")) for name, path in chosen.items()}

    def known_url(self) -> str | None:
        """As others were told: an address behind a proxy is not in the settings."""
        return read_part(self.public).url if self.public.exists() else None


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


_PINNED = {"kgc": ("sp", "csp"), "csp": ("sp",)}  # whose TLS key each service asks to be proven
_ADDED_TO = "web_origins"  # a list that has other entries too
_CHANGES = {
    "url": "its address",
    "authority": "who vouches for it",
    "tls_keys": "its TLS key",
    "key": "the key that it signs with",
    "payer_key": "whom it pays people out by",
    "tokens": "its tokens",
}


def install(settings: Path, part: PublicPart, *, replace: bool = False, overlap: float = 0.0) -> list[str]:
    """Accept a part whose fingerprint was compared; what of it is other than before. Safe to repeat."""
    own = RoleFolder(settings)
    if part.role not in PEERS[own.role]:
        raise SettingsError(f"{own.role} has nothing to do with {part.role}: it knows {', '.join(PEERS[own.role])}")
    changed = _changed(own, part)
    if changed and not replace:
        raise Conflict(
            f"{part.name} is known here with other values ({', '.join(changed)}): ask its owner, by another way than this "
            "file came, whether that is meant; then repeat this with --replace"
        )
    _require_one_kind(own, part)
    values = _values(own, part)  # before the part accepted earlier is replaced
    if own.role in part.tokens:
        _accept_token(own, part, overlap)
    (own.folder / "peers").mkdir(mode=0o700, exist_ok=True)
    write_part(own.accepted_path(part.name), part)
    _write_bundle(own)
    model: type[Settings] = RequesterSettings if own.role == "requester" else SERVICES[own.role]
    put_settings(settings, model, values)
    return changed


def _accept_token(own: RoleFolder, part: PublicPart, overlap: float) -> None:
    try:
        from crowdfl.services.http.auth import Tokens  # a requester has not the packages that services need
    except ModuleNotFoundError as missing:
        raise PackageMissing(f"a service needs {missing.name}: `pip install 'crowdfl[services]'`") from None
    Tokens(own.folder / "tokens.json").accept(part.name, part.role, part.tokens[own.role], overlap)


def _changed(own: RoleFolder, part: PublicPart) -> list[str]:
    """What is known of this peer, from a part accepted before or written into the settings, and would be replaced."""
    before = next((known for known in own.accepted() if known.name == part.name), None)
    if before is not None:
        return [words for name, words in _CHANGES.items() if getattr(before, name) != getattr(part, name)]
    values = _values(own, part)
    found = own.found
    return [
        f"`{name}` in the settings"
        for name, value in values.items()
        if name != _ADDED_TO
        if (isinstance(value, dict) and any(item != found.get(name, {}).get(key, item) for key, item in value.items()))
        or (not isinstance(value, dict) and found.get(name, value) != value)
    ]


def _values(own: RoleFolder, part: PublicPart) -> dict[str, Any]:
    """The settings that follow from a peer's part."""
    if part.role == "requester":
        return {}
    values: dict[str, Any] = {} if part.authority is None else {"ca": BUNDLE}
    token = own.token_name(part.role)
    if own.role == "requester":
        values |= {part.role: part.url, f"{part.role}_token": token}
        values |= {"payer_key": part.payer_key} if part.payer_key else {}  # SP takes no task that names another
    elif part.role in HOLDS[own.role]:
        values[part.role] = {"url": part.url, "token": token}
    if part.role in _PINNED.get(own.role, ()):
        values["pins"] = {part.role: list(part.tls_keys)}
    if own.role == "kgc" and part.role == "sp":
        values[_ADDED_TO] = _web_origins(own, part)
    if part.key is not None:
        values[f"{part.role}_key"] = part.key
    return values


def _web_origins(own: RoleFolder, sp: PublicPart) -> list[str]:
    """KGC answers the page for phones where SP serves it; the place of one that moved is left out."""
    now = origin_of(sp.url or "")
    left = {origin_of(known.url) for known in own.accepted() if known.role == "sp" and known.url} - {now}
    return list(dict.fromkeys([*(origin for origin in own.found.get(_ADDED_TO, ()) if origin not in left), now]))


def _require_one_kind(own: RoleFolder, part: PublicPart) -> None:
    """One file says whom to trust: authorities of roles' own, or, without it, those that every system knows."""
    others = [known for known in own.accepted() if known.role != "requester" and known.name != part.name]
    if part.role != "requester" and any((known.authority is None) != (part.authority is None) for known in others):
        raise SettingsError(
            f"some peers bring an authority of their own and {part.name} differs: put all certificates to trust into one file "
            "and name it as `ca`, or let every role use `crowdfl init --role`"
        )


def _write_bundle(own: RoleFolder) -> None:
    ours = own.authority.certificate
    found = [ours.read_text()] if ours.exists() else []
    found += [known.authority for known in own.accepted() if known.authority is not None]
    if found:
        text = "".join(pem.rstrip("\n") + "\n" for pem in dict.fromkeys(found))
        write_private(own.folder / BUNDLE, text.encode(), overwrite=True)
