"""Every case of vectors/phone_documents.json and phone_updates.json: what binds the phone's JavaScript, Python does too."""

import json
import re
import struct
from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from crowdfl import errors
from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.destination import SEALED_BYTES, Destination, checked, open_destination
from crowdfl.documents.envelope import Envelope, encode_for_signing
from crowdfl.documents.invitations import Certificate
from crowdfl.documents.signed import Appointment, ClaimsExtension, Definition, Receipt, participant_name
from crowdfl.documents.task_summary import estimate
from crowdfl.errors import CrowdFLError, SettingsError
from crowdfl.learning.models.forms import from_safetensors
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares.chain import ModelChain, rounded_quotient
from crowdfl.protocols.shares.round.upload import UpdateEncoder
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.services.client.transport import Signer
from crowdfl.services.http.wire import error_from
from crowdfl.settings import PlanSettings, TaskSettings, to_millionths
from crowdfl.web import __file__ as web_file

FOLDER = Path(__file__).parents[2] / "vectors"
PAPERS, NUMBERS = (json.loads((FOLDER / f"phone_{name}.json").read_text("utf-8")) for name in ("documents", "updates"))
KEYS = {name: SigningKey(bytes.fromhex(key)) for name, key in PAPERS["keys"].items()}
OTHERS, PAY = PAPERS["others"], PAPERS["pay"]
CLASS = re.compile(r"export class (\w+) extends (\w+) \{(.*?)\}\n", re.DOTALL)


def each(cases: list[dict]):
    return pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in cases])


@each(PAPERS["definitions"])
def test_definitions(case):
    found = Definition.open(case["text"])
    assert found.task == case["task"]
    envelope = Envelope.parse(case["text"], "definition")
    assert encode_for_signing("definition", envelope.payload).hex() == case["signed"]
    assert found.requester == KEYS["requester"].public


@each(PAPERS["bad"])
def test_definitions_that_are_refused(case):
    with pytest.raises(CrowdFLError) as caught:
        Definition.open(case["text"])
    assert type(caught.value).__name__ == case["error"]


@pytest.mark.parametrize("case", PAY["estimates"], ids=lambda case: str(case["is"]))
def test_what_one_person_may_earn(case):
    base = Definition.open(PAPERS["definitions"][0]["text"])
    found = estimate(replace(base, settings=TaskSettings(**case["settings"]), plan=PlanSettings(**case["plan"])))
    assert (None if found is None else list(astuple(found))) == case["is"]


def test_where_to_be_paid_is_signed_and_sealed_as_a_phone_does():
    key, body = ReaderKey(bytes.fromhex(PAY["payer"])), PAY["destination"]
    to = Destination(**body | {name: bytes.fromhex(body[name]) for name in ("signing", "payer")})
    assert to.sign(KEYS["participant"]) == PAY["signed"]
    sealed = seal_to(key.public, PAY["signed"].encode().ljust(1536), PAY["context"].encode())
    assert open_destination(key, sealed, to.task, to.who, int(to.counter)) == to
    assert len(to.seal(KEYS["participant"])) == len(sealed) == SEALED_BYTES


@pytest.mark.parametrize("given", PAY["destinations"], ids=str)
def test_destinations_as_they_are_written(given):
    kind, typed, written = given
    assert checked(kind, typed) == (kind, written)


@pytest.mark.parametrize("given", PAY["refused"], ids=str)
def test_what_cannot_be_a_destination(given):
    with pytest.raises(SettingsError):
        checked(*given)


@pytest.mark.parametrize("case", OTHERS["receipt"]["bad"], ids=lambda case: case["name"])
def test_receipts_that_are_refused(case):
    """By the signature, or because they are for something else than the upload."""
    fine = Receipt.open(OTHERS["receipt"]["text"], KEYS["sp"].public)
    if case["name"] in (
        "signed by another",
        "another task",
        "another kind",
        "a field more",
        "a later form",
        'round "2"',
    ):
        with pytest.raises(getattr(errors, case["error"])):
            Receipt.open(case["text"], KEYS["sp"].public)
    else:
        assert Receipt.open(case["text"], KEYS["sp"].public) != fine


