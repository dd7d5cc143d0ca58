"""Whatever is not an upload of this task, round, model and participant is refused by name, and harms nobody else."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    AlreadyCounted,
    BadSignature,
    DealtMaterialDamaged,
    DocumentError,
    FormatError,
    KeyMismatch,
    LengthMismatch,
    RoundNotOpen,
    TrailingBytes,
    Truncated,
    UnknownParticipant,
    UploadDamaged,
    WrongBase,
)
from crowdfl.protocols.exchange import run_exchange
from crowdfl.protocols.profile import Identity
from crowdfl.protocols.shares.circuits import compare
from crowdfl.protocols.shares.dealing import correlations
from crowdfl.protocols.shares.dealing.keys import SharesReaderBundle
from crowdfl.protocols.shares.round.upload import UploadBody, upload_statement
from tests.protocols.shares.parties import PROFILE, UNCHECKED, Parties, expected, in_units, initial_units, name_of

WHO = name_of(0)


@pytest.fixture(scope="module")
def parties():
    return Parties(settings=UNCHECKED)


@pytest.fixture(scope="module")
def upload(parties):
    return parties.people[WHO].encrypt_update(parties.models()[WHO], 3, 1)


def body_of(parties, upload):
    return UploadBody.from_bytes(upload, parties.shape.limits())


def signed_anew(parties, body, signing=None):
    """As its own participant would sign it."""
    statement = upload_statement(body.place, body.who, body.digest, body.sealed)
    return replace(body, signature=(signing or parties.keys[WHO].signing).sign(statement)).to_bytes()


def refusal_of(parties, upload, who=WHO):
    (refusal,) = parties.new_sp(1).refusals([(who, upload)])
    return refusal


def test_an_honest_upload_is_welcome(parties, upload):
    assert refusal_of(parties, upload) is None


CHANGES = {
    "longer shares": (lambda body: replace(body, shares=body.shares + b"\0"), LengthMismatch),
    "shorter shares": (lambda body: replace(body, shares=body.shares[:-1]), LengthMismatch),
    "longer samples": (lambda body: replace(body, samples=body.samples + b"\0"), LengthMismatch),
    "shorter seal": (lambda body: replace(body, sealed=body.sealed[:-1]), LengthMismatch),
    "shorter hash": (lambda body: replace(body, digest=body.digest[:-1]), LengthMismatch),
    "longer round": (lambda body: replace(body, number=b"\0" + body.number), LengthMismatch),
    "another task": (lambda body: replace(body, task="00" * 16), DocumentError),
    "another round": (lambda body: replace(body, number=(2).to_bytes(4, "big")), RoundNotOpen),
    "another base": (lambda body: replace(body, base=hashlib.sha256(b"").digest()), WrongBase),
    "another name": (lambda body: replace(body, who=name_of(1)), BadSignature),
    "another hash": (lambda body: replace(body, digest=hashlib.sha256(b"").digest()), BadSignature),
    "other shares": (lambda body: replace(body, shares=bytes(len(body.shares))), BadSignature),
    "other samples": (lambda body: replace(body, samples=bytes(16)), BadSignature),
}


@pytest.mark.parametrize(("change", "refusal"), CHANGES.values(), ids=CHANGES.keys())
def test_a_body_that_does_not_fit_is_refused_though_its_owner_signed_it(parties, upload, change, refusal):
    altered = signed_anew(parties, change(body_of(parties, upload)))
    assert isinstance(refusal_of(parties, altered), refusal)


ALTERED = {
    "seal": lambda body: replace(body, sealed=bytes(len(body.sealed))),
    "signature": lambda body: replace(body, signature=bytes(64)),
    "samples": lambda body: replace(body, samples=bytes(16)),
    "shares": lambda body: replace(body, shares=bytes(len(body.shares))),
}


@pytest.mark.parametrize("change", ALTERED.values(), ids=ALTERED.keys())
def test_what_was_altered_on_the_way_is_refused(parties, upload, change):
    assert isinstance(refusal_of(parties, change(body_of(parties, upload)).to_bytes()), BadSignature)


def test_another_key_signs_for_nobody(parties, upload):
    altered = signed_anew(parties, body_of(parties, upload), SigningKey.fresh())
    assert isinstance(refusal_of(parties, altered), BadSignature)


def test_nobody_uploads_in_anothers_name(parties, upload):
    assert isinstance(refusal_of(parties, upload, who=name_of(1)), BadSignature)


def test_nobody_signs_with_its_own_key_for_another_name(parties):
    """Before it is acknowledged: it would be found when it is counted, and cost its round."""
    own = parties.keys[name_of(0)].signing
    body = parties.crafted(1, name_of(1), [0] * parties.parameters, 1, signing=own)
    (refusal,) = parties.new_sp(1).refusals([(name_of(0), body.to_bytes())])
    assert isinstance(refusal, BadSignature)


def test_who_is_not_enrolled_is_refused(parties, upload):
    sp = PROFILE.sp(parties.spec, parties.dealing.sp, parties.tools)
    (refusal,) = sp.refusals([(WHO, upload)])
    assert isinstance(refusal, UnknownParticipant)


@pytest.mark.parametrize(
    ("broken", "refusal"), [(b"", Truncated), (b"CFLM", Truncated), (b"XXXX\2\65", FormatError)], ids=repr
)
def test_bytes_that_are_no_upload_are_refused(parties, broken, refusal):
    assert isinstance(refusal_of(parties, broken), refusal)


def test_every_shortened_and_extended_upload_is_refused(parties, upload):
    assert isinstance(refusal_of(parties, upload + b"\0"), TrailingBytes)
    for length in range(len(upload)):
        assert isinstance(refusal_of(parties, upload[:length]), FormatError | LengthMismatch)


def test_one_bad_upload_of_a_group_is_refused_alone(parties):
    uploads = parties.encrypt(1, parties.models())
    uploads[WHO] = uploads[WHO][:-1]
    refusals = parties.new_sp(1).refusals(list(uploads.items()))
    assert [refusal is None for refusal in refusals] == [False, True, True, True, True]


def test_an_upload_of_the_last_round_is_refused_in_this_one():
    """Replayed as it is, and signed anew for this round."""
    parties = Parties(settings=UNCHECKED)
    uploads = parties.encrypt(1, parties.models())
    parties.read(1, parties.play(1, uploads))
    (refusal,) = parties.new_sp(2).refusals([(WHO, uploads[WHO])])
    assert isinstance(refusal, RoundNotOpen)
    again = replace(body_of(parties, uploads[WHO]), number=(2).to_bytes(4, "big"))
    (refusal,) = parties.new_sp(2).refusals([(WHO, signed_anew(parties, again))])
    assert isinstance(refusal, WrongBase)


def test_the_same_upload_counts_once_and_another_not_at_all(parties):
    models = parties.models()
    uploads = parties.encrypt(1, models)
    sp = parties.new_sp(1)
    sp.add_all(uploads)
    sp.add_all({WHO: uploads[WHO]})
    with pytest.raises(AlreadyCounted):
        sp.add_all({WHO: parties.people[WHO].encrypt_update(models[WHO], 3, 1)})


def test_an_upload_read_again_must_be_the_one_that_was_counted():
    """SP reads uploads twice; a file that was exchanged in between voids what is computed from it."""
    parties = Parties()
    uploads = parties.encrypt(1, parties.models())
    others = parties.encrypt(1, parties.models(1))
    sp = parties.new_sp(1)
    sp.add_stored("", {who: who for who in uploads}, uploads.__getitem__)
    uploads |= others
    with pytest.raises(UploadDamaged):
        run_exchange(sp.publish(final=False), parties.ask)


def test_files_of_two_people_that_were_exchanged_are_counted_for_neither(parties):
    """On SP's disk, before it has counted them: under the other's name CSP would refuse the whole round."""
    uploads = parties.encrypt(1, parties.models())
    first, second = name_of(0), name_of(1)
    files = uploads | {first: uploads[second], second: uploads[first]}
    with pytest.raises(BadSignature, match=f"{first} has sent an upload that is {second}'s"):
        parties.new_sp(1).add_stored("", {who: who for who in uploads}, files.__getitem__)


def test_a_second_key_under_a_known_name_is_refused(parties):
    other = Identity(WHO, SigningKey.fresh().public, parties.keys[WHO].reader.public)
    with pytest.raises(KeyMismatch):
        parties.new_sp(1).enrol(other)
    with pytest.raises(KeyMismatch):
        parties.fresh_csp().side.enrol(other)


def missing(_number):
    raise DealtMaterialDamaged("gone")


def test_dealt_files_are_checked_before_anything_is_computed():
    """Missing, truncated, altered, of another round, task or role; afterwards the right one still serves."""
    parties = Parties()
    models = parties.models()
    uploads = parties.encrypt(1, models)
    file = parties.dealt("sp", 1)
    theirs = parties.dealt("csp", 1)
    second = parties.dealt("sp", 2)
    stranger = Parties().dealt("sp", 1)
    altered = bytes([file[0] ^ 1]) + file[1:]
    for wrong in (b"", file[:-1], file + b"\0", altered, second, stranger, theirs):
        sp = parties.new_sp(1)
        sp.set_dealt_loader(lambda _number, wrong=wrong: wrong)
        sp.add_all(uploads)
        with pytest.raises(DealtMaterialDamaged):
            run_exchange(sp.publish(final=False), parties.ask)
    sp = parties.new_sp(1)
    sp.set_dealt_loader(missing)
    sp.add_all(uploads)
    with pytest.raises(DealtMaterialDamaged):
        run_exchange(sp.publish(final=False), parties.ask)
    average = parties.read(1, parties.play(1, uploads))
    assert in_units(parties, average) == expected(parties, initial_units(parties), models, parties.samples())


def test_csp_refuses_dealt_files_that_are_not_its_own():
    parties = Parties()
    uploads = parties.encrypt(1, parties.models())
    file = parties.dealt("csp", 1)
    for load in (
        missing,
        lambda _: file[:-1],
        lambda _: parties.dealt("csp", 2),
    ):
        parties.csp.set_dealt_loader(load)
        with pytest.raises(DealtMaterialDamaged):
            parties.play(1, uploads)
    parties.csp.set_dealt_loader(lambda _: file)
    assert parties.read(1, parties.play(1, uploads)).total == sum(parties.samples().values())


def test_nothing_is_computed_without_dealt_files():
    """There is no falling back to a round without checks."""
    parties = Parties()
    sp = PROFILE.sp(parties.spec, parties.dealing.sp, parties.tools)
    for keys in parties.keys.values():
        sp.enrol(keys.identity)
    sp.add_all(parties.encrypt(1, parties.models()))
    with pytest.raises(DealtMaterialDamaged):
        run_exchange(sp.publish(final=False), parties.ask)


@pytest.mark.parametrize("role", ["sp", "csp"])
def test_a_dealt_file_is_the_same_in_whatever_pieces_it_is_made(monkeypatch, role):
    parties = Parties(5, settings={"budget": "9.00", "pay": "distance"})
    whole = parties.dealt(role, 1)
    monkeypatch.setattr(correlations, "_PIECE_BYTES", 1)
    monkeypatch.setattr(compare, "_MADE_TOGETHER", 2)
    pieces = list(PROFILE.dealt(parties.spec, parties.dealing.source, role, 1))
    assert b"".join(pieces) == whole
    assert max(map(len, pieces)) < len(whole) / 2


def test_dealt_files_are_as_long_as_announced():
    for kind in (
        {},
        {"budget": "9.00"},
        {"budget": "9.00", "pay": "distance"},
        {"budget": "9.00", "pay": "samples"},
    ):
        parties = Parties(settings=kind)
        announced = PROFILE.dealt_bytes(parties.spec.settings, parties.parameters)
        made = {role: len(parties.dealt(role, 1)) for role in ("sp", "csp")}
        assert announced == made
    assert PROFILE.dealt_bytes(Parties(settings=UNCHECKED).spec.settings, 8) == {}


def test_nothing_is_published_before_it_is(parties):
    with pytest.raises(FormatError):
        parties.new_sp(1).publication()
    assert parties.new_sp(1).carry_over() is None


def test_a_model_of_another_length_is_refused(parties):
    with pytest.raises(LengthMismatch):
        parties.people[WHO].encrypt_update(np.zeros(9), 1, 1)


def test_a_bundle_for_another_ring_is_refused() -> None:
    bundle = SharesReaderBundle(*[bytes(32)] * 5, 56)
    bundle.require_ring(56)
    with pytest.raises(KeyMismatch, match="56 bits where this program finds 48"):
        bundle.require_ring(48)
