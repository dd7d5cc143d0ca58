"""A computation server that deviates is caught where its word can be checked: by SP, by readers, by whoever is rewarded."""

from dataclasses import replace

import numpy as np
import pytest

from crowdfl.crypto.sealing import AudienceKey, SigningKey
from crowdfl.errors import (
    BadSignature,
    ChainBroken,
    ClaimRefused,
    CrowdFLError,
    FormatError,
    LengthMismatch,
    MasksDoNotFit,
    NothingToAverage,
    ProtocolError,
    RoundEnded,
    SealBroken,
    TooFewParticipants,
    WrongAmount,
)
from crowdfl.protocols.claims import Claim, RewardEnvelope
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.chain import bind, first_base, sha256
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle
from crowdfl.protocols.shares.round.average import AverageReply, RoundRecord, SharesPublication
from crowdfl.protocols.shares.round.manifest import ManifestReply, StepRequest
from tests.protocols.shares.parties import PAYING, UNCHECKED, Parties, name_of

ME = name_of(0)


def altering(parties, at, change):
    """CSP's replies, one of them altered."""

    def ask(request):
        reply = parties.keeping.answer(request)
        step = StepRequest.from_bytes(request, parties.shape.limits(10**6)).step
        return ask_directly(lambda _: change(reply) if step == at else reply)(request)

    return ask


def signing_key(parties):
    return SigningKey(SharesCspBundle.from_bytes(parties.dealing.csp, Limits.plain()).signing)


def resigned(parties, record):
    return replace(record, signature=signing_key(parties).sign(record.statement)).to_bytes()


def average_of(parties, reply):
    return AverageReply.from_bytes(reply, parties.shape.limits())


def record_of(parties, reply):
    return RoundRecord.from_bytes(average_of(parties, reply).record, parties.shape.limits())


def with_record(parties, **changes):
    """The average with another record, rightly signed."""

    def change(reply):
        record = resigned(parties, replace(record_of(parties, reply), **changes))
        return replace(average_of(parties, reply), record=record).to_bytes()

    return change


@pytest.fixture
def parties():
    return Parties(settings=UNCHECKED)


RECORDS = {
    "another round": {"number": 2},
    "another task": {"task": "00" * 16},
    "another base": {"base": bytes(32)},
    "somebody left out": {"accepted": tuple(name_of(i) for i in range(4))},
    "somebody added": {"accepted": tuple(name_of(i) for i in range(6))},
    "another hash of what was sent": {"sent": bytes(32)},
}


@pytest.mark.parametrize("changes", RECORDS.values(), ids=RECORDS.keys())
def test_sp_publishes_no_record_that_is_not_of_its_round(parties, changes):
    with pytest.raises(ProtocolError):
        parties.play(1, parties.encrypt(1, parties.models()), altering(parties, 2, with_record(parties, **changes)))


def test_sp_publishes_no_record_that_csp_has_not_signed(parties):
    def change(reply):
        record = replace(record_of(parties, reply), signature=bytes(64)).to_bytes()
        return replace(average_of(parties, reply), record=record).to_bytes()

    with pytest.raises(BadSignature):
        parties.play(1, parties.encrypt(1, parties.models()), altering(parties, 2, change))


@pytest.mark.parametrize("part", ["sums", "total"])
def test_sp_publishes_no_sums_of_another_length(parties, part):
    def change(reply):
        average = replace(average_of(parties, reply), **{part: b"\1" * 3})
        parts = average.sums, average.total, average.participants, average.requester
        sent = sha256(bind("crowdfl sent 1", *parts))
        return replace(average, record=resigned(parties, replace(record_of(parties, reply), sent=sent))).to_bytes()

    with pytest.raises(LengthMismatch):
        parties.play(1, parties.encrypt(1, parties.models()), altering(parties, 2, change))


def published(parties, **changes):
    """An honest publication, altered by whoever serves it."""
    played = parties.play(1, parties.encrypt(1, parties.models()))
    message = SharesPublication.from_bytes(played.publication, parties.shape.limits())
    return replace(message, **{name: change(parties, message) for name, change in changes.items()}).to_bytes()


