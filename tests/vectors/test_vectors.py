"""Every case of vectors/, good and bad. The files come from plain arithmetic, not from the code under test."""

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from gmpy2 import mpz

from crowdfl import errors
from crowdfl.crypto import blocks
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.pctd import Ciphertext, KeyShare, PartialDecryption, PrivateKey, PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector, combine, signed_values
from crowdfl.crypto.public_coins import public_permutation, public_stream
from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.invitations import EnrolmentRequest, Invitation, Ticket, admitted
from crowdfl.documents.signed import participant_name
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.roles.participant.enrolment import Enrolled

FOLDER = Path(__file__).parents[2] / "vectors"
PCTD, PACKING, FORM, PERMUTATION, ENROLMENT = (
    json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("pctd", "packing", "vector_form", "permutation", "enrolment")
)


def number(text: str) -> mpz:
    return mpz(text, 16)


def public_of(case: dict) -> PublicKey:
    return PublicKey(number(case["n"]), number(case["h_s"]), insecure_test_key=case["bits"] < 2048)


def named(case: dict) -> type[Exception]:
    return getattr(errors, case["error"])


def each(cases: list[dict], *fields: str):
    """One test for each case, under its own name."""
    rows = [pytest.param(case, id=" ".join(str(case[f]) for f in fields), marks=marks_of(case)) for case in cases]
    return pytest.mark.parametrize("case", rows)


def each_of_keys(group: str):
    """One test for each case in a group of each key."""
    rows = [
        pytest.param(key, case, id=f"{key['name']} {i}", marks=marks_of(key))
        for key in PCTD["keys"]
        for i, case in enumerate(key[group])
    ]
    return pytest.mark.parametrize(("key", "case"), rows)


def marks_of(case: dict) -> list[pytest.MarkDecorator]:
    """Cases with a key of real length are marked."""
    return [pytest.mark.realkey] if case.get("bits", 0) == 2048 or case.get("key") == "real" else []


def test_a_key_of_real_length_is_among_the_vectors():
    """One test key and one of 2048 bits, each with every kind of case."""
    assert [key["bits"] for key in PCTD["keys"]] == [128, 2048]
    for key in PCTD["keys"]:
        assert number(key["n"]).bit_length() == key["bits"]
        assert all(key[group] for group in ("encryptions", "sums", "differences", "products", "bad"))


