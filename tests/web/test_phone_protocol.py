"""The phone's half of `shares` in a real browser, against the halves of KGC, SP and CSP that the services run."""

import hashlib
from base64 import b64decode, b64encode
from pathlib import Path

import numpy as np
import pytest

import crowdfl.web
from crowdfl.crypto.sealing import AudienceKey, ReaderKey, SigningKey, commit, seal_to, verify
from crowdfl.documents.signed import Appointment, Certificate, Definition, EnrolmentRequest, sign_document
from crowdfl.learning.models.forms import to_safetensors
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.claims import ClaimsSp, RewardEnvelope, reward_context, reward_statement
from crowdfl.protocols.profile import Identity, ParticipantKeys, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle
from crowdfl.protocols.shares.round.average import (
    PARTICIPANTS,
    REQUESTER,
    AverageCoins,
    ShareSums,
    open_sum,
    publish_sum,
)
from crowdfl.protocols.shares.round.manifest import AcceptedSet
from crowdfl.protocols.shares.round.upload import (
    UpdateEncoder,
    expanded_samples,
    expanded_update,
    open_seed,
    parse_upload,
    require_signed,
)
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.roles.participant.enrolment import Enrolled
from crowdfl.services.http.wire import signed_text
from crowdfl.settings import TaskSettings
from tests.web.pages import served

PROTOCOL = Path(crowdfl.web.__file__).parent / "phone" / "protocol"
PAGE = """<!doctype html><html lang="en"><head><title>Test</title><script type="module" src="/join/test.js"></script></head>
<body></body></html>"""
SCRIPT = """
import * as bytes from "./protocol/bytes.js";
const parts = "average bundle chain documents enrolment keys request rewards safetensors settings upload".split(" ");
const modules = await Promise.all(parts.map((name) => import(`./protocol/${name}.js`)));
window.p = Object.assign({}, bytes, ...modules);
const opened = new Promise((done) => {
  const asked = indexedDB.open("keys", 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore("keys");
  asked.onsuccess = () => done(asked.result);
});
const within = async (work) => {
  const transaction = (await opened).transaction("keys", "readwrite");
  const asked = work(transaction.objectStore("keys"));
  return new Promise((done) => { transaction.oncomplete = () => done(asked.result); });
};
window.keep = (value) => within((store) => store.put(value, "keys"));
window.kept = () => within((store) => store.get("keys"));
document.documentElement.className = "ready";
"""
INVITATION = "an invitation"
UPLOAD = (
    "async ([weights, samples]) => p.base64((await p.makeUpload(task, bundle, keys, chain, weights, samples, 1)).bytes)"
)
READ = """async (publication) => {
  const read = await p.readPublication(task, bundle, chain, p.fromBase64(publication), 1);
  return [p.base64(p.chainToBytes(read.chain)), read.total, p.standing(read, keys.who)];
}"""
JOIN = """async ([papers, sealed, initial]) => {
  window.task = p.sharesTask(await p.openDefinition(papers.definition));
  const kgcKey = p.fromBase64(papers.kgc);
  const enrolled = await p.openEnrolled(p.fromBase64(sealed), info, keys, kgcKey);
  window.bundle = await p.openBundle(enrolled.bundle);
  p.requireKey(await p.openAppointment(papers.appointment, kgcKey), bundle.fingerprint);
  window.chain = await p.startChain(task, p.readSafetensors(p.fromBase64(initial), task.shape));
  return [task.task, bundle.ringBits];
}"""


def text64(data: bytes) -> str:
    return b64encode(data).decode()


