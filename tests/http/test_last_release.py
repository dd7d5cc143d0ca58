"""One release apart: what 0.1.0 said is read or refused by name, its callers are served, and a newer caller is told to wait.

The vectors are in vectors/release-0.1.0, with the program that recorded them.
"""

import base64
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from crowdfl import errors
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.sealing import ReaderKey, SigningKey
from crowdfl.documents.signed import (
    Appointment,
    Certificate,
    Definition,
    EnrolmentRequest,
    Invitation,
    open_document,
    participant_name,
)
from crowdfl.errors import ServiceUnavailable, UnsupportedVersion, WrongProtocol
from crowdfl.protocols.messages import Limits, Message, RoundRequest
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.participant.enrolment import Enrolled
from crowdfl.roles.records import RoundState
from crowdfl.roles.sp.csp_link import replies_folder
from crowdfl.services.client.peers import SpClient
from crowdfl.services.client.transport import Bearer, Service
from crowdfl.services.http.wire import PROTOCOL, PROTOCOL_HEADER, error_from, slug_of
from crowdfl.settings import CspSettings, KgcSettings, ParticipantSettings, RequesterSettings, SpSettings
from crowdfl.storage.atomic import write_private
from crowdfl.storage.settings_file import read_file, read_service
from tests.hosts import test_tools
from tests.http.world import IMPATIENT, World

FOLDER = Path(__file__).parents[2] / "vectors" / "release-0.1.0"
CAMPAIGN, MESSAGES, PROBLEMS = (
    json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    for name in ("campaign", "messages", "problems")
)
SHORT = {"key_bits": 960, "sigma": 20, "decimals": 3, "clip": 2.0, "max_samples": 10, "max_participants": 5}
TASK, DOCUMENTS, KEYS = CAMPAIGN["task"], CAMPAIGN["documents"], CAMPAIGN["keys"]
KGC_KEY = SigningKey(bytes.fromhex(KEYS["kgc"]))
SP_KEY = SigningKey(bytes.fromhex(KEYS["sp"]))


def kinds_of(kind: type[Message]) -> dict[int, type[Message]]:
    """Every message there is today, by its kind."""
    below = [found for one in kind.__subclasses__() for found in kinds_of(one).items()]
    return dict(below) | ({kind.kind: kind} if kind.kind else {})


def raw(part: dict[str, str] | None) -> bytes:
    """A body as it was sent."""
    if part is None:
        return b""
    return part["text"].encode() if "text" in part else base64.b64decode(part["base64"])


@pytest.mark.parametrize("found", MESSAGES["messages"], ids=lambda found: found["name"])
def test_every_message_of_the_last_release_is_read(found):
    """To the same bytes again, by the class of the same name."""
    public = PublicKey(int(found["n"], 16), int(found["h_s"], 16), insecure_test_key=True)
    body, kind = bytes.fromhex(found["bytes"]), kinds_of(Message)[found["kind"]]
    assert kind.__name__ == found["name"]
    assert kind.from_bytes(body, Limits(public, 10_000)).to_bytes() == body
    with pytest.raises(UnsupportedVersion):
        kind.from_bytes(body[:4] + b"\x01" + body[5:], Limits(public, 10_000))


def test_every_document_of_the_last_release_is_read():
    """Signatures included."""
    definition = Definition.open(DOCUMENTS["definition"])
    assert (definition.task, definition.initial) == (
        TASK,
        hashlib.sha256(base64.b64decode(DOCUMENTS["initial"])).hexdigest(),
    )
    assert Appointment.open(DOCUMENTS["appointment"], KGC_KEY.public).task == TASK
    assert [Certificate.open(one, KGC_KEY.public).task for one in DOCUMENTS["certificates"]] == [TASK] * 4
    assert EnrolmentRequest.open(DOCUMENTS["enrolment"]).task == TASK
    for kind in ("order", "close enrolment"):
        assert open_document(DOCUMENTS[kind], kind, definition.requester)["task"] == TASK
    assert open_document(DOCUMENTS["receipt"], "receipt", SP_KEY.public)["round"] == 1


def test_an_invitation_file_of_the_last_release_is_read():
    """A phone that is updated between the invitation and the first round."""
    found = ParticipantSettings.parse(json.loads(DOCUMENTS["invitation file"]), "invitation-0.json")
    assert (found.task, found.sp_key) == (TASK, SP_KEY.public)
    assert Invitation.open(found.invitation, Definition.open(DOCUMENTS["definition"]).requester).task == TASK


@pytest.mark.parametrize("found", PROBLEMS["problems"], ids=lambda found: found["error"])
def test_every_problem_of_the_last_release_has_its_name_today(found):
    """A client of today raises the error that a service of 0.1.0 told, and the other way round."""
    error = error_from(found["body"]["status"], found["body"])
    assert type(error).__name__ == found["error"]
    assert found["body"]["type"].endswith(slug_of(found["error"]))
    assert issubclass(getattr(errors, found["error"]), errors.CrowdFLError)


