"""A computation server that deviates is caught where its word can be checked: by SP, by readers, by whoever is rewarded."""

from dataclasses import replace

import numpy as np
import pytest

from crowdfl.crypto.sealing import seal_to
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    BadSignature,
    ChainBroken,
    ClaimRefused,
    CrowdFLError,
    FormatError,
    LengthMismatch,
    MasksDoNotFit,
    ProtocolError,
    RolledBack,
    RoundEnded,
    SealBroken,
    TooFewParticipants,
    UploadRejected,
    WrongAmount,
)
from crowdfl.protocols.claims import Claim, RewardEnvelope
from crowdfl.protocols.exchange import ask_directly
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.chain import first_base, sha256
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle
from crowdfl.protocols.shares.round.average import RoundRecord, SharesPublication, SumReply
from crowdfl.protocols.shares.round.manifest import ManifestReply, RoundVerdict, StepReply, StepRequest
from crowdfl.protocols.shares.round.steps import SHOW, Facts
from crowdfl.reasons import Reason
from tests.protocols.settled import unclaimed
from tests.protocols.shares.parties import COUNTED_ONCE, HIDDEN, PAYING, PAYMENT, UNCHECKED, Parties, name_of

ME = name_of(0)


def altering(parties, at, change):
    def ask(request):
        limits = parties.shape.limits(10**6)
        reply = StepReply.from_bytes(parties.csp.answer(request), limits)
        if StepRequest.from_bytes(request, limits).step == at:
            reply = replace(reply, payload=change(parties, reply.payload))
        return ask_directly(lambda _: reply.to_bytes())(request)

    return ask


def signing_key(parties):
    return SigningKey(SharesCspBundle.from_bytes(parties.dealing.csp, Limits.plain()).signing)


def resigned(parties, record):
    return replace(record, signature=signing_key(parties).sign(record.statement)).to_bytes()


def average_of(parties, reply):
    return SumReply.from_bytes(reply, parties.shape.limits())


def record_of(parties, reply):
    return RoundRecord.from_bytes(average_of(parties, reply).record, parties.shape.limits())


def with_record(**changes):
    """The average with another record, rightly signed."""

    def change(parties, reply):
        record = resigned(parties, replace(record_of(parties, reply), **changes))
        return replace(average_of(parties, reply), record=record).to_bytes()

    return change


def left_out(reason, who="a" * 20):
    return {"rejected": (who,), "reasons": (reason,)}


@pytest.fixture
def parties():
    return Parties(settings=UNCHECKED)


def unsigned(parties, reply):
    record = replace(record_of(parties, reply), signature=bytes(64)).to_bytes()
    return replace(average_of(parties, reply), record=record).to_bytes()


def other_length(part):
    """Sums or a total of three bytes."""
    return lambda parties, reply: replace(average_of(parties, reply), **{part: b"\1" * 3}).to_bytes()


def other_part(**changes):
    """Something else than CSP's record says."""
    return lambda parties, reply: replace(
        reply := average_of(parties, reply), **{name: change(reply) for name, change in changes.items()}
    ).to_bytes()


def broken(*names):
    """Seals that CSP says it cannot open, without its signed word that the round is void."""
    return lambda parties, reply: replace(
        ManifestReply.from_bytes(reply, parties.shape.limits()), broken=names
    ).to_bytes()


def flipped(place):
    def change(_parties, reply):
        place_ = place % len(reply)
        return reply[:place_] + bytes([reply[place_] ^ 1]) + reply[place_ + 1 :]

    return change