class Platform:
    """KGC, SP and CSP of one round, in Python: each step is the one that a service does."""

    def __init__(self) -> None:
        self.kgc, self.sp, requester = SigningKey.fresh(), SigningKey.fresh(), SigningKey.fresh()
        self.initial = [np.linspace(-1, 1, 60).reshape(20, 3), np.full(3, 0.123456789)]
        settings = TaskSettings.of(profile="shares", clip=2.0, max_norm=5.0, max_participants=5, budget="9.00")
        shape = ModelShape(("weight", "bias"), ((20, 3), (3,)))
        self.weights = to_safetensors(shape, self.initial)
        digest, training = (
            hashlib.sha256(self.weights).hexdigest(),
            {"rate": 1e-05, "labels": ["sitting", "g\u00e9\U0001f600"]},
        )
        self.definition = Definition(
            "p\u00fcrpose", "terms", "readers", shape, digest, settings, 604800.0, requester.public, training
        )
        self.definition_text = self.definition.sign(requester)
        self.spec = self.definition.spec
        self.shape = SharesShape(self.spec)
        self.dealing = profile_named("shares").deal(self.spec, insecure_test_key=False)
        self.csp = SharesCspBundle.from_bytes(self.dealing.csp, self.shape.limits())
        self.start = ModelChain.start(self.spec.name, shape.flat(self.initial), self.shape.widths.unit)
        self.place = self.shape.place(1, self.start.base)

    def papers(self) -> dict[str, str]:
        appointment = Appointment(self.spec.name, self.dealing.fingerprint.hex()).sign(self.kgc)
        return {"definition": self.definition_text, "appointment": appointment, "kgc": text64(self.kgc.public)}

    def enrol(self, text: str) -> tuple[Identity, str]:
        request = EnrolmentRequest.open(text)
        request.require(self.spec.name, INVITATION)
        who = hashlib.sha256(b"crowdfl participant 1" + request.signing).hexdigest()[:20]
        identity = Identity(who, request.signing, request.reading)
        certificate = Certificate(self.spec.name, identity).sign(self.kgc)
        return identity, text64(Enrolled(certificate, self.dealing.participant).seal(request))

    def opened(self, upload: bytes, key: bytes) -> tuple[bytes, int, bytes, int]:
        """SP's shares and CSP's, once both have checked what they check."""
        body = parse_upload(upload, self.shape, self.place)
        require_signed(body, key)
        seed = open_seed(ReaderKey(self.csp.sealing), self.place, body.who, body.digest, body.sealed)
        theirs = expanded_update(seed, self.place, body.who, self.shape.share_bytes)
        samples = int.from_bytes(body.samples, "little")
        return body.shares, samples, theirs, expanded_samples(seed, self.place, body.who)

    def publish(self, uploads: dict[str, bytes], keys: dict[str, bytes]) -> bytes:
        ours, theirs = ShareSums(self.shape), ShareSums(self.shape)
        for who, upload in uploads.items():
            shares, samples, others, counted = self.opened(upload, keys[who])
            ours.add(shares, samples)
            theirs.add(others, counted)
        members, signing = AcceptedSet(tuple(sorted(uploads))), SigningKey(self.csp.signing)
        audiences = {PARTICIPANTS: AudienceKey(self.csp.participants), REQUESTER: AudienceKey(self.csp.requester)}
        coins = AverageCoins.of(bytes(range(32)))
        reply = open_sum(self.shape, self.place, members, theirs.result(), coins, audiences, signing)
        return publish_sum(self.shape, self.place, members, ours.result(), reply, self.csp.csp_signing).to_bytes()

    def reward(self, identity: Identity, amount: int) -> bytes:
        mask, salt, context = 2**127 + 5, bytes(32), self.spec.context(1)
        v = ((amount + mask) % 2**128).to_bytes(16, "big")
        statement = reward_statement(context, identity.who, commit(mask, salt), v)
        sealed = v + SigningKey(self.csp.signing).sign(statement)
        place = reward_context(context, identity.who)
        return RewardEnvelope(mask, salt, seal_to(identity.reading, sealed, place)).to_bytes()


@pytest.fixture
def joined(phone, tmp_path):
    """A page that has enrolled, and the platform that it enrolled with."""
    files = {f"/join/protocol/{path.name}": path.read_text("utf-8") for path in PROTOCOL.glob("*.js")}
    with served(tmp_path, files | {"/join/": PAGE, "/join/test.js": SCRIPT}) as address:
        platform = Platform()
        phone.goto(f"{address}/join/")
        phone.wait_for_selector("html.ready")
        request = phone.evaluate(
            "async ([task, invitation]) => { window.keys = await p.newKeys();"
            " window.info = await p.enrolmentRequest(task, invitation, keys); return info.request; }",
            [platform.spec.name, INVITATION],
        )
        identity, sealed = platform.enrol(request)
        found = phone.evaluate(JOIN, [platform.papers(), sealed, text64(platform.weights)])
        assert found == [platform.spec.name, platform.shape.widths.k]
        yield phone, platform, identity


def trained(platform: Platform, index: int) -> np.ndarray:
    flat = platform.definition.shape.flat(platform.initial)
    return flat + np.random.default_rng(index).normal(0, 0.4 * index, len(flat))


def upload_of(page, weights: np.ndarray, samples: int) -> bytes:
    made = page.evaluate(
        UPLOAD.replace("weights, samples, 1", "Float64Array.from(weights), samples, 1"), [weights.tolist(), samples]
    )
    return b64decode(made)


