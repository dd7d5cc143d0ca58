"""What a role's folder holds for the exchange: its own public part, made from its files, and the parts it has accepted."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crowdfl.cli.exchange.part import HOLDS, PEERS, SERVERS, SUFFIX, PublicPart, read_part
from crowdfl.errors import SettingsError
from crowdfl.services.http.tls import CertificateFiles, key_pin, require_usable
from crowdfl.services.http.wire import token_digest
from crowdfl.storage.atomic import read_secret
from crowdfl.storage.settings_file import read_settings
from crowdfl.storage.signing import signing_key

BUNDLE = "peers/ca.pem"  # whom the role trusts: everyone it has accepted, and itself
_SIGNERS = ("kgc", "sp")


class RoleFolder:
    """A role's settings file and what lies beside it; the settings need not be complete yet."""

    def __init__(self, settings: Path) -> None:
        self.settings, self.folder = settings, settings.resolve().parent
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
            return PublicPart(**common, url=None, authority=None, tls_keys=(), key=None)
        files = [files for files in (self.tls, self.next_tls) if files == self.tls or files.certificate.exists()]
        authority = self.authority.certificate
        key = signing_key(self.folder / "signing.key").public.hex() if self.role in _SIGNERS else None
        return PublicPart(
            **common,
            url=url or self._url(),
            authority=authority.read_text() if authority.exists() else None,
            tls_keys=tuple(dict.fromkeys(key_pin(require_usable(one)) for one in files)),
            key=key,
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

    def _url(self) -> str:
        host, port = self.found.get("host"), self.found.get("port")
        return f"https://{in_url(str(host))}:{port}"


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