def test_the_settings_files_of_the_last_release_are_read(tmp_path):
    """An update needs no new settings."""
    models = {"kgc": KgcSettings, "sp": SpSettings, "csp": CspSettings, "requester": RequesterSettings}
    for role, model in models.items():
        path = tmp_path / "settings.toml"
        path.write_text(PROBLEMS["settings"][role])
        found = read_file(model, path) if role == "requester" else read_service(model, path)
        assert found.insecure_test_key is False


class Replay(World):
    """Today's services with the keys and tokens of the recorded campaign, and the masks of its SP."""

    def __init__(self, folder: Path, portal: Any) -> None:
        super().__init__(folder, portal)
        self.signing, self.receipts = KGC_KEY, SP_KEY
        for service, given in CAMPAIGN["tokens"].items():
            rows = [
                {"name": role, "role": role, "sha256": hashlib.sha256(token.encode()).hexdigest()}
                for role, token in given.items()
            ]
            body = json.dumps({"version": 1, "tokens": rows}).encode()
            write_private(folder / service / "tokens.json", body, overwrite=True)
            self.tokens[service][1].update(given)
        self.restart()
        for role, bundle in CAMPAIGN["bundles"].items():
            self.kgc.bundles.put(f"{TASK}.{role}", bytes.fromhex(bundle))
        self.kgc.bundles.put(f"{TASK}.appointment", DOCUMENTS["appointment"].encode())
        self.kgc.bundles.put(f"{TASK}.dealt", b"")
        self._callers = {service: self.http(service) for service in ("kgc", "sp", "csp")}

    def continue_rounds(self) -> None:
        """As after an update in the middle of a round: SP has its seeds, and what CSP said before."""
        for number, seeds in CAMPAIGN["seeds"].items():
            for purpose, state in seeds.items():
                self.sp.store.put_seed(TASK, int(number), purpose, bytes.fromhex(state))
        for one in CAMPAIGN["exchanges"]:
            if one.get("target", "").endswith("/requests"):
                request, reply = raw(one["body"]), raw(one["answer"]["body"])
                if Message.kind_of(request) in kinds_of(RoundRequest):
                    number = _round_of(request)
                    name = f"{replies_folder(TASK, number)}/{hashlib.sha256(request).hexdigest()}"
                    self.sp.blobs.put(name, reply)

    def send(self, one: dict[str, Any]) -> httpx.Response:
        """The very request that 0.1.0 sent, at its time."""
        self.clock.time = one["at"]
        return self._callers[one["to"]].request(
            one["method"], one["target"], headers=one["headers"], content=raw(one["body"]) or None
        )


def _round_of(request: bytes) -> int:
    length = int.from_bytes(request[6:10], "big")
    return int.from_bytes(request[10 : 10 + length], "big")


def is_for_peers(one: dict[str, Any]) -> bool:
    """What servers said to each other beside the rounds: today's do that themselves."""
    return one["by"] in ("sp", "csp") and not one["target"].endswith("/requests")


def require_same_answer(one: dict[str, Any], answer: httpx.Response) -> None:
    """The same status in the caller's protocol; fields may be added, none is gone; what is sealed has the same form."""
    told, body = one["answer"], raw(one["answer"]["body"])
    assert (answer.status_code, answer.headers[PROTOCOL_HEADER]) == (told["status"], "2"), (one, answer.text)
    if body[:4] == b"CFLM":
        assert (answer.content[:6], len(answer.content)) == (body[:6], pytest.approx(len(body), abs=64))
    elif told["body"] is not None and "text" in told["body"]:
        recorded, now = json.loads(body), answer.json()
        assert set(recorded) <= set(now)
        for name in set(recorded) - {"sealed"}:
            require_grown(recorded[name], now[name])


def require_grown(recorded: object, now: object) -> None:
    """All that was recorded is there, with the same values."""
    if isinstance(recorded, dict):
        assert set(recorded) <= set(now)  # type: ignore[call-overload]
        for name, value in recorded.items():
            require_grown(value, now[name])  # type: ignore[index]
    elif isinstance(recorded, list):
        for before, after in zip(recorded, now, strict=True):  # type: ignore[call-overload]
            require_grown(before, after)
    else:
        assert now == recorded