def rerecorded(**changes):
    def change(parties, message):
        record = RoundRecord.from_bytes(message.record, parties.shape.limits())
        return resigned(parties, replace(record, **changes))

    return change


def other_t(parties, _message):
    bundle = SharesCspBundle.from_bytes(parties.dealing.csp, Limits.plain())
    context = parties.shape.place(1, first_base(parties.spec.name)).bind("crowdfl mask seed 1", b"participants")
    return AudienceKey(bundle.participants).seal(bytes(32), context)


PUBLISHED = {
    "another t": ({"participants": other_t}, NothingToAverage),
    "another total": ({"total": lambda _p, m: bytes([m.total[0], m.total[1] ^ 1, *m.total[2:]])}, NothingToAverage),
    "sums of another length": ({"sums": lambda _p, m: m.sums[:-1]}, LengthMismatch),
    "no t": ({"participants": lambda _p, _m: b""}, SealBroken),
    "the requester's t": ({"participants": lambda _p, m: m.requester}, SealBroken),
    "a record of too few": ({"record": rerecorded(accepted=(name_of(0), name_of(1)))}, TooFewParticipants),
    "a record with one name twice": ({"record": rerecorded(accepted=(name_of(0),) * 3)}, TooFewParticipants),
    "a record of another round": ({"record": rerecorded(number=2)}, ChainBroken),
    "a record of another base": ({"record": rerecorded(base=bytes(32))}, ChainBroken),
    "a record of another task": ({"record": rerecorded(task="00" * 16)}, ChainBroken),
    "a record without reasons": ({"record": rerecorded(rejected=("x",))}, ProtocolError),
    "a record that is not signed": ({"record": lambda _p, m: m.record[:-1] + bytes([m.record[-1] ^ 1])}, BadSignature),
}


@pytest.mark.parametrize(("changes", "refusal"), PUBLISHED.values(), ids=PUBLISHED.keys())
def test_readers_refuse_what_does_not_fit(parties, changes, refusal):
    """And the right publication can still be read afterwards: nothing was lost."""
    wrong = published(parties, **changes)
    person = parties.people[ME]
    before = person.chain()
    with pytest.raises(refusal):
        person.read(wrong, 1)
    assert person.chain() == before


def test_who_is_left_out_by_the_record_is_told():
    """The participant has SP's receipt: with the record it can complain."""
    parties = Parties(settings=UNCHECKED)
    others = {who: model for who, model in parties.models().items() if who != ME}
    played = parties.play(1, parties.encrypt(1, others))
    assert "not passed on" in parties.people[ME].read(played.publication, 1).standing


def test_two_readers_of_two_publications_part_ways(parties):
    """A server that shows different averages to different people splits them: no common round follows."""
    wrong = published(parties, sums=lambda _p, m: bytes([m.sums[0] ^ 1]) + m.sums[1:])
    other = parties.people[name_of(1)]
    other.read(wrong, 1)
    sp = parties.new_sp(2)
    (refusal,) = sp.refusals([(other.who, other.encrypt_update(parties.initial, 1, 2))])
    assert "another model" in str(refusal)


def test_a_seal_named_broken_that_is_not_in_the_manifest(parties):
    def change(reply):
        return replace(ManifestReply.from_bytes(reply, parties.shape.limits()), broken=("z" * 20,)).to_bytes()

    with pytest.raises(ProtocolError):
        parties.play(1, parties.encrypt(1, parties.models()), altering(parties, 1, change))


def test_a_round_is_void_only_by_csps_signed_word(parties):
    """Two of five seals said to be broken, and no word about it."""

    def change(reply):
        broken = name_of(0), name_of(1)
        return replace(ManifestReply.from_bytes(reply, parties.shape.limits()), broken=broken).to_bytes()

    with pytest.raises(ProtocolError):
        parties.play(1, parties.encrypt(1, parties.models()), altering(parties, 1, change))


def test_bits_that_csp_has_not_committed_to():
    parties = Parties()
    with pytest.raises(RoundEnded, match="committed"):
        parties.play(1, parties.encrypt(1, parties.models()), altering(parties, 5, lambda r: bytes([r[0] ^ 1]) + r[1:]))


