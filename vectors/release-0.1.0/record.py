"""Writes what release 0.1.0 says: a campaign's HTTP exchanges, its documents, every kind of message, its problems.

It was run once, by the code of that release, and is kept to show how. In a checkout of the release's commit:

    PYTHONPATH=src:. python .../vectors/release-0.1.0/record.py .../vectors/release-0.1.0

The keys and tokens in these files are public: never use them.
"""

import base64
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
from anyio.from_thread import start_blocking_portal
from crowdfl.cli.requester_file import RequesterFile, write_invitations
from crowdfl.local import LocalFederation, Update
from tests.http.world import INITIAL, InProcess, World

from crowdfl import errors
from crowdfl.protocols.hardened.shape import ReaderBundle
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.paper.profile import PaperBundle
from crowdfl.roles.requester import own_key
from crowdfl.services.http.problems import problem_for
from crowdfl.services.http.wire import PROTOCOL
from crowdfl.version import __version__

TASK = {
    "key_bits": 960,
    "sigma": 20,
    "decimals": 3,
    "clip": 2.0,
    "max_participants": 5,
    "max_samples": 10,
    "rounds": 2,
    "budget": "30.00",
    "window": 100.0,
    "grace": 50.0,
}
SENT = ("authorization", "content-type", "x-content-sha256", "x-crowdfl-protocol", "x-crowdfl-requester")
ANSWERED = ("content-type", "location", "retry-after", "upgrade", "www-authenticate", "x-crowdfl-protocol")
Json = dict[str, Any]


class Recording(World):
    """A platform whose every exchange is kept."""

    def __init__(self, *given: Any) -> None:
        self.exchanges: list[Json] = []
        super().__init__(*given)

    def http(self, service: str) -> httpx.Client:
        inner = InProcess(lambda: self.apps[service], self.portal)
        self.clients.append(httpx.Client(transport=_Kept(self, service, inner), base_url="https://service"))
        return self.clients[-1]

    def run(self) -> None:
        self.exchanges.append({"tick": True, "at": self.clock.now()})
        super().run()

    def caller(self, service: str, headers: httpx.Headers) -> str:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        roles = {given: role for role, given in self.tokens[service][1].items()}
        return roles.get(token, "phone")


class _Kept(httpx.BaseTransport):
    def __init__(self, world: Recording, service: str, inner: InProcess) -> None:
        self._world, self._service, self._inner = world, service, inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body, world = request.read(), self._world
        place = len(world.exchanges)
        by, at = world.caller(self._service, request.headers), world.clock.now()
        answer = self._inner.handle_request(request)
        kept = {"by": by, "to": self._service, "at": at, "method": request.method}
        kept |= {"target": request.url.raw_path.decode(), "headers": _named(request.headers, SENT), "body": text(body)}
        told = {"status": answer.status_code, "headers": _named(answer.headers, ANSWERED), "body": text(answer.read())}
        # Before the exchanges that it caused: they are its own, and follow it.
        world.exchanges.insert(place, kept | {"answer": told})
        return answer


def _named(headers: httpx.Headers, names: tuple[str, ...]) -> dict[str, str]:
    return {name: headers[name] for name in names if name in headers}


def text(body: bytes) -> Json | None:
    """JSON as it was sent, other bytes in base64."""
    if not body:
        return None
    try:
        shown = body.decode()
        json.loads(shown)
    except ValueError:
        return {"base64": base64.b64encode(body).decode()}
    return {"text": shown}