def test_a_campaign_of_the_last_release_goes_through_todays_services(tmp_path, portal):
    """Phones, requester and bank byte for byte to SP and KGC, and its SP's requests to CSP.

    Claims carry no request's signature. Today's SP takes the recorded rounds up with the same masks and pays the same money.
    """
    world, sent = Replay(tmp_path, portal), 0
    later: list[dict[str, Any]] = []
    for one in [*CAMPAIGN["exchanges"], {"tick": True, "at": CAMPAIGN["exchanges"][-1]["at"]}]:
        if later and one.get("by") != "sp":  # its SP asked these during a tick
            for asked in later:
                require_same_answer(asked, world.send(asked))
            later.clear()
        if "tick" in one:
            world.clock.time = one["at"]
            world.run()
        elif one["by"] == "sp" and not is_for_peers(one):
            later.append(one)
        elif not is_for_peers(one):
            require_same_answer(one, world.send(one))
            sent += 1
            if (one["to"], one["target"]) == ("sp", "/v1/tasks"):
                world.continue_rounds()
    assert sent > 50
    assert [str(one.state) for one in world.sp.store.rounds(TASK)] == ["rewarded", "rewarded"]
    assert sorted(one.amount for one in world.sp.store.payments(TASK)) == sorted(CAMPAIGN["paid"])
    final = Definition.open(DOCUMENTS["definition"])
    requester = profile_named("hardened").requester(
        final.spec, bytes.fromhex(CAMPAIGN["bundles"]["requester"]), test_tools()
    )
    read = requester.read(world.sp.publication(TASK, 2, None), 2)
    assert np.allclose(read.weights, CAMPAIGN["final"])
    world.close()


def test_what_kgc_deals_to_the_last_releases_servers_and_phones_is_what_they_know(tmp_path, portal):
    """SP's and CSP's requests to KGC, byte for byte; a phone of 0.1.0 opens KGC's answer with its own key."""
    world = Replay(tmp_path, portal)
    world.send(CAMPAIGN["exchanges"][0])
    asked = [one for one in CAMPAIGN["exchanges"] if one.get("by") in ("sp", "csp") and one["to"] == "kgc"]
    for one in asked:
        require_same_answer(one, world.send(one))
    (joined, *_) = (one for one in CAMPAIGN["exchanges"] if one.get("by") == "phone" and one["to"] == "kgc")
    request = EnrolmentRequest.open(json.loads(raw(joined["body"]))["request"])
    keys = person(request.signing)
    sealed = base64.b64decode(world.send(joined).json()["sealed"])
    opened = Enrolled.open(sealed, request, keys.reader)
    assert (len(asked), opened.bundle.hex()) == (4, CAMPAIGN["bundles"]["participant"])
    world.close()


def person(signing: bytes) -> ParticipantKeys:
    """The recorded phone with this key."""
    for private, reading in KEYS["people"]:
        key = SigningKey(bytes.fromhex(private))
        if key.public == signing:
            return ParticipantKeys(participant_name(key.public), key, ReaderKey(bytes.fromhex(reading)))
    raise LookupError("nobody recorded has this key")


def old_service(version: str | None) -> httpx.BaseTransport:
    """A service that speaks another version: it refuses as 0.1.0 did."""
    (refusal,) = (found["body"] for found in PROBLEMS["problems"] if found["error"] == "WrongProtocol")
    headers = {} if version is None else {PROTOCOL_HEADER: version, "Upgrade": f"crowdfl/{version}"}
    return httpx.MockTransport(lambda _: httpx.Response(426, json=refusal, headers=headers))


@pytest.mark.parametrize("version", ["1", "2", "4", "x" * 5000, "", None])
def test_a_client_of_today_is_refused_by_name_by_any_other_protocol(version):
    """At once, saying which side is older and what to do; a header as long as a book is not repeated."""
    http = httpx.Client(transport=old_service(version), base_url="https://service")
    with http, pytest.raises(WrongProtocol) as refused:
        SpClient(Service(http, Bearer("token"), IMPATIENT)).about(TASK)
    if version in ("1", "2", "4"):
        assert f"version {version}" in str(refused.value)
        assert f"version {PROTOCOL}" in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_round_waits_for_a_csp_that_is_updated_later(world):
    """SP was updated before CSP: each try is refused by name, nothing is lost, and the round ends once CSP is updated."""
    task, people = world.open_round(**SHORT)
    for one in people:
        one.sp.upload(task, 1, one.update())
    updated, refusing = world.apps["csp"], old_service("2")

    async def answer(scope, receive, send):
        told = refusing.handle_request(httpx.Request(scope["method"], "https://csp"))
        headers = [(name.lower(), value) for name, value in told.headers.raw]
        await send({"type": "http.response.start", "status": told.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": told.content})

    world.apps["csp"] = answer
    for _ in range(3):
        with pytest.raises(ServiceUnavailable, match=r"CSP .* version 2 .* update"):
            world.run()
        assert world.sp.store.round(task, 1).state is RoundState.CLOSED
    world.apps["csp"] = updated
    world.run()
    assert world.sp.store.round(task, 1).state is RoundState.REWARDED
