"""`crowdfl demo-phone`: a campaign for a real phone in the same network, with made-up people beside it.

Everything lies in a folder that is removed at the end. The made-up people are as many as the least that a phone accepts, so
that a phone which goes away does not stop the others.

The phone has one authority to trust, for both services. It can vouch for this machine's address alone. Its certificate is
public; whoever is in between could still put another in its place, so the phone's owner compares the fingerprint: as the phone
shows it, never as the page does that offers it.
"""

import contextlib
import datetime
import html
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from crowdfl.durations import duration
from crowdfl.errors import CrowdFLError, SettingsError
from crowdfl.settings import LEAST_PARTICIPANTS, from_millionths
from crowdfl_lab.demo.motion import ACTIVITIES, write_recordings
from crowdfl_lab.demo.processes import CampaignProcesses, port_options, set_up, task_file

if TYPE_CHECKING:
    from rich.console import Console


_ELSEWHERE = ("192.0.2.1", 9)  # an address for documentation: nothing is sent to it
_MADE_UP = LEAST_PARTICIPANTS
_TO_START = 600.0  # seconds until every process runs and the made-up people have joined
_TASK = {
    "purpose": "Tell from the motion of a phone whether its owner sits, walks or climbs stairs",
    "terms": "A demonstration. What you record stays on your phone; only a protected update of the model leaves it.",
    "readers": "Whoever runs this demonstration reads the last average; every participant reads the others.",
    "min_participants": LEAST_PARTICIPANTS,
    **{"max_norm": 20.0, "lanes": 256, "budget": "6.00", "late": "30 s"},
    **{"layers": [16], "channels": 3, "labels": ACTIVITIES, "epochs": 10},
}
_FILE = "/crowdfl-demo.crt"
_STEPS = {
    "Android": (
        "Open Settings, Security and privacy, More security settings, Encryption and credentials (or search for "
        "“CA certificate”), Install a certificate, CA certificate, Install anyway. Choose the downloaded file. Look at it "
        "in Trusted credentials, User, and compare its SHA-256. Then open the link in Chrome. (Firefox does not trust such "
        "certificates unless a hidden setting, “Use third party CA certificates”, is switched on.)"
    ),
    "iPhone, iPad": (
        "Open it in Safari and allow the profile. In Settings: General, VPN & Device Management, install the profile; "
        "More Details shows its SHA-256 to compare. Then General, About, Certificate Trust Settings: switch full trust on "
        "for it. Then open the link in Safari."
    ),
    "Afterwards": "Remove the certificate in the same place. It is good for this one demo only.",
}


@dataclass
class _PhoneCampaign(CampaignProcesses):
    """Shows what happens, in a line each."""

    phones: int = 1
    gone: frozenset[str] = frozenset()  # made-up people who have failed, and were told

    def look(self) -> None:
        """With fewer than the least number of people, a round would wait for nothing: whoever watches must know."""
        for name in {f"person {person}" for person in range(_MADE_UP)} - self.gone:
            if (failure := self.failure_of(name)) is not None:
                self.gone |= {name}
                self.say(failure)

    def react(self, name: str, event: dict[str, Any]) -> None:
        from crowdfl.roles.participant.event_words import event_words

        what = event["event"]
        if what == "status":
            self.show_status(event, _MADE_UP + self.phones)
        elif what == "funded":
            self.confirm(event)
        elif what == "read" and name == "person 0":
            self.say(f"round {event['round']}: the average is read; on {name}'s own data {event['accuracy']:.0%} right")
        elif what in ("refused", "upload rejected", "not paid"):
            self.say(f"{name}: {event_words(what, event)}")