def generator(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def differences(found, wanted, near: float, place=""):
    """Where two documents differ: numbers with a fraction by more than `near`, all else at all."""
    if isinstance(found, dict) and isinstance(wanted, dict) and found.keys() == wanted.keys():
        return [one for key in wanted for one in differences(found[key], wanted[key], near, f"{place}/{key}")]
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        pairs = enumerate(zip(found, wanted, strict=True))
        return [one for at, (left, right) in pairs for one in differences(left, right, near, f"{place}/{at}")]
    if isinstance(found, float) and isinstance(wanted, float):
        return [] if math.isclose(found, wanted, rel_tol=1e-9, abs_tol=near) else [place]
    return [] if type(found) is type(wanted) and found == wanted else [place]


@pytest.mark.second
@pytest.mark.realkey
def test_the_generators_write_the_same_files():
    """And no others: to the byte, or within the tolerance that a generator of computed floats states."""
    modules = [generator(script) for script in FOLDER.glob("generate*.py")]
    made = {name: (text, module) for module in modules for name, text in module.documents().items()}
    assert made.keys() == {path.name for path in FOLDER.glob("*.json")}
    for name, (text, module) in made.items():
        written = (FOLDER / name).read_text(encoding="utf-8")
        if near := getattr(module, "TOLERANCE", None):
            assert differences(json.loads(text), json.loads(written), near) == []
        else:
            assert text == written


@pytest.mark.parametrize(
    ("found", "wanted", "places"),
    [
        ([1.0, 2.0], [1.0, 2.0000001], []),
        ([1.0, 2.0], [1.0, 2.001], ["/1"]),
        ({"a": [1]}, {"a": [2]}, ["/a/0"]),
        ({"a": 1}, {"b": 1}, [""]),
        ([1], [1.0], ["/0"]),
        ([1, 2], [1], [""]),
        (["1.0"], ["1.00"], ["/0"]),
    ],
)
def test_differences_are_seen(found, wanted, places):
    assert differences(found, wanted, 2e-6) == places


@each(PCTD["keys"], "name")
def test_keys(case):
    """The numbers form a key, have the fingerprint, and the shares add up."""
    public = public_of(case)
    p, q = number(case["p"]), number(case["q"])
    assert p * q == public.n
    assert public.bits == case["bits"]
    assert public.fingerprint.hex() == case["fingerprint"]
    private = PrivateKey(public, number(case["lambda"]), number(case["u"]))
    assert private.lambda_ == (p - 1) * (q - 1)
    total = number(case["lambda_1"]) + number(case["lambda_2"])
    assert (total % private.lambda_, total % public.n) == (0, 1)


@each_of_keys("encryptions")
def test_encryptions(key, case):
    public = public_of(key)
    m, c = int(case["plaintext"]), public.ciphertext(number(case["ciphertext"]))
    assert pow(public.h_s, number(case["exponent"]), public.n_squared) == number(case["randomizer"])
    assert public.encrypt(m, randomizer=number(case["randomizer"])) == c
    assert PrivateKey(public, number(key["lambda"]), number(key["u"])).decrypt(c) == m
    partials = [KeyShare(public, number(key[share])).partial_decrypt(c) for share in ("lambda_1", "lambda_2")]
    assert [partial.value for partial in partials] == [number(case["partial_1"]), number(case["partial_2"])]
    assert pctd.combine(*partials) == m


@each(PCTD["keys"], "name")
def test_encryptions_as_vectors(case):
    public, rows = public_of(case), case["encryptions"]

    def column(name: str) -> blocks.Block:
        return blocks.from_ints([number(row[name]) for row in rows], public.ciphertext_bytes)

    ciphertexts = CipherVector(public, column("ciphertext"))
    first = ciphertexts.partial_decrypt(KeyShare(public, number(case["lambda_1"])))
    second = ciphertexts.partial_decrypt(KeyShare(public, number(case["lambda_2"])))
    assert first == PartialVector(public, column("partial_1"))
    assert second == PartialVector(public, column("partial_2"))
    assert signed_values(combine(first, second), public) == [int(row["plaintext"]) for row in rows]


@pytest.mark.parametrize("group", ["sums", "differences"])
@each(PCTD["keys"], "name")
def test_sums_and_differences(case, group):
    public = public_of(case)
    private = PrivateKey(public, number(case["lambda"]), number(case["u"]))
    inputs = [public.ciphertext(number(row["ciphertext"])) for row in case["encryptions"]]
    for row in case[group]:
        left, right = inputs[row["left"]], inputs[row["right"]]
        result = left + right if group == "sums" else left - right
        assert result.value == number(row["ciphertext"])
        assert private.decrypt(result) == int(row["plaintext"])


@each(PCTD["keys"], "name")
def test_scalar_products(case):
    public = public_of(case)
    private = PrivateKey(public, number(case["lambda"]), number(case["u"]))
    for row in case["products"]:
        factor = public.ciphertext(number(case["encryptions"][row["index"]]["ciphertext"]))
        result = factor * int(row["scalar"])
        assert result.value == number(row["ciphertext"])
        assert private.decrypt(result) == int(row["plaintext"])


@each_of_keys("bad")
def test_bad_steps(key, case):
    public = public_of(key)

    def partial(index: int, share: int) -> PartialDecryption:
        return PartialDecryption(number(key["encryptions"][index][f"partial_{share}"]), public)

    steps = {
        "encrypt": lambda: public.encrypt(int(case["plaintext"])),
        "scale": lambda: Ciphertext(mpz(1), public) * int(case["scalar"]),
        "receive": lambda: public.ciphertext(number(case["ciphertext"])),
        "combine": lambda: pctd.combine(*(partial(*which) for which in case["partials"])),
    }
    with pytest.raises(named(case)) as caught:
        steps[case["step"]]()
    assert caught.type is named(case)


@each(PACKING["good"], "slots", "slot_bits")
def test_packings(case):
    packing = Packing(number(case["n"]), case["slots"], case["slot_bits"])
    values, residues = [int(v) for v in case["values"]], [number(r) for r in case["residues"]]
    assert blocks.to_ints(packing.pack_wide(values)) == residues
    block = blocks.from_ints(residues, blocks.width_of(packing.n))
    assert packing.unpack_wide(block, len(values)) == values
    if case["slot_bits"] <= 64:
        assert blocks.to_ints(packing.pack(np.array(values, dtype=np.int64))) == residues
        assert packing.unpack(block, len(values)).tolist() == values


@each(PACKING["bad"], "step", "slots", "slot_bits", "error")
def test_bad_packings(case):

    def attempt() -> None:
        packing = Packing(number(case["n"]), case["slots"], case["slot_bits"])
        assert case["step"] != "shape", "the shape was taken"
        if case["step"] == "pack":
            packing.pack_wide([int(v) for v in case["values"]])
        else:
            packing.unpack_wide(blocks.from_ints([number(r) for r in case["residues"]], 16), case["slots"])

    with pytest.raises(named(case)) as caught:
        attempt()
    assert caught.type is named(case)


READERS = {1: CipherVector, 2: PartialVector}


@each(FORM["good"], "name")
def test_good_forms(case):
    public, data = public_of(FORM["keys"][case["key"]]), bytes.fromhex(case["bytes"])
    assert public.fingerprint.hex() == FORM["keys"][case["key"]]["fingerprint"]
    vector = READERS[case["kind"]].from_bytes(data, public, max_count=3)
    assert blocks.to_ints(vector.block) == [number(c) for c in case["numbers"]]
    assert vector.to_bytes() == data


@each(FORM["bad"], "name")
def test_bad_forms(case):
    public, data, kind = public_of(FORM["keys"]["small"]), bytes.fromhex(case["bytes"]), case["kind"]
    with pytest.raises(named(case)) as caught:
        READERS[kind].from_bytes(data, public, max_count=FORM["max_count"])
    assert caught.type is named(case)


@each(PERMUTATION["cases"], "purpose", "count")
def test_permutations(case):
    seed = bytes.fromhex(case["seed"])
    assert public_stream(seed, case["purpose"], 32).hex() == case["stream"]
    assert public_permutation(seed, case["purpose"], case["count"]).tolist() == case["order"]


def test_every_kind_of_refusal_has_a_vector():
    """The errors that another implementation has to tell apart."""
    bad = [*FORM["bad"], *PACKING["bad"], *(case for key in PCTD["keys"] for case in key["bad"])]
    assert {case["error"] for case in bad} == {
        "CiphertextOutOfRange",
        "FormatError",
        "KeyMismatch",
        "LimitExceeded",
        "NotAUnit",
        "PlaintextOutOfRange",
        "SharesDoNotMatch",
        "SlotOverflow",
        "TrailingBytes",
        "Truncated",
        "UnsupportedVersion",
        "WidthError",
    }


def enrolling() -> tuple[ParticipantKeys, EnrolmentRequest]:
    """Whoever asks in the vectors, and what it asks."""
    signing, reader = (bytes.fromhex(ENROLMENT["private"][name]) for name in ("signing", "reading"))
    key = SigningKey(signing)
    keys = ParticipantKeys(participant_name(key.public), key, ReaderKey(reader))
    return keys, EnrolmentRequest.make(Ticket.parse(ENROLMENT["ticket"]), keys)


def invited() -> Invitation:
    return Invitation.read(Envelope.parse(ENROLMENT["invitation"], Invitation.kind))


def test_a_request_to_enrol_is_the_one_of_the_vectors():
    keys, request = enrolling()
    assert keys.who == ENROLMENT["who"]
    ticket = Ticket.parse(ENROLMENT["ticket"])
    assert (ticket.invitation, ticket.text) == (ENROLMENT["invitation"], ENROLMENT["ticket"])
    assert request.sign(ticket.key) == ENROLMENT["request"]
    assert EnrolmentRequest.open_under(ENROLMENT["request"], invited()) == request
    assert request.context.decode() == ENROLMENT["context"]


def test_kgc_s_answer_holds_what_the_vectors_say():
    keys, request = enrolling()
    expected = Enrolled(ENROLMENT["certificate"], bytes.fromhex(ENROLMENT["bundle"]))
    context, opened = ENROLMENT["context"].encode(), bytes.fromhex(ENROLMENT["opened"])
    assert Enrolled.open(seal_to(keys.reader.public, opened, context), request, keys.reader) == expected
    assert keys.reader.open(expected.seal(request), context) == opened


@each(ENROLMENT["bad"], "name")
def test_bad_requests_to_enrol_are_refused(case):
    with pytest.raises(named(case)):
        EnrolmentRequest.open_under(case["request"], invited())


def admitted_by(certificate: str) -> str:
    signers = (bytes.fromhex(ENROLMENT[name]) for name in ("requester", "recruiter"))
    definition = SimpleNamespace(task=ENROLMENT["task"], **dict(zip(("requester", "recruiter"), signers, strict=True)))
    return admitted(certificate, bytes.fromhex(ENROLMENT["kgc"]), definition).identity.who  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["certificate", "recruited"])
def test_a_certificate_lets_in_whom_the_vectors_name(name):
    assert admitted_by(ENROLMENT[name]) == ENROLMENT["who"]


@each(ENROLMENT["bad certificates"], "name")
def test_bad_certificates_let_nobody_in(case):
    with pytest.raises(named(case)):
        admitted_by(case["certificate"])


@each(ENROLMENT["cut short"], "opened")
def test_answers_to_a_request_that_end_early_are_refused(case):
    keys, request = enrolling()
    sealed = seal_to(keys.reader.public, bytes.fromhex(case["opened"]), ENROLMENT["context"].encode())
    with pytest.raises(named(case)):
        Enrolled.open(sealed, request, keys.reader)
