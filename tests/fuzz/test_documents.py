"""Signed documents from a hostile hand: a signer may be honest about its name and lie about everything else."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.invitations import Certificate, EnrolmentRequest, Invitation, Ticket, admitted
from crowdfl.documents.signed import (
    Appointment,
    Definition,
    Order,
    Receipt,
    TaskEnd,
    participant_name,
)
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.protocols.registry import PROFILES, profile_named
from tests.fuzz.trial import JSON, attempt, changed_body, mutated, nested, refused
from tests.http.world import definition_of

KEY = SigningKey.fresh()
_WHO = participant_name(KEY.public)
TASK = Definition.open(definition_of(KEY).sign(KEY))
INVITATION = Invitation(TASK.task, "7" * 32, 1, KEY.public, 1000.0)  # one key for all: whatever is signed, it stands
REQUEST = EnrolmentRequest.make(Ticket(INVITATION.sign(KEY), KEY), ParticipantKeys(_WHO, KEY, ReaderKey.fresh()))
HONEST = {
    "definition": definition_of(KEY).sign(KEY),
    "appointment": Appointment("0" * 64, "f" * 64, "e" * 64).sign(KEY),
    "invitation": INVITATION.sign(KEY),
    "certificate": Certificate(TASK.task, _WHO, INVITATION.sign(KEY), REQUEST.sign(KEY)).sign(KEY),
    "enrolment-request": REQUEST.sign(KEY),
    "order": Order("0" * 64, "pause", 1.0).sign(KEY),
    "receipt": Receipt("0" * 64, 1, _WHO, "f" * 64, late=False).sign(KEY),
    "task-end": TaskEnd("0" * 64, "settled", 1.0).sign(KEY),
}


def open_definition(text):
    """A definition with everything that KGC derives from it before it makes keys."""
    opened = Definition.open(text)
    profile = profile_named(opened.settings.profile) if opened.settings.profile in PROFILES else None
    if profile is not None and opened.spec.parameters < 10**6:
        attempt(profile.check, opened.settings, opened.spec.parameters)
    return opened.task


OPENERS = {
    "definition": open_definition,
    "enrolment-request": partial(EnrolmentRequest.open_under, invitation=INVITATION),
    "invitation": partial(Invitation.open_in, definition=TASK),
    "certificate": partial(admitted, kgc_key=KEY.public, definition=TASK),
} | {document.kind: partial(document.open, signer=KEY.public) for document in (Appointment, Order, Receipt, TaskEnd)}
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
    text = data.draw(mutated(HONEST[kind].encode())).decode("latin-1")
    assert text == HONEST[kind] or refused(attempt(OPENERS[kind], text))


@kinds
@given(data=st.data())
def test_signed_nonsense(kind, data):
    payload = json.dumps(data.draw(changed_body(json.loads(HONEST[kind].split(" ", 3)[3]))))
    attempt(OPENERS[kind], Envelope.sign(kind, payload, KEY).text)


@kinds
@given(payload=st.text(max_size=200) | JSON.map(json.dumps))
def test_any_payload(kind, payload):
    assert refused(attempt(lambda: OPENERS[kind](Envelope.sign(kind, payload, KEY).text)))


@kinds
def test_lists_in_lists_at_every_depth(kind):
    """Read, or refused by name: two parsers give up at different depths."""
    payload = json.loads(HONEST[kind].split(" ", 3)[3])
    for depth in [*range(150, 1200, 50), 100_000]:
        for text in (json.dumps(payload | {"training": "here"}), '"here"'):
            nonsense = text.replace('"here"', '{"": ' + "[" * depth + "]" * depth + "}")
            outcome = attempt(OPENERS[kind], Envelope.sign(kind, nonsense, KEY).text)
            assert refused(outcome) or (kind == "definition" and depth < 100_000)


@given(header=st.text(max_size=200))
def test_the_header_itself(header):
    refusal = attempt(OPENERS["order"], header + HONEST["order"].split(" ", 3)[3])
    assert refused(refusal)
    assert len(str(refusal)) < 10_000


def test_nested_is_as_deep_as_it_says():
    assert json.dumps(nested(3)) == "[[[[]]]]"