def campaign(folder: Path) -> Json:
    """Two rounds, three people who stay and one who leaves, an upload in pieces, a pause, claims."""
    random = np.random.default_rng(1)
    with start_blocking_portal() as portal:
        world = Recording(folder, portal)
        task = world.post(**TASK)
        participant_bundle = world.kgc.bundles.get(f"{task}.participant")
        people = [world.add_person(task) for _ in range(4)]
        people.pop().sp.quit(task)
        for number in (1, 2):
            world.run()
            for place, person in enumerate(people):
                upload = person.side.encrypt_update(random.normal(size=8), 5 + place)
                send = person.sp.upload if place else lambda *a, p=person: p.sp.upload_in_pieces(*a, 700)
                send(task, number, upload)
            world.requester.order(task, "pause")
            world.clock.time += 10
            world.requester.order(task, "resume")
            world.run()
            for person in people:
                if number == 1:
                    person.participant.read(number)
                person.participant.blobs.put(f"rounds/{number}/receipt", b"")
                person.participant.open_reward(number)
        world.requester.close_enrolment(task)
        world.run()
        final = world.requester.read(task, 2)
        paid = [person.participant.claim() for person in people]
        world.requester.report(task)
        recorded = {
            "task": task,
            "keys": {
                "kgc": world.signing.private.hex(),
                "sp": world.receipts.private.hex(),
                "requester": own_key(world.disk.blobs("requester")).private.hex(),
                "people": [[p.keys.signing.private.hex(), p.keys.reader.private.hex()] for p in people],
            },
            "tokens": {service: given for service, (_, given) in world.tokens.items()},
            "bundles": bundles_of(world) | {"participant": participant_bundle.hex()},
            "seeds": {n: {p: s.hex() for p, s in world.sp.store.seeds(task, n).items()} for n in (1, 2)},
            "final": [float(weight) for weight in final.weights],
            "paid": paid,
            "documents": documents(world, task, folder),
            "exchanges": world.exchanges,
        }
        recorded["messages"] = messages_of(world, task)
        world.close()
    return recorded


def bundles_of(world: Recording) -> dict[str, str]:
    found = {}
    for one in world.exchanges:
        if one.get("to") == "kgc" and one["answer"]["status"] in (200, 201) and "bundle" in str(one["answer"]["body"]):
            fields = json.loads(one["answer"]["body"]["text"])
            found[one["by"]] = base64.b64decode(fields["bundle"]).hex()
    return found


def documents(world: Recording, task: str, folder: Path) -> Json:
    """Each as its owner hands it over."""
    stored = world.sp.store.task(task)
    return {
        "definition": stored.definition,
        "appointment": stored.appointment,
        "certificates": [one.certificate for one in world.sp.store.participants(task)],
        "invitation file": invitation_file(world, task, folder),
        "order": json.loads(next(_bodies(world, "/orders")))["order"],
        "close enrolment": json.loads(next(_bodies(world, "/close")))["order"],
        "enrolment": json.loads(next(_bodies(world, "/participants")))["request"],
        "receipt": next(
            json.loads(one["answer"]["body"]["text"])["receipt"]
            for one in world.exchanges
            if one.get("method") == "PUT" and "/uploads/" in one["target"]
        ),
        "initial": base64.b64encode(INITIAL).decode(),
    }


def _bodies(world: Recording, ending: str):
    return (one["body"]["text"] for one in world.exchanges if one.get("target", "").endswith(ending))


class _Own(RequesterFile):
    """A requester's settings, whose SP is the recorded one."""

    world: Recording

    def link(self, _url: str) -> Any:
        return SimpleNamespace(open=lambda: self.world.service("sp"))


def invitation_file(world: Recording, task: str, folder: Path) -> str:
    addresses = {"kgc": "https://kgc.example:8701", "sp": "https://sp.example:8702"}
    found = SimpleNamespace(**addresses, kgc_key=world.signing.public, ca=None, insecure_test_key=True)
    own = _Own(folder, found, "", "")  # type: ignore[arg-type]
    object.__setattr__(own, "world", world)
    (path,) = write_invitations(own, world.requester, task, folder / "invitations", 1, 30.0)
    return path.read_text()


def messages_of(world: Recording, task: str) -> list[Json]:
    bodies = [base64.b64decode(part["base64"]) for one in world.exchanges for part in _binary(one)]
    memory = world.csp.store.memory(task)
    bodies += [memory[name] for name in memory]
    bodies += [bytes.fromhex(bundle) for bundle in bundles_of(world).values()]
    n, h_s = key_of(bodies)
    return [{"n": n, "h_s": h_s, **found} for found in one_of_each(bodies)]


