"""A campaign over TLS on loopback: three services, a requester, three participants, from the definition to the claims."""

import contextlib
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import Forbidden, NotReady
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.protocols.registry import PROFILES
from crowdfl.roles.documents import Invitation, open_document, participant_name
from crowdfl.roles.kgc import enrolment_context
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Credential, Link, Owner, Signer
from crowdfl.services.clock import SystemClock
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Tokens
from crowdfl.services.run import open_csp, open_kgc, open_sp, signing_key
from crowdfl.services.server import running
from crowdfl.settings import CspSettings, KgcSettings, PeerSettings, SpSettings
from crowdfl.storage.atomic import write_private
from crowdfl.storage.blobs import FileBlobs
from tests.http.world import DEPOSIT, INITIAL, TOOLS, definition_of

PAID = 36_000_000


@dataclass
class Platform:
    """Three services on loopback."""

    urls: dict[str, str]
    ca: Path
    tokens: dict[str, str]
    closing: contextlib.ExitStack

    def connect(self, name: str, credential: Credential | None = None):
        """One of them, called with a credential."""
        service = Link(self.urls[name], self.ca).open(credential)
        self.closing.callback(service.close)
        return service


@pytest.fixture
def platform(tmp_path) -> Iterator[Platform]:
    """KGC, CSP and SP, each with its folder, certificate and tokens."""
    ca = tls.make_ca(tmp_path)
    tokens: dict[str, str] = {}

    def prepare(name, roles):
        (tmp_path / name).mkdir(mode=0o700)
        for role in roles:
            tokens[f"{name} for {role}"] = Tokens(tmp_path / name / "tokens.json").add(role, role)
        files = tls.make_server_certificate(tmp_path, ca, name)
        return {
            "data": tmp_path / name,
            "host": "127.0.0.1",
            "port": 0,
            "certificate": files.certificate,
            "key": files.key,
            "ca": ca.certificate,
            "insecure_test_key": True,
        }

    def peer(url, given, role):
        path = tmp_path / role / f"{given}.token"
        write_private(path, tokens[f"{given} for {role}"].encode())
        return PeerSettings(url=url, token=path)

    with contextlib.ExitStack() as stack:

        def serve(open_app, given):
            return stack.enter_context(running(open_app(given), given))

        kgc = serve(open_kgc, KgcSettings(**prepare("kgc", ("requester", "sp", "csp"))))
        key = signing_key(tmp_path / "kgc" / "signing.key").public
        settings = prepare("csp", ("sp",))
        csp = serve(open_csp, CspSettings(**settings, kgc=peer(kgc, "kgc", "csp"), kgc_key=key))
        settings = prepare("sp", ("requester",)) | {"kgc": peer(kgc, "kgc", "sp"), "csp": peer(csp, "csp", "sp")}
        sp = serve(open_sp, SpSettings(**settings, kgc_key=key, tick_seconds=0.05))
        with contextlib.ExitStack() as closing:
            yield Platform({"kgc": kgc, "csp": csp, "sp": sp}, ca.certificate, tokens, closing)


def wait_for(read):
    """What is not there yet."""
    until = time.monotonic() + 40
    while time.monotonic() < until:
        try:
            return read()
        except NotReady:
            time.sleep(0.05)
    raise AssertionError("it never came")


def test_a_campaign_over_tls_ends_with_the_model_and_paid_claims(platform):
    """Define, fund, invite, train, average, reward, claim: every byte through HTTPS, every party with its own credential."""
    requester = SigningKey.fresh()
    definition = definition_of(requester)
    signed, task = definition.sign(requester), definition.task
    kgc = KgcClient(platform.connect("kgc", Owner(platform.tokens["kgc for requester"], requester)))
    sp = SpClient(platform.connect("sp", Owner(platform.tokens["sp for requester"], requester)))
    made = kgc.create_task(signed)
    assert sp.create_task(signed, made.appointment, INITIAL) == task == made.task
    kgc.done(task)
    sp.deposit(task, "first", DEPOSIT)
    sp.deposit(task, "first", DEPOSIT)  # a retry is the same deposit

    people = []
    for number in range(3):
        keys = ParticipantKeys.fresh("unnamed")
        keys = ParticipantKeys(participant_name(keys.signing.public), keys.signing, keys.reader)
        invitation = Invitation(task, str(number), time.time() + 60).sign(requester)
        open_kgc_client = KgcClient(platform.connect("kgc"))
        enrolled = open_kgc_client.enrol(task, invitation, keys.signing.public, keys.reader.public)
        bundle = keys.reader.open(enrolled.sealed, enrolment_context(task, keys.who))
        mine = SpClient(platform.connect("sp", Signer(keys.who, keys.signing)))
        assert mine.enrol(task, enrolled.certificate) == keys.who
        people.append((PROFILES["hardened"].participant(definition.about, bundle, keys, TOOLS), mine))

    wait_for(lambda: _open(sp, task))
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=12) for _ in people]
    for index, ((side, mine), update) in enumerate(zip(people, weights, strict=True)):
        upload = side.encrypt_update(update, 10)
        send = mine.upload_in_pieces if index == 1 else mine.upload
        receipt = open_document(send(task, 1, upload), "receipt", mine.key())
        assert receipt["digest"] == hashlib.sha256(upload).hexdigest()

    rewards = [side.open_reward(wait_for(partial(mine.reward, task, 1)), 1) for side, mine in people]
    assert PAID - 3 <= sum(rewards) <= PAID
    reader = PROFILES["hardened"].requester(definition.about, made.bundle, TOOLS)
    average = reader.read(wait_for(lambda: sp.average(task, 1)), 1)
    assert np.allclose(average.weights, np.mean(weights, axis=0), atol=1e-5)

    claims = [wait_for(partial(mine.claim, task, side.claim())) for side, mine in people]
    assert claims == rewards
    assert people[0][1].claim(task, people[0][0].claim()) == rewards[0]  # a repeat is answered, and paid once
    books = sp.ledger(task)
    assert books["balances"]["rewards"] == PAID  # the requester does not see it shrink, claim by claim
    assert not [movement for movement in books["movements"] if movement["name"].startswith("pay")]


def _open(sp: SpClient, task: str) -> None:
    if not sp.about(task)["status"]["rounds"]:
        raise NotReady("no round is open")


def test_requesters_share_a_service_and_none_reads_anothers_books(platform, tmp_path):
    """Both hold a token; each opens the task that its own key defined, and no other."""
    requesters = []
    for name in ("one", "two"):
        blobs = FileBlobs(tmp_path / name)
        given = own_key(blobs)
        links = [
            kind(
                Link(platform.urls[service], platform.ca).as_requester(
                    platform.tokens[f"{service} for requester"], given
                )
            )
            for kind, service in ((KgcClient, "kgc"), (SpClient, "sp"))
        ]
        for link in links:
            platform.closing.callback(link.close)
        requesters.append(Requester(blobs, SystemClock(), *links, TOOLS))
    first, second = requesters
    task = first.create(definition_of(first.signing), [np.zeros((3, 4))])
    first.fund(task, DEPOSIT, "first")
    assert first.report(task)["paid_in"] == DEPOSIT
    first.order(task, "pause")
    first.close_enrolment(task)
    for act in (
        lambda: second.report(task),
        lambda: second.fund(task, 1),
        lambda: second.sp.final(task, 1),
        lambda: second.order(task, "resume"),
        lambda: second.kgc.done(task),
    ):
        with pytest.raises(Forbidden):
            act()
    assert first.sp.status(task)["state"] == "paused"
    assert first.report(task)["paid_in"] == DEPOSIT
