"""Envelopes: a phone opens what CSP has sealed and signed for it, this round and this very mask, and nothing else."""

from dataclasses import replace

import pytest

from crowdfl.crypto.sealing import SigningKey, commit, seal_to
from crowdfl.errors import BadSignature, RewardOutOfRange, SealBroken
from crowdfl.protocols.claims import reward_context, reward_statement
from tests.protocols.settled import earned, settle, unclaimed


@pytest.fixture
def sides(settled):
    """The settled task with an SP that has paid nobody, and a CSP that has attested nothing, yet."""
    with unclaimed(settled):
        yield settled


@pytest.fixture(scope="module")
def settled():
    """Three participants, two rounds of rewards."""
    return settle()


def test_an_envelope_opens_for_its_owner_and_its_round_alone(sides):
    """Sealed to one reader."""
    envelopes = sides.sp.envelopes()
    with pytest.raises(SealBroken):
        sides.people["p1"].open_reward(envelopes["p0"], 2)
    with pytest.raises(SealBroken):
        sides.people["p0"].open_reward(envelopes["p0"], 1)


def resealed(sides, who, number, *, value=None, signing=None, context=None, named=None, commitment=None):
    """An envelope of round `number` that SP seals itself: with CSP's word in it, or a word of its own, altered in one place."""
    person = sides.people[who]
    envelope = person._envelopes[number]
    right = sides.dealer.task.context(number)
    body = person.reader.open(envelope.sealed, reward_context(right, who))
    width = sides.sp.party.public.plaintext_bytes
    v, signature = body[:width], body[width:]
    v = v if value is None else ((value + envelope.mask) % int(sides.dealer.task.public.n)).to_bytes(width, "big")
    if signing is not None:
        statement = reward_statement(
            context or right, named or who, commitment or commit(envelope.mask, envelope.salt), v
        )
        signature = signing.sign(statement)
    sealed = seal_to(person.reader.public, v + signature, reward_context(right, who))
    return replace(envelope, sealed=sealed)


def test_an_envelope_that_csp_has_sealed_anew_opens(sides):
    """So that the tests below can fail: what is altered there is what is refused."""
    for envelope in (resealed(sides, "p0", 2), resealed(sides, "p0", 2, signing=sides.csp._signing)):
        assert sides.people["p0"].open_reward(envelope.to_bytes(), 2) == earned(sides, "p0")[2]


def test_a_reward_that_csp_has_not_signed_is_refused_by_the_phone(sides):
    """SP knows the phone's public key and could seal any number to it."""
    csp, million = sides.csp._signing, 10**6 << sides.sp._shape.widths().fraction
    forgeries = {
        "another value": resealed(sides, "p0", 2, value=million),
        "SP's own signature": resealed(sides, "p0", 2, value=million, signing=SigningKey.fresh()),
        "another round": resealed(sides, "p0", 2, signing=csp, context=sides.dealer.task.context(1)),
        "another participant": resealed(sides, "p0", 2, signing=csp, named="p1"),
        "another commitment": resealed(sides, "p0", 2, signing=csp, commitment=commit(1, bytes(32))),
    }
    good = resealed(sides, "p0", 2)
    forgeries["another mask"] = replace(good, mask=good.mask - (1 << 20))
    forgeries["another salt"] = replace(good, salt=bytes(32))
    before = sides.people["p0"].claim()
    for envelope in forgeries.values():
        with pytest.raises(BadSignature):
            sides.people["p0"].open_reward(envelope.to_bytes(), 2)
    assert sides.people["p0"].claim() == before


def test_an_envelope_too_short_for_a_reward_is_refused(sides):
    """Sealed to the right reader for the right round."""
    person, context = sides.people["p0"], sides.dealer.task.context(2)
    sealed = seal_to(person.reader.public, b"short", reward_context(context, "p0"))
    with pytest.raises(SealBroken, match="no reward"):
        person.open_reward(replace(person._envelopes[2], sealed=sealed).to_bytes(), 2)


def rewards_outside(sides):
    """Rewards that no honest round gives, in millionths / 2^h: a unit below zero, one millionth above the largest payment."""
    widths = sides.sp._shape.widths()
    return [-1, (widths.largest_payment + 1) << widths.fraction, int(sides.dealer.task.public.n) // 2]


def test_a_reward_outside_its_budget_is_not_opened_by_the_phone(sides):
    """Though CSP has signed it: it is in no claim either."""
    person, before = sides.people["p0"], sides.people["p0"].claim()
    for reward in rewards_outside(sides):
        envelope = resealed(sides, "p0", 2, value=reward, signing=sides.csp._signing)
        with pytest.raises(RewardOutOfRange):
            person.open_reward(envelope.to_bytes(), 2)
    assert person.claim() == before
    largest = sides.sp._shape.widths().largest_payment
    edge = resealed(sides, "p0", 2, value=largest << sides.sp._shape.widths().fraction, signing=sides.csp._signing)
    try:
        assert person.open_reward(edge.to_bytes(), 2) == largest
    finally:
        person.open_reward(resealed_true(sides), 2)


def resealed_true(sides):
    """The envelope that SP serves."""
    return sides.sp.envelopes()["p0"]
