"""`crowdfl kgc | sp | csp`: run a role, and manage the tokens it has given out."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from crowdfl.cli.workspace import read_service
from crowdfl.crypto.backends import BACKENDS
from crowdfl.errors import SettingsError
from crowdfl.services.cluster.backend import ClusterSettings
from crowdfl.services.http.auth import Tokens
from crowdfl.services.run import ServiceSettings, read_ledger, serve_csp, serve_kgc, serve_sp
from crowdfl.settings import from_millionths
from crowdfl.storage.atomic import write_private

__all__ = ["csp_app", "kgc_app", "payouts", "sp_app"]

_Settings = Annotated[Path, typer.Argument(help="The role's settings.toml, as `crowdfl init` makes it.")]

_Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


_Compute = Annotated[
    str | None, typer.Option(help=f"Where to compute: {', '.join((*BACKENDS, 'dask'))}; the settings' if not given.")
]
_Scheduler = Annotated[
    str | None, typer.Option(help="With --compute dask: this role's own scheduler, tls://host:port.")
]


def _role_app(name: str, what: str, serve: Callable[[ServiceSettings], None], *, computes: bool = True) -> typer.Typer:
    app = typer.Typer(help=what, no_args_is_help=True)
    token = typer.Typer(help="The tokens this role has given to others.", no_args_is_help=True)
    app.add_typer(token, name="token")

    def _serve(settings: _Settings) -> None:
        serve(read_service(settings))

    def _serve_computing(settings: _Settings, compute: _Compute = None, scheduler: _Scheduler = None) -> None:
        serve(_with_compute(read_service(settings), compute, scheduler))

    command = app.command("serve", help=f"Run {name} until it is told to stop (SIGTERM, Ctrl-C).")
    command(_serve_computing if computes else _serve)

    @token.command("add", help="A new token, shown once.")
    def _add(settings: _Settings, holder: str, role: str, as_json: _Json = False) -> None:
        _show_token(_tokens(settings).add(holder, role), as_json)

    @token.command("rotate", help="A new token in place of the old one, shown once; restart is not needed.")
    def _rotate(settings: _Settings, holder: str, as_json: _Json = False) -> None:
        _show_token(_tokens(settings).rotate(holder), as_json)

    @token.command("revoke", help="The holder's token opens nothing any more.")
    def _revoke(settings: _Settings, holder: str) -> None:
        _tokens(settings).revoke(holder)

    @token.command("list", help="Who holds a token, and for which role.")
    def _list(settings: _Settings, as_json: _Json = False) -> None:
        entries = _tokens(settings).entries()
        if as_json:
            typer.echo(json.dumps([{"name": entry.name, "role": entry.role} for entry in entries]))
            return
        for entry in entries:
            typer.echo(f"{entry.name}\t{entry.role}")

    return app


def _show_token(token: str, as_json: bool) -> None:
    typer.echo(json.dumps({"token": token}) if as_json else token)


def _with_compute(found: ServiceSettings, compute: str | None, scheduler: str | None) -> ServiceSettings:
    """What the command line says goes before what the file says."""
    compute = compute or found.compute
    if scheduler is None:
        return replace(found, compute=compute)
    if compute != "dask":
        raise SettingsError("--scheduler goes with --compute dask")
    cluster = found.cluster or ClusterSettings(scheduler=scheduler, plain_tcp=found.plain_http)
    return replace(found, compute=compute, cluster=replace(cluster, scheduler=scheduler))


def _tokens(settings: Path) -> Tokens:
    found = read_service(settings)
    return Tokens(found.tokens or found.data / "tokens.json")


kgc_app = _role_app("KGC", "The key generation centre: makes keys, certifies participants.", serve_kgc, computes=False)
sp_app = _role_app("SP", "The sensing platform: tasks, rounds, rewards, money.", serve_sp)
csp_app = _role_app("CSP", "The computation server: answers SP with the other half of the key.", serve_csp)


@sp_app.command()
def payouts(
    settings: _Settings,
    task: Annotated[str, typer.Argument(help="The task's id.")],
    file: Annotated[Path | None, typer.Argument(help="Where to write it; without, it is printed.")] = None,
    as_json: _Json = False,
) -> None:
    """Who was paid how much, as CSV or JSON, for whoever moves the money: the requester is told sums alone."""
    paid = read_ledger(read_service(settings), task).paid()
    rows = [(who, f"{from_millionths(amount):f}") for who, amount in paid.items()]
    text = _as_json(rows) if as_json else _as_csv(rows)
    if file is None:
        typer.echo(text, nl=False)
    else:
        write_private(file, text.encode(), overwrite=True)


def _as_json(rows: list[tuple[str, str]]) -> str:
    return json.dumps([{"participant": who, "amount": amount} for who, amount in rows]) + "\n"


def _as_csv(rows: list[tuple[str, str]]) -> str:
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(("participant", "amount"))
    table.writerows(rows)
    return text.getvalue()
