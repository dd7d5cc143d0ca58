"""Signed documents from a hostile hand: a signer may be honest about its name and lie about everything else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.sealing import SigningKey
from crowdfl.documents.signed import (
    Appointment,
    Certificate,
    Definition,
    EnrolmentRequest,
    Invitation,
    open_document,
    participant_name,
    sign_document,
)
from crowdfl.protocols.profile import Identity
from crowdfl.protocols.registry import PROFILES
from tests.fuzz.trial import JSON, attempt, changed_body, mutated, nested, refused, scaled
from tests.http.world import definition_of

KEY = SigningKey.fresh()
_WHO = participant_name(KEY.public)
HONEST = {
    "definition": definition_of(KEY).sign(KEY),
    "appointment": Appointment("0" * 32, "f" * 64).sign(KEY),
    "invitation": Invitation("0" * 32, "7", 1000.0).sign(KEY),
    "certificate": Certificate("0" * 32, Identity(_WHO, KEY.public, bytes(32))).sign(KEY),
    "request to enrol": EnrolmentRequest("0" * 32, "f" * 64, KEY.public, bytes(32)).sign(KEY),
}


def open_definition(text):
    """A definition with everything that KGC derives from it before it makes keys."""
    opened = Definition.open(text)
    assert open_document(text, "definition", opened.requester)
    profile = PROFILES.get(opened.settings.profile)
    if profile is not None and opened.spec.parameters < 10**6:
        attempt(profile.check, opened.settings, opened.spec.parameters)
    return opened.task


OPENERS = {
    "definition": open_definition,
    "appointment": lambda text: Appointment.open(text, KEY.public),
    "invitation": lambda text: Invitation.open(text, KEY.public),
    "certificate": lambda text: Certificate.open(text, KEY.public),
    "request to enrol": EnrolmentRequest.open,
}
kinds = pytest.mark.parametrize("kind", HONEST)


@kinds
def test_honest_documents_open(kind):
    """The readers under test do accept something."""
    assert not refused(attempt(OPENERS[kind], HONEST[kind]))


@kinds
@given(text=st.text(max_size=200) | JSON.map(json.dumps))
def test_any_text(kind, text):
    """Never a document: nobody guesses a signature."""
    assert refused(attempt(OPENERS[kind], text))


@kinds
@given(data=st.data())
def test_altered_text_no_longer_stands(kind, data):
    """Unless only its spelling was altered, such as a space between two fields."""
    text = data.draw(mutated(HONEST[kind].encode())).decode("latin-1")
    if not refused(attempt(OPENERS[kind], text)):
        assert json.loads(text)["body"] == json.loads(HONEST[kind])["body"]


@kinds
@settings(max_examples=scaled(100))
@given(data=st.data())
def test_signed_nonsense(kind, data):
    """Fields of other types and sizes, under a signature that stands."""
    body = data.draw(changed_body(json.loads(HONEST[kind])["body"]))
    attempt(OPENERS[kind], sign_document(kind, body, KEY))


@kinds
@pytest.mark.parametrize("field", ["body", "training"])
def test_lists_in_lists_at_every_depth(kind, field):
    """What can be read can be written again, or is refused: the two give up at different depths."""
    for depth in range(150, 1200, 7):
        document = json.loads(HONEST[kind])
        place = document if field == "body" else document["body"]
        place[field] = "here"
        text = json.dumps(document).replace('"here"', '{"": ' + "[" * depth + "]" * depth + "}")
        assert refused(attempt(OPENERS[kind], text))


@given(kind=st.text(max_size=10), body=JSON, signature=JSON)
def test_the_envelope_itself(kind, body, signature):
    """Another kind, another type of body, no hex."""
    text = json.dumps({"kind": kind, "body": body, "signature": signature})
    refusal = attempt(open_document, text, "order", KEY.public)
    assert refused(refusal)
    assert len(str(refusal)) < 10_000


def test_nested_is_as_deep_as_it_says():
    """The helper of these tests."""
    assert json.dumps(nested(3)) == "[[[[]]]]"
