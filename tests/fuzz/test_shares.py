"""What hostile phones, servers, files and platforms may send in a `shares` task: a value, or an error of ours."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.errors import OutOfTurn
from crowdfl.protocols.exchange import Reply, run_exchange
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.dealing.keys import SharesSpBundle, seeds_of
from crowdfl.protocols.shares.dealing.rounds import received
from crowdfl.protocols.shares.round.average import RoundRecord, SharesPublication, SumReply, parse_record
from crowdfl.protocols.shares.round.manifest import RoundManifest, RoundVerdict, StepRequest
from crowdfl.protocols.shares.round.upload import UploadBody
from tests.fuzz.trial import Form, attempt, mutated, refused, scaled
from tests.protocols.driving import Wire
from tests.protocols.shares.parties import PAYING, Parties, name_of
from tests.protocols.test_messages import KINDS

STEPS = 14


class Recorded(Wire):
    """An honest round that pays."""

    def __init__(self) -> None:
        self.parties = Parties(people_count=3, settings=PAYING | {"pay": "distance"})
        super().__init__(self.parties.csp)
        self.uploads = self.parties.encrypt(1, self.parties.models())
        self.played = self.parties.play(1, self.uploads, self.ask)
        self.parties.left = None


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """One for all tests: nothing here is changed by them."""
    return Recorded()


def test_the_messages_of_this_profile_are_among_those_that_are_mutated(recorded: Recorded):
    """In `test_messages.py` here, and in that of the protocols; and a round has the steps that are tried below."""
    own = {
        UploadBody,
        RoundManifest,
        RoundVerdict,
        RoundRecord,
        SharesPublication,
        StepRequest,
        SumReply,
        SharesSpBundle,
    }
    assert own <= set(KINDS)
    assert len(recorded.requests) == STEPS


@settings(max_examples=scaled(50))
@given(data=st.data())
def test_uploads(recorded: Recorded, data: st.DataObject):
    parties, who = recorded.parties, name_of(0)
    form = data.draw(mutated(Form(recorded.uploads[who])) | st.binary(max_size=200))
    refusal = attempt(lambda: parties.new_sp(1).refusals([(who, form)])[0])
    assert form == recorded.uploads[who] or refused(refusal)


@settings(max_examples=scaled(20))
@given(data=st.data(), step=st.integers(1, STEPS))
def test_requests_to_csp(recorded: Recorded, data: st.DataObject, step: int):
    """Altered as a whole, or in what they carry: answered, refused, or the end of the round, by name."""
    honest = recorded.requests[step - 1]
    csp = recorded.parties.fresh_csp(recorded.before[step - 1].copy())
    if data.draw(st.booleans()):
        form = data.draw(mutated(Form(honest)))
    else:
        message = StepRequest.from_bytes(honest, recorded.parties.shape.limits(10**7))
        payload = data.draw(mutated(Form(message.payload)))
        form = StepRequest(message.round_number, step, message.transcript, payload).to_bytes()
    reply = attempt(csp.answer, form)
    assert refused(reply) or isinstance(reply, bytes)
    if form != honest:  # and never a second answer after it
        again = attempt(csp.answer, honest)
        assert refused(reply) or refused(again)


@settings(max_examples=scaled(30))
@given(data=st.data(), step=st.integers(1, STEPS))
def test_replies_of_csp(recorded: Recorded, data: st.DataObject, step: int):
    """One of them altered: SP refuses it, or goes on with it until CSP, which knows what it said, refuses."""
    form = data.draw(mutated(Form(recorded.replies[step - 1])) | st.binary(max_size=100))
    replies = {
        request: lambda reply=reply: reply for request, reply in zip(recorded.requests, recorded.replies, strict=True)
    }
    replies[recorded.requests[step - 1]] = lambda: form
    outcome = attempt(play, recorded, replies)
    assert refused(outcome) == (form != recorded.replies[step - 1])


def play(recorded: Recorded, replies: dict[bytes, Reply]) -> bytes:
    """A round of an SP that has the same coins."""

    def ask(request: bytes) -> Reply:
        if request not in replies:
            raise OutOfTurn("CSP was asked otherwise before")
        return replies[request]

    sp = recorded.parties.new_sp(1)
    sp.add_all(recorded.uploads)
    run_exchange(sp.reward(recorded.parties.shape.payment), ask)
    sp.envelopes()
    run_exchange(sp.publish(final=False), ask)
    return sp.publication()


@settings(max_examples=scaled(60))
@given(data=st.data())
def test_publications_and_envelopes(recorded: Recorded, data: st.DataObject):
    """From a hostile platform: a reader gets a model, or an error of ours; an altered reward never opens."""
    parties, who = recorded.parties, name_of(0)
    person = parties.fresh_person(who)
    attempt(person.read, data.draw(mutated(Form(recorded.played.publication)) | st.binary(max_size=100)), 1)
    envelope = data.draw(mutated(Form(recorded.played.envelopes[who])))
    assert envelope == recorded.played.envelopes[who] or refused(attempt(person.open_reward, envelope, 1))


@settings(max_examples=scaled(60))
@given(data=st.data(), role=st.sampled_from(["sp", "csp"]))
def test_dealt_files(recorded: Recorded, data: st.DataObject, role: str):
    parties = recorded.parties
    file, seed = parties.dealt(role, 1), seeds_of(parties.dealing.source)[role == "csp"]
    form = data.draw(mutated(Form(file)) | st.binary(max_size=100))
    assert form == file or refused(attempt(received, parties.shape, seed, role, 1, form))


@settings(max_examples=scaled(60))
@given(data=st.data())
def test_records_and_chains(recorded: Recorded, data: st.DataObject):
    """CSP's word counts as it was signed; a kept chain has one length."""
    shape = recorded.parties.shape
    published = SharesPublication.from_bytes(recorded.played.publication, shape.limits())
    key = recorded.parties.people[name_of(0)].bundle.csp_signing
    form = data.draw(mutated(Form(published.record)))
    assert form == published.record or refused(attempt(parse_record, form, shape, key))
    chain: Any = attempt(ModelChain.from_bytes, data.draw(mutated(bytes(100)) | st.binary(max_size=120)), 8)
    assert refused(chain) or len(chain.to_bytes()) == 100
