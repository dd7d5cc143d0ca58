"""`crowdfl exchange`: hand out one's public part, compare fingerprints, accept others' parts, renew tokens.

`crowdfl tls`: a service's own certificate, renewed while it runs.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdfl.cli.output import Json, SettingsPath, show
from crowdfl.errors import BadSignature, KeyFileMissing, SettingsError

if TYPE_CHECKING:
    from crowdfl.services.folders.public_part import PublicPart
    from crowdfl.services.folders.role_folder import RoleFolder
    from crowdfl.services.http.tls import CertificateFiles


app = typer.Typer(no_args_is_help=True)
_Part = Annotated[Path, typer.Argument(help="The other's public part, such as sp.public.json.")]
_REKEYED = {"kgc": "SP, CSP and each requester", "sp": "KGC, CSP and each requester"}
RELOAD = "If the service runs, have it read this again: kill -HUP its process."


@app.command("show")
def show_parts(parts: Annotated[list[Path], typer.Argument(help="Public parts.")], as_json: Json = False) -> None:
    """Show whose part it is and its fingerprint, which its owner reads to you by another way than the file came."""
    from crowdfl.services.folders.public_part import read_part

    found = [read_part(path) for path in parts]
    rows = [{"role": part.role, "name": part.name, "url": part.url, "fingerprint": part.fingerprint} for part in found]
    show(rows, *(_described(part) for part in found), as_json=as_json)


@app.command()
def make(
    settings: SettingsPath,
    url: Annotated[
        str | None, typer.Option(help="Where others reach this service, if it is not `host` and `port`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write this role's public part again, after its keys or its address have changed."""
    from crowdfl.services.folders.role_folder import RoleFolder

    _tell_own(RoleFolder(settings), url, as_json=as_json)