@pytest.mark.parametrize("index", [1, 3], ids=["small", "scaled down"])
def test_servers_read_the_browsers_upload(joined, index):
    """The shares of both add up to what Python would have shared of the same model."""
    page, platform, identity = joined
    weights = trained(platform, index)
    shares, samples, theirs, counted = platform.opened(upload_of(page, weights, 77), identity.signing)
    ring = platform.shape.ring
    added = ring.signed(ring.eights(shares) + ring.eights(theirs))
    encoder = UpdateEncoder(platform.shape)
    assert np.array_equal(added, encoder.encode(weights, platform.start, 77))
    assert (encoder.scaled is not None) is (index == 3)
    assert (samples + counted) % 2**128 == 77


def test_browser_and_python_participants_read_the_same_model(joined):
    page, platform, identity = joined
    people = [ParticipantKeys(f"{i:020x}", SigningKey.fresh(), ReaderKey.fresh()) for i in (1, 2)]
    sides = [
        profile_named("shares").participant(platform.spec, platform.dealing.participant, one, Tools.unwatched())
        for one in people
    ]
    for side in sides:
        side.resume(None, platform.definition.shape.flat(platform.initial))
    uploads = {
        one.who: side.encrypt_update(trained(platform, 1), 5, 1) for one, side in zip(people, sides, strict=True)
    }
    uploads[identity.who] = upload_of(page, trained(platform, 2), 9)
    keys = {one.who: one.signing.public for one in people} | {identity.who: identity.signing}
    publication = platform.publish(uploads, keys)
    chain, total, standing = page.evaluate(READ, text64(publication))
    read = sides[0].read(publication, 1)
    assert b64decode(chain) == sides[0].chain()
    assert (total, standing, read.total) == (19, None, 19)


def test_a_reward_is_opened_and_claimed(joined):
    page, platform, identity = joined
    envelope = text64(platform.reward(identity, 2_500_000))
    amount, claim = page.evaluate(
        "async (envelope) => { const one = { round: 1, envelope: p.fromBase64(envelope) };"
        " return [String(await p.openReward(task, bundle, keys, one.envelope, 1)),"
        " p.base64(await p.makeClaim(task, keys, [one], bundle))]; }",
        envelope,
    )
    known = {identity.who: identity.signing}
    books = ClaimsSp(platform.spec.name, platform.csp.csp_signing, known, platform.shape.limits())
    assert (amount, books.check(b64decode(claim)).by_round) == ("2500000", {1: 2_500_000})


def test_receipts_are_checked(joined):
    page, platform, identity = joined
    body = {
        "task": platform.spec.name,
        "round": 1,
        "who": identity.who,
        "digest": hashlib.sha256(b"upload").hexdigest(),
    }
    receipt = sign_document("receipt", body | {"late": True}, platform.sp)
    check = (
        "async ([receipt, key, round]) => p.checkReceipt(receipt, p.fromBase64(key),"
        " { task: task.task, round, who: keys.who, upload: p.utf8('upload') }).catch((error) => error.name)"
    )
    assert page.evaluate(check, [receipt, text64(platform.sp.public), 1]) is True
    assert page.evaluate(check, [receipt, text64(platform.sp.public), 2]) == "DocumentError"
    assert page.evaluate(check, [receipt, text64(platform.kgc.public), 1]) == "BadSignature"


def test_keys_outlive_the_page_and_still_cannot_be_exported(joined):
    page, _, identity = joined
    page.evaluate("async () => { await keep(keys); }")
    page.reload()
    page.wait_for_selector("html.ready")
    headers = page.evaluate(
        "async () => { window.keys = await kept();"
        " return p.signedHeaders(keys, 'GET', '/v1/x?y=1', p.utf8('body'), 1790000000.5); }"
    )
    digest = hashlib.sha256(b"body").hexdigest()
    start = f'CrowdFL who="{identity.who}", time="1790000000", signature="'
    assert headers["X-Content-SHA256"] == digest
    assert headers["Authorization"].startswith(start)
    signature = bytes.fromhex(headers["Authorization"].removeprefix(start).removesuffix('"'))
    verify(identity.signing, signed_text("GET", "/v1/x?y=1", "1790000000", digest), signature)
    exported = (
        "async (key) => crypto.subtle.exportKey('pkcs8', keys[key].privateKey).then(() => 'exported', () => 'refused')"
    )
    assert [page.evaluate(exported, key) for key in ("signing", "reading")] == ["refused", "refused"]