# Settings, the step whose reply is altered, how, and what SP says to it.
REPLIES = {
    "a record of another round": (UNCHECKED, 2, with_record(number=2), RolledBack),
    "a record of another task": (UNCHECKED, 2, with_record(task="00" * 16), RolledBack),
    "a record of another base": (UNCHECKED, 2, with_record(base=bytes(32)), RolledBack),
    "somebody left out": (UNCHECKED, 2, with_record(accepted=tuple(map(name_of, range(4)))), ProtocolError),
    "somebody added": (UNCHECKED, 2, with_record(accepted=tuple(map(name_of, range(6)))), ProtocolError),
    "a sentence for a reason": (UNCHECKED, 2, with_record(**left_out("its seal does not open")), FormatError),
    "a reason that nobody knows": (UNCHECKED, 2, with_record(**left_out("broken_seals")), FormatError),
    "no reason": (UNCHECKED, 2, with_record(**left_out("")), FormatError),
    "another hash of the sum": (UNCHECKED, 2, with_record(opened=bytes(32)), ProtocolError),
    "another hash of SP's seed": (UNCHECKED, 2, with_record(masks=(bytes(32), bytes(32))), ProtocolError),
    "a hash for one seed": (UNCHECKED, 2, with_record(masks=(bytes(32),)), LengthMismatch),
    "other hashes of seals": (UNCHECKED, 2, with_record(seals=(bytes(32),) * 4), ProtocolError),
    "another sum": (UNCHECKED, 2, other_part(sums=lambda m: bytes([m.sums[0] ^ 1]) + m.sums[1:]), ProtocolError),
    "other seals": (UNCHECKED, 2, other_part(seals=lambda m: m.seals[::-1]), ProtocolError),
    "a seal less": (UNCHECKED, 2, other_part(seals=lambda m: m.seals[1:]), LengthMismatch),
    "a record without CSP's signature": (UNCHECKED, 2, unsigned, BadSignature),
    "sums of another length": (UNCHECKED, 2, other_length("sums"), LengthMismatch),
    "a total of another length": (UNCHECKED, 2, other_length("total"), LengthMismatch),
    "too many broken seals": (UNCHECKED, 1, broken(name_of(0), name_of(1)), ProtocolError),
    "bits that CSP has not committed to": ({}, 5, flipped(0), RoundEnded),
    "a verdict that CSP has not signed": ({}, 5, flipped(-1), BadSignature),
    **{
        f"a longer reply to step {step}": (HIDDEN, step, lambda _p, reply: reply + b"\0", CrowdFLError)
        for step in range(2, 6)
    },
}


def test_sp_takes_no_verdict_on_others_than_it_has_computed():
    """Signed by CSP, about this very manifest: but somebody is left out of it whose bit says otherwise."""
    parties = Parties(6, settings=COUNTED_ONCE)

    def leaves_out(_, shown):
        length = sum(part.bytes_of(Facts(parties.shape, 6, 6)) for part in SHOW.request)
        verdict = RoundVerdict.from_bytes(shown[length:], parties.shape.limits())
        other = replace(verdict, accepted=verdict.accepted[1:], **left_out(Reason.OUT_OF_BOUNDS, verdict.accepted[0]))
        return shown[:length] + replace(other, signature=signing_key(parties).sign(other.statement)).to_bytes()

    with pytest.raises(ProtocolError, match="verdict on round 1 is not about"):
        parties.play(1, parties.encrypt(1, parties.models()), altering(parties, 5, leaves_out))


@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_sp_takes_no_answer_of_another_length(step):
    """Cut short, or, where nothing may be attached, longer."""
    for change in (lambda _, reply: reply[:20], lambda _, reply: reply + b"\0")[: 2 - (step == 5)]:
        parties = Parties(settings=COUNTED_ONCE)
        with pytest.raises(LengthMismatch, match="the answer to"):
            parties.play(1, parties.encrypt(1, parties.models()), altering(parties, step, change))


def test_sp_takes_no_word_of_csps_about_a_seal_of_nobody():
    parties = Parties(settings=UNCHECKED)
    with pytest.raises(ProtocolError, match="seals that are not in the manifest"):
        parties.play(1, parties.encrypt(1, parties.models()), altering(parties, 1, broken("z" * 20)))


@pytest.mark.parametrize(("settings", "step", "change", "refusal"), REPLIES.values(), ids=REPLIES.keys())
def test_sp_takes_no_false_reply(settings, step, change, refusal):
    parties = Parties(settings=settings)
    with pytest.raises(refusal):
        parties.play(1, parties.encrypt(1, parties.models()), altering(parties, step, change))


def published(parties, **changes):
    """An honest publication, altered by whoever serves it."""
    played = parties.play(1, parties.encrypt(1, parties.models()))
    message = SharesPublication.from_bytes(played.publication, parties.shape.limits())
    for name, change in changes.items():
        message = replace(message, **{name: change(parties, message)})
    return message.to_bytes()


def rerecorded(**changes):
    def change(parties, message):
        record = RoundRecord.from_bytes(message.record, parties.shape.limits())
        return resigned(parties, replace(record, **changes))

    return change


def cheating(server):
    """A publication whose record is of all that is in it, with another seed sealed by one server than the one it took."""

    def changed(parties, message):
        bundle = SharesCspBundle.from_bytes(parties.dealing.csp, Limits.plain())
        place = parties.shape.place(1, first_base(parties.spec.name))
        context = place.bind("crowdfl mask seed 2", server.encode(), b"participants")
        seals = list(message.seals)
        seals[("SP", "CSP").index(server) * 2] = seal_to(bundle.participants, bytes(32), context)
        return tuple(seals)

    def record(parties, message):
        return rerecorded(seals=tuple(map(sha256, message.seals)))(parties, message)

    return {"seals": changed, "record": record}


