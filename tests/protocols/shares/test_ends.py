"""The end of a round without a sum: what CSP signs of it, once for all, and that nothing of the round is answered after."""

from dataclasses import replace

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import BadSignature, CrowdFLError, ProtocolError, RoundEnded, RoundsExhausted
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.records import Look
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle
from crowdfl.protocols.shares.round.average import RoundRecord
from crowdfl.protocols.shares.round.csp_records import KeptTask
from crowdfl.protocols.shares.round.ends import EndRequest, RoundEnd
from crowdfl.protocols.shares.round.steps import longest_end, shown_in
from crowdfl.reasons import Reason
from tests.protocols.shares.parties import Parties
from tests.protocols.shares.test_deviating_sp import recorded, step_of

pytestmark = pytest.mark.usefixtures("seals")


def end_of(parties: Parties, number: int = 1) -> RoundEnd:
    """As SP gets it and every phone reads it."""
    sp = parties.new_sp(1)
    request, longest = sp.ask_end(number)
    reply = parties.csp.answer(request)
    assert len(reply) <= longest == longest_end(parties.shape)
    assert not sp.is_opened(reply, number)
    return RoundEnd.from_bytes(reply, parties.shape.limits())


def test_a_round_that_csp_never_heard_of_shows_nobody_and_never_begins():
    parties, requests = recorded({})
    found = end_of(parties)
    assert (found.number, found.shown, found.rejected) == (1, (), ())
    for who, person in parties.people.items():
        assert person.read_end(found.to_bytes(), 1).shown is False, who
    with pytest.raises(RoundEnded, match="given up"):
        parties.csp.answer(requests[0])
    assert end_of(parties) == found


@pytest.mark.parametrize("after", range(1, 6))
def test_the_end_says_whose_bits_were_shown_and_every_later_step_is_refused(after):
    parties, requests = recorded({})
    for request in requests[:after]:
        parties.csp.answer(request)
    found, shown = end_of(parties), after >= shown_in(parties.shape)
    assert set(found.shown) == (set(parties.names) if shown else set())
    for request in requests[after:]:
        with pytest.raises(CrowdFLError):
            parties.csp.answer(request)
    assert unshown(parties) == set(found.shown)


def unshown(parties: Parties) -> set[str]:
    """Whom CSP counts."""
    kept = Look(parties.csp.records).get(KeptTask)
    assert kept is not None
    return set(kept.unshown)


def test_whoever_a_void_round_rejects_is_named_with_the_reason():
    parties = Parties()
    uploads, far = parties.encrypt(1, parties.models()), parties.names[:2]
    for who in far:
        uploads[who] = parties.crafted(1, who, [9000] * parties.parameters, 1).to_bytes()
    with pytest.raises(RoundEnded):
        parties.play(1, uploads)
    found = end_of(parties)
    assert dict(zip(found.rejected, found.reasons, strict=True)) == dict.fromkeys(far, Reason.OUT_OF_BOUNDS)
    person = parties.people[far[0]]
    assert (person.read_end(found.to_bytes(), 1).standing, person.read_end(found.to_bytes(), 1).shown) == (
        Reason.OUT_OF_BOUNDS,
        True,
    )
    assert parties.people[parties.names[2]].read_end(found.to_bytes(), 1).standing is None


def test_of_a_sum_that_was_opened_the_end_is_its_record():
    parties = Parties()
    parties.play(1, parties.encrypt(1, parties.models()))
    reply = parties.csp.answer(EndRequest(1).to_bytes())
    assert Message.kind_of(reply) == RoundRecord.kind
    sp, person = parties.new_sp(2), parties.people[parties.names[0]]
    assert sp.is_opened(reply, 1)
    word = person.read_end(reply, 1)
    assert (word.record, word.standing) == (reply, None)
    for wrong in (lambda: sp.is_opened(reply, 2), lambda: person.read_end(reply, 2)):
        with pytest.raises(ProtocolError):
            wrong()


def test_an_earlier_round_under_way_is_counted_when_a_later_one_is_given_up():
    parties, requests = recorded({})
    for request in requests[: shown_in(parties.shape)]:
        parties.csp.answer(request)
    end_of(parties, 2)
    assert unshown(parties) == set(parties.names)
    with pytest.raises(RoundEnded):
        parties.csp.answer(requests[shown_in(parties.shape)])
    assert set(end_of(parties).shown) == set(parties.names)


@pytest.mark.parametrize("number", [0, 7])
def test_a_round_that_the_task_does_not_have_has_no_end(number):
    with pytest.raises(RoundsExhausted):
        Parties().csp.answer(EndRequest(number).to_bytes())


@pytest.mark.parametrize("change", [{"task": "another"}, {"number": 2}, {"rejected": ("somebody",)}, {}])
def test_an_end_that_is_not_csps_word_about_the_round_is_refused(change):
    parties = Parties()
    own = SigningKey(SharesCspBundle.from_bytes(parties.dealing.csp, Limits.plain()).signing)
    other = replace(end_of(parties), **change).sign(own if change else SigningKey.fresh())
    for read in (parties.new_sp(1).is_opened, parties.people[parties.names[0]].read_end):
        with pytest.raises((ProtocolError, BadSignature)):
            read(other.to_bytes(), 1)


def test_the_end_is_no_step_of_the_round():
    parties, requests = recorded({})
    assert step_of(requests[0]).step == 1
    assert EndRequest(1).kind != step_of(requests[0]).kind
    assert end_of(parties).task == parties.spec.name