def test_an_extension_of_claims_is_by_csp_and_within_the_time_to_claim():
    cases, ends = OTHERS[ClaimsExtension.kind], OTHERS["ends"]
    window = ends["claims_until"] - ends["rounds_until"]
    defined, key = SimpleNamespace(task=OTHERS["task"], claim_window=window, **ends), KEYS["csp"].public
    assert ClaimsExtension.open_of(cases["text"], defined, key).until == ends["claims_until"] + window
    for case in cases["bad"]:
        with pytest.raises(CrowdFLError) as caught:
            ClaimsExtension.open_of(case["text"], defined, key)
        assert type(caught.value).__name__ == case["error"], case["name"]


@pytest.mark.parametrize("document", [Appointment, Certificate])
def test_what_kgc_signs(document):
    cases = OTHERS[document.kind]
    assert document.open(cases["text"], KEYS["kgc"].public).task == OTHERS["task"]
    for case in cases["bad"]:
        with pytest.raises(CrowdFLError) as caught:
            document.open(case["text"], KEYS["kgc"].public)
        assert type(caught.value).__name__ == case["error"], case["name"]


def test_names_follow_from_keys():
    assert participant_name(KEYS["participant"].public) == OTHERS["who"]


def test_amounts_of_money():
    assert [str(to_millionths(text)) for text, _ in PAPERS["money"]["amounts"]] == [
        said for _, said in PAPERS["money"]["amounts"]
    ]
    for text in PAPERS["money"]["refused"]:
        with pytest.raises(SettingsError):
            to_millionths(text)


def test_problems_are_the_errors_that_services_raised():
    for case in PAPERS["problems"]:
        error = error_from(case["status"], case["problem"])
        assert (type(error).__name__, error.passes) == (case["error"], case["passes"])
        assert case.get("text", str(error)) == str(error)


def doubles(digits: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(digits), dtype="<f8")


@each(NUMBERS["updates"])
def test_updates(case):
    model = np.frombuffer(bytes.fromhex(case["model"]), dtype="<i8")
    settings = TaskSettings.of(
        profile="shares", check="none", max_samples=case["samples"], max_participants=3, **case["settings"]
    )
    encoder = UpdateEncoder(SharesShape(TaskSpec("t", settings, len(model))))
    with np.errstate(over="ignore"):
        made = encoder.encode(doubles(case["weights"]), ModelChain(0, b"", model.astype(np.int64)), case["samples"])
    assert made.astype("<i8").tobytes().hex() == case["integers"]
    scaled = None if encoder.scaled is None else struct.pack("<d", encoder.scaled).hex()
    assert (encoder.clipped, scaled) == (case["clipped"], case["scaled"])


def test_quotients():
    sums = np.array([int(value) for value in NUMBERS["quotients"]["sums"]], dtype=np.int64)
    for total in ("2", "3", "10", "999999937"):
        assert [str(value) for value in rounded_quotient(sums, int(total))] == NUMBERS["quotients"][total]


@pytest.mark.parametrize("case", NUMBERS["requests"], ids=lambda case: case["method"])
def test_signed_requests(case):
    key = SigningKey(bytes.fromhex(NUMBERS["signing"]))
    signer = Signer(participant_name(key.public), key)
    body = bytes.fromhex(case["body"])
    assert signer.headers(case["method"], case["target"], body, case["time"] + 0.9) == case["headers"]


def model_of(digits: str) -> np.ndarray:
    arrays = NUMBERS["safetensors"]["arrays"]
    shape = ModelShape(tuple(name for name, _ in arrays), tuple(tuple(sides) for _, sides in arrays))
    return shape.flat(from_safetensors(shape, bytes.fromhex(digits)))


@each(NUMBERS["safetensors"]["models"])
def test_models(case):
    assert model_of(case["file"]).tobytes().hex() == case["weights"]


@each(NUMBERS["safetensors"]["bad"])
def test_models_that_are_refused(case):
    with pytest.raises(CrowdFLError) as caught:
        model_of(case["file"])
    assert type(caught.value).__name__ == case["error"]


def test_the_phone_has_its_errors_below_the_same_kinds():
    text = (Path(web_file).parent / "phone" / "protocol" / "errors.js").read_text(encoding="utf-8")
    found = {name: (parent, "true" in body) for name, parent, body in CLASS.findall(text)}
    del (
        found["UnsupportedTask"],
        found["Forgotten"],
        found["KeysLost"],
        found["CrowdFLError"],
    )  # the phone's own, and the root
    for name, (parent, passes) in found.items():
        ours = getattr(errors, name)
        assert issubclass(ours, getattr(errors, parent)), name
        assert passes == ("passes" in vars(ours)), name
