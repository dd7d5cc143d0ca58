"""`crowdfl tls`: a service's own certificate, renewed while it runs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from crowdfl.cli.exchange.commands import RELOAD, SettingsPath
from crowdfl.cli.exchange.role_folder import RoleFolder, require_vouching, write_part
from crowdfl.cli.output import Json, show
from crowdfl.errors import KeyFileMissing, SettingsError
from crowdfl.services.http.tls import (
    CertificateFiles,
    key_pin,
    make_server_certificate,
    renew_certificate,
    require_usable,
)

app = typer.Typer(help="This service's own certificate.", no_args_is_help=True)
_PINNED = ("sp", "csp")  # whose key others know


@app.command("show")
def show_certificate(settings: SettingsPath, as_json: Json = False) -> None:
    """Show until when the certificate is good, and the SHA-256 of its key, as [pins] has it."""
    certificate = require_usable(RoleFolder(settings).tls)
    pin, until = key_pin(certificate), f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC"
    show({"key": pin, "until": until}, f"key {pin}\ngood until {until}", as_json=as_json)


@app.command()
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


def _host(own: RoleFolder) -> str:
    return str(own.found.get("host"))


def _authority(own: RoleFolder, ca: Path | None) -> CertificateFiles:
    files = own.authority if ca is None else CertificateFiles(ca / "ca.pem", ca / "ca.key")
    if not files.key.exists():
        raise KeyFileMissing(
            f"there is no {files.key}: bring it back from where it is kept, or get the certificate where this one came from"
        )
    if ca is None:
        require_vouching(files.certificate, _host(own))
    return files


def _make_next(own: RoleFolder, authority: CertificateFiles) -> None:
    files = own.next_tls
    for path in vars(files).values():
        path.unlink(missing_ok=True)
    if files.certificate.stem != files.key.stem or files.certificate.parent != files.key.parent:
        raise SettingsError("`certificate` and `key` have different names: make the new ones yourself")
    make_server_certificate(files.certificate.parent, authority, files.certificate.stem, [_host(own)])


def _use_next(own: RoleFolder) -> None:
    """Two renames: a process that reads in between sees that they do not fit, and keeps what it has."""
    coming = own.next_tls
    if not coming.certificate.exists():
        raise KeyFileMissing(f"there is no {coming.certificate}: make a new key first, with --new-key")
    require_usable(coming)
    os.replace(coming.key, own.tls.key)
    os.replace(coming.certificate, own.tls.certificate)