def demo_phone(
    host: Annotated[
        str | None, typer.Option(help="This machine's name or address as a phone reaches it; else it is looked up.")
    ] = None,
    phones: Annotated[int, typer.Option(min=0, max=20, help="How many phones are to take part.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="How many rounds there are.")] = 3,
    minutes: Annotated[
        float, typer.Option(min=0.5, max=1440, help="How long a round waits for phones at most.")
    ] = 10.0,
    claim_minutes: Annotated[
        float, typer.Option(min=0.5, max=1440, help="How long rewards can be claimed after the last day of rounds.")
    ] = 10.0,
    page: Annotated[
        bool, typer.Option("--certificate-page/--no-certificate-page", help="Offer the certificate by plain HTTP.")
    ] = True,
) -> None:
    from rich.console import Console

    place = host or lan_address()
    folder = Path(tempfile.mkdtemp(prefix="crowdfl-demo-phone-"))
    campaign = _PhoneCampaign(folder, Console(), names_processes=False, phones=phones)
    try:
        with _on_signals(_interrupt), contextlib.ExitStack() as stack:
            task = phone_task(rounds, minutes * 60, claim_minutes * 60, _MADE_UP + phones)
            _run(campaign, place, task, stack if page else None)
    except KeyboardInterrupt:
        campaign.say("interrupted")
    except CrowdFLError:
        for path in sorted(folder.glob("*.log")):  # the last line of each: the folder is about to go
            for line in path.read_text().splitlines()[-1:]:
                campaign.console.out(f"{path.stem}: {line}")
        raise
    finally:
        with _on_signals(signal.SIG_IGN):  # a second Ctrl-C must not leave processes behind
            campaign.stop()
            shutil.rmtree(folder)
            campaign.say("every process has ended, and the demo's folder is removed")


def lan_address() -> str:
    """The address by which this machine reaches others; nothing is sent to find it."""
    from crowdfl.services.http.tls import is_loopback

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            found = str(probe.getsockname()[0])
        except OSError:
            found = "127.0.0.1"
    if is_loopback(found):
        raise SettingsError("this machine has no address in a network: join one, or name an address with --host")
    return found


def _run(campaign: _PhoneCampaign, host: str, task: str, pages: contextlib.ExitStack | None) -> None:
    """Until the money is settled. The certificate is offered as long as `pages` is open, if it is given."""
    phones = "1 phone" if campaign.phones == 1 else f"{campaign.phones} phones"
    campaign.say(f"a campaign for {phones} and {_MADE_UP} made-up people on {host}; the link comes in about a minute")
    set_up(campaign.roles, "--host", host, *port_options(host))
    certificate = share_authority(campaign.roles, host)
    campaign.post_task(task, _MADE_UP + campaign.phones)
    for person in range(_MADE_UP):
        data = campaign.folder / f"recordings-{person}"
        write_recordings(data, person)
        campaign.start_person(person, f"csv:{data}")
    if campaign.phones:
        found = pages.enter_context(certificate_page(host, certificate)) if pages is not None else None
        _invite(campaign, found, fingerprint(certificate))
    report = campaign.wait_for("report")
    paid = {name: from_millionths(report[name] or 0) for name in ("earned", "returned")}
    campaign.say(f"the campaign is over: {paid['earned']:.2f} was claimed, {paid['returned']:.2f} went back")


def phone_task(rounds: int, window: float, claim: float, people: int) -> str:
    """Phones join until the first round has waited for them. Dates are near: a phone that never claims ends the demo all the
    same."""
    joined = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=_TO_START + window)
    plan = {"enrol_until": joined.isoformat(timespec="seconds"), "room": "1 min"}
    times = {"window": duration(window), "claim_window": duration(claim)}
    sizes = times | {"rounds": rounds, "max_participants": max(10, people)}
    return task_file("shares", _TASK | sizes | plan)


def _invite(campaign: _PhoneCampaign, page: str | None, digits: str) -> None:
    """Two codes: the certificate, which comes first, and the link of each phone."""
    from rich.padding import Padding

    from crowdfl.documents.links import phone_page
    from crowdfl.services.client.opening import RequesterFile, link_of

    roles, show = campaign.roles, campaign.console.out
    show(f"\n1. The phone must trust this demo's certificate: {roles / 'sp/authority/ca.pem'}")
    show(f"   SHA-256: {digits}")
    if page is not None:
        show(f"   Open this on the phone, in the same network: {page}")
        _show_code(campaign.console, page)
    for who, what in _STEPS.items():
        campaign.console.print(Padding(f"[bold]{who}[/bold]: {what}", (0, 0, 0, 3)), highlight=False)
    show("\n2. Open the link on the phone. A link lets one phone join, the first that opens it.")
    for number in range(_MADE_UP, _MADE_UP + campaign.phones):
        home = phone_page(RequesterFile.read(roles / "requester/settings.toml").settings)
        link = link_of(campaign.folder / f"invitations/invitation-{number}.json", home)
        show(f"\n   Phone {number - _MADE_UP + 1}:")
        show(link)
        _show_code(campaign.console, link)
    show(f"\n3. Join, and record about 30 seconds each of {', '.join(ACTIVITIES)}. Rounds then go on by themselves.")
    show(f"   The {_MADE_UP} others are made up: how often the shared model is right about you says little.")
    show("   Ctrl-C here ends the demo and removes everything it has made.\n")


def _show_code(console: "Console", link: str) -> None:
    from crowdfl.cli.task.links import code_in_letters

    if console.is_terminal:
        print(code_in_letters(link))  # noqa: T201 -- with colours of its own


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _on_signals(handler: Callable[[int, Any], None] | signal.Handlers) -> Iterator[None]:
    """Whoever ends this process ends what it started: a signal is as good as Ctrl-C."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


def share_authority(roles: Path, host: str) -> x509.Certificate:
    """SP's authority vouches for KGC's address too, which is the same here: a phone has to trust one, not two."""
    from crowdfl.services.http.tls import CertificateFiles, renew_certificate

    authority = CertificateFiles(roles / "sp/authority/ca.pem", roles / "sp/authority/ca.key")
    renew_certificate(CertificateFiles(roles / "kgc/tls.pem", roles / "kgc/tls.key"), authority, [host])
    return x509.load_pem_x509_certificate(authority.certificate.read_bytes())


def fingerprint(certificate: x509.Certificate) -> str:
    """As phones show it."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _page(certificate: x509.Certificate, path: str) -> tuple[str, bytes] | None:
    """Two things to fetch, and nothing else."""
    if path == _FILE:
        return "application/x-x509-ca-cert", certificate.public_bytes(serialization.Encoding.DER)
    steps = "".join(f"<h2>{html.escape(who)}</h2><p>{html.escape(what)}</p>" for who, what in _STEPS.items())
    text = (
        '<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>CrowdFL demo</title>'
        f'<h1>Certificate of a CrowdFL demo</h1><p><a href="{_FILE}">Download the certificate</a></p><p>Its SHA-256, as '
        "your phone shows it in its settings, must be the one in the terminal of the demo. This page does not show it: "
        f"nothing protects this page, and somebody in between could change it.</p>{steps}</html>"
    )
    return ("text/html; charset=utf-8", text.encode()) if path == "/" else None


@contextlib.contextmanager
def certificate_page(host: str, certificate: x509.Certificate) -> Iterator[str]:
    """Its address, over plain HTTP: before a phone trusts the authority, it could not open anything else without a warning."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds: nobody keeps a thread for nothing

        def do_GET(self) -> None:
            found = _page(certificate, self.path)
            kind, body = found or ("text/plain", b"not here\n")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a terminal shows the campaign."""

    with ThreadingHTTPServer((host, 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, name="certificate page", daemon=True).start()
        try:
            yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/"
        finally:
            server.shutdown()