PUBLISHED = {
    "another t of SP": (cheating("SP"), SealBroken),
    "another t of CSP": (cheating("CSP"), SealBroken),
    "another total": ({"total": lambda _p, m: bytes([m.total[0], m.total[1] ^ 1, *m.total[2:]])}, ChainBroken),
    "other sums": ({"sums": lambda _p, m: bytes([m.sums[0] ^ 1]) + m.sums[1:]}, ChainBroken),
    "sums of another length": ({"sums": lambda _p, m: m.sums[:-1]}, LengthMismatch),
    "no seals": ({"seals": lambda _p, _m: ()}, SealBroken),
    "the requester's seals": ({"seals": lambda _p, m: m.seals[1::2]}, SealBroken),
    "seals in another order": ({"seals": lambda _p, m: (m.seals[1], m.seals[0], *m.seals[2:])}, ChainBroken),
    "a record of one seed": ({"record": rerecorded(masks=(bytes(32),))}, SealBroken),
    "a record of another seed": ({"record": rerecorded(masks=(bytes(32), bytes(32)))}, SealBroken),
    "a record of another sum": ({"record": rerecorded(opened=bytes(32))}, ChainBroken),
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
    assert parties.people[ME].read(played.publication, 1).standing is Reason.NOT_PASSED_ON


@pytest.fixture(scope="module")
def by_samples():
    """A round that pays by samples."""
    parties = Parties(settings=HIDDEN)
    round_ = parties.play(1, parties.encrypt(1, parties.models()))
    parties.read(1, round_)
    return parties, round_


@pytest.fixture
def played(by_samples):
    """With a CSP that has attested nothing yet: what it has attested it proves no more."""
    with unclaimed(by_samples[0]):
        yield by_samples


def test_an_envelope_is_its_owners_and_its_rounds_and_sp_cannot_change_its_half(played):
    """By the rules that every profile has: `tests/protocols/test_claims.py` goes through them."""
    parties, round_ = played
    envelope = RewardEnvelope.from_bytes(round_.envelopes[ME], parties.shape.limits())
    altered = replace(envelope, mask=envelope.mask ^ 1).to_bytes()
    attempts = ((name_of(1), round_.envelopes[ME], 1, SealBroken), (ME, round_.envelopes[ME], 2, SealBroken))
    for who, sealed, number, refusal in (*attempts, (ME, altered, 1, BadSignature)):
        with pytest.raises(refusal):
            parties.people[who].open_reward(sealed, number)


def test_claims_are_attested_exactly_and_a_claim_of_more_is_refused(played):
    parties, round_ = played
    rewards, sp, who, samples = parties.rewards(1, round_), parties.new_sp(1), name_of(1), parties.samples()
    assert rewards == {one: PAYMENT * count // sum(samples.values()) for one, count in samples.items()}
    claim = Claim.from_bytes(parties.people[who].claim(), parties.shape.limits())
    for refusal, change in ((WrongAmount, {"amounts": (claim.amounts[0] + 1,)}), (MasksDoNotFit, {"masks": (0,)})):
        altered = replace(claim, **change)
        signed = replace(altered, signature=parties.keys[who].signing.sign(altered.statement))
        with pytest.raises(refusal):
            parties.csp.answer(signed.to_bytes())
    for claimant, amount in rewards.items():
        claim = parties.people[claimant].claim()
        assert sp.claimant(claim) == sp.check_claim(claim).participant == claimant
        assert sp.attested(claim, parties.csp.answer(claim)).amounts == {1: amount}


def test_another_count_is_attested_to_nobody(played):
    """Neither to a participant that says to have more samples, nor to one that SP showed another share of its own than it
    committed to: with the amount that follows, and signed."""
    parties, round_ = played
    who, samples, total = name_of(2), parties.samples(), sum(parties.samples().values())
    parties.people[who].open_reward(round_.envelopes[who], 1)
    mask = Claim.from_bytes(parties.people[who].claim(), parties.shape.limits()).masks[0]
    for count in (samples[who] + 1, samples[who] - 1, total):
        other = (mask - count + samples[who]) % parties.shape.reward_form.n
        with pytest.raises(MasksDoNotFit):
            parties.csp.answer(claimed(parties, who, amounts=(PAYMENT * count // total,), masks=(other,)))
        envelope = RewardEnvelope.from_bytes(round_.envelopes[who], parties.shape.limits())
        with pytest.raises(BadSignature):
            parties.people[who].open_reward(replace(envelope, mask=other).to_bytes(), 1)


def test_nobody_claims_for_a_round_that_was_not_opened():
    """Rewards come with the sum: of one that was not asked for, CSP keeps none."""
    parties = Parties(settings=HIDDEN)

    def ask(request):
        if StepRequest.from_bytes(request, parties.shape.limits(10**6)).step == 6:
            raise ConnectionError
        return parties.ask(request)

    with pytest.raises(ConnectionError):
        parties.play(1, parties.encrypt(1, parties.models()), ask)
    mine = {"rounds": (1,), "amounts": (0,), "masks": (0,), "salts": (bytes(32),), "shown": (b"",)}
    with pytest.raises(MasksDoNotFit):
        parties.csp.answer(claimed(parties, ME, **mine))


# Equal parts.


@pytest.fixture(scope="module")
def in_equal_parts():
    """Five uploads, of which one is out of bounds: four are in the record."""
    parties = Parties(settings=PAYING)
    uploads = parties.encrypt(1, parties.models())
    uploads[name_of(4)] = parties.crafted(1, name_of(4), np.full(8, 10**6), 1).to_bytes()
    return parties, parties.play(1, uploads)


@pytest.fixture
def equally(in_equal_parts):
    with unclaimed(in_equal_parts[0]):
        yield in_equal_parts


def claimed(parties, who, **changes):
    """A claim that its owner has altered and signed."""
    altered = replace(Claim.from_bytes(parties.people[who].claim(), parties.shape.limits()), **changes)
    return replace(altered, signature=parties.keys[who].signing.sign(altered.statement)).to_bytes()


def test_equal_parts_are_those_of_the_record(equally):
    parties, round_ = equally
    sp, accepted = parties.new_sp(1), [name_of(i) for i in range(4)]
    for who in accepted:
        assert parties.people[who].open_reward(round_.envelopes[who], 1) == PAYMENT // 4
        claim = parties.people[who].claim()
        assert sp.attested(claim, parties.csp.answer(claim)).amounts == {1: PAYMENT // 4}


def test_no_more_than_the_record_says_is_attested_nor_a_round_without_one_nor_who_is_not_in(equally):
    parties, round_ = equally
    who, outside = name_of(1), name_of(4)
    parties.people[who].open_reward(round_.envelopes[who], 1)
    for amount in (PAYMENT // 4 + 1, PAYMENT // 4 - 1, PAYMENT, 0):
        with pytest.raises(WrongAmount):
            parties.csp.answer(claimed(parties, who, amounts=(amount,)))
    for changes in ({"masks": (1,)}, {"salts": (b"\0",)}, {"rounds": (2,)}):
        with pytest.raises(MasksDoNotFit):
            parties.csp.answer(claimed(parties, who, **changes))
    mine = {"rounds": (1,), "amounts": (PAYMENT // 4,), "masks": (0,), "salts": (b"",), "shown": (b"",)}
    with pytest.raises(MasksDoNotFit):
        parties.csp.answer(claimed(parties, outside, **mine))


def test_whoever_is_left_out_is_told_by_csps_record(equally):
    parties, round_ = equally
    with pytest.raises(UploadRejected, match=Reason.OUT_OF_BOUNDS.words):
        parties.people[name_of(4)].open_reward(round_.envelopes[name_of(4)], 1)


def test_sp_shows_no_part_that_csps_record_of_the_round_does_not_give(equally):
    """Fewer names would make the part larger, and a claim of it would be refused; more would make it smaller."""
    parties, round_ = equally
    envelope = RewardEnvelope.from_bytes(round_.envelopes[ME], parties.shape.limits())
    record = RoundRecord.from_bytes(envelope.sealed, parties.shape.limits())
    for changes in ({"accepted": record.accepted[:3]}, {"accepted": (*record.accepted, name_of(4))}):
        forged = replace(envelope, sealed=replace(record, **changes).to_bytes()).to_bytes()
        with pytest.raises(BadSignature):
            parties.people[ME].open_reward(forged, 1)
    for changes in ({"number": 2}, {"task": "00" * 16}):
        other = replace(envelope, sealed=resigned(parties, replace(record, **changes))).to_bytes()
        with pytest.raises(ProtocolError, match="another round or task"):
            parties.people[ME].open_reward(other, 1)
    masked = replace(envelope, mask=5, salt=b"x").to_bytes()
    assert parties.people[ME].open_reward(masked, 1) == PAYMENT // 4
    assert Claim.from_bytes(parties.people[ME].claim(), parties.shape.limits()).masks == (0,)


def test_a_task_without_rewards_attests_nothing(parties):
    claim = Claim(parties.spec.name, ME, (), (), (), (), (), (), b"", 0, bytes(64)).to_bytes()
    with pytest.raises((FormatError, ClaimRefused)):
        parties.csp.answer(claim)
