"""Every case of vectors/shares_messages.json: this program makes and reads the messages that the vectors spell out."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from crowdfl import errors
from crowdfl.crypto.compute import Threads
from crowdfl.crypto.leaves import leaves_of
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.protocols.claims import (
    Beside,
    ClaimsCsp,
    ClaimsSp,
    Earned,
    RewardEnvelope,
    make_claim,
    open_reward,
)
from crowdfl.protocols.profile import ParticipantKeys, TaskSpec, Tools
from crowdfl.protocols.records import Look, MemoryRecords
from crowdfl.protocols.shares.chain import ModelChain, first_base
from crowdfl.protocols.shares.circuits.lanes import coins
from crowdfl.protocols.shares.dealing.keys import SharesReaderBundle
from crowdfl.protocols.shares.profile import SharesProfile
from crowdfl.protocols.shares.round.average import (
    PARTICIPANTS,
    REQUESTER,
    AverageReader,
    MaskedPart,
    SharesPublication,
    ShareSums,
    SumReply,
    offer_sum,
    open_sum,
    parse_record,
    publish_sum,
    sum_name,
)
from crowdfl.protocols.shares.round.manifest import (
    AcceptedSet,
    ManifestEntry,
    RoundManifest,
    RoundVerdict,
    check_manifest,
    manifest_of,
    open_seals,
)
from crowdfl.protocols.shares.round.rewards import earned_openly
from crowdfl.protocols.shares.round.upload import (
    UploadBody,
    expanded_samples,
    expanded_update,
    parse_upload,
    require_leaves,
    require_signed,
    upload_bytes,
    upload_from_seed,
)
from crowdfl.protocols.shares.shape import REWARD_MODULUS, SharesShape
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings

FOLDER = Path(__file__).parents[2] / "vectors"
VECTORS = json.loads((FOLDER / "shares_messages.json").read_text(encoding="utf-8"))
UPLOADS, AVERAGE, REWARD = VECTORS["uploads"], VECTORS["average"], VECTORS["reward"]
SHAPE = SharesShape(TaskSpec(VECTORS["task"], TaskSettings.of(**VECTORS["settings"]), len(VECTORS["initial"])))
PLACE = SHAPE.place(1, bytes.fromhex(VECTORS["base"]))
CSP = SigningKey(bytes.fromhex(VECTORS["keys"]["csp signing"]))
SEALING = ReaderKey(bytes.fromhex(VECTORS["keys"]["csp sealing"]))
AUDIENCES = {name: ReaderKey(bytes.fromhex(VECTORS["keys"][name])) for name in (PARTICIPANTS, REQUESTER)}
SIGNING = {case["who"]: SigningKey(bytes.fromhex(case["signing"])) for case in UPLOADS}
WIDER = TaskSettings.of(
    **VECTORS["settings"] | {"pay": "equal", "lanes": 1024, "max_samples": 1}
)  # a ring of 32 bits too
MEMBERS = AcceptedSet(tuple(case["who"] for case in UPLOADS))

ONCE = VECTORS["counted once"]
ONCE_SHAPE = SharesShape(replace(SHAPE.spec, settings=TaskSettings.of(**VECTORS["settings"] | ONCE["settings"])))
ROUNDS = {"by samples": (SHAPE, UPLOADS, AVERAGE), "counted once": (ONCE_SHAPE, ONCE["uploads"], ONCE["average"])}
each_round = pytest.mark.parametrize(("shape", "uploads", "average"), ROUNDS.values(), ids=ROUNDS)
each_upload = pytest.mark.parametrize("case", UPLOADS, ids=lambda case: case["who"])


def body_of(case):
    return parse_upload(bytes.fromhex(case["body"]), SHAPE, PLACE)


def test_the_task_is_the_one_of_the_vectors():
    assert (SHAPE.widths.k, SHAPE.payment) == (VECTORS["ring"], VECTORS["payment"])
    assert first_base(VECTORS["task"]).hex() == VECTORS["base"]


@pytest.mark.parametrize("case", VECTORS["leaves"], ids=lambda case: str(case["bytes"]))
def test_leaves(case):
    data = hashlib.shake_256(f"crowdfl message vectors 1: {case['label']}".encode()).digest(case["bytes"])
    assert leaves_of(data).hex() == case["leaves"]


@each_upload
def test_bodies(case):
    """Read, and made again from the same seed and salt: all but the seal, which is drawn anew each time."""
    body = body_of(case)
    require_signed(body, SIGNING[case["who"]].public, SHAPE)
    require_leaves(body)
    assert len(bytes.fromhex(case["body"])) == upload_bytes(SHAPE)
    update = np.array([int(value) * case["samples"] for value in case["change"]], dtype=np.int64)
    signing, drawn = SIGNING[case["who"]], [bytes.fromhex(case[name]) for name in ("seed", "salt")]
    made = upload_from_seed(SHAPE, PLACE, case["who"], signing, SEALING.public, update, case["samples"], *drawn)
    assert replace(made, sealed=body.sealed, signature=body.signature) == body
    assert body.to_bytes().hex() == case["body"]
    assert body.digest.hex() == case["digest"]


@each_upload
def test_csp_opens_the_seal_and_expands_its_shares(case):
    seeds = open_seals(RoundManifest.from_bytes(bytes.fromhex(VECTORS["manifest"]["message"]), SHAPE.limits()), SEALING)
    assert seeds[case["who"]].hex() == case["seed"]
    expanded = expanded_update(seeds[case["who"]], PLACE, case["who"], SHAPE.share_bytes)
    assert expanded[:].hex() == case["csp update"]
    assert expanded_samples(seeds[case["who"]], PLACE, case["who"]).to_bytes(16, "little").hex() == case["csp samples"]


@pytest.mark.parametrize("case", ONCE["uploads"], ids=lambda case: case["who"])
def test_bodies_where_everyone_counts_once(case):
    """No number of samples is in them, nor in what CSP expands."""
    shape = ONCE_SHAPE
    assert shape.widths.k == ONCE["ring"]
    body = parse_upload(bytes.fromhex(case["body"]), shape, PLACE)
    require_signed(body, SIGNING[case["who"]].public, shape)
    require_leaves(body)
    update = np.array([int(value) for value in case["change"]], dtype=np.int64)
    drawn = [bytes.fromhex(case[name]) for name in ("seed", "salt")]
    made = upload_from_seed(shape, PLACE, case["who"], SIGNING[case["who"]], SEALING.public, update, 99, *drawn)
    assert replace(made, sealed=body.sealed, signature=body.signature) == body
    assert (body.samples, len(body.to_bytes())) == (b"", upload_bytes(shape))
    assert expanded_samples(drawn[0], PLACE, case["who"], shape.count_bytes) == 0
    with pytest.raises(errors.LengthMismatch, match="samples of 0 bytes"):
        parse_upload(bytes.fromhex(case["body"]), replace(shape, spec=replace(shape.spec, settings=WIDER)), PLACE)


def test_the_manifest():
    given = VECTORS["manifest"]
    entries = {case["who"]: ManifestEntry.of(body_of(case)) for case in UPLOADS}
    manifest = manifest_of(PLACE, SHAPE.payment, entries)
    assert manifest.to_bytes().hex() == given["message"]
    check_manifest(manifest, SHAPE, {who: key.public for who, key in SIGNING.items()}, Threads(1))
    assert manifest.digest.hex() == given["digest"]
    assert coins(manifest.digest, bytes.fromhex(given["nonce"])).hex() == given["coins"]


@each_round
def test_both_servers_open_the_sum(shape, uploads, average):
    """From the same seeds of masks and the same seals: the same bytes."""
    seals = SharesPublication.from_bytes(bytes.fromhex(average["publication"]), shape.limits()).seals
    sp, csp = (
        MaskedPart(bytes.fromhex(average["t SP"]), b"", sum_name(PLACE, MEMBERS), seals[:2]),
        MaskedPart(bytes.fromhex(average["t CSP"]), b"", sum_name(PLACE, MEMBERS), seals[2:]),
    )
    theirs, ours = ShareSums(shape), ShareSums(shape)
    for case in uploads:
        theirs.add(bytes.fromhex(case["csp update"]), int.from_bytes(bytes.fromhex(case["csp samples"]), "little"))
        body = parse_upload(bytes.fromhex(case["body"]), shape, PLACE)
        ours.add(body.shares, int.from_bytes(body.samples, "little"))
    offer = offer_sum(shape, PLACE, MEMBERS, ours.result(), sp)
    assert offer.to_bytes().hex() == average["offer"]
    reply = open_sum(shape, PLACE, MEMBERS, theirs.result(), offer, csp, CSP)
    assert reply == SumReply.from_bytes(bytes.fromhex(average["reply"]), shape.limits())
    publication = publish_sum(shape, PLACE, MEMBERS, offer, sp, reply, CSP.public)
    assert publication.to_bytes().hex() == average["publication"]


@each_round
@pytest.mark.parametrize("audience", [PARTICIPANTS, REQUESTER])
def test_readers_get_the_next_model(shape, uploads, average, audience):
    start = ModelChain(0, PLACE.base, np.array([int(value) for value in VECTORS["initial"]], dtype=np.int64))
    reader = AverageReader(shape, audience, AUDIENCES[audience], CSP.public)
    opened = reader.read(bytes.fromhex(average["publication"]), 1, start)
    assert [str(value) for value in opened.chain.weights] == average["model"]
    assert (opened.total, opened.chain.base.hex()) == (average["total"], average["base"])
    assert opened.chain.to_bytes().hex() == average["chain"]
    assert opened.members.accepted == tuple(case["who"] for case in uploads)


def test_a_total_is_refused_where_everyone_counts_once():
    start = ModelChain(0, PLACE.base, np.array([int(value) for value in VECTORS["initial"]], dtype=np.int64))
    reader = AverageReader(ONCE_SHAPE, PARTICIPANTS, AUDIENCES[PARTICIPANTS], CSP.public)
    published = SharesPublication.from_bytes(bytes.fromhex(ONCE["average"]["publication"]), ONCE_SHAPE.limits())
    assert published.total == b""
    with pytest.raises(errors.LengthMismatch):
        reader.read(replace(published, total=bytes(16)).to_bytes(), 1, start)


def test_the_reward_and_its_claim():
    owner = next(case for case in UPLOADS if case["who"] == REWARD["who"])
    envelope = RewardEnvelope.from_bytes(bytes.fromhex(REWARD["envelope"]), SHAPE.limits())
    reader = ReaderKey(bytes.fromhex(owner["reading"]))
    opened = open_reward(envelope, reader, CSP.public, SHAPE.spec.context(1), owner["who"], SHAPE.reward_form)
    assert divmod(opened, REWARD_MODULUS) == (AVERAGE["total"], owner["samples"])
    amount = SHAPE.reward_form.payable(opened, SHAPE.payment)
    assert amount == REWARD["amount"] == SHAPE.payment * owner["samples"] // AVERAGE["total"]
    shown = {1: reader.open(envelope.sealed, bytes.fromhex(REWARD["context"]))}
    claim = make_claim(VECTORS["task"], owner["who"], {1: amount}, {1: envelope}, shown, SIGNING[owner["who"]])
    assert claim.to_bytes().hex() == REWARD["claim"]


class KeptPart(NamedTuple):
    """What CSP keeps of one person."""

    earned: Mapping[int, Earned]

    def reward(self, _records, round_number, _who):
        return self.earned.get(round_number)

    def shown(self, *_shown):
        return None


def test_an_equal_part_and_its_claim():
    given, settings = VECTORS["equal reward"], TaskSettings.of(**VECTORS["settings"] | {"pay": "equal"})
    owner = next(case for case in UPLOADS if case["who"] == given["who"])
    public = CSP.public, SEALING.public, AUDIENCES[PARTICIPANTS].public, AUDIENCES[REQUESTER].public
    bundle = SharesReaderBundle(*public, AUDIENCES[PARTICIPANTS].private, VECTORS["ring"]).to_bytes()
    keys = ParticipantKeys(owner["who"], SIGNING[owner["who"]], ReaderKey(bytes.fromhex(owner["reading"])))
    phone = SharesProfile().participant(replace(SHAPE.spec, settings=settings), bundle, keys, Tools.unwatched())
    assert phone.open_reward(bytes.fromhex(given["envelope"]), 1) == given["amount"]
    assert phone.claim().hex() == given["claim"]
    beside = given["beside"]
    said = Beside(tuple(beside["unused"]), bytes.fromhex(beside["destination"]), beside["counter"])
    claim = phone.claim(said)
    assert claim.hex() == beside["claim"]
    nothing = make_claim(VECTORS["task"], owner["who"], {}, {}, {}, keys.signing, said)
    assert nothing.to_bytes().hex() == beside["claim without rewards"]
    shape = SharesShape(replace(SHAPE.spec, settings=settings))
    kept = KeptPart({1: earned_openly(given["amount"], shape.payment)})
    csp = ClaimsCsp(shape.spec, shape.reward_form, CSP, {owner["who"]: keys.signing.public}, kept)
    attestation = csp.answer(Look(MemoryRecords()), claim)
    assert attestation.to_bytes().hex() == beside["attestation"]
    assert attestation.statement.hex() == beside["statement"]
    sp = ClaimsSp(shape.spec, CSP.public, {owner["who"]: keys.signing.public}, shape.reward_form.width)
    assert sp.attested(claim, attestation.to_bytes()).amounts == {1: given["amount"]}


@pytest.mark.parametrize("case", VECTORS["records"], ids=lambda case: case["name"])
def test_a_signed_record_names_reasons_by_code_alone(case):
    if "error" in case:
        with pytest.raises(getattr(errors, case["error"])):
            parse_record(bytes.fromhex(case["record"]), SHAPE, CSP.public)
    else:
        record = parse_record(bytes.fromhex(case["record"]), SHAPE, CSP.public)
        assert list(record.members.rejected.values()) == [Reason(code) for code in case["reasons"]]
        assert record.to_bytes().hex() == case["record"]


@pytest.mark.parametrize("case", VECTORS["verdicts"], ids=lambda case: case["name"])
def test_a_signed_verdict_is_void_for_a_code_alone(case):
    limits = SHAPE.limits()
    if "error" in case:
        with pytest.raises(getattr(errors, case["error"])):
            RoundVerdict.from_bytes(bytes.fromhex(case["verdict"]), limits)
    else:
        verdict = RoundVerdict.from_bytes(bytes.fromhex(case["verdict"]), limits)
        assert verdict.void == (case["void"] and Reason(case["void"]))
        assert verdict.reasons == tuple(map(Reason, case["reasons"]))
        assert verdict.to_bytes().hex() == case["verdict"]
        verify(CSP.public, verdict.statement, verdict.signature)


def test_the_vectors_have_every_reason():
    assert {code for case in VECTORS["records"] for code in case.get("reasons", ())} == {str(one) for one in Reason}


@pytest.mark.parametrize("case", VECTORS["bad"], ids=lambda case: case["name"])
def test_bodies_that_are_refused(case):
    def receive() -> UploadBody:
        body = parse_upload(bytes.fromhex(case["body"]), SHAPE, PLACE)
        require_leaves(body)
        require_signed(body, SIGNING[body.who].public, SHAPE)
        return body

    with pytest.raises(getattr(errors, case["error"])) as caught:
        receive()
    assert type(caught.value).__name__ == case["error"]