@app.command()
def accept(
    settings: SettingsPath,
    part: _Part,
    fingerprint: Annotated[
        str | None, typer.Option(help="The digits that the part's owner told you. Without it you are asked.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="This peer is known with other keys, and its owner said that it changed them."),
    ] = False,
    overlap: Annotated[
        float, typer.Option(min=0, max=8760, metavar="HOURS", help="How long a replaced token stays good.")
    ] = 0.0,
) -> None:
    """Take a peer's keys, token and address into this role's folder. Safe to repeat."""
    from crowdfl.services.folders.public_part import read_part
    from crowdfl.services.folders.role_folder import RoleFolder, install

    found = read_part(part)
    require_compared(found, fingerprint)
    changed = install(settings, found, replace=replace, overlap=overlap * 3600)
    for what in changed:
        typer.secho(f"REPLACED: {what} of {found.name}", fg=typer.colors.RED, bold=True, err=True)
    typer.echo(f"{found.name} is known to {RoleFolder(settings).name}. {RELOAD}")
    missing = RoleFolder(settings).missing()
    if missing:
        typer.echo(f"Still to be accepted: {', '.join(missing)}.")


@app.command()
def token(
    settings: SettingsPath,
    service: Annotated[str, typer.Argument(help="The service that this role shows the token to: kgc, sp or csp.")],
    use: Annotated[
        bool, typer.Option("--use", help="Use the new token from now on: the service has accepted it.")
    ] = False,
) -> None:
    """Make this role's next token for a service, and tell it in the public part; with --use, put it to use."""
    from crowdfl.services.folders.public_part import HOLDS
    from crowdfl.services.folders.role_folder import RoleFolder
    from crowdfl.services.http.wire import new_token
    from crowdfl.storage.atomic import write_private

    own = RoleFolder(settings)
    if service not in HOLDS[own.role]:
        raise SettingsError(f"{own.role} shows tokens to {', '.join(HOLDS[own.role]) or 'nobody'}, not to {service!r}")
    if use:
        _use_next_token(own, service)
        typer.echo(f"The new token for {service} is in use. {RELOAD}")
        return
    write_private(own.next_token(service), new_token().encode(), overwrite=True)
    _tell_own(own, own.known_url(), as_json=False)
    typer.echo(
        f"Let {service} run `crowdfl exchange accept ... --replace --overlap 24`, then come back with --use: until then the "
        "token that it knows stays in use."
    )


@app.command()
def rekey(settings: SettingsPath) -> None:
    """Make another signing key of KGC's or SP's, where the one in use has leaked: docs/leaked-keys.md."""
    from crowdfl.services.folders.role_folder import RoleFolder
    from crowdfl.storage.atomic import signing_key

    own = RoleFolder(settings)
    if own.role not in _REKEYED:
        raise SettingsError(f"{own.role} has no signing key that can be replaced: docs/leaked-keys.md says what to do")
    key = own.folder / "signing.key"
    if not key.exists():
        raise KeyFileMissing(f"there is no {key}: the service makes one when it starts")
    before = signing_key(key).public.hex()
    leaked = own.folder / f"signing.key.leaked-{before[:8]}"
    os.replace(key, leaked)
    signing_key(key)
    _tell_own(own, own.known_url(), as_json=False)
    typer.echo(
        f"The old key is {leaked}: its signatures count for nobody who has accepted the new one. Stop the service; let "
        f"{_REKEYED[own.role]} run `crowdfl exchange accept ... --replace` and restart; then start it again."
    )


def _use_next_token(own: "RoleFolder", service: str) -> None:
    from crowdfl.storage.atomic import read_secret

    coming = own.next_token(service)
    if not coming.exists():
        raise KeyFileMissing(f"there is no {coming}: make a new token first, without --use")
    read_secret(coming, f"token for {service}")
    os.replace(coming, own.token(service))


def _tell_own(own: "RoleFolder", url: str | None, *, as_json: bool) -> None:
    from crowdfl.services.folders.public_part import write_part

    part = own.part(url)
    write_part(own.public, part)
    show(
        {"public": str(own.public), "fingerprint": part.fingerprint}, f"{own.public}", _described(part), as_json=as_json
    )


def _described(part: "PublicPart") -> str:
    return f"{part.name}  {part.url or ''}\n  {part.fingerprint}"


def require_compared(part: "PublicPart", told: str | None) -> None:
    """The digits that the owner told, or a person's word that they are the same."""
    from crowdfl.services.folders.public_part import same_digits

    if told is not None:
        if not same_digits(told, part.fingerprint):
            raise BadSignature(
                f"the fingerprint of this file of {part.role} is {part.fingerprint}, and not the digits that you gave, all of "
                "which are needed: a digit was misheard, or this is another file than the one that was meant, of another time, "
                "or changed on its way. Do not use it before the digits are the same"
            )
        return
    if not sys.stdin.isatty():
        raise SettingsError(
            "nobody is there to compare the fingerprint: give the digits that you were told as --fingerprint"
        )
    typer.echo(_described(part))
    typer.confirm("Has its owner read the very same digits to you, by another way than the file came?", abort=True)


tls_app = typer.Typer(no_args_is_help=True)
_PINNED = ("sp", "csp")  # whose key others know


@tls_app.command("show")
def show_certificate(settings: SettingsPath, as_json: Json = False) -> None:
    """Show until when the certificate is good, and the SHA-256 of its key, as [pins] has it."""
    from crowdfl.services.folders.role_folder import RoleFolder
    from crowdfl.services.http.tls import key_pin, require_usable

    certificate = require_usable(RoleFolder(settings).tls)
    pin = key_pin(certificate)
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC"
    show({"key": pin, "until": until}, f"key {pin}\ngood until {until}", as_json=as_json)


@tls_app.command()
def renew(
    settings: SettingsPath,
    new_key: Annotated[
        bool,
        typer.Option("--new-key", help="Make another key too. SP's and CSP's is used when others have accepted it."),
    ] = False,
    use_new_key: Annotated[
        bool, typer.Option("--use-new-key", help="Use the key that --new-key made: the others have accepted it.")
    ] = False,
    ca: Annotated[
        Path | None, typer.Option(help="The folder with ca.pem and ca.key to sign with, if it is not this role's own.")
    ] = None,
) -> None:
    """Make another certificate for this service; phones and peers notice nothing."""
    from crowdfl.services.folders.public_part import write_part
    from crowdfl.services.folders.role_folder import RoleFolder
    from crowdfl.services.http.tls import renew_certificate

    own = RoleFolder(settings)
    if use_new_key:
        _use_next(own)
    elif new_key:
        _make_next(own, _authority(own, ca))
        if own.role in _PINNED:
            write_part(own.public, part := own.part(own.known_url()))
            typer.echo(
                f"The next key is made. Give {own.public} ({part.fingerprint}) to whom this role calls; when they have "
                f"accepted it with --replace, run `crowdfl tls renew {settings} --use-new-key`."
            )
            return
        _use_next(own)
    else:
        renew_certificate(own.tls, _authority(own, ca), [_host(own)])
    write_part(own.public, own.part(own.known_url()))
    typer.echo(f"{own.tls.certificate} is new. {RELOAD}")


def _host(own: "RoleFolder") -> str:
    return str(own.found.get("host"))


def _authority(own: "RoleFolder", ca: Path | None) -> "CertificateFiles":
    from crowdfl.services.folders.public_part import require_vouching
    from crowdfl.services.http.tls import CertificateFiles

    files = own.authority if ca is None else CertificateFiles(ca / "ca.pem", ca / "ca.key")
    if not files.key.exists():
        raise KeyFileMissing(
            f"there is no {files.key}: bring it back from where it is kept, or get the certificate where this one came from"
        )
    if ca is None:
        require_vouching(files.certificate, _host(own))
    return files


def _make_next(own: "RoleFolder", authority: "CertificateFiles") -> None:
    from crowdfl.services.http.tls import make_server_certificate

    files = own.next_tls
    for path in vars(files).values():
        path.unlink(missing_ok=True)
    if files.certificate.stem != files.key.stem or files.certificate.parent != files.key.parent:
        raise SettingsError("`certificate` and `key` have different names: make the new ones yourself")
    make_server_certificate(files.certificate.parent, authority, files.certificate.stem, [_host(own)])


def _use_next(own: "RoleFolder") -> None:
    """Two renames: a process that reads in between sees that they do not fit, and keeps what it has."""
    from crowdfl.services.http.tls import require_usable

    coming = own.next_tls
    if not coming.certificate.exists():
        raise KeyFileMissing(f"there is no {coming.certificate}: make a new key first, with --new-key")
    require_usable(coming)
    os.replace(coming.key, own.tls.key)
    os.replace(coming.certificate, own.tls.certificate)
