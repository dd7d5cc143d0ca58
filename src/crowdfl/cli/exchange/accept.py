"""A peer's public part put to use: whom to trust, which token to take, which keys to expect, where to call."""

from pathlib import Path
from typing import Any

from crowdfl.cli.exchange.role_folder import BUNDLE, HOLDS, PEERS, PublicPart, RoleFolder, write_part
from crowdfl.errors import Conflict, PackageMissing, SettingsError
from crowdfl.schema import Settings
from crowdfl.settings import RequesterSettings, origin_of
from crowdfl.storage.atomic import write_private
from crowdfl.storage.settings_file import SERVICES, put_settings

_PINNED = {"kgc": ("sp", "csp"), "csp": ("sp",)}  # whose TLS key each service asks to be proven
_ADDED_TO = "web_origins"  # a list that has other entries too
_CHANGES = {
    "url": "its address",
    "authority": "who vouches for it",
    "tls_keys": "its TLS key",
    "key": "the key that it signs with",
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
    values, found = _values(own, part), own.found
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