def _binary(one: Json):
    for part in (one.get("body"), one.get("answer", {}).get("body")):
        if part is not None and "base64" in part:
            yield part


def in_one_process(**settings: Any) -> list[Json]:
    """The messages of a profile or a setting that the campaign does not have."""
    settings = {"key_bits": 1024, "max_participants": 5, "max_samples": 10, "decimals": 3, "clip": 2.0} | settings
    if settings.get("profile") != "paper":
        settings |= {"sigma": 20}
    federation = LocalFederation(insecure_test_key=True, **settings)
    bodies: list[bytes] = []
    federation.recorder.message = lambda _from, _to, body: bodies.append(body)  # type: ignore[method-assign]
    random = np.random.default_rng(2)
    updates = {f"p{i}": Update([random.normal(size=3)], 5) for i in range(3)}
    federation.round(updates, budget="30.00" if settings.get("lanes") != 0 else None)
    disk = federation.host.disk
    for role in ("sp", "csp", "kgc", "requester"):
        for kind in ("blobs", "keys"):
            blobs = disk.blobs(f"{role}/{kind}" if role != "requester" else role)
            bodies += [body for body in blobs._blobs.values() if body[:4] == b"CFLM"]
    task = federation.task or ""
    bodies += [federation.host.sp.publication(task, 1, federation.host.people["p0"].keys.who)]
    if settings.get("lanes") != 0:
        bodies += [federation.host.sp.envelope(task, 1, federation.host.people["p0"].keys.who)]
    bodies += [person.blobs.get("bundle") for person in federation.host.people.values()]
    n, h_s = key_of(bodies)
    return [{"n": n, "h_s": h_s, **found} for found in one_of_each(bodies)]


def key_of(bodies: list[bytes]) -> tuple[str, str]:
    for bundle in (ReaderBundle, PaperBundle):
        for body in bodies:
            if body[:4] == b"CFLM" and body[5] == bundle.kind:
                found = bundle.from_bytes(body, Limits.plain())
                return hex(found.n), hex(found.h_s)
    raise LookupError("no bundle was recorded")


def one_of_each(bodies: list[bytes]) -> list[Json]:
    first: dict[int, bytes] = {}
    for body in bodies:
        if body[:4] == b"CFLM":
            first.setdefault(body[5], body)
    names = {kind.kind: kind.__name__ for kind in _kinds(Message)}
    return [{"kind": kind, "name": names[kind], "bytes": first[kind].hex()} for kind in sorted(first)]


def _kinds(kind: type[Message]):
    for below in kind.__subclasses__():
        if below.kind:
            yield below
        yield from _kinds(below)


def settings_files() -> dict[str, str]:
    """As `crowdfl init` wrote them."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "campaign"
        subprocess.run([sys.executable, "-m", "crowdfl", "init", str(made)], check=True, stdout=subprocess.DEVNULL)
        return {path.parent.name: path.read_text() for path in sorted(made.glob("*/settings.toml"))}


def problems() -> list[Json]:
    named = [getattr(errors, name) for name in errors.__all__ if issubclass(getattr(errors, name), errors.CrowdFLError)]
    return [{"error": kind.__name__, "body": problem_for(kind("why")).body("a-request")} for kind in named]


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = campaign(Path(folder))
    messages = found.pop("messages") + in_one_process(profile="paper") + in_one_process(total="hidden", budget="30.00")
    kinds = {one["kind"]: one for one in reversed(messages)}
    about = {"release": __version__, "protocol": PROTOCOL}
    write(target / "campaign.json.gz", about | found)
    write(target / "messages.json.gz", about | {"messages": [kinds[kind] for kind in sorted(kinds)]})
    write(target / "problems.json.gz", about | {"problems": problems(), "settings": settings_files()})
    missing = {kind.kind for kind in _kinds(Message)} - set(kinds)
    sys.stdout.write(f"no example of the kinds {sorted(missing)}\n")


def write(path: Path, found: Json) -> None:
    path.write_bytes(gzip.compress(json.dumps(found, indent=1, sort_keys=True).encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
