"""`crowdfl kgc | sp | csp`: run a role, and manage the tokens it has given out. SP's money is in `money`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from crowdfl.cli.operator import clock_app, deposit_app, payouts, reconcile, resolve, task_app
from crowdfl.cli.output import Json, show
from crowdfl.crypto.backends import BACKENDS
from crowdfl.errors import SettingsError
from crowdfl.services.http.auth import ROLES, TokenEntry, Tokens
from crowdfl.services.server import serve_csp, serve_kgc, serve_sp
from crowdfl.settings import ComputingSettings, CspSettings, KgcSettings, ServiceSettings, SpSettings
from crowdfl.storage.settings_file import read_service
from crowdfl.web.pages import add_pages

_Model = TypeVar("_Model", bound=ServiceSettings)
_Settings = Annotated[Path, typer.Argument(help="The role's settings.toml.")]

_Compute = Annotated[
    str | None,
    typer.Option(help=f"Where to compute: {', '.join((*BACKENDS, 'dask'))}; by default, as the settings say."),
]
_Scheduler = Annotated[
    str | None, typer.Option(help="With --compute dask: this role's own scheduler, tls://host:port.")
]
_Holder = Annotated[str, typer.Argument(help="A name for whoever holds the token.")]
_TokenRole = Annotated[str, typer.Argument(help=f"What it is good for: {', '.join(ROLES)}.")]
_Overlap = Annotated[
    float, typer.Option(min=0, max=8760, metavar="HOURS", help="How long the old token stays good beside the new one.")
]


def _role_app(what: str, model: type[_Model], serve: Callable[[_Model, Callable[[], _Model]], None]) -> typer.Typer:
    app = typer.Typer(help=what, no_args_is_help=True)
    token = typer.Typer(help="The tokens this role has given to others.", no_args_is_help=True)
    app.add_typer(token, name="token")

    def _serve(settings: _Settings) -> None:
        serve(read_service(model, settings), lambda: read_service(model, settings))

    def _serve_computing(settings: _Settings, compute: _Compute = None, scheduler: _Scheduler = None) -> None:
        def read() -> _Model:
            return _with_compute(read_service(model, settings), compute, scheduler)

        serve(read(), read)

    command = app.command(
        "serve", help="Run the role until SIGTERM or Ctrl-C; SIGHUP: read certificates, tokens and pins again."
    )
    command(_serve_computing if issubclass(model, ComputingSettings) else _serve)

    @token.command("add", help="Make a token and show it, once.")
    def _add(settings: _Settings, holder: _Holder, role: _TokenRole, as_json: Json = False) -> None:
        fresh = _tokens(model, settings).add(holder, role)
        show({"token": fresh}, fresh, as_json=as_json)

    @token.command("rotate", help="Replace a token and show the new one, once. The service need not be restarted.")
    def _rotate(settings: _Settings, holder: _Holder, overlap: _Overlap = 0.0, as_json: Json = False) -> None:
        fresh = _tokens(model, settings).rotate(holder, overlap * 3600)
        show({"token": fresh}, fresh, as_json=as_json)

    @token.command("revoke", help="Make the holder's token invalid.")
    def _revoke(settings: _Settings, holder: _Holder) -> None:
        _tokens(model, settings).revoke(holder)

    @token.command("list", help="Show who holds a token, for which role, and until when if another replaces it.")
    def _list(settings: _Settings, as_json: Json = False) -> None:
        tokens = _tokens(model, settings)
        entries = tokens.entries()
        if as_json or entries:
            rows = [{"name": entry.name, "role": entry.role, "until": entry.until} for entry in entries]
            show(rows, "\n".join(_told(entry, tokens.now()) for entry in entries), as_json=as_json)

    return app


def _told(entry: TokenEntry, now: float) -> str:
    until = "" if entry.until is None else f"\t{'expired' if entry.ended(now) else 'good until'} {entry.until}"
    return f"{entry.name}\t{entry.role}{until}"


def _with_compute(found: _Model, compute: str | None, scheduler: str | None) -> _Model:
    """The command line overrides the file."""
    values: dict[str, Any] = dict(found)
    values["compute"] = compute or values["compute"]
    if scheduler is not None:
        if values["compute"] != "dask":
            raise SettingsError("--scheduler needs --compute dask")
        values["dask"] = dict(values["dask"] or {}) | {"scheduler": scheduler}
    return found.changed(**values)


def _tokens(model: type[ServiceSettings], settings: Path) -> Tokens:
    return Tokens(read_service(model, settings).data / "tokens.json")


kgc_app = _role_app("The key generation centre: makes keys, certifies participants.", KgcSettings, serve_kgc)
sp_app = _role_app(
    "The sensing platform: tasks, rounds, rewards, money.", SpSettings, partial(serve_sp, extend=add_pages)
)
csp_app = _role_app("The computation server: answers SP with the other half of the key.", CspSettings, serve_csp)
for _app, _model in ((kgc_app, KgcSettings), (sp_app, SpSettings), (csp_app, CspSettings)):
    _app.add_typer(task_app(_model), name="task")
sp_app.add_typer(deposit_app, name="deposit")
sp_app.add_typer(clock_app, name="clock")
sp_app.command("payouts")(payouts)
sp_app.command("resolve")(resolve)
sp_app.command("reconcile")(reconcile)