def test_a_verdict_that_csp_has_not_signed():
    parties = Parties()
    with pytest.raises(BadSignature):
        parties.play(
            1, parties.encrypt(1, parties.models()), altering(parties, 5, lambda r: r[:-1] + bytes([r[-1] ^ 1]))
        )


@pytest.mark.parametrize("step", range(2, 13))
def test_replies_of_another_length_are_refused(step):
    parties = Parties(settings=PAYING)
    with pytest.raises(CrowdFLError):
        parties.play(1, parties.encrypt(1, parties.models()), altering(parties, step, lambda reply: reply + b"\0"))


@pytest.fixture(scope="module")
def played():
    """A round that pays."""
    parties = Parties(settings=PAYING)
    round_ = parties.play(1, parties.encrypt(1, parties.models()))
    parties.read(1, round_)
    return parties, round_


class TestRewards:
    """Envelopes and claims: by the rules that every profile has."""

    def test_an_envelope_is_its_owners_alone(self, played):
        parties, round_ = played
        with pytest.raises(SealBroken):
            parties.people[name_of(1)].open_reward(round_.envelopes[ME], 1)

    def test_an_envelope_is_of_its_round_alone(self, played):
        parties, round_ = played
        with pytest.raises(SealBroken):
            parties.people[ME].open_reward(round_.envelopes[ME], 2)

    def test_sp_cannot_change_its_half(self, played):
        parties, round_ = played
        envelope = RewardEnvelope.from_bytes(round_.envelopes[ME], parties.shape.limits())
        with pytest.raises(BadSignature):
            parties.people[ME].open_reward(replace(envelope, mask=envelope.mask ^ 1).to_bytes(), 1)

    def test_claims_are_paid_once_and_exactly(self, played):
        parties, round_ = played
        rewards = parties.rewards(1, round_)
        sp = parties.new_sp(1)
        for who, amount in rewards.items():
            claim = parties.people[who].claim()
            assert sp.claimant(claim) == who
            assert sp.check_claim(claim) == who
            assert sp.pay(claim, parties.keeping.answer(claim)) == {1: amount}

    def test_a_claim_of_more_is_refused(self, played):
        parties, round_ = played
        person = parties.new_person(name_of(1))
        person.open_reward(round_.envelopes[name_of(1)], 1)
        claim = Claim.from_bytes(person.claim(), parties.shape.limits())
        for refusal, change in ((WrongAmount, {"amounts": (claim.amounts[0] + 1,)}), (MasksDoNotFit, {"masks": (0,)})):
            altered = replace(claim, **change)
            signed = replace(altered, signature=parties.keys[name_of(1)].signing.sign(altered.statement))
            with pytest.raises(refusal):
                parties.keeping.answer(signed.to_bytes())

    def test_nobody_claims_for_a_round_that_was_not_opened(self):
        """Rewards were computed, the average was not asked for: the round is void."""
        parties = Parties(settings=PAYING)
        sp = parties.new_sp(1)
        sp.add_all(parties.encrypt(1, parties.models()))
        run_exchange(sp.reward(parties.shape.payment), parties.ask)
        parties.people[ME].open_reward(sp.envelopes()[ME], 1)
        with pytest.raises(MasksDoNotFit):
            parties.keeping.answer(parties.people[ME].claim())

    def test_a_task_without_rewards_attests_nothing(self, parties):
        claim = Claim(parties.spec.name, ME, (), (), (), (), bytes(64)).to_bytes()
        with pytest.raises((FormatError, ClaimRefused)):
            parties.keeping.answer(claim)

    def test_rewards_sum_to_the_budget(self, played):
        parties, round_ = played
        total = sum(parties.rewards(1, round_).values())
        assert parties.shape.payment - 2 * 5 <= total <= parties.shape.payment


def test_all_weights_zero_pays_nothing():
    """Nobody goes where the others go: everyone's update is zero."""
    parties = Parties(settings=PAYING)
    played = parties.play(1, parties.encrypt(1, dict.fromkeys(parties.names, parties.initial)))
    assert set(parties.rewards(1, played).values()) == {0}
    assert np.allclose(parties.read(1, played).weights, parties.initial, atol=0.0005)
